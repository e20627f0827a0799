package chaos_test

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	testcharts "github.com/hypergate/hypergate/test/charts"
)

// snapshot is a development snapshot of Istio that stands for the next minor: its istiod, its charts, and the CRDs of
// its Gateway API.
type snapshot struct {
	server       string
	charts, crds func(testing.TB) string
}

// snapshots are the development snapshots, by their version of the Gateway API.
func snapshots() map[string]snapshot {
	return map[string]snapshot{
		"Gateway API 1.5": {"pilot-discovery-next", testcharts.DirNext, testcharts.GatewayCRDsNext},
		"Gateway API 1.6": {"pilot-discovery-later", testcharts.DirLater, testcharts.GatewayCRDsLater},
	}
}

// TestTheNextIstio installs the next Istio in a guest that has the Gateway API of that Istio, which hypergate did not
// install. The webhook must reject bad objects, and a Gateway and an HTTPRoute must be served.
func TestTheNextIstio(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real servers: run without -short")
	}
	for name, s := range snapshots() {
		t.Run(name, s.installed)
	}
}

// installed checks an installation of the snapshot.
func (s snapshot) installed(t *testing.T) {
	w := newChaosRun(t, istioVersion{server: s.server, flags: []string{"--charts-dir", s.charts(t)}})
	w.createCRDs(s.crds(t))
	w.ready(w.start(direct, "hypergate-next"))
	w.createClass()
	w.reported()
	w.enforced()

	t.Log("istiod deploys a Gateway in the guest, and writes the status of its route")
	w.createGateway()
	w.Eventually(func() (string, error) {
		d, err := w.guest.clients.AppsV1().Deployments(w.cfg.GuestNamespace).Get(w.Context(), "gw-"+className, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return d.Spec.Template.Spec.Containers[0].Name, nil
	}).Should(gomega.Equal("istio-proxy"))
	w.Eventually(func() (bool, error) {
		route, err := w.gateways.HTTPRoutes(w.cfg.GuestNamespace).Get(w.Context(), "route", metav1.GetOptions{})
		if err != nil || len(route.Status.Parents) != 1 {
			return false, err
		}
		return meta.IsStatusConditionTrue(route.Status.Parents[0].Conditions, string(gatewayv1.RouteConditionAccepted)), nil
	}).Should(gomega.BeTrue())
	w.Expect(w.kubelet.started()).To(gomega.Equal(1), "istiod was not restarted")
}

// createCRDs creates the CRDs of a directory in the guest.
func (w *chaosRun) createCRDs(dir string) {
	w.Helper()
	for _, crd := range testcharts.CRDs(w.T, dir) {
		resource := crd.GroupVersionKind().GroupVersion().WithResource("customresourcedefinitions")
		_, err := w.guest.objects.Resource(resource).Create(w.Context(), crd, metav1.CreateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// createGateway creates a Gateway with a listener for HTTP, a route, and the route's Service.
func (w *chaosRun) createGateway() {
	w.Helper()
	object := metav1.ObjectMeta{Namespace: w.cfg.GuestNamespace, Labels: map[string]string{"istio.io/rev": w.cfg.Revision}}
	named := func(name string) metav1.ObjectMeta { object.Name = name; return object }
	port := gatewayv1.PortNumber(80)
	w.once(func(ctx context.Context) error {
		_, err := w.guest.clients.CoreV1().Services(w.cfg.GuestNamespace).Create(ctx, &corev1.Service{
			ObjectMeta: named("echo"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}},
		}, metav1.CreateOptions{})
		return err
	})
	w.once(func(ctx context.Context) error {
		_, err := w.gateways.Gateways(w.cfg.GuestNamespace).Create(ctx, &gatewayv1.Gateway{
			ObjectMeta: named("gw"),
			Spec: gatewayv1.GatewaySpec{
				GatewayClassName: className,
				Listeners:        []gatewayv1.Listener{{Name: "http", Port: port, Protocol: gatewayv1.HTTPProtocolType}},
			},
		}, metav1.CreateOptions{})
		return err
	})
	backend := gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "echo", Port: &port}}
	w.once(func(ctx context.Context) error {
		_, err := w.gateways.HTTPRoutes(w.cfg.GuestNamespace).Create(ctx, &gatewayv1.HTTPRoute{
			ObjectMeta: named("route"),
			Spec: gatewayv1.HTTPRouteSpec{
				CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gw"}}},
				Rules:           []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: backend}}}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// once repeats a creation until it succeeds. The API server might not serve the object's CRD yet.
func (w *chaosRun) once(create func(context.Context) error) {
	w.Helper()
	w.Eventually(func() error {
		if err := create(w.Context()); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}).Should(gomega.Succeed())
}
