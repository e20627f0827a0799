package status

import (
	"fmt"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// UnwrittenClass is a GatewayClass whose conditions could not be written, and why.
type UnwrittenClass struct {
	Class string
	Cause apply.Cause
}

// unwritten returns the problems with writing conditions: to GatewayClasses, those with the same cause together, and to
// the HostedControlPlane. Nothing else fails because of them, so only Degraded shows them.
func (r Result) unwritten() []problem {
	var out []problem
	for _, group := range groupBy(r.UnwrittenClasses, func(c UnwrittenClass) string { return c.Cause.String() }) {
		cause := group[0].Cause
		if r.GuestUnseen() && cause.Class().IsTransient() {
			continue // it follows from another problem
		}
		what := "GatewayClass " + plain(group[0].Class)
		if more := len(group) - 1; more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, ofCause("writing the status of "+what, model.SideGuest, cause))
	}
	if r.UnwrittenReport.Class() != apply.NoCause {
		out = append(out, ofCause("writing conditions to the HostedControlPlane", model.SideMgmt, r.UnwrittenReport))
	}
	return out
}
