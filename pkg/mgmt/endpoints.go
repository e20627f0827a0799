package mgmt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

// exposure is the way by which istiod is published. Which one that is may follow from the HostedControlPlane, so that it is taken when that was seen,
// once: what HyperShift lets change of it (who may reach the endpoints) is changed seldom. What belongs to other ways is not watched: the management cluster may not serve it.
type exposure struct {
	cfg    desired.Config
	rest   *rest.Config
	client dynamic.Interface
	// service is what the cluster hands out to our Service; theirs and ours are the Routes. All are off but those of the way.
	service, theirs, ours *watch.Switch
	// begin takes a way: its watches run from then on. open begins to write its route.
	begin func(context.Context, desired.PublishStrategy) error
	open  func(desired.PublishStrategy) error
	// core is for which resources of a group and version the cluster serves; beginning spaces out how often that is
	// asked for while it does not.
	core      rest.Interface
	beginning spaced

	// taken is the way, once it was taken, tlsRoutes the version of TLSRoutes, where those are the way.
	taken     *desired.PublishStrategy
	tlsRoutes string
	// objects writes the route; nil for a way without one.
	objects *apply.Cluster
	// cleared are the kinds of routes of other ways of which none is left from an earlier run.
	cleared map[schema.GroupVersionKind]bool
}

// newExposure prepares it, where anybody publishes anything.
func newExposure(restConfig *rest.Config, httpClient *http.Client, core coreclient.CoreV1Interface, cfg desired.Config, notify func()) (*exposure, error) {
	if cfg.Topology != desired.TopologyHosted {
		return nil, nil //nolint:nilnil // a nil exposure shows nothing, and writes nothing
	}
	client, err := dynamic.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	e := &exposure{cfg: cfg, rest: restConfig, client: client, core: core.RESTClient(), cleared: map[schema.GroupVersionKind]bool{}}
	service := namedWatch("services", cfg.XDSService(), core.Services(cfg.MgmtNamespace), notify)
	service.Example, service.Transform, service.OnTrouble = &corev1.Service{}, addressesOnly, notify
	e.service = watch.NewSwitch(service)
	for name, into := range map[string]**watch.Switch{desired.ControlPlaneRoute: &e.theirs, cfg.XDSService(): &e.ours} {
		o := namedWatch("routes", name, client.Resource(routes()).Namespace(cfg.MgmtNamespace), notify)
		o.Example, o.OnTrouble, o.Patience = &unstructured.Unstructured{}, notify, routesPatience
		*into = watch.NewSwitch(o)
	}
	return e, nil
}

// routesPatience is for how long Routes are asked for without a rest where the management cluster serves none.
const routesPatience = 30 * time.Second

func routes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}
}

// addressesOnly keeps of a Service what was handed out to it.
func addressesOnly(obj any) (any, error) {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, ResourceVersion: s.ResourceVersion},
		Spec:       corev1.ServiceSpec{Type: s.Spec.Type, Ports: s.Spec.Ports},
		Status:     corev1.ServiceStatus{LoadBalancer: s.Status.LoadBalancer},
	}, nil
}

// start gets ready to take a way. What runs then ends with ctx.
func (e *exposure) start(ctx context.Context, notify func()) {
	if e == nil {
		return
	}
	running := ctx
	e.begin = func(ctx context.Context, way desired.PublishStrategy) error {
		if err := e.beginning.read(func() error { return e.findTLSRoutes(ctx, way) }); err != nil {
			return err
		}
		for _, w := range e.watches(way) {
			w.Set(running, string(way), "")
		}
		return nil
	}
	e.open = func(way desired.PublishStrategy) error {
		kinds := e.cfg.ExposureKinds(way, e.tlsRoutes)
		if len(kinds) == 0 || e.objects != nil {
			return nil
		}
		objects, err := apply.New(e.rest, apply.Options{
			Name: string(desired.SideMgmt), Namespace: e.cfg.MgmtNamespace, NamespacedOnly: true, FieldManager: desired.FieldManager,
			OwnerKey: desired.OwnerLabel, OwnerValue: e.cfg.OwnerValue(desired.SideMgmt), Kinds: applyKinds(kinds),
		})
		if err == nil {
			err = objects.Start(ctx, notify)
		}
		if err != nil {
			return fmt.Errorf("publishing istiod: %w", err)
		}
		e.objects = objects
		return nil
	}
}

// findTLSRoutes finds out which version of TLSRoutes the cluster serves, where those are the way.
func (e *exposure) findTLSRoutes(ctx context.Context, way desired.PublishStrategy) error {
	if way.Evidence() != desired.EvidenceTLSRoutes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, version := range desired.TLSRouteVersions() {
		kind := e.cfg.ExposureKinds(way, version)[0]
		var list metav1.APIResourceList
		// Not client-go's discovery client, which knows no deadline.
		err := e.core.Get().AbsPath("/apis/" + kind.GVK.GroupVersion().String()).Do(ctx).Into(&list)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("publishing istiod: finding out which TLSRoutes the management cluster serves: %w", err)
		case slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource }):
			e.tlsRoutes = version
			return nil
		}
	}
	return errors.New("publishing istiod: the management cluster serves no TLSRoutes (tlsroutes.gateway.networking.k8s.io, which up to Gateway API 1.4 are in its experimental channel): " +
		"install them, or give another --publish")
}

// watches show the evidence of a way.
func (e *exposure) watches(way desired.PublishStrategy) []*watch.Switch {
	return map[desired.Evidence][]*watch.Switch{
		desired.EvidenceRoutes:  {e.theirs, e.ours},
		desired.EvidenceService: {e.service},
	}[way.Evidence()]
}

// observe takes the way that the HostedControlPlane leads to, unless one was taken before, and adds what there is to see of it. A way that cannot be found
// or gone is told by the plan, where anybody asks for one.
func (e *exposure) observe(ctx context.Context, into *desired.ManagementObservation) error {
	if e == nil {
		return nil
	}
	way, err := e.cfg.StrategyFor(into.ControlPlane)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if e.taken == nil {
		if err := e.begin(ctx, way); err != nil {
			into.Endpoints.Problem = err.Error()
			return nil //nolint:nilerr // see above
		}
		e.taken = &way
	}
	if *e.taken != way {
		into.Endpoints.Problem = fmt.Sprintf("istiod is published by %s, and from now on should be by %s: restart hypergate, which takes a way once, or keep it with --publish=%[1]s", *e.taken, way)
		return nil
	}
	for _, w := range e.watches(way) {
		err := w.Err()
		switch {
		case w.Synced():
		case apierrors.IsNotFound(err):
			into.Endpoints.Problem = fmt.Sprintf("the management cluster serves no Routes (%s): give another --publish", routes().GroupResource())
			return nil
		default:
			return NotSyncedError{err: err}
		}
	}
	// Not before the kind is known to be served: who writes it asks for it again and again.
	if err := e.open(way); err != nil {
		return err
	}
	into.Endpoints = e.seen()
	into.Endpoints.TLSRouteVersion = e.tlsRoutes
	return nil
}

// seen is what the watches show; those of other ways are off, and show nothing.
func (e *exposure) seen() (out desired.ObservedEndpoints) {
	obj, _ := e.service.Get(e.key(e.cfg.XDSService()))
	if s, is := obj.(*corev1.Service); is {
		out.NodePort, out.LoadBalancer = handedOut(s)
	}
	obj, _ = e.theirs.Get(e.key(desired.ControlPlaneRoute))
	if u, is := obj.(*unstructured.Unstructured); is && u.GetDeletionTimestamp() == nil {
		host, _, _ := unstructured.NestedString(u.Object, "spec", "host")
		for _, ingress := range ingresses(u) {
			// Admitted, it is served under the name that the router says.
			if served, _ := ingress["host"].(string); admitted(ingress) == "" && served != "" {
				host = served
			}
		}
		out.ControlPlaneRoute = desired.FoundRoute{Exists: true, Host: host}
	}
	obj, _ = e.ours.Get(e.key(e.cfg.XDSService()))
	if u, is := obj.(*unstructured.Unstructured); is {
		if reason := refusal(u); reason != "" {
			host, _, _ := unstructured.NestedString(u.Object, "spec", "host")
			out.Refused = desired.RefusedRoute{Host: host, Reason: reason}
		}
	}
	return out
}

func (e *exposure) key(name string) string {
	return types.NamespacedName{Namespace: e.cfg.MgmtNamespace, Name: name}.String()
}

// handedOut are the port and the address of a Service, as far as its type has them.
func handedOut(s *corev1.Service) (nodePort uint16, loadBalancer string) {
	if len(s.Spec.Ports) > 0 && s.Spec.Type == corev1.ServiceTypeNodePort {
		nodePort = uint16(s.Spec.Ports[0].NodePort) //nolint:gosec // a port
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		loadBalancer = cmp.Or(s.Status.LoadBalancer.Ingress[0].Hostname, s.Status.LoadBalancer.Ingress[0].IP)
	}
	return nodePort, loadBalancer
}

// ingresses are what routers say of a Route, one each.
func ingresses(u *unstructured.Unstructured) (out []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "ingress")
	for _, entry := range list {
		if ingress, is := entry.(map[string]any); is {
			out = append(out, ingress)
		}
	}
	return out
}

// admitted is why a router does not serve a Route; empty when it does, and when it says nothing.
func admitted(ingress map[string]any) string {
	conditions, _, _ := unstructured.NestedSlice(ingress, "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "Admitted" && condition["status"] == "False" {
			reason, _ := condition["reason"].(string)
			return cmp.Or(reason, "NotAdmitted")
		}
	}
	return ""
}

// refusal is why no router serves a Route, where all that know it say so.
func refusal(u *unstructured.Unstructured) string {
	all := ingresses(u)
	if slices.ContainsFunc(all, func(i map[string]any) bool { return admitted(i) == "" }) || len(all) == 0 {
		return ""
	}
	return admitted(all[0])
}

// apply writes the route.
func (e *exposure) apply(ctx context.Context, objects []desired.MgmtObject) apply.Report {
	if e == nil || e.objects == nil {
		return apply.Report{}
	}
	return apply.Apply(ctx, e.objects, objects)
}

// prune deletes the route unless it is kept, and those that an earlier run made in other ways. Until they are gone, their Service must stay.
func (e *exposure) prune(ctx context.Context, keep []desired.MgmtObject) apply.Report {
	if e == nil {
		return apply.Report{}
	}
	report := e.clear(ctx)
	if e.objects == nil || !report.Complete() {
		return report
	}
	return report.And(e.objects.Prune(ctx, apply.IDs(keep)...))
}

// problems are the watches of the route that do not work.
func (e *exposure) problems() []apply.WatchProblem {
	if e == nil || e.objects == nil {
		return nil
	}
	return e.objects.WatchProblems()
}

// others are the kinds of all ways but the one that was taken.
func (e *exposure) others() []desired.Kind {
	taken := desired.PublishAddress
	if e.taken != nil {
		taken = *e.taken
	}
	return e.cfg.OtherExposureKinds(taken)
}

// clear deletes the routes of an earlier run that went another way, once. A kind that is not served, or may not be looked at, has none.
func (e *exposure) clear(ctx context.Context) apply.Report {
	var outcomes []apply.Outcome
	for _, kind := range e.others() {
		if e.cleared[kind.GVK] {
			continue
		}
		if err := e.clearOne(ctx, kind); err != nil {
			resource := schema.GroupResource{Group: kind.GVK.Group, Resource: kind.Resource}
			outcomes = append(outcomes, apply.Failed(apply.ID{GVK: kind.GVK}, apply.Classify(err, "delete", resource), err))
			continue
		}
		e.cleared[kind.GVK] = true
	}
	return apply.ReportOf(outcomes...)
}

func (e *exposure) clearOne(ctx context.Context, kind desired.Kind) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := e.client.Resource(kind.GVK.GroupVersion().WithResource(kind.Resource)).Namespace(e.cfg.MgmtNamespace)
	found, err := client.Get(ctx, e.cfg.XDSService(), metav1.GetOptions{})
	if err == nil && found.GetLabels()[desired.OwnerLabel] == e.cfg.OwnerValue(desired.SideMgmt) {
		err = client.Delete(ctx, found.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(found.GetUID())}})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("looking for %s %s: %w", kind.GVK.Kind, e.cfg.XDSService(), err)
}
