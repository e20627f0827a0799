package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// summarizer computes the summary of the last pass, for the Lease and for the metrics.
type summarizer struct {
	board *board
	probe Probe
	// named reports whether this process has observed the name of the guest, or that it has none.
	named bool
	// last is the summary of the last pass. Its versions and topology never change.
	last summary.Summary
	// conditions are the conditions of the summary, with all of their messages.
	conditions []metav1.Condition
	// earlier is the summary that an earlier process wrote. guestSeen reports whether a pass of this process has
	// observed the guest, current whether one has computed all conditions from what it observed.
	earlier            summary.Summary
	guestSeen, current bool
	// settled reports whether the pass before left everything as planned. What a pass writes then without another plan
	// is a repair.
	settled bool
	// plane is the control plane that was observed or shown last, lifecycle the one that it had then.
	plane     model.ControlPlane
	lifecycle model.Lifecycle
}

func newSummarizer(o Options) summarizer {
	return summarizer{board: cmp.Or(o.board, &board{leaseless: true}), probe: o.Probe, last: summary.Summary{
		Hypergate: o.Version, Istio: o.Source.Version(), Topology: string(o.Config.Topology), Lifecycle: summary.Active,
		GuestCredentialRenewed: o.Config.RenewGuestKubeconfig != "",
	}}
}

// note adds what a pass observed and did to the summary. It reports whether what the pass wrote is a repair.
func (s *summarizer) note(cfg model.Config, o observation, d decision, out outcome, credential model.Credential) bool {
	s.last.Token = summary.Validity{From: credential.Issued, Until: credential.Expires}
	s.last.Writes += int64(out.mgmt.Writes() + out.guest.Writes())
	if o.mgmtSeen {
		s.noteControlPlane(o.mgmt.ControlPlane, o.now)
	}
	if o.mgmtSeen && o.mgmtProblem == nil {
		s.last.CA = caOf(o.mgmt.CA, o.mgmt.Rotation, o.mgmt.CAOwner)
		s.last.Istiod.State = istiodState(o.mgmt)
		s.last.Istiod.Ready, s.last.Istiod.Wanted = int(o.mgmt.IstiodReady), int(o.mgmt.IstiodWanted)
	}
	if o.guestProblem == nil {
		s.noteGuest(o)
	}
	repairing := s.noteRepairs(o, d, out)
	if converged, is := d.(converge); is && out.problem == nil {
		s.last.Published = published(cfg, s.probe, o.mgmt, converged)
		s.noteWebhook(cfg, o, converged)
		s.last.CA = caOf(converged.ca.ca, converged.ca.rotation, o.mgmt.CAOwner) // the step that was taken
		s.last.CRDs = crdCounts(converged.plan.Decisions)
	}
	return repairing
}

// noteRepairs counts what a pass restored, and remembers whether it left everything as planned. It reports whether what
// the pass wrote is a repair.
func (s *summarizer) noteRepairs(o observation, d decision, out outcome) bool {
	converged, is := d.(converge)
	repairing := is && s.settled && !converged.computed
	if repairing {
		s.last.Repairs += int64(repairs(out.mgmt) + repairs(out.guest))
	}
	s.settled = is && out.problem == nil && out.complete() && out.hasTokens() && !out.crdsBlocked &&
		(!converged.plan.Installed || o.mgmt.Istiod == model.Available)
	return repairing
}

// noteGuest adds what the guest shows.
func (s *summarizer) noteGuest(o observation) {
	s.guestSeen = true
	s.last.Classes, s.last.Class = len(o.guest.Classes), model.Oldest(o.guest.Classes)
	switch o.ownership.(type) {
	case ownership.Owned:
		s.last.Owner = summary.OwnerOurs
	case ownership.OwnedByOther:
		s.last.Owner = summary.OwnerAnother
	case ownership.Unowned:
		s.last.Owner = summary.OwnerNone
	case ownership.Unknown:
		s.last.Owner = ""
	}
}

// noteAnswer adds how the guest's API server answered the last request.
func (s *summarizer) noteAnswer(last metrics.LastAnswer) {
	switch last.Ending {
	case metrics.NotAsked:
		s.last.GuestAPI = summary.GuestAPI{}
	case metrics.Unanswered:
		s.last.GuestAPI = summary.GuestAPI{State: summary.APISilent}
	case metrics.Failed:
		s.last.GuestAPI = summary.GuestAPI{State: summary.APIFails}
	case metrics.Answered:
		s.last.GuestAPI = summary.GuestAPI{State: summary.APIAnswers, Millis: int((last.Took + time.Millisecond - 1) / time.Millisecond)}
	}
}

// noteName adds the name of the guest while no pass of this process has observed the management side, as after a start
// during an outage of the guest: that of the only HostedControlPlane, or the one that an earlier process wrote.
func (s *summarizer) noteName(targets []mgmt.StatusTarget) {
	switch {
	case s.named:
	case len(targets) == 1:
		s.last.Guest = targets[0].Name
	default:
		s.last.Guest = s.board.shown().Guest
	}
}

func (s *summarizer) noteControlPlane(c model.ControlPlane, now time.Time) {
	s.named, s.last.Guest, s.last.PausedUntil = true, c.Name, time.Time{}
	s.plane, s.lifecycle = c, c.Lifecycle(now)
	if paused, is := s.lifecycle.(model.Paused); is {
		s.last.PausedUntil = paused.Until
	}
}

// noteWebhook adds the failure policy of the webhooks. It keeps the time of a policy that did not change.
func (s *summarizer) noteWebhook(cfg model.Config, o observation, d converge) {
	policy := ""
	switch {
	case d.plan.Installed && cfg.ExternalWebhooks():
		policy = summary.WebhookExternal
	case len(d.plan.Admission) == 0:
	case o.guest.WebhookProbe == model.WebhookVerified && o.mgmt.Istiod == model.Available:
		policy = summary.WebhookFail
	default:
		policy = summary.WebhookIgnore
	}
	switch shown := s.board.shown().Webhook; policy {
	case "":
		s.last.Webhook = summary.Webhook{}
	case shown.Policy:
		s.last.Webhook = shown
	default:
		s.last.Webhook = summary.Webhook{Policy: policy, Since: o.now}
	}
}

// addPass adds what a pass says to the summary, and posts it.
func (s *summarizer) addPass(said statement) {
	if s.conditions == nil {
		s.earlier = s.board.shown()
		s.conditions = conditionsOf(s.earlier)
	}
	s.last.Lifecycle = lifecycleOf(said.res.Lifecycle)
	s.last.PausedSince = pausedSince(s.last, s.board.shown(), said.now)
	s.last.GuestUnobserved = !s.guestSeen
	if s.last.HasOldConditions() && !s.current {
		s.keepEarlier()
	}
	for _, c := range status.Dated(said.conditions, conditionsOf(s.board.shown()), said.now) {
		if s.plane.ReportedBy == model.ClusterAPI {
			c.Message = strings.ReplaceAll(c.Message, status.PausedByHostedControlPlane, status.PausedByCluster)
		}
		s.conditions = slices.DeleteFunc(s.conditions, func(old metav1.Condition) bool { return old.Type == c.Type })
		s.conditions = append(s.conditions, c)
	}
	if observed := said.res.ObservationProblem == nil && !s.last.Lifecycle.IsOnHold(); observed {
		s.current = true
		s.noteIstiod(said.res)
	}
	s.last.Time, s.last.Conditions = said.now, summarized(s.conditions)
	s.board.post(s.last)
}

// noteIstiod adds what a result shows of istiod, and of a rollout of gateways, to the summary.
func (s *summarizer) noteIstiod(res status.Result) {
	s.last.Gateways = gatewaysOf(res.GatewayRollout.Step)
	s.last.Istiod.Since, s.last.Istiod.Version = time.Time{}, ""
	if res.Istiod == model.Available {
		s.last.Istiod.Since, s.last.Istiod.Version = res.Since, res.Running.Version()
	}
	if s.last.Published.Address != "" {
		s.last.Published.State = s.reached(res)
	}
}

// summarized returns conditions as a summary has them. Their types have no domain there.
func summarized(conditions []metav1.Condition) []summary.Condition {
	out := make([]summary.Condition, 0, len(conditions))
	for _, c := range conditions {
		out = append(out, summary.Condition{
			Type: strings.TrimPrefix(c.Type, model.ConditionDomain), Status: string(c.Status), Reason: c.Reason,
			Since: c.LastTransitionTime.Time, Message: c.Message,
		})
	}
	return out
}

// conditionsOf returns the conditions of the summary of an earlier process, so that a restart changes no transition
// time.
func conditionsOf(s summary.Summary) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(s.Conditions))
	for _, c := range s.Conditions {
		out = append(out, metav1.Condition{
			Type: model.ConditionDomain + c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: metav1.NewTime(c.Since),
		})
	}
	return out
}

func lifecycleOf(l model.Lifecycle) summary.Lifecycle {
	switch l.(type) {
	case model.Disabled:
		return summary.Disabled
	case model.Paused:
		return summary.Paused
	case model.Starting:
		return summary.Starting
	case model.Deleting:
		return summary.Deleting
	default:
		return summary.Active
	}
}

func caOf(ca pki.CA, rotation pki.Rotation, owner model.Owner) summary.CA {
	if !ca.Exists() {
		return summary.CA{}
	}
	out := summary.CA{Phase: summary.PhaseSteady, Request: rotation.LeaseRequest, ByOther: owner == model.Theirs}
	if rotation.Phase != pki.Steady {
		out.Phase = string(rotation.Phase)
	}
	if expires, err := ca.Expires(); err == nil { // a CA that cannot be read is a problem of the plan
		out.Expires = expires
	}
	return out
}

func istiodState(m model.ManagementObservation) string {
	switch {
	case m.Istiod == model.Absent:
		return summary.IstiodAbsent
	case m.Rollout == model.Stuck:
		return summary.IstiodStuck
	case m.Istiod == model.Unavailable:
		return summary.IstiodUnavailable
	case m.Rollout == model.Rolling:
		return summary.IstiodRolling
	default:
		return summary.IstiodServing
	}
}

// published returns where a plan publishes istiod. An address that is known counts as unprobed until noteIstiod.
func published(cfg model.Config, probe Probe, m model.ManagementObservation, d converge) summary.Published {
	if !d.plan.Installed {
		return summary.Published{}
	}
	strategy, err := publish.StrategyFor(cfg, m.ControlPlane)
	if err != nil {
		return summary.Published{State: summary.PublishedUnavailable}
	}
	out := summary.Published{Strategy: string(strategy), State: summary.PublishedPending}
	if strategy == model.PublishAddress {
		out.Strategy = summary.PublishedAddress
	}
	switch endpoint := d.plan.Endpoint.(type) {
	case publish.EndpointKnown:
		out.Address, out.State = endpoint.At.String(), summary.PublishedUnprobed
		if probe.Via != "" && probe.Via != out.Address && strategy != model.PublishTunnel {
			out.ByOther, out.Probe = true, probe.Via
		}
	case publish.EndpointUnavailable:
		out.State = summary.PublishedUnavailable
	case publish.EndpointPending:
	}
	return out
}

// gatewaysOf returns the progress of a rollout of gateways after a step. It is zero if the step belongs to none.
func gatewaysOf(step rollout.Step) summary.Gateways {
	out := summary.Gateways{State: summary.GatewaysRolling}
	var progress rollout.Progress
	var awaited model.Gateway
	switch s := step.(type) {
	case rollout.Hold:
		return summary.Gateways{State: summary.GatewaysHolding, Done: s.Progress.Total - len(s.Gateways), Total: s.Progress.Total}
	case rollout.Release:
		progress, awaited = s.Progress, s.Gateway
	case rollout.Wait:
		progress, awaited = s.Progress, s.Gateway
	case rollout.Stop:
		out.State, progress, awaited = summary.GatewaysStopped, s.Progress, s.Gateway
	default:
		return summary.Gateways{}
	}
	out.Done, out.Total = progress.Rolled, progress.Total
	if awaited.Key.Name != "" {
		out.Gateway = awaited.Key.String()
	}
	return out
}

// reached returns what is known of a published address. The probe only runs while istiod serves. Before, its result
// counts as reached, so that the conditions name the cause: istiod.
func (s *summarizer) reached(res status.Result) string {
	switch {
	case res.Istiod != model.Available, s.probe.Off && res.Endpoint == status.EndpointReached():
		return summary.PublishedUnprobed
	case res.Endpoint == status.EndpointReached():
		return summary.PublishedReached
	case res.Endpoint.IsProbing():
		return summary.PublishedProbing
	default:
		return summary.PublishedUnreached
	}
}

// crdCounts counts CRDs as they are after a pass that carries out the decisions: a CRD that it installs or adopts is
// hypergate's.
func crdCounts(decisions []crds.CRD) (out summary.CRDs) {
	for _, crd := range decisions {
		switch {
		case crd.Owner.Kind == crds.Ours || crd.Verdict.Applies():
			out.Ours++
		case crd.Owner.Kind != crds.Unowned:
			out.Others++
		}
		switch crd.Verdict {
		case crds.Blocked:
			out.Blocked++
		case crds.Undetermined:
			out.Undetermined++
		default:
		}
	}
	return out
}

// repairs returns how many objects were written or deleted.
func repairs(report apply.Report) (n int) {
	for _, o := range report.Outcomes() {
		if isRepair(o) {
			n++
		}
	}
	return n
}

// isRepair reports whether an object was written or deleted. A renewed token is not a repair.
func isRepair(o apply.Outcome) bool {
	changed := o.Verdict() == apply.VerdictApplied || o.Verdict() == apply.VerdictDeleted
	_, token := model.BearerOf(o.ID().Key.Name)
	return changed && !token
}

// reportToManagement reports to the management side: in the conditions of a HostedControlPlane, in the summary of the
// Lease, and in the metrics. It returns when to look again.
func (r *Reconciler) reportToManagement(ctx context.Context, res status.Result) time.Duration {
	now, targets := r.clock.Now(), r.mgmt.StatusTargets()
	said, again := r.reports.state(res, targets, now)
	r.reports.summary.noteAnswer(r.reports.metrics.LastAnswer(string(model.SideGuest)))
	r.reports.summary.noteName(targets)
	again = soonest(again, r.reportToControlPlanes(ctx, said, targets))
	r.reports.summary.addPass(said.forLease(r.reports.hcp.unwritten, r.reports.summary.board.shown()))
	r.reports.metrics.export(r.reports.summary.last, res, r.memory.endpointProbe.seen, now)
	return again
}
