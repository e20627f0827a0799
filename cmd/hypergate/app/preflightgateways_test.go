package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/golden"
)

// theConfigMaps returns the ConfigMaps of a namespace.
func theConfigMaps(namespace string) fakeapi.Collection {
	return fakeapi.Collection{Path: "/api/v1/namespaces/" + namespace + "/configmaps", APIVersion: "v1", Kind: "ConfigMap"}
}

// ofGatewayAPI returns the objects of a kind of the Gateway API.
func ofGatewayAPI(resource, kind string) fakeapi.Collection {
	const version = "gateway.networking.k8s.io/v1"
	return fakeapi.Collection{Path: "/apis/" + version + "/" + resource, APIVersion: version, Kind: kind}
}

// aGateway returns a Gateway in namespace shop with parameters. more are further fields of its spec.
func aGateway(name, class, kind, configMap, more string) string {
	return fmt.Sprintf(`{metadata: {namespace: shop, name: %s}, spec: {gatewayClassName: %s, listeners: [], infrastructure: {
		parametersRef: {group: "", kind: %s, name: %s}}%s}}`, name, class, kind, configMap, more)
}

// shopWithParameters returns a guest with Gateways whose parameters istiod can and cannot use.
func shopWithParameters(t *testing.T) *fakeapi.Server {
	t.Helper()
	api := fakeapi.New(t)
	api.Put(ofGatewayAPI("gatewayclasses", "GatewayClass"),
		"{metadata: {name: ours}, spec: {controllerName: a/b}}", "{metadata: {name: theirs}, spec: {controllerName: c/d}}")
	api.Put(ofGatewayAPI("gateways", "Gateway"),
		aGateway("fine", "ours", "ConfigMap", "fine", ""),
		aGateway("missing", "ours", "ConfigMap", "missing", ""),
		aGateway("secret", "ours", "Secret", "fine", ""),
		aGateway("budget", "ours", "ConfigMap", "budget", ""),
		aGateway("named", "ours", "ConfigMap", "named", ""),
		aGateway("single", "ours", "ConfigMap", "single", ""),
		aGateway("address", "ours", "ConfigMap", "missing", ", addresses: [{value: 192.0.2.1}]"),
		aGateway("manual", "ours", "ConfigMap", "missing", ", addresses: [{type: Hostname, value: a.example.com}]"),
		aGateway("foreign", "theirs", "ConfigMap", "missing", ""),
		"{metadata: {namespace: shop, name: plain}, spec: {gatewayClassName: ours, listeners: []}}")
	api.Put(theConfigMaps("shop"),
		`{metadata: {namespace: shop, name: fine}, data: {deployment: "spec: {replicas: 3}"}}`,
		`{metadata: {namespace: shop, name: budget}, data: {podDisruptionBudget: "spec: {maxUnavailable: 1}"}}`,
		`{metadata: {namespace: shop, name: single}, data: {horizontalPodAutoscaler: "spec: {minReplicas: 1}"}}`,
		`{metadata: {namespace: shop, name: named}, data: {service: "metadata: {name: named-ours}"}}`)
	label := model.ClassDefaultsLabel
	api.Put(theConfigMaps("ingress"), fmt.Sprintf(`{metadata: {namespace: ingress, name: newer, labels: {%s: ours},
		creationTimestamp: "2026-01-02T00:00:00Z"}, data: {podDisruptionBudget: "spec: {maxUnavailable: 1}"}}`, label),
		fmt.Sprintf(`{metadata: {namespace: ingress, name: older, labels: {%s: ours},
		creationTimestamp: "2026-01-01T00:00:00Z"}, data: {podDisruptionBudget: "spec: {minAvailable: 1}",
		horizontalPodAutoscaler: "spec: {minReplicas: 2, maxReplicas: 3}"}}`, label))
	return api
}

// TestPreflightChecksTheParametersOfGateways checks which Gateways the command warns of, and that a warning does not
// change the exit code.
func TestPreflightChecksTheParametersOfGateways(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "fine", errors.New("no permission"))
	for name, change := range map[string]func(*fakeapi.Server){
		"found":     func(*fakeapi.Server) {},
		"forbidden": func(api *fakeapi.Server) { api.Fail(theConfigMaps("shop"), forbidden) },
		"unlisted":  func(api *fakeapi.Server) { api.Fail(ofGatewayAPI("gateways", "Gateway"), forbidden) },
	} {
		api := shopWithParameters(t)
		change(api)
		report := preflightReport{}.withParameters(
			readGatewayParameters(t.Context(), api.Config(), model.Config{ControllerName: "a/b", GuestNamespace: "ingress"}))
		var out strings.Builder
		if err := printed(&out, outputTable, report); err != nil {
			t.Errorf("%s: %v, want exit code 0", name, err)
		}
		golden.Equal(t, "testdata/preflight-parameters-"+name+".table", out.String())
	}
}

// TestPreflightWithoutGatewayAPI checks that a guest without the Gateway API has no warning.
func TestPreflightWithoutGatewayAPI(t *testing.T) {
	t.Parallel()
	found, err := readGatewayParameters(t.Context(), fakeapi.New(t).Config(), model.Config{})
	if err != nil || found.checked+found.unread+len(found.problems) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestPreflightNamesOnlySomeGateways checks that many Gateways neither fill the screen nor take a request each.
func TestPreflightNamesOnlySomeGateways(t *testing.T) {
	t.Parallel()
	api := shopWithParameters(t)
	gateways := make([]string, 0, mostParameters+5)
	for i := range cap(gateways) {
		gateways = append(gateways, aGateway(fmt.Sprintf("gw-%d", i), "ours", "ConfigMap", "missing", ""))
	}
	api.Put(ofGatewayAPI("gateways", "Gateway"), gateways...)
	found, err := readGatewayParameters(t.Context(), api.Config(), model.Config{ControllerName: "a/b", GuestNamespace: "ingress"})
	if err != nil || found.checked != mostParameters || found.unread != 5 || len(api.Requests(theConfigMaps("shop"))) != mostParameters {
		t.Errorf("%d checked, %d not, %d requests, %v", found.checked, found.unread, len(api.Requests(theConfigMaps("shop"))), err)
	}
	checks := preflightReport{}.withParameters(found, nil).Checks
	if len(checks) != mostWarnings+3 || !strings.HasPrefix(checks[mostWarnings].Message, "180 more Gateways") {
		t.Errorf("%d checks: %+v", len(checks), checks[len(checks)-3:])
	}
}

// hostilePages is a guest whose lists have one object on each page. objects has the function that returns the object of
// a page, by resource. The last page is the one without a next object.
type hostilePages struct {
	objects  map[string]func(page int) json.RawMessage
	requests map[string]int
	mu       sync.Mutex
}

// ServeHTTP answers a list.
func (p *hostilePages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	at, _ := strconv.Atoi(r.URL.Query().Get("continue")) // the first page has none
	p.mu.Lock()
	p.requests[resource]++
	p.mu.Unlock()
	of := p.objects[resource]
	metadata, items := map[string]any{"resourceVersion": "1"}, []any{of(at)}
	if of(at+1) != nil {
		metadata["continue"] = strconv.Itoa(at + 1)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "ObjectList", "metadata": metadata, "items": items})
}

// untilPage returns a function that returns an object, in JSON, for each page before the given one.
func untilPage(end int, of func(page int) string) func(int) json.RawMessage {
	return func(page int) json.RawMessage {
		if page >= end {
			return nil
		}
		return json.RawMessage(of(page))
	}
}

// TestPreflightReadsLargeGateways checks that Gateways with large annotations do not keep the command from the others.
func TestPreflightReadsLargeGateways(t *testing.T) {
	t.Parallel()
	const all = 60
	large := strings.Repeat("x", 250<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		items, listed := []any{}, map[string]any{"resourceVersion": "1"}
		switch path.Base(r.URL.Path) {
		case "gatewayclasses":
			items = append(items, json.RawMessage(`{"metadata": {"name": "ours"}, "spec": {"controllerName": "a/b"}}`))
		case "gateways":
			for i := from; i < min(from+limit, all); i++ {
				items = append(items, json.RawMessage(fmt.Sprintf(`{"metadata": {"namespace": "shop", "name": "g%d",
					"annotations": {"a": %q}}, "spec": {"gatewayClassName": "ours", "listeners": [],
					"infrastructure": {"parametersRef": {"group": "", "kind": "Secret", "name": "s"}}}}`, i, large)))
			}
			if from+limit < all {
				listed["continue"] = strconv.Itoa(from + limit)
			}
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "ObjectList", "metadata": listed, "items": items})
	}))
	t.Cleanup(server.Close)
	found, err := readGatewayParameters(t.Context(), &rest.Config{Host: server.URL, QPS: -1},
		model.Config{ControllerName: "a/b", GuestNamespace: "ingress"})
	if err != nil || len(found.problems) != all {
		t.Errorf("%d of %d Gateways: %v", len(found.problems), all, err)
	}
}

// TestPreflightOfAHostileGuest checks that lists end, although the guest always has another page, and that the class
// defaults that are kept have a limit.
func TestPreflightOfAHostileGuest(t *testing.T) {
	t.Parallel()
	class := func(i int) string {
		return fmt.Sprintf(`{"metadata": {"name": "c%d"}, "spec": {"controllerName": "a/b"}}`, i)
	}
	gateway := func(i int) string {
		return fmt.Sprintf(`{"metadata": {"namespace": "shop", "name": "g%d"}, "spec": {"gatewayClassName": "c%d", "listeners": [],
			"infrastructure": {"parametersRef": {"group": "", "kind": "Secret", "name": "s"}}}}`, i, i)
	}
	defaults := func(i int) string {
		return fmt.Sprintf(`{"metadata": {"namespace": "ingress", "name": "d%d", "labels": {%q: "c%d"}}, "data": {"service": %q}}`,
			i, model.ClassDefaultsLabel, i, strings.Repeat("x", 1<<20))
	}
	const endless = 1 << 30
	for name, test := range map[string]struct {
		classes, gateways, defaults int
		want                        string
	}{
		"endless classes":  {endless, 1, 1, "listing gatewayclasses: the list does not end within 500 requests"},
		"endless gateways": {1, endless, 1, "listing gateways: the list does not end within 500 requests"},
		"long defaults":    {20, 20, 20, "those with class defaults have more than 16777216 bytes"},
		"short defaults":   {20, 20, 10, ""},
	} {
		guest := &hostilePages{requests: map[string]int{}, objects: map[string]func(int) json.RawMessage{
			"gatewayclasses": untilPage(test.classes, class), "gateways": untilPage(test.gateways, gateway),
			"configmaps": untilPage(test.defaults, defaults),
		}}
		server := httptest.NewServer(guest)
		_, err := readGatewayParameters(t.Context(), &rest.Config{Host: server.URL, QPS: -1},
			model.Config{ControllerName: "a/b", GuestNamespace: "ingress"})
		server.Close()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		for resource, requests := range guest.requests {
			if requests > parametersPages {
				t.Errorf("%s: %d requests for %s", name, requests, resource)
			}
		}
	}
}
