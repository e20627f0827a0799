package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/test/world"
)

const (
	speedRounds = 50
	manyRoutes  = 1000
)

// TestSpeed measures with real gateways. `make bench` runs it. It asserts that what it measures happens, and no time.
func TestSpeed(t *testing.T) {
	t.Parallel()
	world := alone(t, world.Options{Name: "e2e-speed", GuestNodes: 1})
	world.runAll(world.trafficGateway(), []trafficStory{
		{"from a new HTTPRoute to the first request", routeSpeed},
		{"what the webhook adds to a write", admissionSpeed},
		{"convergence of 1,000 HTTPRoutes", manyRoutesSpeed},
	})
}

// routeSpeed measures the time from the answer of the API server to a new HTTPRoute until the gateway serves it.
func routeSpeed(t *fixture, edge *edgeOfTheGuest) {
	took := make([]time.Duration, 0, speedRounds)
	for range speedRounds {
		name, host := t.newRoute()
		began := time.Now()
		t.servedAt(edge, host)
		took = append(took, time.Since(began))
		t.Expect(t.Gateways.HTTPRoutes(backends).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}
	t.Logf("from a new HTTPRoute to the first request: %s", spread(took))
}

// servedAt waits, with a request every 5 ms, until the gateway serves a host.
func (t *fixture) servedAt(edge *edgeOfTheGuest, host string) {
	t.Helper()
	t.Eventually(edge.status).WithArguments(t.ctx, host).WithPolling(pollOften).Should(gomega.Equal(http.StatusOK))
}

// admissionSpeed sends dry runs of two objects in turns. istiod's webhook selects one of them by its label.
func admissionSpeed(t *fixture, _ *edgeOfTheGuest) {
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	rules := t.GuestDynamic.Resource(world.Resource("networking.istio.io", "v1", "destinationrules")).Namespace(world.GuestNamespace)
	write := func(revision string) (time.Duration, error) {
		rule := destinationRule("measured", "backend.shop.svc.cluster.local")
		rule.SetLabels(map[string]string{"istio.io/rev": revision})
		began := time.Now()
		_, err := rules.Create(t.ctx, rule, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return time.Since(began), err
	}
	var with, without []time.Duration
	for range speedRounds {
		called, err := write(world.Revision)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		passed, err := write("another")
		t.Expect(err).NotTo(gomega.HaveOccurred())
		with, without = append(with, called), append(without, passed)
	}
	t.Logf("a write that the webhook validates: %s; one that it does not select: %s", spread(with), spread(without))
}

// manyRoutesSpeed creates 1,000 routes, each with a host of its own.
func manyRoutesSpeed(t *fixture, edge *edgeOfTheGuest) {
	before, began := t.istiodMemory("VmRSS"), time.Now()
	host := func(i int) string { return fmt.Sprintf("many-%d.guest1.example.com", i) }
	for i := range manyRoutes {
		route := &gatewayv1.HTTPRoute{}
		route.Name, route.Labels = fmt.Sprintf("many-%d", i), map[string]string{"many": "true"}
		route.Spec.ParentRefs = []gatewayv1.ParentReference{{
			Name: trafficGateway, Namespace: new(gatewayv1.Namespace(world.GuestNamespace)),
		}}
		route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(host(i))}
		backend := gatewayv1.HTTPBackendRef{}
		backend.Name, backend.Port = "backend", new(gatewayv1.PortNumber(8080))
		route.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{backend}}}
		_, err := t.Gateways.HTTPRoutes(backends).Create(t.ctx, route, metav1.CreateOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
	}
	created := time.Now()
	t.servedAt(edge, host(manyRoutes-1))
	last := time.Now()
	for i := range manyRoutes {
		t.servedAt(edge, host(i))
	}
	t.Logf("%d HTTPRoutes were created in %s; the last one served %s after that; memory of istiod %s before, %s after", manyRoutes,
		created.Sub(began).Round(10*time.Millisecond), last.Sub(created).Round(10*time.Millisecond), before, t.istiodMemory("VmRSS"))
	t.Eventually(func(ctx context.Context) (int, error) {
		list, err := t.Gateways.HTTPRoutes(backends).List(ctx, metav1.ListOptions{LabelSelector: "many=true"})
		accepted := 0
		for _, route := range list.Items {
			if len(route.Status.Parents) > 0 {
				accepted++
			}
		}
		return accepted, err
	}).WithContext(t.ctx).Should(gomega.Equal(manyRoutes), "routes with a status")
	t.Logf("all had a status %s after the last one was created", time.Since(created).Round(10*time.Millisecond))
}

// spread returns the median and the 90th percentile of durations.
func spread(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("median %s, p90 %s, of %d", all[len(all)/2].Round(100*time.Microsecond),
		all[len(all)*9/10].Round(100*time.Microsecond), len(all))
}
