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
	waiting rotationDelay
}

// ensureCA has a mesh CA for the classes, and rotates it. Unmanaged, one that is there is kept as it is.
func (r *Reconciler) ensureCA(ctx context.Context, p *pass) error {
	switch {
	case len(p.guest.Classes) == 0:
		return nil
	case p.mgmt.InvalidCA != nil:
		return p.mgmt.InvalidCA // in each mode: a plan without the CA would delete it
	case !r.managed(p):
		return nil
	}
	if err := r.loadOrCreateCA(p); err != nil {
		return err
	}
	if err := r.rotate(ctx, p); err != nil {
		return fmt.Errorf("rotating the mesh CA: %w", err)
	}
	return nil
}

// loadOrCreateCA makes the mesh CA where there is none, and refuses one that cannot be used.
func (r *Reconciler) loadOrCreateCA(p *pass) error {
	now := r.clock.Now()
	if !p.mgmt.CA.Exists() {
		ca, err := r.newCA()
		if err != nil {
			return err
		}
		r.mgmt.CacheCA(ca, pki.Rotation{})
		p.mgmt.CA = ca
	}
	if err := cmp.Or(p.mgmt.CA.Check(now), p.mgmt.Rotation.Check(p.mgmt.CA, now)); err != nil {
		r.mgmt.RereadCA()
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
	if p.mgmt.CAOwner == desired.Theirs {
		return nil
	}
	now, options := r.clock.Now(), pki.RotationOptions{Overlap: r.ca.overlap, Request: p.mgmt.RotationRequest}
	due, at, err := p.mgmt.Rotation.Due(p.mgmt.CA, now, options)
	if err != nil {
		return err
	}
	if !due {
		r.ca.waiting = rotationDelay{}
		p.requeueAfter(max(at.Sub(now), time.Second))
		return nil
	}
	spreading := p.mgmt.Rotation.Phase != pki.Steady && p.mgmt.Rotation.Effective.IsZero()
	why := r.unsettled(p)
	if why == "" && spreading {
		why = r.unpublished(ctx, p)
	}
	if why != "" {
		p.requeueAfter(r.ca.waiting.tell(ctx, why))
		return nil
	}
	r.ca.waiting = rotationDelay{}
	if spreading {
		p.mgmt.Rotation.Effective = now
		r.mgmt.CacheCA(p.mgmt.CA, p.mgmt.Rotation)
	}
	ca, rotation, err := p.mgmt.Rotation.Step(p.mgmt.CA, now, options)
	if err != nil {
		return err
	}
	if rotation.Phase != p.mgmt.Rotation.Phase {
		logr.FromContextOrDiscard(ctx).Info("Rotating the mesh CA", "phase", cmp.Or(string(rotation.Phase), "done"), "overlap", r.ca.overlap.String())
		r.mgmt.CacheCA(ca, rotation)
		p.mgmt.CA, p.mgmt.Rotation = ca, rotation
		p.requeueAfter(firstRotationDelay)
		return nil
	}
	p.requeueAfter(max(rotation.Effective.Add(r.ca.overlap).Sub(now), time.Second))
	return nil
}

// unsettled says what a step of a rotation must not be taken before; empty when it may be.
func (r *Reconciler) unsettled(p *pass) string {
	switch {
	case p.mgmt.Istiod != desired.Available || p.mgmt.Rollout != desired.RolledOut:
		return "istiod to be rolled out and available"
	case !r.ca.trusted:
		return "everything that says which roots are trusted to be applied: the management side, and the guest's webhooks"
	default:
		return ""
	}
}

// unpublished says what keeps the guest's gateways from knowing the roots that are trusted; empty when nothing does.
func (r *Reconciler) unpublished(ctx context.Context, p *pass) string {
	switch all, err := r.guest.HasRoots(ctx, p.mgmt.CA.Root); {
	case err != nil:
		// The cause, and not the text, which tells of ports: what is the same from try to try is told once.
		return "the guest to show the roots that its gateways trust: " + apply.Classify(err, "get", schema.GroupResource{Resource: "configmaps"}).String()
	case !all:
		return "istiod to publish the roots in the guest"
	default:
		return ""
	}
}

// rotationDelay is what a rotation waits for, and how often that was looked at.
type rotationDelay struct {
	told  lastLogged
	delay backoff
}

// tell logs what a rotation waits for, unless it was told last, and says when to look again.
func (w *rotationDelay) tell(ctx context.Context, why string) time.Duration {
	if w.told.isNew(why) {
		logr.FromContextOrDiscard(ctx).Info("The rotation of the mesh CA waits", "for", why)
	}
	return w.delay.next(firstRotationDelay, maxRotationDelay)
}
