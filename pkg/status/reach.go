package status

// Reach is whether istiod was seen to answer where it is published. The zero value: it was, or nobody looks.
type Reach struct {
	state reachState
	why   string
}

type reachState int

const (
	reached reachState = iota
	proving
	unreached
)

// Reached says that it was, or that nobody looks.
func Reached() Reach { return Reach{} }

// Proving says that it was not yet, which is no wonder yet.
func Proving() Reach { return Reach{state: proving} }

// Unreached says that it was not, because of why, which is for everybody's eyes.
func Unreached(why string) Reach { return Reach{unreached, why} }

// Settles says that this is mostly a matter of moments.
func (r Reach) Settles() bool { return r.state == proving }

// missing is what is not known of istiod, in words that go on after its name; empty when nothing is.
func (r Reach) missing() string {
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
