package controller

import (
	"cmp"
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/pki"
)

// Waits of a rotation for what is no event: that a pass made everything as it should be, and that istiod has published the roots.
const (
	firstRotationDelay = time.Second
	maxRotationDelay   = 5 * time.Second
)

// rotate takes the step of the CA's rotation that is due. A phase lasts for the overlap, from when everybody can know what it brought: istiod runs
// with it, the guest's API server trusts it, and the guest's gateways are told of it. That moment is written down, so that a restart does not
// prolong the phase.
func (r *Reconciler) rotate(ctx context.Context, p *pass) error {
	if p.hosted.CAOwner == desired.Theirs {
		return nil
	}
	now, options := r.clock.Now(), pki.RotationOptions{Overlap: r.caOverlap, Request: p.hosted.RotationRequest}
	due, at, err := p.hosted.Rotation.Due(p.hosted.CA, now, options)
	if err != nil {
		return err
	}
	if !due {
		r.rotation = waitingRotation{}
		p.again(max(at.Sub(now), time.Second))
		return nil
	}
	if p.hosted.Rotation.Phase != pki.Steady && p.hosted.Rotation.Effective.IsZero() {
		if why := r.notEffective(ctx, p); why != "" {
			p.again(r.rotation.tell(ctx, why))
			return nil
		}
		r.rotation = waitingRotation{}
		p.hosted.Rotation.Effective = now
		r.mgmt.KeepCA(p.hosted.CA, p.hosted.Rotation)
	}
	if why := r.unsettled(p); why != "" {
		p.again(r.rotation.tell(ctx, why))
		return nil
	}
	r.rotation = waitingRotation{}
	ca, rotation, err := p.hosted.Rotation.Step(p.hosted.CA, now, options)
	if err != nil {
		return err
	}
	if rotation.Phase != p.hosted.Rotation.Phase {
		logr.FromContextOrDiscard(ctx).Info("Rotating the mesh CA", "phase", cmp.Or(string(rotation.Phase), "done"), "overlap", r.caOverlap.String())
		r.mgmt.KeepCA(ca, rotation)
		p.hosted.CA, p.hosted.Rotation = ca, rotation
		p.again(firstRotationDelay)
		return nil
	}
	p.again(max(rotation.Effective.Add(r.caOverlap).Sub(now), time.Second))
	return nil
}

// unsettled says what a step of a rotation must not be taken before; empty when it may be.
func (r *Reconciler) unsettled(p *pass) string {
	switch {
	case p.hosted.Istiod != desired.Available || p.hosted.Rollout != desired.RolledOut:
		return "istiod to be rolled out and available"
	case !r.trusted:
		return "everything that says which roots are trusted to be applied: the management side, and the guest's webhooks"
	default:
		return ""
	}
}

// notEffective says what keeps somebody from knowing the roots that are trusted; empty when nothing does.
func (r *Reconciler) notEffective(ctx context.Context, p *pass) string {
	if why := r.unsettled(p); why != "" {
		return why
	}
	switch all, err := r.guest.HasRoots(ctx, p.hosted.CA.Root); {
	case err != nil:
		// The cause, and not the text, which tells of ports: what is the same from try to try is told once.
		return "the guest to show the roots that its gateways trust: " + apply.Classify(err, "get", schema.GroupResource{Resource: "configmaps"}).String()
	case !all:
		return "istiod to publish the roots in the guest"
	default:
		return ""
	}
}

// waitingRotation is what a rotation waits for, and for how long until it is looked at again.
type waitingRotation struct {
	why   string
	delay time.Duration
}

// tell logs what a rotation waits for, unless it was told last, and says when to look again.
func (w *waitingRotation) tell(ctx context.Context, why string) time.Duration {
	if why != w.why {
		logr.FromContextOrDiscard(ctx).Info("The rotation of the mesh CA waits", "for", why)
		w.why = why
	}
	w.delay = min(max(2*w.delay, firstRotationDelay), maxRotationDelay)
	return w.delay
}
