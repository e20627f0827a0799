package guest

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/watch"
)

// Cluster is the guest.
type Cluster struct {
	cfg       desired.Config
	conn      *guestconn.Conn
	objects   *apply.Cluster
	core      coreclient.CoreV1Interface
	dynamic   dynamic.Interface
	gateway   gatewayclient.GatewayV1Interface
	crds      *watch.Watch
	namespace *watch.Watch
	classes   *classWatch
	notify    func()
}

func crdResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

func namespaceResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

// New makes the clients of the guest. It makes no request.
func New(conn *guestconn.Conn, cfg desired.Config) (*Cluster, error) {
	c, err := connect(conn, cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	return c, nil
}

func connect(conn *guestconn.Conn, cfg desired.Config) (*Cluster, error) {
	restConfig := conn.Config()
	restConfig.Wrap(limitAnswers)
	httpClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		return nil, err
	}
	objects, err := apply.New(restConfig, apply.Options{
		Name:         string(desired.SideGuest),
		Namespace:    cfg.GuestNamespace,
		FieldManager: desired.FieldManager,
		OwnerKey:     desired.OwnerLabel,
		OwnerValue:   cfg.OwnerValue(desired.SideGuest),
		Kinds:        kinds(),
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
	c := &Cluster{cfg: cfg, conn: conn, objects: objects, core: core, dynamic: dynamicClient, gateway: gateway}
	c.crds = watch.New(metadataWatch(meta, crdResource(), "", c.onCRD(), func() { c.notify() }))
	c.namespace = watch.New(metadataWatch(meta, namespaceResource(), "metadata.name="+cfg.GuestNamespace, func(watch.Event) { c.notify() }, func() { c.notify() }))
	c.classes = newClassWatch(gateway.GatewayClasses(), cfg.ControllerName, func() { c.notify() })
	return c, nil
}

func kinds() []apply.Kind {
	all := desired.GuestKinds()
	out := make([]apply.Kind, 0, len(all))
	for _, k := range all {
		out = append(out, apply.Kind{GVK: k.GVK, Resource: k.Resource, Namespaced: k.Namespaced, Prune: !k.Kept, Barrier: k.First})
	}
	return out
}

// metadataWatch watches the metadata of a cluster-scoped resource.
func metadataWatch(client metadata.Interface, gvr schema.GroupVersionResource, fields string, onEvent func(watch.Event), onSynced func()) watch.Options {
	return watch.Options{
		Name: gvr.Resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = fields
			return client.Resource(gvr).List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = fields
			return client.Resource(gvr).Watch(ctx, o)
		},
		Example: &metav1.PartialObjectMetadata{}, Client: client, Transform: identityOnly, OnEvent: onEvent, OnSynced: onSynced,
	}
}

// identityOnly keeps of an object's metadata what a Fact is made from. A guest may have hundreds of CRDs.
func identityOnly(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	slim := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
	}}
	if owner, labelled := m.Labels[desired.OwnerLabel]; labelled {
		slim.Labels = map[string]string{desired.OwnerLabel: owner}
	} else if slices.ContainsFunc(m.ManagedFields, isOurs) {
		// Somebody took the label away. What we applied is still ours.
		slim.Annotations = map[string]string{appliedByUs: ""}
	}
	return slim, nil
}

// appliedByUs marks, in our copy only, an object that we applied and that does not carry our label.
const appliedByUs = "applied-by-us"

func isOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == desired.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// Start begins to watch, once. It returns at once; notify is called on every event that may matter.
func (c *Cluster) Start(ctx context.Context, notify func()) error {
	c.notify = notify
	if err := c.objects.Start(ctx, notify); err != nil {
		return fmt.Errorf("watching the guest: %w", err)
	}
	go c.crds.Run(ctx)
	go c.namespace.Run(ctx)
	go c.classes.run(ctx)
	go c.conn.Run(ctx, notify)
	return nil
}

// onCRD passes on events of CRDs that a plan may hold; a guest's other CRDs come and go.
func (c *Cluster) onCRD() func(watch.Event) {
	relevant := wantedCRDs(c.cfg)
	return func(e watch.Event) {
		crd, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok || !relevant[crd.Name] {
			return
		}
		if crd.Name == classCRD && !e.Gone {
			c.classes.begin()
		}
		c.notify()
	}
}

// Apply makes the guest agree with objects.
func (c *Cluster) Apply(ctx context.Context, objects []desired.GuestObject) apply.Report {
	return apply.Apply(ctx, c.objects, objects)
}

// Prune deletes what is ours and not in keep.
func (c *Cluster) Prune(ctx context.Context, keep []desired.GuestObject) apply.Report {
	return c.objects.Prune(ctx, apply.IDs(keep)...)
}

// PruneWebhooks is Prune of webhooks alone.
func (c *Cluster) PruneWebhooks(ctx context.Context, keep []desired.GuestObject) apply.Report {
	spared := apply.IDs(keep)
	for _, id := range c.objects.Members() {
		if id.GVK.Group != "admissionregistration.k8s.io" {
			spared = append(spared, id)
		}
	}
	return c.objects.Prune(ctx, spared...)
}

// HasWebhook says whether a webhook of ours is in the guest, as far as the watch shows.
func (c *Cluster) HasWebhook() bool {
	return slices.ContainsFunc(c.objects.Members(), func(id apply.ID) bool { return id.GVK.Kind == "ValidatingWebhookConfiguration" })
}

// HasNamespace says whether the guest has a namespace of this UID. The name is not asked for: it would be in the guest's audit log.
func (c *Cluster) HasNamespace(ctx context.Context, uid types.UID) (bool, error) {
	return hasNamespace(ctx, c.core, uid)
}

// HasNamespace says the same of the cluster that a config leads to, before it is taken for the guest.
func HasNamespace(ctx context.Context, restConfig *rest.Config, uid types.UID) (bool, error) {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Wrap(limitAnswers)
	core, err := coreclient.NewForConfig(restConfig)
	if err != nil {
		return false, fmt.Errorf("making a client of the guest: %w", err)
	}
	return hasNamespace(ctx, core, uid)
}

func hasNamespace(ctx context.Context, core coreclient.NamespacesGetter, uid types.UID) (bool, error) {
	list, err := core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("reading namespaces in the guest: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(ns corev1.Namespace) bool { return ns.UID == uid }), nil
}
