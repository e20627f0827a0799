package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/watch"
)

const (
	defaultConcurrency = 8
	// defaultTimeout is longer than the longest timeout of a webhook (30 s). So a slow webhook whose failures the API
	// server ignores does not make an object impossible to write.
	defaultTimeout = 35 * time.Second
)

// Object is a desired object, as far as this package needs it.
type Object interface {
	GVK() schema.GroupVersionKind
	// Key returns the namespace (empty for cluster-scoped objects) and the name.
	Key() types.NamespacedName
	// JSON returns the whole body of the server-side apply. It has the owner label, and no status, managedFields, uid
	// or resourceVersion. The package does not change it, and it must not change during a call.
	JSON() []byte
}

// ID identifies one object of a cluster.
type ID struct {
	GVK schema.GroupVersionKind
	Key types.NamespacedName
}

// String returns the kind and the name, as in "ConfigMap default/settings". It returns only the kind if there is no
// name.
func (i ID) String() string {
	switch {
	case i.Key.Name == "":
		return i.GVK.Kind
	case i.Key.Namespace == "":
		return i.GVK.Kind + " " + i.Key.Name
	default:
		return i.GVK.Kind + " " + i.Key.String()
	}
}

func (i ID) compare(j ID) int {
	return cmp.Or(
		cmp.Compare(i.GVK.String(), j.GVK.String()),
		cmp.Compare(i.Key.Namespace, j.Key.Namespace),
		cmp.Compare(i.Key.Name, j.Key.Name),
	)
}

// IDs returns the IDs of objects, in the order of objs.
func IDs[O Object](objs []O) []ID {
	ids := make([]ID, 0, len(objs))
	for _, o := range objs {
		ids = append(ids, ID{o.GVK(), o.Key()})
	}
	return ids
}

// Kind is a kind of object that the caller can apply.
type Kind struct {
	GVK        schema.GroupVersionKind
	Resource   string
	Namespaced bool
	// Prune marks a kind whose objects belong only to us. Prune deletes them when the caller no longer wants them.
	// They are never shared with other managers.
	Prune bool
	// Foreground deletes an object in the foreground: it exists until its dependents, for example pods, are gone. Until
	// then, Prune deletes no object of the kinds before it.
	Foreground bool
	// Barrier makes objects of later kinds wait until all objects of this kind and of the earlier kinds are written.
	// A namespaced object needs its namespace. A binding needs its role, because RBAC looks the role up unless the
	// writer has the verb bind.
	Barrier bool
	// Settle is for kinds whose status the API server itself writes after each change. A write with a resourceVersion
	// (AtVersion) would meet that write, be refused, and cost a second one. So an object that another client changed is
	// left as it is until the watch shows the next version with the same content, and at most for Settle.
	Settle time.Duration
	// Names lists the only names that objects of this kind can have. Empty means any name.
	//
	// Each name has its own watch with a field selector. RBAC can allow such a watch without allowing to list the
	// other objects, because RBAC supports names but not labels. An object with the owner label and another name is
	// not observed, so it is never pruned.
	Names []string
}

func (k Kind) gvr() schema.GroupVersionResource { return k.GVK.GroupVersion().WithResource(k.Resource) }
func (k Kind) resource() schema.GroupResource   { return k.gvr().GroupResource() }

// Options define the cluster, the kinds that the caller can apply there, and how owned objects are identified.
type Options struct {
	// Name is the cluster's name in errors and logs.
	Name string
	// Namespace is the only namespace that namespaced objects can be in, and the only one that is watched. Empty
	// means all.
	Namespace string
	// NamespacedOnly refuses cluster-scoped kinds. It requires Namespace.
	NamespacedOnly bool
	// FieldManager is the name of the field manager of our applies.
	FieldManager string
	// OwnerKey and OwnerValue are the owner label: the label that marks owned objects.
	OwnerKey, OwnerValue string
	// Kinds are all kinds that the caller can apply, in the order of applying. Prune uses the reverse order.
	Kinds []Kind
	// Concurrency is the maximum number of concurrent requests. Zero means 8.
	Concurrency int
	// Timeout ends a request that gets no response. Zero means 35 s. Watches have no timeout.
	Timeout time.Duration
	// Budget limits what the watches read and keep. Nil means no limit.
	Budget *watch.Budget
	// Clock measures how often an object was written recently. Nil means the system clock.
	Clock clock.PassiveClock
}

func (o Options) validate() error {
	var errs []error
	if o.FieldManager == "" || o.OwnerKey == "" || o.OwnerValue == "" {
		errs = append(errs, errors.New("the field manager and the owner label must be given"))
	}
	if o.NamespacedOnly && o.Namespace == "" {
		errs = append(errs, errors.New("a namespaced-only cluster needs a namespace"))
	}
	for i, k := range o.Kinds {
		errs = append(errs, o.validateKind(k, o.Kinds[:i]))
	}
	return errors.Join(errs...)
}

// validateKind returns the error of a kind, given the kinds before it.
func (o Options) validateKind(k Kind, before []Kind) error {
	switch {
	case k.GVK.Kind == "" || k.Resource == "":
		return fmt.Errorf("kind %s (resource %q) is incomplete", k.GVK, k.Resource)
	case slices.ContainsFunc(before, func(other Kind) bool { return other.GVK == k.GVK }):
		return fmt.Errorf("kind %s is listed twice", k.GVK)
	case slices.Contains(k.Names, "") || len(k.Names) != len(slices.Compact(slices.Sorted(slices.Values(k.Names)))):
		return fmt.Errorf("kind %s has a name that is empty or listed twice", k.GVK)
	case o.NamespacedOnly && !k.Namespaced:
		return fmt.Errorf("kind %s is cluster-scoped, and only namespaced kinds may be applied here", k.GVK)
	}
	return nil
}

// Cluster applies objects to one cluster and watches them. Its methods are safe for concurrent use. Two overlapping
// calls of Apply can write the same object twice.
type Cluster struct {
	opts    Options
	kinds   map[schema.GroupVersionKind]int
	client  metadata.Interface
	seed    maphash.Seed
	tracker *tracker
	// reads has room for one read at a time, see look.
	reads chan struct{}
}

// New validates the options and prepares a client. It sends nothing.
func New(cfg *rest.Config, opts Options) (*Cluster, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("preparing to apply to the %s cluster: %w", opts.Name, err)
	}
	opts.Kinds = slices.Clone(opts.Kinds)
	for i, k := range opts.Kinds {
		opts.Kinds[i].Names = slices.Clone(k.Names)
	}
	opts.Concurrency = cmp.Or(max(opts.Concurrency, 0), defaultConcurrency)
	opts.Timeout = cmp.Or(max(opts.Timeout, 0), defaultTimeout)
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	cfg = rest.CopyConfig(cfg)
	// The API server has priority and fairness. A client-side rate limit only adds latency.
	cfg.QPS, cfg.RateLimiter = -1, nil
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the HTTP client of the %s cluster: %w", opts.Name, err)
	}
	client, err := metadata.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the %s cluster: %w", opts.Name, err)
	}
	c := &Cluster{
		opts: opts, kinds: map[schema.GroupVersionKind]int{}, client: client, seed: maphash.MakeSeed(),
		reads: make(chan struct{}, 1),
	}
	for i, k := range opts.Kinds {
		c.kinds[k.GVK] = i
	}
	c.tracker = newTracker(opts.Kinds, opts.Clock)
	return c, nil
}

// Members returns the IDs of the objects with the owner label that the watches have shown, sorted.
func (c *Cluster) Members() []ID {
	var ids []ID
	for i, k := range c.opts.Kinds {
		for _, key := range c.tracker.members(i) {
			ids = append(ids, ID{k.GVK, key})
		}
	}
	slices.SortFunc(ids, ID.compare)
	return ids
}

// UID returns the UID under which an owned object was last written or seen. It returns "" if the object does not
// exist.
func (c *Cluster) UID(id ID) types.UID {
	kind, ok := c.kinds[id.GVK]
	if !ok {
		return ""
	}
	return c.tracker.currentUID(kind, id.Key)
}

func (c *Cluster) resource(k Kind, namespace string) metadata.ResourceInterface {
	if k.Namespaced {
		return c.client.Resource(k.gvr()).Namespace(namespace)
	}
	return c.client.Resource(k.gvr())
}

func (c *Cluster) selector() string {
	return labels.Set{c.opts.OwnerKey: c.opts.OwnerValue}.String()
}

// labelled reports whether an object carries the owner label.
func (c *Cluster) labelled(o *metav1.PartialObjectMetadata) bool {
	return o.Labels[c.opts.OwnerKey] == c.opts.OwnerValue
}

func (c *Cluster) fields() fieldsOf { return fieldsOf{c.seed, c.opts.FieldManager} }

// look reads the metadata of an object. One object is read at a time, because its metadata can be much larger than the
// response to a write, and each of the objects that are written at once can need it.
func (c *Cluster) look(ctx context.Context, k Kind, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	select {
	case c.reads <- struct{}{}:
		defer func() { <-c.reads }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	return c.resource(k, key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
}
