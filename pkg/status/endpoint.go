package status

import "github.com/hypergate/hypergate/pkg/publish"

// EndpointProbe is whether istiod was reached at its published address. The zero value means that it was reached, or
// that the probe is off.
type EndpointProbe struct {
	state endpointState
	why   string
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
// of a load balancer that is being made. why can be shown to every reader, the guest included.
func EndpointUnreached(why string) EndpointProbe { return EndpointProbe{unreached, why} }

// EndpointLost returns the result of a probe that failed at an address at which istiod had answered. why is as for
// EndpointUnreached.
func EndpointLost(why string) EndpointProbe { return EndpointProbe{lost, why} }

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
		return "has not been reached " + address + " (management side: " + plain(r.Endpoint.why) + ")"
	case lost:
		return "does not answer any more " + address + " (management side: " + plain(r.Endpoint.why) + ")"
	case withoutRelays:
		return "has not been reached through the tunnel (guest side: no relay is ready)"
	case reached:
	}
	return ""
}
