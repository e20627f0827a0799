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
	// defaultTimeout is longer than the longest timeout that a webhook may have (30 s), so that a slow webhook which the API server is told to
	// ignore does not make an object impossible to write.
	defaultTimeout = 35 * time.Second
)

// Object is what the engine needs of an object as it should be.
type Object interface {
	GVK() schema.GroupVersionKind
	// Key is the namespace (empty when cluster-scoped) and the name.
	Key() types.NamespacedName
	// JSON is the whole body of the server-side apply, with the owner label and without status, managedFields, uid and resourceVersion. It is
	// not changed and must not change while a call runs.
	JSON() []byte
}

// ID names one object of a cluster.
type ID struct {
	GVK schema.GroupVersionKind
	Key types.NamespacedName
}

// String is the kind and the name, as in "ConfigMap default/settings"; the kind alone where there is no name.
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
	return cmp.Or(cmp.Compare(i.GVK.String(), j.GVK.String()), cmp.Compare(i.Key.Namespace, j.Key.Namespace), cmp.Compare(i.Key.Name, j.Key.Name))
}

// IDs names objects, in their order.
func IDs[O Object](objs []O) []ID {
	ids := make([]ID, 0, len(objs))
	for _, o := range objs {
		ids = append(ids, ID{o.GVK(), o.Key()})
	}
	return ids
}

// Kind is a kind of object that may be applied.
type Kind struct {
	GVK        schema.GroupVersionKind
	Resource   string
	Namespaced bool
	// Prune says that objects of this kind are ours alone: they are deleted when they are no longer wanted, and never shared with others.
	Prune bool
	// Foreground makes a deletion wait for what the object has made, pods for example: the object is there until they are gone.
	Foreground bool
	// Barrier makes objects of later kinds wait until those of this kind and of the kinds before it are written: what is in a namespace needs
	// the namespace, and a binding its role (RBAC looks it up, unless the writer has the verb bind).
	Barrier bool
	// Names are the only names that objects of this kind may have; empty means any. Each is watched by itself, with a field selector, which
	// RBAC can allow without allowing to list the others: it knows names, and no labels. An object with our label and another name is not
	// seen, and so never pruned.
	Names []string
}

func (k Kind) gvr() schema.GroupVersionResource { return k.GVK.GroupVersion().WithResource(k.Resource) }
func (k Kind) resource() schema.GroupResource   { return k.gvr().GroupResource() }

// Options say which cluster this is, what may be applied there and how our objects are known.
type Options struct {
	// Name is the cluster's name in errors and logs.
	Name string
	// Namespace is the only one that namespaced objects may be in, and that is watched; empty means all.
	Namespace string
	// NamespacedOnly refuses cluster-scoped kinds. It needs Namespace.
	NamespacedOnly bool
	// FieldManager is the manager of the fields that we apply.
	FieldManager string
	// OwnerKey and OwnerValue are the label that makes an object ours.
	OwnerKey, OwnerValue string
	// Kinds are all kinds that may be applied, in the order of applying; pruning goes backwards.
	Kinds []Kind
	// Concurrency is how many requests may run at once; 0 means 8.
	Concurrency int
	// Timeout ends a request that gets no answer; 0 means 35 s. Watches have none.
	Timeout time.Duration
	// Budget bounds what the watches read and keep; nil: nothing does.
	Budget *watch.Budget
	// Clock tells how often an object was written lately; nil means the system's.
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

// validateKind says what is wrong with a kind that comes after others.
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

// Cluster applies objects to one cluster and watches them. Its methods are safe for concurrent use, but two overlapping calls of Apply may
// write the same object twice.
type Cluster struct {
	opts    Options
	kinds   map[schema.GroupVersionKind]int
	client  metadata.Interface
	seed    maphash.Seed
	tracker *tracker
}

// New checks the options and prepares a client. It sends nothing.
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
	// The API server has priority and fairness; a limit of our own only adds latency.
	cfg.QPS, cfg.RateLimiter = -1, nil
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the HTTP client of the %s cluster: %w", opts.Name, err)
	}
	client, err := metadata.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the %s cluster: %w", opts.Name, err)
	}
	c := &Cluster{opts: opts, kinds: map[schema.GroupVersionKind]int{}, client: client, seed: maphash.MakeSeed()}
	for i, k := range opts.Kinds {
		c.kinds[k.GVK] = i
	}
	c.tracker = newTracker(opts.Kinds, opts.Clock)
	return c, nil
}

// Members are the objects with our label that the watches have shown, sorted.
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

// UID is the UID under which an object of ours was last written or seen; empty when it is not there.
func (c *Cluster) UID(id ID) types.UID {
	kind, ok := c.kinds[id.GVK]
	if !ok {
		return ""
	}
	return c.tracker.currentUID(kind, id.Key)
}

// Ahead says whether the watches have shown a newer version of an object than the given one. Who decides by a copy of its own whether an object is
// written must let that catch up first: Apply goes by what these watches show, and would write by a decision that is out of date.
func (c *Cluster) Ahead(id ID, resourceVersion string) bool {
	kind, ok := c.kinds[id.GVK]
	if !ok {
		return false
	}
	seen := c.tracker.seenVersion(kind, id.Key)
	return seen != "" && newer(seen, resourceVersion)
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

// labelled says whether an object carries our label.
func (c *Cluster) labelled(o *metav1.PartialObjectMetadata) bool {
	return o.Labels[c.opts.OwnerKey] == c.opts.OwnerValue
}

func (c *Cluster) fields() fieldsOf { return fieldsOf{c.seed, c.opts.FieldManager} }

// look reads an object's metadata.
func (c *Cluster) look(ctx context.Context, k Kind, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	return c.resource(k, key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
}
