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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coordinationapply "k8s.io/client-go/applyconfigurations/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/watch"
)

// maxHolder is how many bytes of a holder's name are kept. The guest can set a name of any length. hypergate's own
// names are shorter.
const maxHolder = 128

// leaseView watches and creates the ownership Leases. They say which hypergate owns the guest. They are never
// renewed.
type leaseView struct {
	// watches has one watch for each Lease, selected by name. Other Leases in the namespace are not read, and RBAC
	// can restrict access to the names.
	watches []*watch.Watch
	client  coordinationclient.LeaseInterface

	// mu guards the fields below. Their keys are names of Leases.
	mu sync.Mutex
	// made has the Leases that hypergate acquired and that the watch has not shown yet.
	made map[string]writtenLease
	// at is the resourceVersion that the watch has reached: that of the Lease, of its deletion, or of a list. The
	// list does not necessarily contain the Lease.
	at map[string]string
}

// writtenLease is a Lease as the API server returned it from a write.
type writtenLease struct {
	model.HeldLease
	version string
	// listing reports whether a list began after the write. That list shows the Lease, whatever its version. If not,
	// the Lease is gone, because the guest was restored from a backup.
	listing bool
}

func newLeaseView(
	client coordinationclient.LeaseInterface, leases []ownership.Lease, budget *watch.Budget, notify func(),
) *leaseView {
	v := &leaseView{client: client, made: map[string]writtenLease{}, at: map[string]string{}}
	for _, lease := range leases {
		v.watches = append(v.watches, v.watchOf(lease.Name, budget, notify))
	}
	return v
}

func (v *leaseView) watchOf(lease string, budget *watch.Budget, notify func()) *watch.Watch {
	options := selectedWatch("leases", v.client, named(lease))
	options.Example, options.Client, options.Transform, options.Budget = &coordinationv1.Lease{}, v.client, leaseOnly, budget
	options.OnEvent = func(e watch.Event) {
		if item, ok := e.Object.(*leaseItem); ok && !e.Unseen {
			v.observed(lease, item.ResourceVersion)
		}
		notify()
	}
	options.OnListing = func() { v.listing(lease) }
	options.OnListed = func(version string) {
		v.listed(lease, version)
		notify()
	}
	options.OnProblem = notify
	return watch.New(options)
}

// run starts the watches. They run until ctx ends.
func (v *leaseView) run(ctx context.Context) {
	for _, w := range v.watches {
		go w.Run(ctx)
	}
}

// Err returns why the observation of the Leases is unknown or can be stale, or nil.
func (v *leaseView) Err() error {
	for _, w := range v.watches {
		if err := w.Err(); err != nil {
			return err
		}
	}
	return nil
}

// observed records the version that the watch of a Lease has reached. From that version on, the watch is the better
// source, even if it never showed the Lease. The Lease can be created and deleted while no watch is running.
func (v *leaseView) observed(lease, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at[lease] = version
	if !after(v.made[lease].version, version) {
		delete(v.made, lease)
	}
}

// listing records that a list begins.
func (v *leaseView) listing(lease string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if made, is := v.made[lease]; is {
		made.listing = true
		v.made[lease] = made
	}
}

// listed records that the list has arrived, and its version.
func (v *leaseView) listed(lease, version string) {
	v.mu.Lock()
	if v.made[lease].listing {
		delete(v.made, lease)
	}
	v.mu.Unlock()
	v.observed(lease, version)
}

// acquired records a Lease that was acquired, with its resourceVersion. It ignores a version that the watch reached
// before the answer arrived. The Lease can already be deleted again, and no later event would show that.
func (v *leaseView) acquired(lease model.HeldLease, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at := v.at[lease.Name]; at == "" || after(version, at) {
		v.made[lease.Name] = writtenLease{HeldLease: lease, version: version}
	}
}

// released records that a Lease was deleted. A failing watch does not show the deletion, so the Lease would otherwise
// stay in made.
func (v *leaseView) released(lease model.HeldLease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.made[lease.Name].UID == lease.UID {
		delete(v.made, lease.Name)
	}
}

// after reports whether resourceVersion a is later than b. It returns false if the two cannot be compared. The watch
// then decides, and a Lease that it does not show is acquired again.
func after(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// leaseItem is the part of a Lease that is kept.
type leaseItem struct {
	metav1.ObjectMeta
	holder string
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *leaseItem) KeptBytes() int { return len(i.holder) }

func leaseOnly(obj any) (any, error) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return obj, nil
	}
	item := &leaseItem{ObjectMeta: metav1.ObjectMeta{
		Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID, ResourceVersion: lease.ResourceVersion,
		CreationTimestamp: lease.CreationTimestamp,
	}}
	if lease.Spec.HolderIdentity != nil {
		item.holder = bounded(*lease.Spec.HolderIdentity, maxHolder)
	}
	return item, nil
}

// bounded returns text, cut to a length of most bytes. A cut text ends with a mark that no name of hypergate contains.
// The result does not keep the rest of a cut text in memory.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const cut = "…"
	return strings.ToValidUTF8(text[:most-len(cut)], "") + cut
}

// pending reports whether a watch that has not synced can still sync. A watch that gets the error Forbidden or
// NotFound cannot, and that is a known state.
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

// held returns the Leases that exist. It reads made before it reads the watches. In the other order it would miss a
// Lease that its watch shows in between.
func (v *leaseView) held() model.ObservedLeases {
	v.mu.Lock()
	made := maps.Clone(v.made)
	v.mu.Unlock()
	var items []any
	for _, w := range v.watches {
		if !w.Synced() {
			return model.ObservedLeases{Unknown: cmp.Or[error](w.Err(), NotSyncedError{Missing: []string{"leases"}})}
		}
		items = append(items, w.List()...)
	}
	var out model.ObservedLeases
	for _, obj := range items {
		if item, ok := obj.(*leaseItem); ok {
			delete(made, item.Name)
			out.Held = append(out.Held, model.HeldLease{
				Name: item.Name, Holder: item.holder, UID: item.UID, Since: item.CreationTimestamp.Time,
			})
		}
	}
	for _, lease := range made {
		out.Held = append(out.Held, lease.HeldLease)
	}
	slices.SortFunc(out.Held, func(a, b model.HeldLease) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Acquire applies an ownership Lease for a holder, without force. Each holder has its own field manager. If two
// holders apply at the same time, the API server accepts the first and returns a conflict to the other.
//
// An apply lets RBAC allow the write by name, which is impossible for a create. The API server does not write a Lease
// again that the holder already has.
func (c *Cluster) Acquire(ctx context.Context, lease ownership.Lease, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := coordinationapply.Lease(lease.Name, c.cfg.GuestNamespace).WithLabels(map[string]string{model.OwnershipLabel: ""}).
		WithSpec(coordinationapply.LeaseSpec().WithHolderIdentity(holder))
	got, err := c.leases.client.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: model.FieldManager + "-" + path.Base(holder)})
	if err != nil {
		return fmt.Errorf("acquiring the ownership Lease for %s in the guest: %w", lease.Purpose, err)
	}
	if err := apply.Unidentified(got); err != nil { // it was written, so this counts as an acquisition
		return fmt.Errorf("acquiring the ownership Lease for %s in the guest: %w", lease.Purpose, err)
	}
	held := model.HeldLease{Name: lease.Name, Holder: holder, UID: got.UID, Since: got.CreationTimestamp.Time}
	c.leases.acquired(held, got.ResourceVersion)
	return nil
}

// Release deletes an ownership Lease, unless the Lease is another one than the caller observed (by its UID).
func (c *Cluster) Release(ctx context.Context, held model.HeldLease) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := c.leases.client.Delete(ctx, held.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &held.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("releasing the ownership Lease %s in the guest: %w", held.Name, err)
	}
	c.leases.released(held)
	return nil
}

// Leases returns the ownership Leases that the watches show now. It sends no requests, and is safe for concurrent
// use.
func (c *Cluster) Leases() model.ObservedLeases { return c.leases.held() }
