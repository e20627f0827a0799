package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/pki"
)

// meshCA is what is known of the mesh CA beside what its Secret says, which mgmt.Cluster keeps.
type meshCA struct {
	// next is for the installation that may be asked for.
	next pki.CA
	// overlap is how long both roots are trusted before and after the switch of a rotation.
	overlap time.Duration
	// trusted is whether the last pass found or made everything as it should be that says which roots are trusted.
	trusted bool
	// waiting is what a rotation waits for.
	waiting waitingRotation
}

// lookAfterCA has a mesh CA for the classes, and rotates it. Unmanaged, one that is there is kept as it is.
func (r *Reconciler) lookAfterCA(ctx context.Context, p *pass) error {
	switch {
	case len(p.seen.Classes) == 0:
		return nil
	case p.hosted.SpoiledCA != nil:
		return p.hosted.SpoiledCA // in each mode: a plan without the CA would delete it
	case !r.managed(p):
		return nil
	}
	if err := r.haveCA(p); err != nil {
		return err
	}
	if err := r.rotate(ctx, p); err != nil {
		return fmt.Errorf("rotating the mesh CA: %w", err)
	}
	return nil
}

// haveCA makes the mesh CA where there is none, and refuses one that cannot be used.
func (r *Reconciler) haveCA(p *pass) error {
	now := r.clock.Now()
	if !p.hosted.CA.Exists() {
		ca, err := r.newCA()
		if err != nil {
			return err
		}
		r.mgmt.KeepCA(ca, pki.Rotation{})
		p.hosted.CA = ca
	}
	if err := cmp.Or(p.hosted.CA.Check(now), p.hosted.Rotation.Check(p.hosted.CA, now)); err != nil {
		r.mgmt.DoubtCA()
		return fmt.Errorf("the mesh CA in Secret %s cannot be used: %w", desired.CASecretName, err)
	}
	return nil
}

// newCA is the CA that was made ahead, or another.
func (r *Reconciler) newCA() (pki.CA, error) {
	if ca := r.ca.next; ca.Exists() {
		r.ca.next = pki.CA{}
		return ca, nil
	}
	return pki.New(r.clock.Now())
}

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
	now, options := r.clock.Now(), pki.RotationOptions{Overlap: r.ca.overlap, Request: p.hosted.RotationRequest}
	due, at, err := p.hosted.Rotation.Due(p.hosted.CA, now, options)
	if err != nil {
		return err
	}
	if !due {
		r.ca.waiting = waitingRotation{}
		p.again(max(at.Sub(now), time.Second))
		return nil
	}
	spreading := p.hosted.Rotation.Phase != pki.Steady && p.hosted.Rotation.Effective.IsZero()
	why := r.unsettled(p)
	if why == "" && spreading {
		why = r.unpublished(ctx, p)
	}
	if why != "" {
		p.again(r.ca.waiting.tell(ctx, why))
		return nil
	}
	r.ca.waiting = waitingRotation{}
	if spreading {
		p.hosted.Rotation.Effective = now
		r.mgmt.KeepCA(p.hosted.CA, p.hosted.Rotation)
	}
	ca, rotation, err := p.hosted.Rotation.Step(p.hosted.CA, now, options)
	if err != nil {
		return err
	}
	if rotation.Phase != p.hosted.Rotation.Phase {
		logr.FromContextOrDiscard(ctx).Info("Rotating the mesh CA", "phase", cmp.Or(string(rotation.Phase), "done"), "overlap", r.ca.overlap.String())
		r.mgmt.KeepCA(ca, rotation)
		p.hosted.CA, p.hosted.Rotation = ca, rotation
		p.again(firstRotationDelay)
		return nil
	}
	p.again(max(rotation.Effective.Add(r.ca.overlap).Sub(now), time.Second))
	return nil
}

// unsettled says what a step of a rotation must not be taken before; empty when it may be.
func (r *Reconciler) unsettled(p *pass) string {
	switch {
	case p.hosted.Istiod != desired.Available || p.hosted.Rollout != desired.RolledOut:
		return "istiod to be rolled out and available"
	case !r.ca.trusted:
		return "everything that says which roots are trusted to be applied: the management side, and the guest's webhooks"
	default:
		return ""
	}
}

// unpublished says what keeps the guest's gateways from knowing the roots that are trusted; empty when nothing does.
func (r *Reconciler) unpublished(ctx context.Context, p *pass) string {
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

// waitingRotation is what a rotation waits for, and how often that was looked at.
type waitingRotation struct {
	told  notice
	delay backoff
}

// tell logs what a rotation waits for, unless it was told last, and says when to look again.
func (w *waitingRotation) tell(ctx context.Context, why string) time.Duration {
	if w.told.isNews(why) {
		logr.FromContextOrDiscard(ctx).Info("The rotation of the mesh CA waits", "for", why)
	}
	return w.delay.next(firstRotationDelay, maxRotationDelay)
}
