package tunnel

import (
	"net/netip"
	"sync"
	"time"
)

// sources are the connections of gateways at a relay, by their source. A connection keeps its place until it ends, and
// for at least a time after it began. So a source is limited in count and in pace.
type sources struct {
	most  int
	least time.Duration

	mu    sync.Mutex
	count map[netip.Addr]int
}

// take takes a place for a source, unless it has the most already. The caller calls leave once, when the connection
// has ended.
func (s *sources) take(source netip.Addr) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[source] >= s.most {
		return nil, false
	}
	s.count[source]++
	begin := time.Now()
	return func() {
		if rest := s.least - time.Since(begin); rest > 0 {
			time.AfterFunc(rest, func() { s.leave(source) })
			return
		}
		s.leave(source)
	}, true
}

func (s *sources) leave(source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[source]--
	if s.count[source] == 0 {
		delete(s.count, source)
	}
}
