package controller

import (
	"slices"
	"time"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// newCollector returns the metrics of this process.
func newCollector(o Options) *metrics.Collector {
	return metrics.New(metrics.Options{
		Values: MetricValues(), Version: o.Version, Istio: o.Source.Version(), Revision: o.Config.Revision,
		Topology: string(o.Config.Topology),
	})
}

// MetricValues returns the closed lists of values that labels of metrics can have.
func MetricValues() metrics.Values {
	out := metrics.Values{Reasons: status.Reasons(), CRDs: crds.GatewayAPI().Names(), Strategies: []string{summary.PublishedAddress}}
	for _, resource := range model.KnownIstioResources() {
		out.CRDs = append(out.CRDs, resource.CRD())
	}
	for _, strategy := range publish.Strategies() {
		if strategy != model.PublishAuto {
			out.Strategies = append(out.Strategies, string(strategy))
		}
	}
	for _, phase := range migration.Phases() {
		out.Phases = append(out.Phases, string(phase))
	}
	for _, class := range slices.DeleteFunc(apply.ErrorClasses(), isCancelled) {
		out.Classes = append(out.Classes, class.String())
	}
	routes := publish.OtherRouteKinds(model.Config{}, model.PublishAddress)
	out.Kinds = map[string][]string{
		string(model.SideMgmt):  namesOf(slices.Concat(model.MgmtKinds(), routes)),
		string(model.SideGuest): namesOf(model.GuestKinds()),
	}
	return out
}

// isCancelled reports whether an object failed because something else did.
func isCancelled(class apply.ErrorClass) bool { return class == apply.Cancelled }

// namesOf returns the names of kinds, each once. A kind of which there is one object, by name, counts as another kind:
// those of the tunnel's relays would add 15 series for 3 objects.
func namesOf(kinds []model.Kind) []string {
	out := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		if len(kind.Names) == 0 && !slices.Contains(out, kind.GVK.Kind) {
			out = append(out, kind.GVK.Kind)
		}
	}
	return out
}

// exporter passes what each pass did to the metrics.
type exporter struct {
	*metrics.Collector
	state      metrics.State
	credential validity
	// requested is when an installation was first seen to be needed. Zero: none is under way.
	requested time.Time
}

// note counts what a pass wrote, and keeps what it observed. repairing reports whether what it wrote is a repair.
func (e *exporter) note(o observation, d decision, out outcome, repairing bool) {
	for _, side := range []struct {
		name   model.Side
		report apply.Report
	}{{model.SideMgmt, out.mgmt}, {model.SideGuest, out.guest}} {
		for _, object := range side.report.Outcomes() {
			e.Writes(string(side.name), object.ID().GVK.Kind, object.Verdict().String(), object.Writes())
			if repairing && isRepair(object) {
				e.Repair(string(side.name), object.ID().GVK.Kind)
			}
		}
	}
	if converged, is := d.(converge); is && out.problem == nil {
		e.noteRotation(converged.ca.rotation)
	} else if o.mgmtSeen && o.mgmtProblem == nil {
		e.noteRotation(o.mgmt.Rotation)
	}
}

func (e *exporter) noteRotation(r pki.Rotation) {
	e.state.RotationSince, e.state.NextCA = r.Since, time.Time{}
	if r.Phase != pki.Spreading {
		return
	}
	if expires, err := r.Next.Expires(); err == nil { // a CA that cannot be read is a problem of the plan
		e.state.NextCA = expires
	}
}

// noteGuest keeps what a pass decided about the guest. While there is no plan, there are no decisions. While the search
// for objects is under way, the last counts stay.
func (e *exporter) noteGuest(res status.Result) {
	inUse := res.InUseTotals
	if res.Searching {
		inUse = e.state.Guest.InUse
	}
	e.state.Guest = metrics.Guest{Mode: res.Plan.Mode, Decisions: res.Plan.Decisions, InUse: inUse}
}

// export exports the state after a pass: the summary, and what the summary has no space for.
func (e *exporter) export(s summary.Summary, res status.Result, seen, now time.Time) {
	e.noteInstallation(s, res, now)
	e.state.Credential.From, e.state.Credential.Until = e.credential()
	e.state.Summary, e.state.PublishedSeen = s, seen
	e.state.Migration = metrics.Migration{}
	if report := res.Migration.Report; report.Progress != "" {
		e.state.Migration = metrics.Migration{
			Phase: string(report.Phase), Since: report.Since, Moved: report.Moved, Moving: report.Moving,
		}
	}
	e.state.Sides = map[string]metrics.Numbers{
		string(model.SideMgmt):  numbersOf(res.Mgmt, res.MgmtWatches),
		string(model.SideGuest): numbersOf(res.Guest, res.GuestWatches),
	}
	for _, class := range res.UnwrittenClasses {
		e.state.Sides[string(model.SideGuest)].Failing[class.Cause.Class().String()]++
	}
	if side := string(res.ObservationSide); res.ObservationProblem != nil && side != "" {
		e.state.Sides[side] = metrics.Numbers{WatchFailing: 1}
	}
	e.Set(e.state)
}

// noteInstallation measures an installation from when istiod is needed, and absent, until it serves.
func (e *exporter) noteInstallation(s summary.Summary, res status.Result, now time.Time) {
	switch available := s.Condition(summary.Available); {
	case available.Status == summary.True && !e.requested.IsZero():
		if status.MeansServing(available.Reason) {
			e.Installed(now.Sub(e.requested))
		}
		e.requested = time.Time{}
	case available.Status == summary.False && res.Istiod == model.Absent && e.requested.IsZero():
		e.requested = now
	}
}

func numbersOf(report apply.Report, watches []apply.WatchProblem) metrics.Numbers {
	out := metrics.Numbers{RateLimited: report.Count(apply.VerdictRateLimited), WatchFailing: len(watches), Failing: map[string]int{}}
	for _, o := range report.Problems() {
		if class := o.Cause().Class(); o.Verdict() != apply.VerdictRateLimited && !isCancelled(class) {
			out.Failing[class.String()]++
		}
	}
	return out
}

// outcomeOf returns what a pass ended with. settled reports whether it left everything as planned.
func outcomeOf(k known, res status.Result, settled bool) metrics.Outcome {
	switch k.decision.(type) {
	case onHold:
		return metrics.OnHold
	case waitForSync:
		return metrics.Unobserved
	case noPlan, pruneManagement:
		return metrics.Refused
	case converge:
	}
	switch {
	case k.outcome.problem != nil:
		return metrics.Refused
	case res.GuestUnseen():
		return metrics.Unobserved
	case settled && len(res.UnwrittenClasses) == 0:
		return metrics.Complete
	default:
		return metrics.Incomplete
	}
}
