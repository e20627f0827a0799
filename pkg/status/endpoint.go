package status

// EndpointProbe is whether istiod was seen to answer where it is published. The zero value: it was, or nobody looks.
type EndpointProbe struct {
	state reachState
	why   string
}

type reachState int

const (
	reached reachState = iota
	proving
	unreached
)

// EndpointReached says that it was, or that nobody looks.
func EndpointReached() EndpointProbe { return EndpointProbe{} }

// EndpointProbing says that it was not yet, which is no wonder yet.
func EndpointProbing() EndpointProbe { return EndpointProbe{state: proving} }

// EndpointUnreached says that it was not, because of why, which is for everybody's eyes.
func EndpointUnreached(why string) EndpointProbe { return EndpointProbe{unreached, why} }

// IsProbing says that this is mostly a matter of moments.
func (r EndpointProbe) IsProbing() bool { return r.state == proving }

// missing is what is not known of istiod, in words that go on after its name; empty when nothing is.
func (r EndpointProbe) missing() string {
	const text = "was not yet seen to answer where it is published"
	switch r.state {
	case proving:
		return text
	case unreached:
		return text + " (management side: " + plain(r.why) + ")"
	case reached:
	}
	return ""
}
