package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// measuredRoutes is the number of HTTPRoutes, one after the other.
	measuredRoutes = 30
	// infra, gateway and backend are in the base manifests of the suite.
	infra   = "gateway-conformance-infra"
	gateway = "same-namespace"
	backend = "infra-backend-v1"
)

// firstRequests returns the times from the creation of an HTTPRoute to its first successful request, in milliseconds.
// It sends a request every 2 ms. The base manifests of the suite must be applied.
func firstRequests(t *testing.T, c client.Client) []float64 {
	t.Helper()
	edge := &gatewayv1.Gateway{}
	must(t, c.Get(t.Context(), types.NamespacedName{Namespace: infra, Name: gateway}, edge))
	if len(edge.Status.Addresses) == 0 {
		t.Fatalf("Gateway %s has no address", gateway)
	}
	url := "http://" + net.JoinHostPort(edge.Status.Addresses[0].Value, "80") + "/"
	out := make([]float64, 0, measuredRoutes)
	for i := range measuredRoutes {
		route := measuredRoute(fmt.Sprintf("measured-%d", i))
		until := func(status int) {
			t.Helper()
			err := wait.PollUntilContextCancel(step(t), 2*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				got, err := statusOf(ctx, url, string(route.Spec.Hostnames[0]))
				return got == status, err
			})
			if err != nil {
				t.Fatalf("waiting for %d with HTTPRoute %s: %v", status, route.Name, err)
			}
		}
		until(http.StatusNotFound) // no other route has the host
		begin := time.Now()
		must(t, c.Create(t.Context(), route))
		until(http.StatusOK)
		out = append(out, float64(time.Since(begin).Microseconds())/1000)
		must(t, c.Delete(t.Context(), route))
	}
	return out
}

func measuredRoute(name string) *gatewayv1.HTTPRoute {
	port := gatewayv1.PortNumber(8080)
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: infra, Name: name}}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: gateway}}
	route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(name + ".example.com")}
	reference := gatewayv1.HTTPBackendRef{}
	reference.Name, reference.Port = backend, &port
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{reference}}}
	return route
}

// statusOf returns the status of a request. A request without an answer is an error.
func statusOf(ctx context.Context, url, host string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Host = host
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
