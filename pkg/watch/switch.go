package watch

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// restTime is how long a watch whose Patience ended waits before it tries again, if Set brings no new version
// earlier. The kind is usually not installed, so that more requests would find nothing.
const restTime = 5 * time.Minute

// Switch is a watch of objects that do not always exist, such as the objects of a CRD. It is on while they can exist,
// and begins with an empty copy each time. It is safe for concurrent use.
type Switch struct {
	opts Options

	// mu guards the fields below. The active watch has its own lock, and never takes this one.
	mu           sync.Mutex
	on           *Watch
	key, version string
	stop         context.CancelFunc
	ended        chan struct{}
}

// NewSwitch returns a switch that is off. All watches that it starts share one Allowance.
func NewSwitch(opts Options) *Switch {
	if opts.Allowance == nil {
		opts.Allowance = opts.Budget.Allowance()
	}
	return &Switch{opts: opts}
}

// Key returns the key for which the watch is on, or the empty key if it is off.
func (s *Switch) Key() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

// Set switches the watch on for a key, such as the UID of a CRD, and off for the empty key. Another key starts a new
// watch with an empty copy.
//
// Another version, such as the resourceVersion of a CRD, starts a new watch only if the Patience of the current watch
// has ended. Set returns at once. The watch ends with ctx at the latest.
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
	s.on, s.stop, s.ended = on, cancel, ended
	go func() {
		defer cancel()
		defer on.meter.Close() // Run keeps the budget for another Run
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

// rests reports whether the Patience of the watch has ended and nothing was found since.
func (s *Switch) rests() bool {
	select {
	case <-s.ended:
		return apierrors.IsNotFound(s.on.Err())
	default:
		return false
	}
}

// On returns the watch while it is on, and nil otherwise. A caller that reads it more than once should use one
// result, so that it reads one copy.
func (s *Switch) On() *Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on
}

// Synced reports whether the watch is on and its copy was complete at least once since then.
func (s *Switch) Synced() bool {
	on := s.On()
	return on != nil && on.Synced()
}

// Err returns why the last attempt to list and watch failed, or nil. A watch that is off has no error.
func (s *Switch) Err() error {
	if on := s.On(); on != nil {
		return on.Err()
	}
	return nil
}

// Get works like Watch.Get. A watch that is off has no objects.
func (s *Switch) Get(key string) (any, bool) {
	if on := s.On(); on != nil {
		return on.Get(key)
	}
	return nil, false
}

// List works like Watch.List. A watch that is off has no objects.
func (s *Switch) List() []any {
	if on := s.On(); on != nil {
		return on.List()
	}
	return nil
}
