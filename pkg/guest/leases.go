package guest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordinationapply "k8s.io/client-go/applyconfigurations/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

// maxHolder is how much is kept of a holder's name, which the guest may make as long as it likes. Our own is shorter.
const maxHolder = 128

// leaseView watches the Leases that say which hypergate the guest belongs to, and makes them. They are never renewed.
type leaseView struct {
	// watches are one for each Lease, by its name: what else lies in the namespace is not even read, and RBAC can name what is.
	watches []*watch.Watch
	client  coordinationclient.LeaseInterface

	// mu guards what follows, by Lease.
	mu sync.Mutex
	// made are the claims that were taken and that the watch has not come to yet.
	made map[string]writtenLease
	// at is the resourceVersion that the watch has come to: of the Lease, of its end, or of a list that may not have it.
	at map[string]string
}

// writtenLease is a claim as it was answered.
type writtenLease struct {
	desired.HeldLease
	version string
	// listing: a list began after it was answered. That one shows it, whatever its version, or it is gone: the guest was restored from a backup.
	listing bool
}

func newLeaseView(client coordinationclient.LeaseInterface, claims []desired.OwnershipLease, budget *watch.Budget, notify func()) *leaseView {
	v := &leaseView{client: client, made: map[string]writtenLease{}, at: map[string]string{}}
	for _, claim := range claims {
		v.watches = append(v.watches, v.watchOf(claim.Name, budget, notify))
	}
	return v
}

func (v *leaseView) watchOf(lease string, budget *watch.Budget, notify func()) *watch.Watch {
	selector := "metadata.name=" + lease
	return watch.New(watch.Options{
		Name: "leases",
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return v.client.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = selector
			return v.client.Watch(ctx, o)
		},
		Example: &coordinationv1.Lease{}, Client: v.client, Transform: leaseOnly, Budget: budget,
		OnEvent: func(e watch.Event) {
			if item, ok := e.Object.(*leaseItem); ok && !e.Unseen {
				v.observed(lease, item.ResourceVersion)
			}
			notify()
		},
		OnListing: func() { v.listing(lease) },
		OnListed: func(version string) {
			v.listed(lease, version)
			notify()
		},
		OnTrouble: notify,
	})
}

// run watches until ctx ends.
func (v *leaseView) run(ctx context.Context) {
	for _, w := range v.watches {
		go w.Run(ctx)
	}
}

// Err is why what is known of the claims may be old, or is not known at all.
func (v *leaseView) Err() error {
	for _, w := range v.watches {
		if err := w.Err(); err != nil {
			return err
		}
	}
	return nil
}

// observed notes how far a Lease's watch has come. Of a claim that was taken up to there it knows better, whether it has shown it or not: the Lease may have come
// and gone while nothing was watched.
func (v *leaseView) observed(lease, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at[lease] = version
	if !after(v.made[lease].version, version) {
		delete(v.made, lease)
	}
}

// listing notes that a list begins, and listed that it has come.
func (v *leaseView) listing(lease string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if made, is := v.made[lease]; is {
		made.listing = true
		v.made[lease] = made
	}
}

func (v *leaseView) listed(lease, version string) {
	v.mu.Lock()
	if v.made[lease].listing {
		delete(v.made, lease)
	}
	v.mu.Unlock()
	v.observed(lease, version)
}

// acquired notes a claim that was taken in a version of its Lease, unless the watch came there before the answer did: the Lease may be gone again, and
// nothing would ever say so.
func (v *leaseView) acquired(claim desired.HeldLease, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at := v.at[claim.Name]; at == "" || after(version, at) {
		v.made[claim.Name] = writtenLease{HeldLease: claim, version: version}
	}
}

// released notes that a claim is gone; the watch will not come to it for as long as it does not work.
func (v *leaseView) released(claim desired.HeldLease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.made[claim.Name].UID == claim.UID {
		delete(v.made, claim.Name)
	}
}

// after compares versions. Of two that cannot be compared neither is after the other: the watch decides, and a claim that it does not show is taken again.
func after(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// leaseItem is what is kept of a Lease.
type leaseItem struct {
	metav1.ObjectMeta
	holder string
}

// KeptBytes is what is kept beside the metadata.
func (i *leaseItem) KeptBytes() int { return len(i.holder) }

func leaseOnly(obj any) (any, error) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return obj, nil
	}
	item := &leaseItem{ObjectMeta: metav1.ObjectMeta{
		Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID, ResourceVersion: lease.ResourceVersion, CreationTimestamp: lease.CreationTimestamp,
	}}
	if lease.Spec.HolderIdentity != nil {
		item.holder = bounded(*lease.Spec.HolderIdentity, maxHolder)
	}
	return item, nil
}

// bounded is a text, or the beginning of one that is too long, with a mark that no name of ours has. It does not keep the rest in memory.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const cut = "…"
	return strings.ToValidUTF8(text[:most-len(cut)], "") + cut
}

// pending says of a watch that it may yet show something. One that is forbidden, or of what the API server does not know, never will, and that is known.
func pending(w interface {
	Synced() bool
	Err() error
},
) bool {
	err := w.Err()
	return !w.Synced() && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
}

func (v *leaseView) pending() bool {
	return slices.ContainsFunc(v.watches, func(w *watch.Watch) bool { return pending(w) })
}

// held are the claims that somebody has. Those that were made are looked at before what the watches show: the other way round, one whose watch comes to it
// in between would be in neither.
func (v *leaseView) held() desired.ObservedLeases {
	v.mu.Lock()
	made := maps.Clone(v.made)
	v.mu.Unlock()
	var items []any
	for _, w := range v.watches {
		if !w.Synced() {
			return desired.ObservedLeases{Unknown: cmp.Or[error](w.Err(), NotSyncedError{Missing: []string{"leases"}})}
		}
		items = append(items, w.List()...)
	}
	var out desired.ObservedLeases
	for _, obj := range items {
		if item, ok := obj.(*leaseItem); ok {
			delete(made, item.Name)
			out.Held = append(out.Held, desired.HeldLease{Name: item.Name, Holder: item.holder, UID: item.UID, Since: item.CreationTimestamp.Time})
		}
	}
	for _, claim := range made {
		out.Held = append(out.Held, claim.HeldLease)
	}
	slices.SortFunc(out.Held, func(a, b desired.HeldLease) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Acquire takes a claim for a holder. It is an apply that is not forced, by a field manager of each holder's own: of two who try at once the API server lets the first
// have it, and the other's is a conflict; and RBAC can allow it by name, as it cannot for what is created otherwise. What the holder has already is not written again.
func (c *Cluster) Acquire(ctx context.Context, claim desired.OwnershipLease, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease := coordinationapply.Lease(claim.Name, c.cfg.GuestNamespace).WithLabels(map[string]string{desired.OwnershipLabel: ""}).
		WithSpec(coordinationapply.LeaseSpec().WithHolderIdentity(holder))
	got, err := c.leases.client.Apply(ctx, lease, metav1.ApplyOptions{FieldManager: desired.FieldManager + "-" + path.Base(holder)})
	if err != nil {
		return fmt.Errorf("claiming %s in the guest: %w", claim.Purpose, err)
	}
	c.leases.acquired(desired.HeldLease{Name: claim.Name, Holder: holder, UID: got.UID, Since: got.CreationTimestamp.Time}, got.ResourceVersion)
	return nil
}

// Release gives a claim back, unless it is not the one that was seen any more.
func (c *Cluster) Release(ctx context.Context, held desired.HeldLease) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := c.leases.client.Delete(ctx, held.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &held.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("giving back the claim %s in the guest: %w", held.Name, err)
	}
	c.leases.released(held)
	return nil
}

// Leases are the claims that the watches show now. It asks nobody, and may be called from anywhere.
func (c *Cluster) Leases() desired.ObservedLeases { return c.leases.held() }

// StatusWriters are the field managers, but ours, that have written a condition of a GatewayClass, by its type, as far as the watch shows.
func (c *Cluster) StatusWriters(class string) map[string]string { return c.classes.writers(class) }
