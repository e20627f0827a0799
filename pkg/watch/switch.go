package watch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// restTime is how long a watch that has lost its Patience rests before it asks again, should nobody tell it of news.
const restTime = 5 * time.Minute

// Switch is a watch of what is not always there, such as the objects of a CRD: it is on while they are, and begins with an empty copy each time.
// It is safe for concurrent use.
type Switch struct {
	opts Options
	// rate bounds the bytes of all its watches together. It is nil if they have no bound.
	rate *rate.Limiter

	// mu guards what follows. The watch that is on has a lock of its own, and never takes this one.
	mu           sync.Mutex
	on           *Watch
	key, version string
	stop         context.CancelFunc
	ended        chan struct{}
}

// NewSwitch prepares a watch that is off. All watches that it switches on share one rate of bytes.
func NewSwitch(opts Options) *Switch {
	s := &Switch{opts: opts}
	if opts.Budget != nil {
		s.rate = opts.Budget.limiter()
	}
	return s
}

// Set switches the watch on for what has this key, such as a CRD's UID, and off for the empty key. Another key begins anew. So does another
// version, such as a CRD's resourceVersion, if the watch had lost its Patience, and in no other case. Set returns at once; the watch ends with ctx
// at the latest.
func (s *Switch) Set(ctx context.Context, key, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == s.key && (key == "" || version == s.version || !s.rests()) {
		s.version = version
		return
	}
	if s.on != nil {
		s.stop()
	}
	s.on, s.key, s.version, s.stop, s.ended = nil, key, version, nil, nil
	if key == "" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	on, ended := New(s.opts), make(chan struct{})
	if s.rate != nil {
		on.meter.rate = s.rate
	}
	s.on, s.stop, s.ended = on, cancel, ended
	go func() {
		defer cancel()
		defer on.meter.Close() // Run leaves it to whoever may run the watch again
		on.Run(ctx)
		close(ended)
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(restTime):
				on.Run(ctx)
			}
		}
	}()
}

// rests says whether the watch has lost its Patience, and not found anything since.
func (s *Switch) rests() bool {
	select {
	case <-s.ended:
		return apierrors.IsNotFound(s.on.Err())
	default:
		return false
	}
}

// On is the watch while it is on, and nil otherwise. Whoever looks at it more than once looks at one copy.
func (s *Switch) On() *Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on
}

// Synced says whether the watch is on and its copy was complete at least once since.
func (s *Switch) Synced() bool {
	on := s.On()
	return on != nil && on.Synced()
}

// Err is why the last attempt to list and watch failed, or nil; a watch that is off has none.
func (s *Switch) Err() error {
	if on := s.On(); on != nil {
		return on.Err()
	}
	return nil
}

// Get is as Watch.Get; a watch that is off has nothing.
func (s *Switch) Get(key string) (any, bool) {
	if on := s.On(); on != nil {
		return on.Get(key)
	}
	return nil, false
}

// List is as Watch.List; a watch that is off has nothing.
func (s *Switch) List() []any {
	if on := s.On(); on != nil {
		return on.List()
	}
	return nil
}
