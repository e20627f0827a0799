package status

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// MigrationCondition is the type of the condition of a GatewayClass about a migration from an istiod in the guest. Its
// reason is the phase. The condition exists only if a migration was requested.
const MigrationCondition = model.ConditionDomain + "Migration"

// Reasons of the conditions of a HostedControlPlane about a migration.
const (
	// ReasonMigrating: Gateways move from one istiod to the other.
	ReasonMigrating = "Migrating"
	// ReasonMigrationBlocked: a finding of the check blocks.
	ReasonMigrationBlocked = "MigrationBlocked"
	// ReasonMigrationStopped: it does not go on without a person, or the guest denies its writes.
	ReasonMigrationStopped = "MigrationStopped"
)

// Migration is what conditions say about a migration.
type Migration struct {
	// Report is what hypergate has reported on the Lease. The zero value: no migration was requested.
	Report migration.Report
	// Active reports whether it is in progress, or paused. Beside reports whether the guest has another istiod.
	Active, Beside bool
	// Problem is why a step cannot be decided, or carried out. Nil: nothing prevents it. Side is that of the request
	// that failed. Without a side, Problem is not about a request.
	Problem error
	Side    model.Side
}

// requested reports whether there is something to say about a migration.
func (m Migration) requested() bool { return m.Report.Progress != "" }

// what returns the state of a migration as a sentence.
func (m Migration) what() string {
	if m.Report.Progress == migration.Acting {
		return "the step is in progress"
	}
	what, _ := m.Report.Explain()
	return what
}

// step returns the next step for a person. It is empty if no action is required.
func (m Migration) step() string {
	_, next := m.Report.Explain()
	if next == "" || m.moves() {
		return ""
	}
	return nextStep(next)
}

// moves reports whether a migration continues without a person. A retiring one does not: the owner of the origin has to
// remove its installation.
func (m Migration) moves() bool {
	r := m.Report
	return r.Progress == migration.Acting || r.Progress == migration.Waiting && !r.IsDenied() && !m.retires()
}

// retires reports whether all Gateways have moved, and only what another party has to remove is left.
func (m Migration) retires() bool { return m.Report.Why.Retires() }

// migration returns the condition of a GatewayClass about a migration, and whether there is one. Each change of a
// class makes istiod look at all of its Gateways again, so the progress is only on the HostedControlPlane.
func (r Result) migration() (metav1.Condition, bool) {
	m := r.Migration
	if !m.requested() {
		return metav1.Condition{}, false
	}
	switch {
	case m.moves():
		return isTrue(string(m.Report.Phase), "the Gateways of this class move to another istiod, one after another"), true
	case m.Report.Why == migration.Blocked && len(m.Report.Findings) > 0:
		return isFalse(string(m.Report.Phase), plain(migration.BlockedError{Findings: m.Report.Findings}.Error())), true
	default:
		return isFalse(string(m.Report.Phase), plain(m.what())+m.step()), true
	}
}

// isPaused reports whether a person has paused it. Gateways can be held meanwhile, so it has not ended.
func (m Migration) isPaused() bool { return m.Active && m.Report.Why == migration.Paused }

// migrating returns what a migration does or waits for. It is empty if there is none, or if it stopped or ended.
func (r Result) migrating() string {
	m := r.Migration
	if m.Report.Progress != migration.Acting && m.Report.Progress != migration.Waiting && !m.isPaused() || m.retires() {
		return ""
	}
	text := fmt.Sprintf("migration, phase %s: %d of %d Gateways are at the hosted istiod", m.Report.Phase, m.Report.Moved, m.Report.Moving)
	if m.Report.Progress == migration.Acting {
		return text
	}
	if text += "; " + m.what(); m.Report.Gateway != "" {
		text += " (" + m.Report.Gateway + ")"
	}
	if m.isPaused() {
		return plain(text) + m.step()
	}
	return plain(text)
}

// isRolledBack reports whether the hosted istiod is being removed, because another one serves the guest again.
func (r Result) isRolledBack() bool { return r.Migration.Beside && !r.Plan.Installed }

// migrationProblems returns why a migration does not go on. It returns none if that is why there is no plan.
func (r Result) migrationProblems() []problem {
	m := r.Migration
	_, isPlanProblem := errors.AsType[migration.BlockedError](r.PlanProblem)
	switch {
	case isPlanProblem:
		return nil
	case m.Problem != nil:
		return []problem{m.failure()}
	case m.Report.Progress != migration.Stopped && !m.Report.IsDenied():
		return nil
	case m.Report.Why == migration.Blocked:
		err := migration.BlockedError{Findings: m.Report.Findings}
		return []problem{{reason: ReasonMigrationBlocked, text: plain(err.Error())}}
	}
	text := fmt.Sprintf("migrating, phase %s: %s", m.Report.Phase, m.what())
	if m.Report.Gateway != "" {
		text += ": Gateway " + m.Report.Gateway
	}
	return []problem{{reason: ReasonMigrationStopped, text: plain(text) + m.step()}}
}

// failure returns the problem with a step that cannot be decided or carried out. A transient cause on the guest side
// has lasted before it is reported.
func (m Migration) failure() problem {
	phase, verb, resource := "migrating: reading the guest", "list", schema.GroupResource{}
	if m.Side == model.SideMgmt {
		phase, verb = "migrating: writing the state", "patch"
		resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	}
	cause := apply.Classify(m.Problem, verb, resource)
	class := cause.Class()
	if m.Side == "" || class == apply.UnknownError {
		text, step := ownStep(m.Problem, stableText(m.Problem), nextStep("hypergate bundle collects what a report needs"))
		return problem{reason: ReasonMigrationStopped, text: "migrating: " + text + step}
	}
	p := ofCause(phase, m.Side, cause)
	p.reason, p.retry = ReasonMigrationStopped, Retry{} // it is tried again by itself
	if m.Side == model.SideGuest {
		p.waits = ""
	}
	if m.Side == model.SideGuest && class == apply.Forbidden {
		p.text = phase + ": " + plain(cause.String()) + nextStep("apply deploy/rbac/migration in the guest")
	}
	return p
}

// migrationText returns that a migration has not ended, with what ends it. It returns an empty string if there is none.
func (r Result) migrationText() string {
	if !r.Migration.Active || !r.Migration.requested() {
		return ""
	}
	phase := " (phase " + plain(string(r.Migration.Report.Phase)) + ")"
	if r.Migration.moves() {
		return "Gateways are being migrated" + phase + nextStep("wait until the migration has ended: hypergate migrate status")
	}
	return "the migration of Gateways has not ended" + phase + ": " + plain(r.Migration.what()) +
		cmp.Or(r.Migration.step(), nextStep("hypergate migrate status shows why"))
}

// blockedMigration is the problem of a plan that is rejected because a requested migration cannot begin.
func blockedMigration(err error) (planProblem, bool) {
	e, is := errors.AsType[migration.BlockedError](err)
	if !is {
		return planProblem{}, false
	}
	public := e.Error()
	if e.Cause != nil {
		public = "a migration was requested, and the guest cannot be checked" + reasonElsewhere()
	}
	p := rejectedPlan("checking a migration", err, e.Error(), e.Fingerprint())
	p.reason = ReasonMigrationBlocked
	return planProblem{public: plain(public), problem: p, isForOther: true}, true
}
