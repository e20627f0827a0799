package mgmt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/watch"
)

// Cluster is the management cluster, limited to the control plane namespace of one hosted cluster.
type Cluster struct {
	cfg     model.Config
	api     model.MgmtAPI
	objects *apply.Cluster
	core    coreclient.CoreV1Interface
	istiod  *watch.Watch
	// caWatch watches the Secret of the mesh CA. A user can create that Secret, or request a rotation of hypergate's
	// CA there.
	caWatch       *watch.Watch
	notify        func()
	controlPlanes *controlPlanes
	// publisher publishes istiod.
	publisher *endpointPublisher
	// lastPlane is the control plane that was observed last. Observe replaces the whole value, because the health check
	// reads it concurrently.
	lastPlane atomic.Pointer[lastShown]
	// migration watches the Lease of a migration.
	migration *migrationLease
	// guestSecret is nil if the guest's kubeconfig does not come from a Secret.
	guestSecret *guestSecret
	// namespaceUID is the UID of the control plane namespace. It is nil until the namespace was read.
	namespaceUID atomic.Pointer[types.UID]
	// namespaceRead and credentialRead limit the rate of failing reads.
	namespaceRead, credentialRead spaced
}

// New returns a client of the management cluster. It sends no request.
func New(restConfig *rest.Config, cfg model.Config) (*Cluster, error) {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Wrap(answer.Limit("the management cluster's API server"))
	httpClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	return newWithHTTP(restConfig, httpClient, cfg)
}

func newWithHTTP(restConfig *rest.Config, httpClient *http.Client, cfg model.Config) (*Cluster, error) {
	objects, err := apply.New(restConfig, apply.Options{
		Name:           string(model.SideMgmt),
		Namespace:      cfg.MgmtNamespace,
		NamespacedOnly: true,
		FieldManager:   model.FieldManager,
		OwnerKey:       model.OwnerLabel,
		OwnerValue:     cfg.OwnerValue(model.SideMgmt),
		Kinds:          applyKinds(cfg.MgmtKinds()),
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	core, err := coreclient.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	apps, err := appsclient.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	api, err := apiOf(restConfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	c := &Cluster{cfg: cfg, api: api, objects: objects, core: core}
	c.istiod = watch.New(istiodWatch(apps.Deployments(cfg.MgmtNamespace), cfg.IstiodName(), func() { c.notify() }))
	c.caWatch = watch.New(caWatch(core.Secrets(cfg.MgmtNamespace), func() { c.notify() }))
	if c.controlPlanes, err = newControlPlanes(restConfig, httpClient, cfg, func() { c.notify() }); err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	if c.publisher, err = newEndpointPublisher(restConfig, httpClient, core, cfg, func() { c.notify() }); err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	if c.migration, err = newMigrationLease(restConfig, httpClient, cfg, func() { c.notify() }); err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	if c.guestSecret, err = newGuestSecret(restConfig, httpClient, core, cfg, func() { c.notify() }); err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	return c, nil
}

// apiOf returns the URL and the CA bundle that restConfig uses for its API server.
func apiOf(restConfig *rest.Config) (model.MgmtAPI, error) {
	server, _, err := rest.DefaultServerUrlFor(restConfig)
	if err != nil {
		return model.MgmtAPI{}, err
	}
	loaded := rest.CopyConfig(restConfig)
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return model.MgmtAPI{}, err
	}
	return model.MgmtAPI{Server: server.String(), CABundle: loaded.CAData}, nil
}

// namedWatch returns the options of a watch of one object by its name. RBAC can allow this for a single object.
func namedWatch[L runtime.Object](resource, name string, client interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}, notify func(),
) watch.Options {
	selector := "metadata.name=" + name
	return watch.Options{
		Name: resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return client.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = selector
			return client.Watch(ctx, o)
		},
		Client: client, OnEvent: func(watch.Event) { notify() }, OnSynced: notify,
	}
}

// caWatch returns the options of the watch of the mesh CA's Secret.
func caWatch(secrets coreclient.SecretInterface, notify func()) watch.Options {
	o := namedWatch("secrets", model.CASecretName, secrets, notify)
	o.Example = &corev1.Secret{}
	return o
}

// istiodWatch returns the options of the watch of istiod's Deployment. It is the only object whose status is needed.
func istiodWatch(deployments appsclient.DeploymentInterface, name string, notify func()) watch.Options {
	o := namedWatch("deployments", name, deployments, notify)
	o.Example, o.Transform = &appsv1.Deployment{}, statusOnly
	return o
}

func applyKinds(all []model.Kind) []apply.Kind {
	out := make([]apply.Kind, 0, len(all))
	for _, k := range all {
		out = append(out, apply.Kind{
			GVK: k.GVK, Resource: k.Resource, Namespaced: k.Namespaced, Names: k.Names, Prune: !k.NeverPrune,
			Foreground: k.GVK.Kind == "Deployment",
		})
	}
	return out
}

// statusOnly removes everything from a Deployment except the fields that availability is computed from, and those that
// say which configuration istiod has.
func statusOnly(obj any) (any, error) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return obj, nil
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion,
			Generation: d.Generation, DeletionTimestamp: d.DeletionTimestamp, Annotations: usedOnly(d.Annotations),
		},
		Spec: appsv1.DeploymentSpec{Replicas: d.Spec.Replicas, Template: configOnly(d.Spec.Template)},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: d.Status.ObservedGeneration, Replicas: d.Status.Replicas, UpdatedReplicas: d.Status.UpdatedReplicas,
			ReadyReplicas: d.Status.ReadyReplicas, Conditions: d.Status.Conditions,
		},
	}, nil
}

// Start starts the watches. Call it once. It returns immediately. notify is called on every event that can be
// relevant.
func (c *Cluster) Start(ctx context.Context, notify func()) error {
	c.notify = notify
	ctx = watch.WithOutage(ctx)
	if err := c.objects.Start(ctx, notify); err != nil {
		return fmt.Errorf("watching the management side: %w", err)
	}
	// Package apply adds the name of the cluster to the logger of its own watches.
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("cluster", string(model.SideMgmt)))
	go c.istiod.Run(ctx)
	go c.caWatch.Run(ctx)
	go c.controlPlanes.run(ctx)
	c.publisher.start(ctx, notify)
	go c.migration.watch.Run(ctx)
	go c.guestSecret.run(ctx)
	return nil
}

// Observe returns the state of the management side. An error means "unknown", never "absent".
//
// secrets is what the caller knows of the Secrets. Observe reads into it what is missing.
//
// Even with an error, the HostedControlPlane in the result is valid, because it also determines whether writes are
// allowed. Ignore the other fields then.
func (c *Cluster) Observe(ctx context.Context, secrets *Secrets) (model.ManagementObservation, error) {
	if !c.controlPlanesKnown() {
		return model.ManagementObservation{}, NotSyncedError{} // the cause is irrelevant: writes are not allowed either way
	}
	out := c.istiodStatus()
	if err := c.observeControlPlane(ctx, &out); err != nil {
		return out, err
	}
	// Ownership of objects is unknown until the watches have synced. A watch that is forbidden never syncs, and does
	// not block the others.
	if !c.istiod.Synced() || !c.caWatch.Synced() || !c.objects.Known() || !c.migration.known() {
		return out, NotSyncedError{err: cmp.Or(c.istiod.Err(), c.caWatch.Err())}
	}
	if err := c.readMissing(ctx, secrets); err != nil {
		return out, err
	}
	if err := c.publisher.observe(ctx, &out); err != nil {
		return out, err
	}
	out.API, out.Migration = c.api, c.migration.observed()
	if uid := c.namespaceUID.Load(); uid != nil {
		out.NamespaceUID = *uid
	}
	out.CA, out.Rotation, out.InvalidCA = secrets.ca, secrets.rotation, secrets.invalidCA
	if shown := c.shownCA(); shown != nil {
		out.RotationRequest = shown.Annotations[model.RotateAnnotation]
		if !c.objects.Ours(shown) {
			out.CAOwner, out.Rotation = model.Theirs, pki.Rotation{}
			out.CA, _, out.InvalidCA = model.CAFromSecret(nil, shown.Data)
		}
	}
	return out, nil
}

// controlPlanesKnown reports whether hypergate knows which HostedControlPlane exists, and, if there is none, which
// Cluster.
func (c *Cluster) controlPlanesKnown() bool {
	return c.controlPlanes.known() && (c.controlPlanes.shows() || c.lastControlPlane().Exists() || c.guestSecret.known())
}

// shownCA returns the Secret of the mesh CA from the watch. It returns nil if the Secret does not exist.
func (c *Cluster) shownCA() *corev1.Secret {
	obj, _ := c.caWatch.Get(types.NamespacedName{Namespace: c.cfg.MgmtNamespace, Name: model.CASecretName}.String())
	secret, _ := obj.(*corev1.Secret)
	return secret
}

// NotSyncedError means that the watches of the management side have not synced yet.
type NotSyncedError struct{ err error }

// Error returns a message that includes the error of a watch, if there is one.
func (e NotSyncedError) Error() string {
	if e.err == nil {
		return "the management side has not been observed completely yet"
	}
	return "the management side has not been observed completely yet: " + e.err.Error()
}

// Unwrap returns the error of the watch.
func (e NotSyncedError) Unwrap() error { return e.err }

// Apply applies objects to the management side.
func (c *Cluster) Apply(ctx context.Context, objects []model.MgmtObject) apply.Report {
	return apply.Apply(ctx, c.objects, objects)
}

// Publish applies the objects that publish istiod's Service.
func (c *Cluster) Publish(ctx context.Context, objects []model.MgmtObject) apply.Report {
	return c.publisher.apply(ctx, objects)
}

// Prune deletes the objects that hypergate owns and that are not in keep. If keep has istiod's Deployment, the
// credentials of its pod are kept too, although no plan includes them: a pod that restarts needs them. The ConfigMaps
// of both slots are kept as well: a pod of the version before may mount those that are not planned.
func (c *Cluster) Prune(ctx context.Context, keep []model.MgmtObject) apply.Report {
	spared := apply.IDs(keep)
	if slices.ContainsFunc(keep, func(o model.MgmtObject) bool { return o.GVK().Kind == "Deployment" }) {
		spared = append(spared, c.secretID(model.IstiodBearer))
		if c.publisher.takesTunnel() {
			spared = append(spared, c.secretID(model.SidecarBearer))
		}
		spared = append(spared, c.slotConfigMaps()...)
	}
	report := c.publisher.prune(ctx, keep)
	if !report.Complete() {
		return report
	}
	return report.And(c.objects.Prune(ctx, spared...))
}

// WatchProblems returns the kinds of the management side whose watches fail.
func (c *Cluster) WatchProblems() []apply.WatchProblem {
	out := slices.Concat(c.objects.WatchProblems(), c.controlPlanes.problems(), c.publisher.problems(), c.migration.problems())
	if c.lastControlPlane().Exists() {
		return out // a Cluster is ignored if there is a HostedControlPlane
	}
	return append(out, c.guestSecret.problems()...)
}

// Check is the health check of the management side. It returns an error unless the watches have synced and work.
func (c *Cluster) Check() error {
	err := cmp.Or(c.istiod.Err(), c.caWatch.Err(), c.guestSecret.err())
	if !c.istiod.Synced() || !c.caWatch.Synced() || !c.controlPlanesKnown() {
		return NotSyncedError{err: cmp.Or(err, c.controlPlanes.err(), c.guestSecret.err())}
	}
	return err
}

// ErrNoNamespace means that the control plane namespace does not exist.
var ErrNoNamespace = errors.New("the management cluster has no namespace")

// NamespaceUID returns the UID of the control plane namespace, which identifies the management cluster. The namespace
// is read once, because its UID does not change while a pod runs in it.
func (c *Cluster) NamespaceUID(ctx context.Context) (types.UID, error) {
	if known := c.namespaceUID.Load(); known != nil {
		return *known, nil
	}
	ns, err := c.readNamespace(ctx)
	if err != nil {
		return "", err
	}
	c.namespaceUID.Store(&ns.UID)
	return ns.UID, nil
}

func (c *Cluster) readNamespace(ctx context.Context) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ns, err := c.core.Namespaces().Get(ctx, c.cfg.MgmtNamespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w %q: create it, or name another with --namespace", ErrNoNamespace, c.cfg.MgmtNamespace)
	case err != nil:
		return nil, fmt.Errorf("reading namespace %q on the management side: %w", c.cfg.MgmtNamespace, err)
	}
	return ns, nil
}
