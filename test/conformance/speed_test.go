package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/test/world"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/test/conformance"
)

const (
	// measuredRoutes is the number of HTTPRoutes that are created one after the other.
	measuredRoutes = 50
	// manyRoutes is the number of HTTPRoutes that exist together.
	manyRoutes = 1000
	// measuredWrites is the number of writes for each kind of write.
	measuredWrites = 50
	// pollOften is the time between two requests of a measurement.
	pollOften = 2 * time.Millisecond
	// infra, gateway and backend are in the base manifests of the suite. They have four Gateways.
	infra   = "gateway-conformance-infra"
	gateway = "same-namespace"
	backend = "infra-backend-v1"
	// slowest is how much longer the first request of an HTTPRoute may take with the split than with an istiod in the
	// guest.
	slowest = 1.1
)

// TestSpeed measures the split beside an istiod in the guest, one after the other. `make bench` runs it.
func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real clusters: run without -short")
	}
	measured := map[conformance.Side]conformance.Speed{}
	for _, side := range []conformance.Side{conformance.Split, conformance.InGuest} {
		t.Run(string(side), func(t *testing.T) { measured[side] = speedOf(t, side) })
	}
	if len(measured) != 2 {
		t.Fatal("a side was not measured")
	}
	t.Log("\n" + conformance.CompareSpeed(measured[conformance.Split], measured[conformance.InGuest]))
	if many := measured[conformance.Split].Many; many.GuestMemory > 0 || many.GuestCPU > 0 {
		t.Errorf("with the split, istiod has %d bytes and %s of CPU time on the guest's nodes", many.GuestMemory, many.GuestCPU)
	}
	ratio := conformance.FirstRequestRatio(measured[conformance.Split], measured[conformance.InGuest])
	if ratio > slowest {
		t.Errorf("an HTTPRoute's first request takes %.2f times as long with the split as with an istiod in the guest; the bar is %.1f",
			ratio, slowest)
	}
}

// speedOf starts clusters with one side, and measures it. One test of the suite runs before, so that Gateways are
// ready.
func speedOf(t *testing.T, side conformance.Side) conformance.Speed {
	t.Helper()
	run := &run{
		side: side, set: conformance.Standard, names: []string{"HTTPRouteSimpleSameNamespace"}, outcomes: map[string]conformance.Test{},
	}
	m := &meter{T: t, world: run.start(t)}
	config := rest.CopyConfig(m.world.GuestConfig)
	config.QPS = -1 // the client must not be slower than istiod
	options := run.options(t, config)
	run.suite(t, config)
	m.client = options.Client
	m.istiod, m.namespace = m.world.MgmtClient, m.world.MgmtNamespace
	if side == conformance.InGuest {
		m.istiod, m.namespace = m.world.GuestClient, world.GuestNamespace
	}
	m.url = m.urlOfGateway()
	out := conformance.Speed{
		FirstRequests: m.firstRequests(), Validated: m.writes(world.Revision), NotValidated: m.writes("another"),
	}
	if side == conformance.Split {
		out.Pushes = m.pushes()
	}
	out.Gateways = m.manyGateways(side)
	out.Many = m.manyRoutes()
	return out
}

// meter measures one side.
type meter struct {
	*testing.T
	world  *world.World
	client client.Client
	// istiod and namespace are the cluster and the namespace of istiod.
	istiod    kubernetes.Interface
	namespace string
	// url is a Gateway's.
	url string
}

func (m *meter) urlOfGateway() string {
	m.Helper()
	edge := &gatewayv1.Gateway{}
	must(m.T, m.client.Get(m.Context(), types.NamespacedName{Namespace: infra, Name: gateway}, edge))
	if len(edge.Status.Addresses) == 0 {
		m.Fatalf("Gateway %s has no address", gateway)
	}
	return "http://" + net.JoinHostPort(edge.Status.Addresses[0].Value, "80") + "/"
}

// firstRequests returns the times from the creation of an HTTPRoute to its first successful request.
func (m *meter) firstRequests() conformance.Durations {
	m.Helper()
	var out conformance.Durations
	for i := range measuredRoutes {
		route := measuredRoute(fmt.Sprintf("measured-%d", i))
		m.until(route, http.StatusNotFound) // no other route has the host
		begin := time.Now()
		must(m.T, m.client.Create(m.Context(), route))
		m.until(route, http.StatusOK)
		out = append(out, time.Since(begin))
		must(m.T, m.client.Delete(m.Context(), route))
	}
	return out
}

// until sends requests for a route until the gateway answers with a status.
func (m *meter) until(route *gatewayv1.HTTPRoute, status int) {
	m.Helper()
	err := wait.PollUntilContextCancel(step(m.T), pollOften, true, func(ctx context.Context) (bool, error) {
		got, err := statusOf(ctx, m.url, string(route.Spec.Hostnames[0]))
		return got == status, err
	})
	if err != nil {
		m.Fatalf("waiting for %d with HTTPRoute %s: %v", status, route.Name, err)
	}
}

// writes returns the times of dry runs of a DestinationRule with a revision. istiod's webhook selects objects by it.
func (m *meter) writes(revision string) conformance.Durations {
	m.Helper()
	create := func(ctx context.Context, host string) error {
		rule := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
			"metadata": map[string]any{
				"name": "measured", "namespace": infra, "labels": map[string]any{"istio.io/rev": revision},
			},
			"spec": map[string]any{"host": host},
		}}
		return m.client.Create(ctx, rule, client.DryRunAll)
	}
	if revision == world.Revision {
		// istiod's webhook rejects a rule without a host once it is called.
		err := wait.PollUntilContextCancel(step(m.T), 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return create(ctx, "") != nil, nil
		})
		must(m.T, err)
	}
	var out conformance.Durations
	for range measuredWrites {
		begin := time.Now()
		must(m.T, create(m.Context(), "backend.shop.svc.cluster.local"))
		out = append(out, time.Since(begin))
	}
	return out
}

// manyRoutes creates many HTTPRoutes, and waits until the gateway serves the last one, and until all have a status.
func (m *meter) manyRoutes() conformance.ManyRoutes {
	m.Helper()
	out := conformance.ManyRoutes{Routes: manyRoutes}
	before, inGuest, begin := m.process(), m.inGuest(), time.Now()
	var last *gatewayv1.HTTPRoute
	for i := range manyRoutes {
		last = measuredRoute(fmt.Sprintf("many-%d", i))
		last.Labels = map[string]string{"many": "true"}
		must(m.T, m.client.Create(m.Context(), last))
	}
	out.Creation = time.Since(begin)
	created := time.Now()
	m.until(last, http.StatusOK)
	out.Served = time.Since(created)
	err := wait.PollUntilContextCancel(step(m.T), 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list := &gatewayv1.HTTPRouteList{}
		err := m.client.List(ctx, list, client.InNamespace(infra), client.MatchingLabels{"many": "true"})
		reported := 0
		for i := range list.Items {
			if len(list.Items[i].Status.Parents) > 0 {
				reported++
			}
		}
		return reported == manyRoutes, err
	})
	must(m.T, err)
	out.Reported = time.Since(created)
	after := m.process()
	out.CPU, out.MemoryBefore, out.MemoryAfter = after.cpu-before.cpu, before.memory, after.memory
	now := m.inGuest()
	out.GuestCPU, out.GuestMemory = now.cpu-inGuest.cpu, now.memory
	return out
}

// inGuest returns what istiod's processes on the guest's nodes use.
func (m *meter) inGuest() (sum process) {
	m.Helper()
	for _, p := range m.processes(m.world.GuestClient, world.GuestNamespace) {
		sum.cpu += p.cpu
		sum.memory += p.memory
	}
	return sum
}

// process is what istiod has used: CPU time since its start, and resident memory in bytes.
type process struct {
	cpu    time.Duration
	memory int64
}

// process returns what the process of istiod uses.
func (m *meter) process() process {
	m.Helper()
	all := m.processes(m.istiod, m.namespace)
	if len(all) != 1 {
		m.Fatalf("istiod has %d processes, want 1", len(all))
	}
	return all[0]
}

// processes returns the processes of istiod's pods in a namespace. They are found by the cgroups of the pods.
func (m *meter) processes(cluster kubernetes.Interface, namespace string) []process {
	m.Helper()
	pods, err := cluster.CoreV1().Pods(namespace).List(m.Context(), metav1.ListOptions{LabelSelector: "app=istiod"})
	must(m.T, err)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(m.T, err)
	var out []process
	for _, dir := range dirs {
		group, _ := os.ReadFile(filepath.Join(dir, "cgroup")) // empty if the process has ended
		ofPod := func(p corev1.Pod) bool { return strings.Contains(string(group), string(p.UID)) }
		if !slices.ContainsFunc(pods.Items, ofPod) {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		// See proc_pid_stat(5). The name in parentheses can contain spaces, and has 15 characters.
		_, rest, found := strings.Cut(string(stat), "(pilot-discovery) ")
		if fields := strings.Fields(rest); found && len(fields) > 21 {
			const utime, stime, rss = 11, 12, 21
			ticks := number(m.T, fields[utime]) + number(m.T, fields[stime])
			out = append(out, process{
				cpu:    time.Duration(ticks) * (time.Second / 100), // a tick is 10 ms, see sysconf(3), _SC_CLK_TCK
				memory: number(m.T, fields[rss]) * int64(os.Getpagesize()),
			})
		}
	}
	return out
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
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
