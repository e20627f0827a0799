package guest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/watch"
)

// Cluster is the guest cluster.
type Cluster struct {
	cfg       model.Config
	conn      *guestconn.Conn
	budget    *watch.Budget
	objects   *apply.Cluster
	core      coreclient.CoreV1Interface
	spaces    metadata.ResourceInterface
	dynamic   dynamic.Interface
	gateway   gatewayclient.GatewayV1Interface
	crds      *crdView
	reader    *crdReader
	olm       *olmView
	inUse     *useView
	looks     namespaceLooks
	namespace *watch.Watch
	classes   *classWatch
	mode      *modeWatch
	nodes     openShiftConfig[model.InfrastructureTopology]
	proxy     openShiftConfig[proxySettings]
	apiServer openShiftConfig[model.TLSProfile]
	leases    *leaseView
	foreign   *foreignView
	relays    *watch.Watch // of the tunnel
	defaults  *watch.Watch // for the gateways of a class
	rolled    *gatewayView
	// observed maps the wanted CRDs to the resourceVersions of the last observation.
	observed atomic.Pointer[map[apply.ID]string]
	// rearrange has a value while an arrangement of watches is requested.
	rearrange chan struct{}
	// Start sets notify and log before it starts any goroutine.
	notify func()
	log    logr.Logger
}

const crdKind = "CustomResourceDefinition"

// servedPatience is how long a watch retries the objects of a CRD while the API server answers 404. A new CRD is
// served almost at once, or after five seconds if there are several API servers.
const servedPatience = 30 * time.Second

func crdResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

func namespaceResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

// New returns a Cluster with its clients. It sends no requests. The CRDs of the guest are compared with those of
// source.
func New(conn *guestconn.Conn, cfg model.Config, source desired.ChartSource) (*Cluster, error) {
	c, err := connect(conn, cfg, source)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	return c, nil
}

func connect(conn *guestconn.Conn, cfg model.Config, source desired.ChartSource) (*Cluster, error) {
	restConfig := conn.Config()
	// innermost: on a page above the watch limits it fails first, and the watch then asks for a smaller page
	restConfig.Wrap(limitStreams)
	restConfig.Wrap(Limit())
	budget := watch.NewBudget(watch.DefaultLimits())
	httpClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		return nil, err
	}
	objects, err := apply.New(restConfig, apply.Options{
		Name:         string(model.SideGuest),
		Namespace:    cfg.GuestNamespace,
		FieldManager: model.FieldManager,
		OwnerKey:     model.OwnerLabel,
		OwnerValue:   cfg.OwnerValue(model.SideGuest),
		Kinds:        kinds(),
		Budget:       budget,
	})
	if err != nil {
		return nil, err
	}
	core, err := coreclient.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	gateway, err := gatewayclient.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(restConfig), httpClient)
	if err != nil {
		return nil, err
	}
	leases, err := coordinationclient.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	spaces, err := namespaceClient(conn.Config())
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg: cfg, conn: conn, budget: budget, objects: objects,
		core: core, spaces: spaces, dynamic: dynamicClient, gateway: gateway, rearrange: make(chan struct{}, 1),
	}
	c.leases = newLeaseView(leases.Leases(cfg.GuestNamespace), ownership.Leases(cfg), budget, func() { c.notify() })
	c.watches(meta, source)
	return c, nil
}

// watches prepares all watches except those of hypergate's own objects and of the ownership Leases.
func (c *Cluster) watches(meta metadata.Interface, source desired.ChartSource) {
	notify := func() { c.notify() }
	c.crds = newCRDView(meta, c.cfg, c.budget, c.onCRD, notify)
	c.reader = newCRDReader(c.dynamic, c.budget, source, c.crds, func() {
		c.arrangeSoon()
		c.notify()
	})
	c.olm = newOLMView(meta, c.budget, notify)
	c.inUse = newUseView(c.dynamic, meta, c.cfg, c.budget, notify)
	namespace := metadataWatch(meta, namespaceResource(), named(c.cfg.GuestNamespace))
	namespace.Budget = c.budget
	namespace.OnEvent, namespace.OnSynced, namespace.OnProblem = func(watch.Event) { c.notify() }, notify, notify
	c.namespace = watch.New(namespace)
	c.foreign = newForeignView(meta, c.cfg, c.budget, notify)
	c.relays = newRelayWatch(c.dynamic, c.cfg.GuestNamespace, c.budget, notify)
	c.defaults = newDefaultsWatch(c.core.ConfigMaps(c.cfg.GuestNamespace), c.cfg.OwnerValue(model.SideGuest), c.budget, notify)
	c.rolled = newGatewayView(c.dynamic, c.cfg.Revision, c.budget, notify)
	c.classes = newClassWatch(c.gateway.GatewayClasses(), c.cfg.ControllerName, c.budget, notify)
	c.nodes = newOpenShiftConfig("infrastructures", "Infrastructure", topologyOf, c.dynamic, c.budget, notify)
	c.proxy = newOpenShiftConfig("proxies", "Proxy", proxyOf, c.dynamic, c.budget, notify)
	c.apiServer = newOpenShiftConfig("apiservers", "APIServer", tlsProfileOf, c.dynamic, c.budget, notify)
	c.mode = newModeWatch(c.dynamic, c.budget, notify, func(mode string) {
		c.log.Info("The guest's management mode is unknown to this version; --crd-management decides", "mode", mode)
	})
}

func kinds() []apply.Kind {
	all := model.GuestKinds()
	out := make([]apply.Kind, 0, len(all))
	for _, k := range all {
		kind := apply.Kind{
			GVK: k.GVK, Resource: k.Resource, Namespaced: k.Namespaced, Names: k.Names, Prune: !k.NeverPrune, Barrier: k.Barrier,
		}
		if k.GVK.Kind == crdKind {
			kind.Settle = crdSettle
		}
		out = append(out, kind)
	}
	return out
}

// crdSettle is how long a CRD that another client changed is left as it is. The wait ends when the API server writes
// the CRD's status, with the names that it accepts. That takes 30 ms for a small CRD, and 150 ms for a large one.
const crdSettle = 300 * time.Millisecond

// metadataWatch returns the options of a watch of a resource's metadata, in all namespaces. It keeps the identity of
// each object that selected matches.
func metadataWatch(client metadata.Interface, gvr schema.GroupVersionResource, selected metav1.ListOptions) watch.Options {
	out := selectedWatch(gvr.Resource, client.Resource(gvr), selected)
	out.Example, out.Client, out.Transform = &metav1.PartialObjectMetadata{}, client, identityOnly
	return out
}

func identityOnly(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion},
	}, nil
}

// Start starts the watches and returns at once. Call it only once. notify is called on every event that can matter.
// Without a kubeconfig there is nothing to watch yet. Start then waits in the background for one.
func (c *Cluster) Start(ctx context.Context, notify func()) error {
	ctx = watch.WithOutage(watch.WithSession(ctx, c.conn.Session, c.conn.Replaced))
	c.log = klog.FromContext(ctx).WithValues("cluster", string(model.SideGuest))
	c.notify = notify
	go c.conn.Run(ctx, notify)
	select {
	case <-c.conn.Begun():
		return c.watchAll(ctx)
	default:
	}
	go func() {
		select {
		case <-c.conn.Begun():
			if err := c.watchAll(ctx); err != nil {
				c.log.Error(err, "Starting the guest's watches failed")
			}
		case <-ctx.Done():
		}
	}()
	return nil
}

func (c *Cluster) watchAll(ctx context.Context) error {
	if err := c.objects.Start(ctx, c.notify); err != nil {
		return fmt.Errorf("watching the guest: %w", err)
	}
	ctx = klog.NewContext(ctx, c.log) // the watches of the objects add the cluster name themselves
	go c.keepArranged(ctx)
	go c.crds.Run(ctx)
	go c.reader.run(ctx)
	go c.namespace.Run(ctx)
	c.leases.run(ctx)
	go c.foreign.istiod.Run(ctx)
	go c.defaults.Run(ctx)
	if c.cfg.Publish.RelayImage != "" { // otherwise there are no relays
		go c.relays.Run(ctx)
	}
	return nil
}

// onCRD handles a change of a CRD that decisions depend on. The guest's other CRDs do not cause a call. It leaves the
// work to other goroutines: the guest decides how often it is called.
func (c *Cluster) onCRD() {
	c.arrangeSoon()
	c.reader.look()
	c.notify()
}

// Apply applies objects to the guest. CRDs need a decision first; see WriteCRDs.
func (c *Cluster) Apply(ctx context.Context, objects []model.GuestObject) apply.Report {
	return apply.Apply(ctx, c.objects, objects)
}

// Prune deletes the objects that belong to hypergate and are not in keep.
func (c *Cluster) Prune(ctx context.Context, keep []model.GuestObject) apply.Report {
	return c.objects.Prune(ctx, apply.IDs(keep)...)
}

// PruneWebhooks is like Prune, but deletes only webhook configurations.
func (c *Cluster) PruneWebhooks(ctx context.Context, keep []model.GuestObject) apply.Report {
	return c.pruneExcept(ctx, keep, func(gvk schema.GroupVersionKind) bool { return gvk.Group != "admissionregistration.k8s.io" })
}

// PruneExceptAccess is like Prune, but does not delete service accounts, roles and bindings.
func (c *Cluster) PruneExceptAccess(ctx context.Context, keep []model.GuestObject) apply.Report {
	return c.pruneExcept(ctx, keep, model.GrantsAccess)
}

// pruneExcept is like Prune, but does not delete objects of the spared kinds.
func (c *Cluster) pruneExcept(ctx context.Context, keep []model.GuestObject, spared func(schema.GroupVersionKind) bool) apply.Report {
	kept := apply.IDs(keep)
	for _, id := range c.objects.Members() {
		if spared(id.GVK) {
			kept = append(kept, id)
		}
	}
	return c.objects.Prune(ctx, kept...)
}

// HasFormerAccess reports whether the watches show a service account, a role or a binding of hypergate that is not in
// keep. An earlier version has installed it under another name.
func (c *Cluster) HasFormerAccess(keep []model.GuestObject) bool {
	kept := apply.IDs(keep)
	return slices.ContainsFunc(c.objects.Members(), func(id apply.ID) bool {
		return model.GrantsAccess(id.GVK) && !slices.Contains(kept, id)
	})
}

// HasWebhook reports whether the watch shows a validating webhook configuration of hypergate in the guest.
func (c *Cluster) HasWebhook() bool {
	return slices.ContainsFunc(c.objects.Members(), func(id apply.ID) bool { return id.GVK.Kind == "ValidatingWebhookConfiguration" })
}
