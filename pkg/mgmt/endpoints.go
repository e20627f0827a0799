package mgmt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
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
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/watch"
)

// endpointPublisher publishes istiod with one publish strategy. The strategy can depend on the HostedControlPlane, so
// that it is chosen after the HostedControlPlane was observed.
//
// The strategy is chosen once per process: what HyperShift allows to change about it (who can reach the endpoints)
// changes rarely. Kinds of other strategies are not watched, because the management cluster possibly does not serve
// them.
type endpointPublisher struct {
	cfg    model.Config
	rest   *rest.Config
	client dynamic.Interface
	// service watches the status of hypergate's Service. theirs and ours watch the Routes of the control plane
	// operator and of hypergate. Only the watches that the strategy needs are on.
	service, theirs, ours *watch.Switch
	// begin chooses a strategy and starts its watches. open prepares applying its route.
	begin func(context.Context, model.PublishStrategy) error
	open  func(model.PublishStrategy) error
	// core is the client that discovers the resources of a group and version. beginning limits how often it does so
	// while discovery fails.
	core      rest.Interface
	beginning spaced

	// taken is the chosen strategy, or nil. tlsRoutes is the version of TLSRoutes if the strategy uses them.
	taken     *model.PublishStrategy
	tlsRoutes string
	// objects applies the route. It is nil for a strategy without a route.
	objects *apply.Cluster
	// cleared has the kinds of other strategies' routes of which no object is left from an earlier run.
	cleared map[schema.GroupVersionKind]bool
}

// newEndpointPublisher returns an endpointPublisher. It returns nil if the topology needs no published endpoint.
func newEndpointPublisher(
	restConfig *rest.Config, httpClient *http.Client, core coreclient.CoreV1Interface, cfg model.Config,
	notify func(),
) (*endpointPublisher, error) {
	if cfg.Topology != model.TopologyHosted {
		return nil, nil //nolint:nilnil // a nil endpointPublisher observes and writes nothing
	}
	client, err := dynamic.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	e := &endpointPublisher{
		cfg: cfg, rest: restConfig, client: client, core: core.RESTClient(),
		cleared: map[schema.GroupVersionKind]bool{},
	}
	service := namedWatch("services", cfg.XDSService(), core.Services(cfg.MgmtNamespace), notify)
	service.Example, service.Transform, service.OnProblem = &corev1.Service{}, addressesOnly, notify
	e.service = watch.NewSwitch(service)
	for name, into := range map[string]**watch.Switch{model.ControlPlaneRoute: &e.theirs, cfg.XDSService(): &e.ours} {
		o := namedWatch("routes", name, client.Resource(routes()).Namespace(cfg.MgmtNamespace), notify)
		o.Example, o.OnProblem, o.Patience = &unstructured.Unstructured{}, notify, routesPatience
		*into = watch.NewSwitch(o)
	}
	return e, nil
}

// routesPatience is how long Routes are requested without a pause if the management cluster does not serve them.
const routesPatience = 30 * time.Second

func routes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}
}

// addressesOnly removes everything from a Service except the ports and addresses that were allocated to it.
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

// start prepares begin and open. Everything that they start ends with ctx.
func (e *endpointPublisher) start(ctx context.Context, notify func()) {
	if e == nil {
		return
	}
	running := ctx
	e.begin = func(ctx context.Context, strategy model.PublishStrategy) error {
		if err := e.beginning.read(func() error { return e.findTLSRoutes(ctx, strategy) }); err != nil {
			return err
		}
		for _, w := range e.watches(strategy) {
			w.Set(running, string(strategy), "")
		}
		return nil
	}
	e.open = func(strategy model.PublishStrategy) error {
		kinds := publish.RouteKinds(e.cfg, strategy, e.tlsRoutes)
		if len(kinds) == 0 || e.objects != nil {
			return nil
		}
		objects, err := apply.New(e.rest, apply.Options{
			Name: string(model.SideMgmt), Namespace: e.cfg.MgmtNamespace, NamespacedOnly: true, FieldManager: model.FieldManager,
			OwnerKey: model.OwnerLabel, OwnerValue: e.cfg.OwnerValue(model.SideMgmt), Kinds: applyKinds(kinds),
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

// findTLSRoutes finds the version of TLSRoutes that the cluster serves, if the strategy uses TLSRoutes.
func (e *endpointPublisher) findTLSRoutes(ctx context.Context, strategy model.PublishStrategy) error {
	if publish.EvidenceOf(strategy) != publish.EvidenceTLSRoutes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, version := range publish.TLSRouteVersions() {
		kind := publish.RouteKinds(e.cfg, strategy, version)[0]
		var list metav1.APIResourceList
		// client-go's discovery client does not support deadlines.
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
	return errors.New("publishing istiod: the management cluster serves no TLSRoutes " +
		"(tlsroutes.gateway.networking.k8s.io, which up to Gateway API 1.4 are in its experimental channel): " +
		"install them, or set another --publish")
}

// watches returns the watches that show the evidence for a strategy.
func (e *endpointPublisher) watches(strategy model.PublishStrategy) []*watch.Switch {
	return map[publish.Evidence][]*watch.Switch{
		publish.EvidenceRoutes:  {e.theirs, e.ours},
		publish.EvidenceService: {e.service},
	}[publish.EvidenceOf(strategy)]
}

// observe chooses the strategy for the HostedControlPlane, unless one was chosen before. Then it adds the evidence
// for the strategy to the observation.
//
// If there is no strategy, or it cannot start, observe returns no error: the plan reports the problem if the guest
// needs istiod.
func (e *endpointPublisher) observe(ctx context.Context, into *model.ManagementObservation) error {
	if e == nil {
		return nil
	}
	strategy, err := publish.StrategyFor(e.cfg, into.ControlPlane)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if e.taken == nil {
		if err := e.begin(ctx, strategy); err != nil {
			into.Endpoints.Problem = err.Error()
			return nil //nolint:nilerr // see above
		}
		e.taken = &strategy
		if why := publish.WhyTunnel(e.cfg, into.ControlPlane); why != "" {
			logr.FromContextOrDiscard(ctx).Info("Publishing istiod by a tunnel through the guest's API server", "because", why)
		}
	}
	if *e.taken != strategy {
		into.Endpoints.Problem = fmt.Sprintf(
			"istiod is published by %s, but the HostedControlPlane now requires %s: restart hypergate to "+
				"change that, or set --publish=%[1]s to keep it",
			*e.taken, strategy,
		)
		return nil
	}
	for _, w := range e.watches(strategy) {
		err := w.Err()
		switch {
		case w.Synced():
		case apierrors.IsNotFound(err):
			into.Endpoints.Problem = fmt.Sprintf(
				"the management cluster serves no Routes (%s): set another --publish", routes().GroupResource(),
			)
			return nil
		default:
			return NotSyncedError{err: err}
		}
	}
	// Apply only kinds that the cluster is known to serve. The watches of package apply would list an unknown kind
	// again and again.
	if err := e.open(strategy); err != nil {
		return err
	}
	into.Endpoints = e.seen()
	into.Endpoints.TLSRouteVersion = e.tlsRoutes
	return nil
}

// seen returns the evidence from the watches. Watches of other strategies are off and show nothing.
func (e *endpointPublisher) seen() (out model.ObservedEndpoints) {
	obj, _ := e.service.Get(e.key(e.cfg.XDSService()))
	if s, is := obj.(*corev1.Service); is {
		out.NodePort, out.LoadBalancer = handedOut(s)
	}
	obj, _ = e.theirs.Get(e.key(model.ControlPlaneRoute))
	if u, is := obj.(*unstructured.Unstructured); is && u.GetDeletionTimestamp() == nil {
		host, _, _ := unstructured.NestedString(u.Object, "spec", "host")
		for _, ingress := range ingresses(u) {
			// An admitted Route is served under the host that the router reports.
			if served, _ := ingress["host"].(string); admitted(ingress) == "" && served != "" {
				host = served
			}
		}
		out.ControlPlaneRoute = model.FoundRoute{Exists: true, Host: host}
	}
	obj, _ = e.ours.Get(e.key(e.cfg.XDSService()))
	if u, is := obj.(*unstructured.Unstructured); is {
		if reason := refusal(u); reason != "" {
			host, _, _ := unstructured.NestedString(u.Object, "spec", "host")
			out.Refused = model.RefusedRoute{Host: host, Reason: reason}
		}
	}
	return out
}

func (e *endpointPublisher) key(name string) string {
	return types.NamespacedName{Namespace: e.cfg.MgmtNamespace, Name: name}.String()
}

// handedOut returns the node port and the load balancer address of a Service, as far as its type has them.
func handedOut(s *corev1.Service) (nodePort uint16, loadBalancer string) {
	if len(s.Spec.Ports) > 0 && s.Spec.Type == corev1.ServiceTypeNodePort {
		nodePort = uint16(s.Spec.Ports[0].NodePort) //nolint:gosec // a port
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		loadBalancer = cmp.Or(s.Status.LoadBalancer.Ingress[0].Hostname, s.Status.LoadBalancer.Ingress[0].IP)
	}
	return nodePort, loadBalancer
}

// ingresses returns the entries in the status of a Route. Each router writes one entry.
func ingresses(u *unstructured.Unstructured) (out []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "ingress")
	for _, entry := range list {
		if ingress, is := entry.(map[string]any); is {
			out = append(out, ingress)
		}
	}
	return out
}

// admitted returns the reason why a router does not serve a Route. It returns an empty string if the router serves it
// or reports nothing.
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

// refusal returns the reason why no router serves a Route. It returns an empty string unless all routers that report
// refuse it.
func refusal(u *unstructured.Unstructured) string {
	all := ingresses(u)
	if slices.ContainsFunc(all, func(i map[string]any) bool { return admitted(i) == "" }) || len(all) == 0 {
		return ""
	}
	return admitted(all[0])
}

// apply applies the route.
func (e *endpointPublisher) apply(ctx context.Context, objects []model.MgmtObject) apply.Report {
	if e == nil || e.objects == nil {
		return apply.Report{}
	}
	return apply.Apply(ctx, e.objects, objects)
}

// prune deletes the route unless it is kept. It also deletes routes of other strategies that an earlier run created.
// Their Service must stay until these routes are gone.
func (e *endpointPublisher) prune(ctx context.Context, keep []model.MgmtObject) apply.Report {
	if e == nil {
		return apply.Report{}
	}
	report := e.clear(ctx)
	if e.objects == nil || !report.Complete() {
		return report
	}
	return report.And(e.objects.Prune(ctx, apply.IDs(keep)...))
}

// problems returns the failing watches of the route.
func (e *endpointPublisher) problems() []apply.WatchProblem {
	if e == nil || e.objects == nil {
		return nil
	}
	return e.objects.WatchProblems()
}

// takesTunnel reports whether the tunnel was chosen.
func (e *endpointPublisher) takesTunnel() bool {
	if e == nil || e.taken == nil {
		return false
	}
	strategy, _ := publish.Find(*e.taken)
	return strategy.IsTunnel()
}

// others returns the route kinds of all strategies except the chosen one.
func (e *endpointPublisher) others() []model.Kind {
	taken := model.PublishAddress
	if e.taken != nil {
		taken = *e.taken
	}
	return publish.OtherRouteKinds(e.cfg, taken)
}

// clear deletes the routes that an earlier run with another strategy created. It does so once per kind. If a kind is
// not served, or hypergate is not allowed to read it, clear assumes that there are no routes of this kind. A route that
// was read and cannot be deleted is a failure: its Service must stay.
func (e *endpointPublisher) clear(ctx context.Context) apply.Report {
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

func (e *endpointPublisher) clearOne(ctx context.Context, kind model.Kind) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := e.client.Resource(kind.GVK.GroupVersion().WithResource(kind.Resource)).Namespace(e.cfg.MgmtNamespace)
	found, err := client.Get(ctx, e.cfg.XDSService(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for %s %s: %w", kind.GVK.Kind, e.cfg.XDSService(), err)
	case found.GetLabels()[model.OwnerLabel] != e.cfg.OwnerValue(model.SideMgmt):
		return nil
	}
	err = client.Delete(ctx, found.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(found.GetUID())}})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("deleting %s %s of an earlier publish strategy: %w", kind.GVK.Kind, e.cfg.XDSService(), err)
}
