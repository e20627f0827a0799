package tunnel

import (
	"net/netip"
	"sync"
)

// slots are the connections of a relay that have not proven anything yet. When all slots are in use, the newest
// connection takes the slot of an older one: see victim.
type slots struct {
	most int

	mu    sync.Mutex
	taken []*slot // the oldest first
}

type slot struct {
	source netip.Addr
	close  func()
}

// take gives a connection a slot, and closes the connection whose slot it takes. It reports whether there was one.
func (s *slots) take(source netip.Addr, closeIt func()) (taken *slot, evicted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken = &slot{source, closeIt}
	if len(s.taken) >= s.most {
		at := victim(s.taken)
		s.taken[at].close()
		s.taken, evicted = append(s.taken[:at], s.taken[at+1:]...), true
	}
	s.taken = append(s.taken, taken)
	return taken, evicted
}

// release gives back a slot, unless another connection took it: then it returns false.
func (s *slots) release(one *slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.taken {
		if t == one {
			s.taken = append(s.taken[:i], s.taken[i+1:]...)
			return true
		}
	}
	return false
}

// victim returns the index of the connection that loses its slot: the oldest of the source that has the most slots. So
// a pod that opens many connections takes the slots from itself, and not from the API server.
func victim(taken []*slot) int {
	count := map[netip.Addr]int{}
	most := 0
	for _, t := range taken {
		count[t.source]++
		most = max(most, count[t.source])
	}
	for i, t := range taken {
		if count[t.source] == most {
			return i
		}
	}
	return 0
}
