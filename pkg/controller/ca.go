package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// meshCA is the state of the mesh CA between passes. The content of its Secret is in memory.secrets.
type meshCA struct {
	// next is the CA of the next first installation. Written by newCA, which prepare calls in advance, and decide where
	// it is still missing. Execute clears it once it is used.
	next pki.CA
	// overlap is for how long both roots are trusted before and after the switch of a rotation.
	overlap time.Duration
	// trusted reports whether, after the last converge, all objects that define the trusted roots are as planned.
	// Written by execute.
	trusted bool
}

// caStep is the mesh CA that a plan is computed with, and how far its rotation is.
type caStep struct {
	ca       pki.CA
	rotation pki.Rotation
	// changed reports whether they differ from what was observed. They are then kept before the plan is applied.
	changed bool
	// began is set if the rotation enters another phase.
	began bool
	// waitsFor is what a due step of the rotation waits for. Empty: nothing. late reports whether the phase has lasted
	// for so long that this needs an action.
	waitsFor string
	late     bool
	// requeue is when the rotation needs another look. Zero: it does not.
	requeue time.Duration
}

// unusableCAError refuses a plan because the mesh CA in the Secret cannot be used.
type unusableCAError struct{ err error }

// Error names the Secret and the cause.
func (e unusableCAError) Error() string {
	return fmt.Sprintf("the mesh CA in Secret %s cannot be used: %v: restore it from a backup, or delete the Secret to get a new CA "+
		"(then restart the gateways)", model.CASecretName, e.err)
}

// Unwrap returns the cause.
func (e unusableCAError) Unwrap() error { return e.err }

// decideCA decides which mesh CA the classes get, and rotates it. An unmanaged guest keeps the CA that is there.
func (d decider) decideCA(o observation) (caStep, error) {
	observed := caStep{ca: o.mgmt.CA, rotation: o.mgmt.Rotation}
	switch {
	case len(o.guest.Classes) == 0:
		return observed, nil
	case o.mgmt.InvalidCA != nil:
		return caStep{}, o.mgmt.InvalidCA // in each mode: a plan without the CA would delete it
	case !o.isManaged(d.config):
		return observed, nil
	}
	step := observed
	if !step.ca.Exists() {
		ca, err := d.newCA(o.now)
		if err != nil {
			return caStep{}, err
		}
		// A request that is older than the CA is not for it.
		step = caStep{ca: ca, rotation: pki.Rotation{LeaseRequest: o.mgmt.LeaseRotationRequest}, changed: true}
	}
	if err := cmp.Or(step.ca.Check(o.now), step.rotation.Check(step.ca, o.now)); err != nil {
		return caStep{}, unusableCAError{err}
	}
	step, err := d.decideRotation(o, step)
	if err != nil {
		return caStep{}, fmt.Errorf("rotating the mesh CA: %w", err)
	}
	return step, nil
}

// isSpreading reports whether a rotation has a phase whose roots are not known everywhere yet.
func isSpreading(r pki.Rotation) bool { return r.Phase != pki.Steady && r.Effective.IsZero() }

// decideRotation takes the step of the CA's rotation that is due. A phase lasts for the overlap, which counts from when
// its roots are known everywhere: istiod runs with them, the guest's API server trusts them, and the guest's gateways
// have them. This time is stored, so that a restart does not prolong the phase.
func (d decider) decideRotation(o observation, step caStep) (caStep, error) {
	if o.mgmt.CAOwner == model.Theirs {
		return step, nil
	}
	options := pki.RotationOptions{Overlap: d.ca.overlap, Request: o.mgmt.RotationRequest, LeaseRequest: o.mgmt.LeaseRotationRequest}
	due, at, err := step.rotation.Due(step.ca, o.now, options)
	if err != nil {
		return caStep{}, err
	}
	if !due {
		step.requeue = max(at.Sub(o.now), time.Second)
		return step, nil
	}
	spreading := isSpreading(step.rotation)
	if step.waitsFor = d.ca.blockedBy(o.mgmt); step.waitsFor == "" && spreading {
		step.waitsFor = o.roots
	}
	if step.waitsFor != "" {
		step.late = step.rotation.Phase != pki.Steady && o.now.Sub(step.rotation.Since) >= d.ca.overlap+max(d.ca.overlap, rotationPatience)
		return step, nil
	}
	if spreading {
		step.rotation.Effective, step.changed = o.now, true
	}
	ca, rotation, err := step.rotation.Step(step.ca, o.now, options)
	if err != nil {
		return caStep{}, err
	}
	if rotation.Phase != step.rotation.Phase {
		return caStep{ca: ca, rotation: rotation, changed: true, began: true, requeue: firstRotationDelay}, nil
	}
	step.requeue = max(rotation.Effective.Add(d.ca.overlap).Sub(o.now), time.Second)
	return step, nil
}

// blockedBy returns what must be done before a step of a rotation. Empty: nothing.
func (c meshCA) blockedBy(m model.ManagementObservation) string {
	switch {
	case m.Istiod != model.Available || m.Rollout != model.RolledOut:
		return rotationIstiod
	case !c.trusted:
		return rotationObjects
	default:
		return ""
	}
}

// What a rotation can wait for on both sides. Otherwise it waits for the roots that gateways trust, see rootsPending.
const (
	rotationIstiod  = "istiod to be rolled out and available"
	rotationObjects = "all objects that define the trusted roots to be applied: the management side, and the guest's webhooks"
)

// waiting returns what the conditions say about a rotation that waits.
func (s caStep) waiting(cfg model.Config) status.RotationWait {
	out := status.RotationWait{For: s.waitsFor, IsLate: s.late}
	switch s.waitsFor {
	case "":
	case rotationIstiod:
		out.Step = "find the cause with kubectl describe deployments,replicasets,pods -l app=istiod"
	case rotationObjects:
		out.Step = "follow what Degraded and Progressing say about objects that are not as planned"
	default:
		out.Step = fmt.Sprintf("check hypergate's permission to read ConfigMap %s/%s in the guest, "+
			"and that no admission policy there denies istiod's write", cfg.GuestNamespace, cfg.TrustBundleName())
	}
	return out
}

// rotationDelay is what was logged of a rotation that waits, and how often it was looked at.
type rotationDelay struct {
	logged lastLogged
	delay  throttle.Backoff
}

// log logs the step once it changes, and returns when to look again. Zero: not before step.requeue.
func (w *rotationDelay) log(ctx context.Context, step caStep, overlap time.Duration, now time.Time) time.Duration {
	log := logr.FromContextOrDiscard(ctx)
	if step.began {
		log.Info("Rotating the mesh CA", "phase", cmp.Or(string(step.rotation.Phase), "done"), "overlap", overlap.String())
	}
	if step.waitsFor == "" {
		*w = rotationDelay{}
		return 0
	}
	if w.logged.isNew(step.waitsFor) {
		log.Info("Rotation of the mesh CA is waiting", "for", step.waitsFor)
	}
	return w.delay.Failed(now, firstRotationDelay, maxRotationDelay)
}
