package status

import (
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// EndpointProbe is whether istiod was reached at its published address. The zero value means that it was reached, or
// that the probe is off.
type EndpointProbe struct {
	state endpointState
	// side is where the cause is, as far as the probe can see, and why is the cause.
	side model.Side
	why  string
}

type endpointState int

const (
	reached endpointState = iota
	probing
	unreached
	lost
	withoutRelays
)

// EndpointReached returns the result of a successful probe. It is also the result if the probe is off.
func EndpointReached() EndpointProbe { return EndpointProbe{} }

// EndpointProbing returns the result of a probe that has not succeeded yet, and that is too young to be a problem.
func EndpointProbing() EndpointProbe { return EndpointProbe{state: probing} }

// EndpointUnreached returns the result of a probe that failed at an address that has not answered yet, such as the name
// of a load balancer that is being made. side is where to look for the cause. why can be shown to every reader, the
// guest included.
func EndpointUnreached(side model.Side, why string) EndpointProbe {
	return EndpointProbe{unreached, side, why}
}

// EndpointLost returns the result of a probe that failed at an address at which istiod had answered. side and why
// are as for EndpointUnreached.
func EndpointLost(side model.Side, why string) EndpointProbe { return EndpointProbe{lost, side, why} }

// EndpointWithoutRelays returns the result for the tunnel if none of its relays in the guest is ready.
func EndpointWithoutRelays() EndpointProbe { return EndpointProbe{state: withoutRelays} }

// IsProbing reports whether the probe is expected to end soon.
func (r EndpointProbe) IsProbing() bool { return r.state == probing }

// unreached returns what is not known about istiod, as a predicate that follows its name. It returns an empty string if
// the endpoint was reached.
func (r Result) unreached() string {
	address := "at its published address"
	if at, known := r.Plan.Endpoint.(publish.EndpointKnown); known {
		address += " " + plain(at.At.String())
	}
	switch r.Endpoint.state {
	case probing:
		return "has not been reached " + address + " yet"
	case unreached:
		return "has not been reached " + address + r.Endpoint.cause()
	case lost:
		return "does not answer any more " + address + r.Endpoint.cause()
	case withoutRelays:
		return "has not been reached through the tunnel (guest side: no relay is ready)"
	case reached:
	}
	return ""
}

// cause returns why the probe failed and on which side, in brackets after a space.
func (r EndpointProbe) cause() string { return " (" + string(r.side) + " side: " + plain(r.why) + ")" }
