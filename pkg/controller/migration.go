package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/status"
)

// observedMigration is what both sides show of a migration.
type observedMigration struct {
	lease  model.MigrationLease
	record migration.Record
	// unreadable is why the request on the Lease cannot be read.
	unreadable error
	// reading is what the guest showed, if no decision has used it yet.
	reading *migrationReading
	// unread is why the last reading of the guest failed. Nil: it did not, or there was none.
	unread error
	// unreadFor is since how long readings fail. unasked is why istiod did not say which proxies are connected to it.
	unreadFor time.Duration
	unasked   error
	// unwritten is the last step, if its state could not be written.
	unwritten unwrittenStep
	// denial is that the guest denies writes. The zero value: it does not.
	denial migration.Denial
	// ready reports whether the istiod of this installation is rolled out, and was seen where it is published.
	ready bool
	// needsRoots reports whether it is rolled out behind a tunnel, whose relays cannot start before the guest has the
	// roots of the mesh CA.
	needsRoots bool
	// notAsked reports whether the endpoint probe is off, and gateways do not use a tunnel: istiod might not be reached
	// where hypergate asks it which proxies are connected.
	notAsked bool
}

// goal returns the goal of the request on the Lease. It is migration.NoGoal if there is none, or if it cannot be read.
func (m observedMigration) goal() migration.Goal {
	if m.unreadable != nil {
		return migration.NoGoal
	}
	return m.record.Intent.Goal
}

// migrationStep is the step of a migration that a pass does, and what follows from it for istiod.
type migrationStep struct {
	// mode is the mode that istiod should have.
	mode model.IstiodMode
	// active reports whether a migration decides which Gateways are held.
	active bool
	// step is what was decided in this pass. Nil: nothing was, because no reading of the guest is new.
	step migration.Step
	// memo and report are what the Lease should have before the step is done.
	memo   migration.Memo
	report migration.Report
	facts  guest.MigrationFacts
	// problem is why a requested step is not decided. Nil: nothing prevents it.
	problem error
	// unwritten is why the state of the last step could not be written. Nil: it was, or this pass tries again. withheld
	// reports whether istiod must not be installed before that.
	unwritten error
	withheld  bool
}

// unwrittenStep is a step whose state could not be written to the Lease, and why. Until it is decided again, from a new
// reading, conditions must not change back.
type unwrittenStep struct {
	err    error
	mode   model.IstiodMode
	active bool
	report migration.Report
}

// continueWith returns a step of a pass without a new reading, after one whose state could not be written.
func (s migrationStep) continueWith(last unwrittenStep) migrationStep {
	if last.err == nil {
		return s
	}
	s.unwritten, s.report, s.active = last.err, last.report, last.active
	if s.mode == model.IstiodNone {
		s.mode, s.withheld = last.mode, true
	}
	return s
}

// decideMigration decides the next step of a migration. Without a new reading of the guest, it returns the mode that
// istiod has.
func (d decider) decideMigration(o observation) migrationStep {
	m := o.migration
	conflicts := ownership.Conflicts(d.config, o.guest.Foreign)
	origin := len(conflicts) > 0
	out := migrationStep{mode: d.presentMode(o, origin)}
	if m.goal() == migration.NoGoal {
		out.problem, out.active = d.unrequested(m, out.mode), out.mode.IsBeside()
		return out
	}
	// Without an installation, nothing is left that could release a Gateway: the rollout does.
	ended, installs := hasEnded(m.record), o.wantsInstallation(d.config)
	out.report, out.active = m.record.Report, !ended && installs
	switch {
	case !installs, ended && d.rollout.Holding():
		return out // the holds of a rollout are not those of a migration
	case m.reading == nil:
		return out.continueWith(m.unwritten)
	}
	evidence, record := migrationEvidence(o, m.reading, m.record.Intent.Accepted), m.record
	if origin {
		evidence.Conflict = conflicts[0].Recognized()
	}
	memo := record.MemoAt(o.now)
	if m.reading.err == nil {
		out.step, out.memo = migration.Decide(evidence, record.Intent, memo, o.now)
	} else {
		// From the times that are stored: without a step, nothing is stored, and other times would begin in each pass.
		if out.step, _ = migration.Rescue(evidence, record.Intent, record.Memo, o.now); out.step == nil {
			return out
		}
		out.memo = memo
	}
	out.facts = m.reading.facts
	out.report = migration.NewReport(evidence, record.Intent, out.step, out.memo, record.Report, o.now)
	if m.reading.err != nil {
		out.report = out.report.WithGatewaysOf(record.Report)
	}
	if act, is := out.step.(migration.Act); is {
		if set, is := act.Action.(migration.SetHosted); is {
			out.mode = modeOf(set.Mode)
		}
	}
	out.active = !endsMigration(out.step)
	return out
}

// unrequested returns why no step is decided without a request that can be read. Nil: none was requested.
func (d decider) unrequested(m observedMigration, mode model.IstiodMode) error {
	switch {
	case m.unreadable != nil:
		const step = "correct the annotation, or remove it"
		return status.SolvableError{Step: step, Err: fmt.Errorf("the request on Lease %s cannot be read: %w: %s",
			m.lease.Name, m.unreadable, step)}
	case mode == model.IstiodServing || mode == model.IstiodLeading:
		what, step := migration.RemovedRequest()
		return status.SolvableError{Step: step, Err: fmt.Errorf("on Lease %s, %s: %s",
			model.MigrationLeaseName(d.config.Revision), what, step)}
	default:
		return nil
	}
}

// presentMode returns the mode that istiod should have without a step: that of the last step of this process, or that
// of its Deployment. origin reports whether the guest has an istiod of its own.
func (d decider) presentMode(o observation, origin bool) model.IstiodMode {
	deployed := o.mgmt.Istiod != model.Absent
	switch {
	case o.migration.goal() == migration.NoGoal && !deployed, !origin && !deployed && !d.migrating.removes:
		return model.IstiodAlone // there is nothing to migrate
	case d.migrating.decided && o.migration.goal() != migration.NoGoal:
		return d.migrating.mode
	case deployed:
		return o.mgmt.IstiodMode
	default:
		return model.IstiodNone
	}
}

// blocked returns why a migration that was requested cannot begin. Nil: that is not known, or nothing was requested.
func (m observedMigration) blocked(step migrationStep) error {
	report := step.report
	switch {
	case step.problem != nil:
		return migration.BlockedError{Cause: step.problem}
	case m.goal() != migration.Forward:
		return nil
	case m.unread != nil:
		return migration.BlockedError{Cause: m.unread}
	case report.IsFor(m.record.Intent) && len(report.Findings) > 0:
		return migration.BlockedError{Findings: report.Findings}
	default:
		return nil
	}
}

// hasEnded reports whether the state on the Lease answers its request, and the migration has ended.
func hasEnded(r migration.Record) bool {
	return r.Report.IsFor(r.Intent) &&
		(r.Report.Progress == migration.Ended && isEnd(r.Report.Why) || r.Report.Why.Retires())
}

// endsMigration reports whether nothing is left to do for hypergate, and no Gateway is held: the migration has ended,
// or waits until another party removes the origin, or what conflicts.
func endsMigration(s migration.Step) bool {
	switch s := s.(type) {
	case migration.Rest:
		return isEnd(s.Why)
	case migration.Wait:
		return s.Why.Retires()
	default:
		return false
	}
}

// isEnd reports whether a reason means that no Gateway is held any more.
func isEnd(why migration.Reason) bool {
	return slices.Contains([]migration.Reason{migration.Parked, migration.Finished, migration.RolledBack, migration.NotRequested}, why)
}

// modeOf returns the mode of istiod that a step sets.
func modeOf(m migration.HostedMode) model.IstiodMode {
	switch m {
	case migration.HostedServing:
		return model.IstiodServing
	case migration.HostedLeading:
		return model.IstiodLeading
	case migration.HostedAlone:
		return model.IstiodAlone
	default:
		return model.IstiodNone
	}
}

// hostedMode is the inverse of modeOf, for an istiod that was observed.
func hostedMode(m model.ManagementObservation) migration.HostedMode {
	switch {
	case m.Istiod == model.Absent:
		return migration.HostedAbsent
	case m.IstiodMode == model.IstiodServing:
		return migration.HostedServing
	case m.IstiodMode == model.IstiodLeading:
		return migration.HostedLeading
	default:
		return migration.HostedAlone
	}
}

// migrationEvidence returns the evidence of a reading of the guest, and of the management side.
func migrationEvidence(o observation, r *migrationReading, accepted migration.Waivers) migration.Evidence {
	facts := r.facts
	origin, deployment := facts.Inventory.Origin, facts.Inventory.Origin.Deployment
	out := migration.Evidence{
		Origin: migration.Origin{Exists: origin.Kind() != migration.NoOrigin},
		Hosted: migration.Hosted{Mode: hostedMode(o.mgmt), Ready: o.migration.isReady(facts.Trusted), Trusted: facts.Trusted},
		Lock:   holderOf(facts, facts.Leader), Publisher: holderOf(facts, facts.Publisher),
		Outage: o.outage,
	}
	out.Origin.NotReadable, out.Origin.Validator = origin.NotReadable, facts.Webhook
	out.Origin.Undeployed = out.Origin.Exists && deployment == nil && !origin.NotReadable
	if deployment != nil {
		out.Origin.Replicas, out.Origin.Pods, out.Origin.Ready = deployment.Wanted, deployment.Existing, deployment.Ready
		out.Origin.Lead = migration.LeadModeOf(deployment.Version)
	}
	if len(facts.Blocking) > 0 {
		out.Origin.Webhook = migration.WebhookBlocks
	}
	if out.Hosted.Mode == migration.HostedAlone {
		out.Lock = migration.LockHosted
	}
	for _, g := range facts.Inventory.Gateways {
		g.Connected = r.connected[g.UID] == g.Deployment.Generation && g.Deployment.Generation != 0
		out.Gateways = append(out.Gateways, g.Gateway)
	}
	out.Denial = o.migration.denial
	if r.err != nil {
		return out // what was not read cannot be checked
	}
	checked := r.checked
	checked.AddressNotAsked = o.migration.notAsked
	out.Findings, out.Leftovers = migration.Run(checked, accepted), facts.Inventory.Leftovers()
	return out
}

// isReady reports whether the hosted istiod is ready for its next phase. The relays of a tunnel mount its roots, so
// they cannot start before the guest has them. Until then, istiod only has to be available.
func (m observedMigration) isReady(trusted bool) bool { return m.ready || m.needsRoots && !trusted }

// holderOf returns which istiod holds a lock. A name that is not that of an existing pod counts as none: its lock
// expires.
func holderOf(facts guest.MigrationFacts, name string) migration.Lock {
	switch {
	case strings.HasPrefix(name, model.HostedIdentity):
		return migration.LockHosted
	case slices.Contains(facts.Pods, name):
		return migration.LockOrigin
	default:
		return migration.LockFree
	}
}
