package migration

import (
	"cmp"
	"slices"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// Progress is what a migration does.
type Progress string

// The kinds of progress.
const (
	// Acting: a step is done in this pass.
	Acting Progress = "Acting"
	// Waiting: something is in progress, and no action is required.
	Waiting Progress = "Waiting"
	// Stopped: it does not go on before a person does something.
	Stopped Progress = "Stopped"
	// Ended: there is nothing left to do for this intent.
	Ended Progress = "Ended"
)

func progresses() []Progress { return []Progress{Acting, Waiting, Stopped, Ended} }

// GatewayState is where a Gateway is in a migration.
type GatewayState string

// The states.
const (
	// StateNoPods: it has no Deployment, so there is nothing to move.
	StateNoPods GatewayState = "NoPods"
	// StateAtOrigin: the origin deploys it. StateHeld: it is at the origin, is held, and moves later.
	StateAtOrigin GatewayState = "AtOrigin"
	StateHeld     GatewayState = "Held"
	// StateRolling: its pods are replaced by pods that connect to the other istiod.
	StateRolling GatewayState = "Rolling"
	// StateAtHosted: the hosted istiod serves it.
	StateAtHosted GatewayState = "AtHosted"
	// StateFailed: its pods did not arrive in time, so the migration stopped.
	StateFailed GatewayState = "Failed"
	// StateSkipped: SkipAnnotation leaves it at the origin.
	StateSkipped GatewayState = "Skipped"
	// StateHeldByOther: another client holds it. StateAtOther: its pods connect to another istiod.
	StateHeldByOther GatewayState = "HeldByOther"
	StateAtOther     GatewayState = "AtOther"
)

// gatewayStates returns all states. The first ones matter most: a report that is too long keeps them.
func gatewayStates() []GatewayState {
	return []GatewayState{
		StateFailed, StateRolling, StateHeldByOther, StateAtOther, StateHeld, StateAtOrigin, StateSkipped, StateAtHosted, StateNoPods,
	}
}

// Report is what people see of a migration. It follows from the last decision, and from the report before. No decision
// follows from it.
type Report struct {
	// Intent is what it answers. Accepted is not part of it.
	Intent Intent
	// Phase is the current phase, and Since its beginning.
	Phase Phase
	Since time.Time
	// Progress and Why say what happens. WhySince is since when. Gateway is the one that Why is about, or empty.
	Progress Progress
	Why      Reason
	WhySince time.Time
	Gateway  string
	// Cause is set if the guest denies a write: the object, and why. Why is then WriteDenied, or GatewayFailed if the
	// write should restore the pods of a Gateway that has failed. With WebhookReturns, it is the name of the webhook,
	// and with ConflictExists what conflicts.
	Cause string
	// Findings are the first ones that block.
	Findings []Finding
	// HasOrigin reports whether anything of the origin is left.
	HasOrigin bool
	// Leftovers are what a finished migration leaves in the guest.
	Leftovers []Leftover
	// Gateways are in the order in which they move. More is how many others there are.
	Gateways []ReportedGateway
	More     int
	// Moved is how many of all Gateways are at the hosted istiod. Moving is how many are there, or can move there.
	Moved, Moving int
}

// ReportedGateway is a Gateway in a Report. Since is since when it has its state: zero if that is not known.
type ReportedGateway struct {
	Namespace, Name string
	State           GatewayState
	Since           time.Time
}

// NewReport returns the report after a decision. m is the Memo after it, and before the report before it. Without any
// change but that of the time, it returns the same again.
func NewReport(e Evidence, i Intent, step Step, m Memo, before Report, now time.Time) Report {
	d := decision{e, i.at(now), m, now}
	out := Report{
		Intent: Intent{Goal: i.Goal, Paused: i.Paused, At: i.At}, Phase: step.In(), Since: m.Since, HasOrigin: e.Origin.Exists,
	}
	out.answer(d.shown(step))
	if out.Why == Finished {
		out.Leftovers = e.Leftovers
	}
	if out.deny(e.Denial, d.causeOf(step)); e.Denial == (Denial{}) {
		out.keepDenial(before)
	}
	if name := e.named(out.Why); name != "" {
		out.Cause = name
	}
	if out.WhySince = now; out.Why == before.Why && out.Progress == before.Progress && out.Gateway == before.Gateway {
		out.WhySince = before.WhySince
	}
	for _, g := range InOrder(e.Gateways) {
		line := ReportedGateway{Namespace: g.Key.Namespace, Name: g.Key.Name, State: d.stateOf(g, step)}
		line.Since = before.since(line, now)
		out.Gateways = append(out.Gateways, line)
		switch {
		case g.Of == OfHosted:
			out.Moved++
			out.Moving++
		case g.deployed() && !g.Skip:
			out.Moving++
		}
	}
	return out.clean()
}

// named returns what a report names in place of a cause. It is empty for all other reasons.
func (e Evidence) named(why Reason) string {
	switch why {
	case WebhookReturns:
		return e.Origin.Validator.Key.Name
	case ConflictExists:
		return e.Conflict
	default:
		return ""
	}
}

// WithGatewaysOf returns the report with the Gateways of an earlier one. It is for a step that follows from evidence
// without them.
func (r Report) WithGatewaysOf(before Report) Report {
	r.Gateways, r.More, r.Moved, r.Moving = before.Gateways, before.More, before.Moved, before.Moving
	return r
}

// answer adds what a step says.
func (r *Report) answer(step Step) {
	var about model.ForeignObject
	switch s := step.(type) {
	case Act:
		r.Progress = Acting
	case Wait:
		r.Progress, r.Why, about = Waiting, s.Why, s.Gateway
	case Stop:
		r.Progress, r.Why, about, r.Findings = Stopped, s.Why, s.Gateway, s.Findings
	case Rest:
		r.Progress, r.Why = Ended, s.Why
	}
	if about.Key.Name != "" {
		r.Gateway = about.Key.String()
	}
}

// since returns since when a Gateway has its state.
func (r Report) since(line ReportedGateway, now time.Time) time.Time {
	at := slices.IndexFunc(r.Gateways, func(o ReportedGateway) bool { return o.Namespace == line.Namespace && o.Name == line.Name })
	switch {
	case at >= 0 && r.Gateways[at].State == line.State:
		return r.Gateways[at].Since
	case at < 0 && r.More > 0:
		return time.Time{} // it can be one that the report before left out
	default:
		return now
	}
}

// stateOf returns where a Gateway is.
func (d decision) stateOf(g Gateway, step Step) GatewayState {
	switch {
	case !g.deployed():
		return StateNoPods
	case g.Hold == model.HeldByOther:
		return StateHeldByOther
	case g.UID == d.m.Failed && d.counts(d.m.FailedAt), isAbout(step, g, GatewayFailed, FewerRoutes),
		d.i.Goal == Backward && d.isStranded(g):
		return StateFailed
	case d.onItsWay(g), isAbout(step, g, GatewayRolling):
		return StateRolling
	case g.Of == OfHosted:
		return StateAtHosted
	case g.Of == OfOther:
		return StateAtOther
	case g.Skip:
		return StateSkipped
	case g.Hold == model.Held:
		return StateHeld
	default:
		return StateAtOrigin
	}
}

// isAbout reports whether a step has one of these reasons, and is about the Gateway.
func isAbout(step Step, g Gateway, reasons ...Reason) bool {
	var why Reason
	var of model.ForeignObject
	switch s := step.(type) {
	case Wait:
		why, of = s.Why, s.Gateway
	case Stop:
		why, of = s.Why, s.Gateway
	default:
	}
	return of.UID != "" && of.UID == g.UID && slices.Contains(reasons, why)
}

// onItsWay reports whether a Gateway was released, and has not arrived.
func (d decision) onItsWay(g Gateway) bool {
	if g.UID != d.m.Released || d.m.Released == "" {
		return false
	}
	if d.i.Goal == Backward {
		return !d.stayed(g) && (g.Of != OfOrigin || !g.complete())
	}
	return g.Of != OfHosted || !d.arrived(g)
}

// mostFindings and mostLeftovers are how many of them a report has. The first ones matter most, and a condition names a
// few.
const mostFindings, mostLeftovers = 5, 5

// clean returns the report with as much of it as an encoding can have.
func (r Report) clean() Report {
	r.Leftovers = slices.Clone(r.Leftovers[:min(len(r.Leftovers), mostLeftovers)])
	for i := range r.Leftovers {
		r.Leftovers[i] = r.Leftovers[i].clean()
	}
	r.Findings = slices.Clone(r.Findings[:min(len(r.Findings), mostFindings)])
	for i := range r.Findings {
		r.Findings[i] = r.Findings[i].clean()
	}
	r.Gateway, r.Cause = name(r.Gateway), limited(r.Cause)
	r.Gateways = slices.Clone(r.Gateways)
	for i := range r.Gateways {
		g := &r.Gateways[i]
		g.Namespace, g.Name = name(g.Namespace), name(g.Name)
	}
	return r
}

// without returns the report without some of its Gateways: those whose state matters least, and of these the last ones.
func (r Report) without(some int) Report {
	order := make([]int, len(r.Gateways))
	for i := range order {
		order[i] = i
	}
	rank := func(i int) int { return slices.Index(gatewayStates(), r.Gateways[i].State) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	kept := slices.Clone(order[:len(order)-some])
	slices.Sort(kept)
	all := r.Gateways
	r.Gateways, r.More = nil, r.More+some
	for _, i := range kept {
		r.Gateways = append(r.Gateways, all[i])
	}
	return r
}

// IsFor reports whether the report answers an intent: hypergate has seen it.
func (r Report) IsFor(i Intent) bool {
	return r.Progress != "" && r.Intent.Goal == i.Goal && r.Intent.Paused == i.Paused && seconds(r.Intent.At) == seconds(i.At)
}
