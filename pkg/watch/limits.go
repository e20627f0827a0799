package watch

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The bounds of all watches of one API server that is not trusted, a guest's. docs/reference/limits.md adds up the
// memory that they allow.
const (
	// MaxMessage is the size of one watch event, or of one page of a list, in bytes. An API server stores no object above 1.5 MiB. A page that
	// is larger is asked for again with fewer objects. Beyond that the attempt ends.
	MaxMessage = 2 << 20
	// MaxMessageCost is the memory that a message takes once it is decoded, as estimated from its JSON: "{}," takes three bytes of it, and a
	// hundred times that as a struct or a map. Beyond it the attempt ends.
	MaxMessageCost = 16 << 20
	// MaxListBytes is the size of one list, however it is sent. 5,000 routes have 15 MiB, the metadata of 2,000 CRDs have 8 MiB. Beyond it the
	// attempt ends.
	MaxListBytes = 64 << 20
	// MaxObjects is how many objects a watch keeps. Beyond it the attempt ends.
	MaxObjects = 20_000
	// MaxKeptObject is the estimated memory of what is kept of one object. A GatewayClass has four messages of 8 KiB. Beyond it the attempt ends.
	MaxKeptObject = 40 << 10
	// MaxKept is the estimated memory of what one watch keeps, and of a list that is to take its place. Beyond it the
	// attempt ends.
	MaxKept = 8 << 20
	// MaxKeptTotal is the same of all watches of the API server together. Beyond it the attempt ends that asks for more.
	MaxKeptTotal = 12 << 20
	// MaxListTime is how long a list that has begun to come may take. Beyond it the attempt ends.
	MaxListTime = 2 * time.Minute
	// Burst and Rate bound all bytes of a watch, lists and events: so many at once, and so many each second on average. A write of the status
	// of 5,000 routes is 15 MiB. A list of MaxListBytes passes after MaxPause. Beyond it the attempt ends.
	Burst = 128 << 20
	Rate  = 256 << 10
	// LargeMessage is the size from which on messages are read one at a time, over all watches: the decoder keeps buffers of four times the
	// size of the largest message for as long as the stream is open. A stream that had such a message is opened again after it.
	LargeMessage = 32 << 10
	// FirstPause and MaxPause are how long a watch that went beyond a bound makes no request. Each pause doubles the next one. After a time of
	// twice MaxPause within the bounds the next pause is the first again.
	FirstPause = 5 * time.Second
	MaxPause   = 5 * time.Minute
)

// Other numbers.
const (
	// pageSize is how many objects a page of a list has at first.
	pageSize = 250
	// leastPage is what a page counts at least towards MaxListBytes: empty pages without end are a list without end.
	leastPage = 64 << 10
	// drainDelay is how long a stream stays open after its list: client-go takes one for broken that ends within a second.
	drainDelay = 1200 * time.Millisecond
	// keptOverhead is what an object takes that is kept, beside its strings: its metadata's struct, and its place in the store.
	keptOverhead = 350
)

// Limits are the bounds of a Budget. See the constants of the same names.
type Limits struct {
	Message, MessageCost, ListBytes, KeptObject, Kept, KeptTotal, LargeMessage int64
	Objects, Burst                                                             int
	Rate                                                                       float64
	ListTime, FirstPause, MaxPause                                             time.Duration
}

// DefaultLimits are those of a guest.
func DefaultLimits() Limits {
	return Limits{
		Message: MaxMessage, MessageCost: MaxMessageCost, ListBytes: MaxListBytes, KeptObject: MaxKeptObject, Kept: MaxKept,
		KeptTotal: MaxKeptTotal, LargeMessage: LargeMessage, Objects: MaxObjects, Burst: Burst, Rate: Rate,
		ListTime: MaxListTime, FirstPause: FirstPause, MaxPause: MaxPause,
	}
}

// LimitError says that an API server sends more than is read or kept. The watch pauses before it tries again.
type LimitError struct {
	// Resource is what is watched, Bound what it went beyond.
	Resource, Bound string
	// message: a page of fewer objects may pass.
	message bool
}

// Error names the resource, the bound and the next step.
func (e *LimitError) Error() string { return e.Cause() + ": make the objects fewer or smaller" }

// Cause is the error without the next step.
func (e *LimitError) Cause() string {
	return fmt.Sprintf("the API server sends too much of %s: %s", e.Resource, e.Bound)
}

// Sized is what keeps more of an object than its metadata.
type Sized interface {
	// KeptBytes is the memory of that.
	KeptBytes() int
}

// sizeOf estimates the memory of what is kept of an object.
func sizeOf(obj any) int64 {
	n := keptOverhead
	if m, ok := obj.(metav1.Object); ok {
		n += len(m.GetName()) + len(m.GetNamespace()) + len(m.GetUID()) + len(m.GetResourceVersion())
		for key, value := range m.GetLabels() {
			n += len(key) + len(value)
		}
	}
	if s, ok := obj.(Sized); ok {
		n += s.KeptBytes()
	}
	return int64(n)
}

// size is a number of bytes as people read it.
func size(n int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case n >= mib && n%mib == 0:
		return fmt.Sprintf("%d MiB", n/mib)
	case n >= kib && n%kib == 0:
		return fmt.Sprintf("%d KiB", n/kib)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}
