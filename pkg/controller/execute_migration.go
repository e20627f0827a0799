package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// migrate writes the state of a migration to its Lease, and then does the step in the guest, if there is one. It
// returns what became of it. goOn is whether istiod may be changed as the step requires: that is not so before the
// state is written.
func (e *execution) migrate(ctx context.Context, m migrationStep) (out migrationOutcome, goOn bool) {
	out = migrationOutcome{report: m.report, active: m.active, mode: m.mode, problem: m.problem}
	if unread := e.unread(ctx, m); unread != nil {
		out.problem, out.side = unread, model.SideGuest
	}
	if m.step == nil {
		if m.unwritten != nil {
			out.problem, out.side = m.unwritten, model.SideMgmt
		}
		return out, !m.withheld
	}
	defer func() { e.memory.migration.pace(e.clock.Now()) }()
	report, err := e.writeMigration(ctx, m)
	e.memory.migration.unwritten = unwrittenStep{}
	if err != nil {
		e.memory.migration.next = e.clock.Now().Add(migrationAfterAct)
		if !apierrors.IsConflict(err) { // the Lease has another request by now
			e.memory.migration.unwritten = unwrittenStep{err: err, mode: m.mode, active: m.active, report: m.report}
			out.problem, out.side = err, model.SideMgmt
			e.logMigration(ctx, "Writing the state of the migration failed", err)
		}
		return out, false
	}
	out.report = report
	e.memory.migration.decide(m, e.clock.Now())
	if act, is := m.step.(migration.Act); is {
		if e.memory.migration.acted.isNew(fmt.Sprint(act)) {
			logr.FromContextOrDiscard(ctx).Info("Doing a step of the migration", "phase", act.Phase, "writes", act.Action.Writes())
		}
		e.memory.migration.wrote(e.observed.migration.record.Intent, act.Action, e.act(ctx, act, m), e.clock.Now())
	}
	return out, true
}

// unread logs why the guest cannot be read, or why istiod does not answer. Without a reading, a migration that has
// begun does not continue. After a time, unread returns why, for the conditions.
func (e *execution) unread(ctx context.Context, m migrationStep) error {
	switch seen := e.observed.migration; {
	case seen.unread != nil:
		e.logMigration(ctx, "Reading the guest for a migration failed", seen.unread)
		if m.active && m.problem == nil && seen.unreadFor >= unreadTime {
			return seen.unread
		}
	case seen.unasked != nil && m.active:
		e.logMigration(ctx, "Asking istiod which gateways are connected failed", seen.unasked)
	}
	return nil
}

// writeMigration writes the memo and the report, if they differ from what the Lease has. A report that only has other
// details waits for its turn: a later reading shows the last ones. writeMigration returns the report on the Lease.
func (e *execution) writeMigration(ctx context.Context, m migrationStep) (migration.Report, error) {
	memo, err := m.memo.Encode()
	if err != nil {
		return m.report, err
	}
	report, err := m.report.Encode()
	if err != nil {
		return m.report, err
	}
	lease, before := e.observed.migration.lease, e.observed.migration.record.Report
	sameMemo := lease.Annotations[migration.MemoAnnotation] == memo
	if sameMemo && lease.Annotations[migration.ReportAnnotation] == report {
		return m.report, nil
	}
	limiter, now := &e.memory.migration.writes, e.clock.Now()
	if sameMemo && differInDetails(before, m.report) {
		if limiter = &e.memory.migration.reports; limiter.Wait(now) > 0 {
			return before, nil
		}
	}
	limiter.Take(now)
	written := map[string]string{migration.MemoAnnotation: memo, migration.ReportAnnotation: report}
	return m.report, e.mgmt.WriteMigration(ctx, lease, written)
}

// differInDetails reports whether two reports are about the same request, and say the same about the whole migration.
func differInDetails(a, b migration.Report) bool {
	return a.IsFor(b.Intent) && a.Phase == b.Phase && a.Progress == b.Progress && a.Why == b.Why
}

// act does an action in the guest. SetHosted is done by the plan.
func (e *execution) act(ctx context.Context, act migration.Act, m migrationStep) patched {
	facts := m.facts
	switch a := act.Action.(type) {
	case migration.HoldGateways:
		all := e.memory.migration.denied.deniedLast(a.Gateways)
		return e.patchForeign(ctx, model.ReasonHoldGateway, all, func(of model.ForeignObject) (model.ForeignPatch, error) {
			return model.HoldPatch(e.config.Revision, of)
		})
	case migration.ReleaseGateways:
		all := e.memory.migration.denied.deniedLast(a.Gateways)
		return e.patchForeign(ctx, model.ReasonReleaseGateway, all, model.ReleasePatch)
	case migration.ScaleOrigin:
		return e.patchForeign(ctx, model.ReasonScaleOrigin, one(facts.Origin), func(of model.ForeignObject) (model.ForeignPatch, error) {
			return model.ReplicasPatch(of, a.Replicas)
		})
	case migration.RelaxWebhook:
		return e.patchForeign(ctx, model.ReasonRelaxWebhook, one(facts.Webhook), func(of model.ForeignObject) (model.ForeignPatch, error) {
			return model.IgnorePatch(of, facts.Blocking)
		})
	case migration.RestoreTemplate:
		return e.restoreTemplate(ctx, a.Gateway, facts.Deployments[a.Gateway.UID])
	case migration.SetHosted:
	}
	return patched{}
}

// restoreTemplate gives a Gateway's Deployment the pod template of before. The result is empty if no patch was sent.
func (e *execution) restoreTemplate(ctx context.Context, gateway, deployment model.ForeignObject) patched {
	inGuest, over := e.inGuest(ctx)
	template, err := e.guest.OriginTemplate(inGuest, deployment, gateway.Key.Name)
	over()
	if err != nil {
		e.logMigration(ctx, "Restoring the pods of a Gateway failed", err)
		return unrestored(deployment, err)
	}
	return e.patchForeign(ctx, model.ReasonRestoreTemplate, one(deployment), func(of model.ForeignObject) (model.ForeignPatch, error) {
		return model.TemplatePatch(of, template)
	})
}

// unrestored returns what becomes of a Deployment whose pod template of before could not be read. Without that
// template, each try fails, as if the guest denied the patch.
func unrestored(deployment model.ForeignObject, err error) patched {
	if _, is := errors.AsType[guest.NoTemplateError](err); is {
		return patched{first: denied{deployment.UID, err.Error(), true}}
	}
	return patched{}
}

// one returns a list of an object that exists.
func one(of model.ForeignObject) []model.ForeignObject {
	if of.UID == "" {
		return nil
	}
	return []model.ForeignObject{of}
}

// logMigration logs a failure once, until its text changes.
func (e *execution) logMigration(ctx context.Context, text string, err error) {
	if e.memory.migration.logged.isNew(text + err.Error()) {
		logr.FromContextOrDiscard(ctx).Info(text, "err", err.Error())
	}
}
