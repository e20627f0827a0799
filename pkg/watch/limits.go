package watch

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The limits of all watches of one untrusted API server, that of a guest. docs/reference/limits.md adds up the memory
// that they allow.
const (
	// MaxMessage is the maximum size, in bytes, of one watch event or one page of a list. An API server stores no
	// object above 1.5 MiB. A page that is larger is requested again with fewer objects. If that does not help, the
	// attempt ends.
	MaxMessage = 2 << 20
	// MaxMessageCost is the maximum memory of a decoded message, estimated from its JSON. "{}," takes three bytes of
	// JSON, and a hundred times that as a struct or a map. Beyond it, the attempt ends.
	MaxMessageCost = 16 << 20
	// MaxListBytes is the maximum size of one list, streamed or in pages. 5,000 routes have 15 MiB, and the metadata
	// of 2,000 CRDs have 8 MiB. Beyond it, the attempt ends.
	MaxListBytes = 64 << 20
	// MaxObjects is the maximum number of objects that a watch keeps. Beyond it, the attempt ends.
	MaxObjects = 20_000
	// MaxKeptObject is the maximum estimated memory of what is kept of one object. A GatewayClass has six messages
	// of 8 KiB. Beyond it, the attempt ends.
	MaxKeptObject = 56 << 10
	// MaxVersion is the maximum length of a resourceVersion. Kubernetes' own have 20 digits at most. client-go keeps
	// the last one of each watch. Beyond it, the attempt ends.
	MaxVersion = 256
	// MaxKept is the maximum estimated memory of what one watch keeps, and of a list that will replace it. Beyond it,
	// the attempt ends.
	MaxKept = 8 << 20
	// MaxKeptTotal is the maximum estimated memory of what all watches of the API server keep together. Beyond it,
	// the attempt that requests more ends. While a watch lists, the larger one counts of its previous content and of
	// the new list. The smaller ones of all watches are together within MaxKept.
	MaxKeptTotal = 12 << 20
	// OwnKept is how much a watch can keep, and list, although others have filled these totals. Otherwise a tenant with
	// many objects would end the watches of the classes, the Leases and hypergate's own objects.
	OwnKept = 32 << 10
	// MaxListTime is the maximum duration of a list after the header of its first response. Beyond it, the attempt
	// ends.
	MaxListTime = 2 * time.Minute
	// Burst and Rate limit all bytes of a watch, lists and events: Burst at once, and Rate per second on average. A
	// status write of 5,000 routes is 15 MiB. After MaxPause, a list of MaxListBytes is possible again. Beyond the
	// limit, the attempt ends.
	Burst = 128 << 20
	Rate  = 256 << 10
	// LargeMessage is the size from which messages are read one at a time, over all watches. The decoder keeps
	// buffers of four times the size of the largest message while the stream is open. So a stream that had such a
	// message is opened again afterwards.
	LargeMessage = 32 << 10
	// LargeCost is the estimated memory of a decoded message from which it is read as a large one. Objects with many
	// small fields need a hundred times their bytes.
	LargeCost = 8 * LargeMessage
	// FirstPause and MaxPause are the shortest and the longest time without requests after a watch exceeded a limit.
	// Each pause is twice the previous one. After the watch stayed within the limits for twice MaxPause, the next
	// pause is FirstPause again.
	FirstPause = 5 * time.Second
	MaxPause   = 5 * time.Minute
)

// Other constants.
const (
	// pageSize is the maximum number of objects in the first page of a list.
	pageSize = 250
	// leastPage is the minimum number of bytes that a page counts towards MaxListBytes. Otherwise an endless sequence
	// of empty pages would be a list without an end.
	leastPage = 64 << 10
	// drainDelay is how long a stream stays open after its list. client-go treats a stream that ends within one
	// second as broken.
	drainDelay = 1200 * time.Millisecond
	// reopenBurst and reopenEvery limit how often streams that had a large event are opened again. This many in a row
	// open at once, over all watches of the API server, and then one per reopenEvery. The guest decides how many
	// large events there are, and each ends its stream.
	//
	// A delay that doubles would delay the last events of an
	// installation of 20 CRDs for minutes. Rate, too, allows about one message of LargeMessage per reopenEvery.
	reopenBurst = 100
	reopenEvery = 100 * time.Millisecond
	// keptOverhead is the memory, in bytes, of a kept object without its strings: the struct of its metadata and its
	// place in the store.
	keptOverhead = 350
)

// Limits holds the limits of a Budget. See the constants of the same names.
type Limits struct {
	Message, MessageCost, ListBytes, KeptObject, Kept, KeptTotal, OwnKept, LargeMessage, LargeCost int64
	Objects, Burst, Version                                                                        int
	Rate                                                                                           float64
	ListTime, FirstPause, MaxPause                                                                 time.Duration
}

// DefaultLimits returns the limits of a guest.
func DefaultLimits() Limits {
	return Limits{
		Message: MaxMessage, MessageCost: MaxMessageCost, ListBytes: MaxListBytes, KeptObject: MaxKeptObject, Kept: MaxKept,
		KeptTotal: MaxKeptTotal, OwnKept: OwnKept, LargeMessage: LargeMessage, LargeCost: LargeCost, Objects: MaxObjects,
		Version: MaxVersion, Burst: Burst, Rate: Rate, ListTime: MaxListTime, FirstPause: FirstPause, MaxPause: MaxPause,
	}
}

// LimitError reports that an API server sends more than is read or kept. The watch pauses before it tries again.
type LimitError struct {
	// Resource is the watched resource, and Bound is the limit that was exceeded.
	Resource, Bound string
	// message means that a page with fewer objects can be within the limit.
	message bool
}

// Error returns the resource, the limit and the next step.
func (e *LimitError) Error() string {
	return e.Cause() + ": reduce the number or the size of the objects"
}

// Cause returns the error without the next step.
func (e *LimitError) Cause() string {
	return fmt.Sprintf("the API server sends too much of %s: %s", e.Resource, e.Bound)
}

// Sized is implemented by objects that keep more than their metadata.
type Sized interface {
	// KeptBytes returns the memory, in bytes, of what is kept in addition to the metadata.
	KeptBytes() int
}

// SizeOf returns the estimated memory, in bytes, of what is kept of an object.
func SizeOf(obj any) int64 {
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

// size returns a number of bytes in a readable unit.
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
