package parity_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// istioRow is a kind of Istio's API with an object, and with another one that istiod's webhook rejects.
type istioRow struct {
	resource, namespace, spec, invalid string
	// Where the object has an effect: a part of what istiod sends to the gateway, what that shows with the object, and
	// what it shows only without the object.
	in, shows, hides string
	// unseen is why the object changes nothing of that. istiod still has to be allowed to read the kind.
	unseen string
}

// istioRows has a row for each kind that --istio-resources can name.
func istioRows() []istioRow {
	const listener, routes, web = "listener 0.0.0.0_80", "route http.80", "{group: gateway.networking.k8s.io, kind: Gateway, name: web}"
	return []istioRow{
		{
			resource: "authorizationpolicies", in: listener, shows: "/by-authorizationpolicies", invalid: `{rules: [{from: [{}]}]}`,
			spec: `{targetRefs: [` + web + `], action: DENY, rules: [{to: [{operation: {paths: [/by-authorizationpolicies]}}]}]}`,
		},
		{
			resource: "requestauthentications", in: listener, shows: "by-requestauthentications.example.com",
			spec:    `{targetRefs: [` + web + `], jwtRules: [{issuer: by-requestauthentications.example.com, jwks: '{"keys":[]}'}]}`,
			invalid: `{jwtRules: [{issuer: a, jwksUri: "ftp://a"}]}`,
		},
		{
			resource: "peerauthentications", in: "cluster outbound|80||plain.plain.svc.cluster.local", hides: "tlsMode-istio",
			namespace: "plain", spec: `{mtls: {mode: DISABLE}}`, invalid: `{portLevelMtls: {80: {mode: STRICT}}}`,
		},
		{
			resource: "envoyfilters", in: "cluster by-envoyfilters", shows: "by-envoyfilters",
			spec: `{configPatches: [{applyTo: CLUSTER, match: {context: GATEWAY}, patch: {operation: ADD,
				value: {name: by-envoyfilters, type: STATIC, connect_timeout: 1s}}}]}`,
			invalid: `{configPatches: [{applyTo: CLUSTER, patch: {operation: ADD}}]}`,
		},
		{
			resource: "virtualservices", in: routes, shows: "virtual.example.com", invalid: `{hosts: ["a b"]}`,
			spec: `{hosts: [virtual.example.com], gateways: [by-gateways], http: [{route: [{destination: {host: backend}}]}]}`,
		},
		{
			resource: "destinationrules", in: "cluster outbound|8080|blue|backend.openshift-ingress.svc.cluster.local", shows: "blue",
			spec: `{host: backend, subsets: [{name: blue, labels: {color: blue}}]}`, invalid: `{host: "a b"}`,
		},
		{
			// The second host is for the VirtualService.
			resource: "gateways", in: routes, shows: "redirected.example.com", invalid: `{servers: []}`,
			spec: `{selector: {gateway.networking.k8s.io/gateway-name: web}, servers: [
				{port: {number: 80, name: http, protocol: HTTP}, hosts: [redirected.example.com], tls: {httpsRedirect: true}},
				{port: {number: 80, name: http2, protocol: HTTP}, hosts: [virtual.example.com]}]}`,
		},
		{
			resource: "serviceentries", in: "cluster outbound|80||entry.example.com", shows: "entry.example.com", invalid: `{hosts: []}`,
			spec: `{hosts: [entry.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`,
		},
		{
			resource: "sidecars", spec: `{egress: [{hosts: ["./*"]}]}`, invalid: `{egress: [{hosts: [a]}]}`,
			unseen: "istiod reads Sidecars for the proxies of workloads only, and not for gateways",
		},
		{
			resource: "workloadentries", in: "endpoints outbound|80||vm.openshift-ingress.svc.cluster.local", shows: "10.9.9.9",
			spec: `{address: 10.9.9.9, labels: {app: vm}}`, invalid: `{labels: {app: vm}}`,
		},
		{
			resource: "workloadgroups", spec: `{template: {serviceAccount: default}}`, invalid: `{metadata: {labels: {a: b}}}`,
			unseen: "istiod reads WorkloadGroups only when a machine registers itself",
		},
		{
			resource: "proxyconfigs", spec: `{environmentVariables: {BY_PROXYCONFIGS: "1"}}`, invalid: `{concurrency: -1}`,
			unseen: "istiod uses ProxyConfigs for the Deployment of a gateway, which the test looks at",
		},
		{
			resource: "wasmplugins", in: listener, shows: "openshift-ingress.by-wasmplugins", invalid: `{url: "ftp://a"}`,
			spec: `{targetRefs: [` + web + `], url: "https://example.com/filter.wasm"}`,
		},
		{
			resource: "telemetries", in: listener, shows: "response.code == 599",
			spec: `{targetRefs: [` + web + `], accessLogging: [
				{providers: [{name: envoy}], filter: {expression: response.code == 599}}]}`,
			invalid: `{metrics: [{overrides: [{tagOverrides: {a: {operation: UPSERT}}}]}]}`,
		},
	}
}

const seenByIstio = `
apiVersion: v1
kind: Namespace
metadata: {name: plain}
---
apiVersion: v1
kind: Service
metadata: {name: plain, namespace: plain}
spec: {ports: [{name: http, port: 80}], selector: {app: plain}}
---
apiVersion: v1
kind: Service
metadata: {name: vm, namespace: openshift-ingress}
spec: {ports: [{name: http, port: 80}], selector: {app: vm}}
`

// object returns the object of a row with this spec.
func (r istioRow) object(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	kind := r.kind(t)
	return fromyaml.Object(t, fmt.Sprintf("{apiVersion: %s/%s, kind: %s, metadata: {name: by-%s, namespace: %s}, spec: %s}", kind.Group,
		kind.Version, strings.TrimSuffix(kind.Kind, "."+kind.Group), r.resource, cmp.Or(r.namespace, namespace), spec))
}

func (r istioRow) kind(t *testing.T) model.IstioKind {
	t.Helper()
	kinds := model.IstioKinds()
	i := slices.IndexFunc(kinds, func(k model.IstioKind) bool { return k.Resource == r.resource })
	if i < 0 {
		t.Fatalf("%s is not a resource of Istio", r.resource)
	}
	return kinds[i]
}

// hasEffect reports whether a gateway receives what the object asks for.
func (r istioRow) hasEffect(out sent) bool {
	if r.hides != "" {
		return out[r.in] != "" && !strings.Contains(out[r.in], r.hides)
	}
	return r.in != "" && strings.Contains(out[r.in], r.shows)
}

// TestEachKindOfIstio checks each kind of Istio's API with a real istiod that has hypergate's permissions. With all
// kinds in --istio-resources, an object of each kind has its effect, and istiod's webhook rejects an invalid one. The
// controls are an istiod without these kinds, and one that is not allowed to read them.
func TestEachKindOfIstio(t *testing.T) {
	ctx, source, g := realGuest(t)
	rows := istioRows()
	g.Expect(rows).To(gomega.HaveLen(len(model.IstioKinds())))
	g.haveIstioCRDs(ctx)
	g.have(ctx, behind, seenByIstio)
	for _, row := range rows {
		g.Expect(g.client.Create(ctx, row.object(t, row.spec))).To(gomega.Succeed(), row.resource)
	}
	web := g.gatewayPod(ctx)
	none := ofHypergateFor(t, source, "", nil, model.GuestObservation{})
	all := ofHypergateFor(t, source, "", model.KnownIstioResources(), model.GuestObservation{})
	g.apply(ctx, none.guest)
	account := g.as(ctx, "hypergate-istiod-"+revision)
	without := g.sentTo(ctx, account, none, web, hasRoute)
	plain := g.environmentOfGateway(ctx)

	t.Log("an istiod that is not allowed to read the kinds")
	forbidden := launchIstiod(ctx, t, account, all)
	for _, kind := range model.IstioKinds() {
		g.Eventually(forbidden.output.String).Should(gomega.ContainSubstring("%s is forbidden", kind.CRD()))
	}
	forbidden.stop()

	t.Log("an istiod with all kinds")
	g.apply(ctx, all.guest)
	g.readsIstioKinds(ctx)
	i := g.started(ctx, account, all)
	defer i.stop()
	with := g.received(ctx, i, web, func(g gomega.Gomega, out sent) {
		g.Expect(slices.DeleteFunc(slices.Clone(rows), func(r istioRow) bool { return r.unseen != "" || r.hasEffect(out) })).
			To(gomega.BeEmpty(), "the objects without an effect")
	})
	g.Eventually(func() []string {
		g.touchClass(ctx)
		return g.environmentOfGateway(ctx)
	}).Should(gomega.ContainElement("BY_PROXYCONFIGS"))
	g.Expect(plain).To(gomega.And(gomega.Not(gomega.BeEmpty()), gomega.Not(gomega.ContainElement("BY_PROXYCONFIGS"))))
	g.Expect(i.output.String()).NotTo(gomega.ContainSubstring("is forbidden"))
	for _, row := range rows {
		t.Run(row.resource, func(t *testing.T) {
			g := g.with(t)
			g.Expect(row.hasEffect(with)).To(gomega.Equal(row.unseen == ""), "with the kind: %s", row.unseen)
			g.Expect(row.hasEffect(without)).To(gomega.BeFalse(), "without the kind")
			g.Expect(without[row.in]).To(gomega.ContainSubstring(row.hides))
			answer := i.review(ctx, t, all, row.object(t, row.spec))
			g.Expect(answer.Allowed).To(gomega.BeTrue(), "%v", answer.Result)
			answer = i.review(ctx, t, all, row.object(t, row.invalid))
			g.Expect(answer.Allowed).To(gomega.BeFalse())
			g.Expect(answer.Result.Message).To(gomega.ContainSubstring("configuration is invalid"))
		})
	}
}

// readsIstioKinds waits until the API server lets istiod read all kinds. An istiod that starts before logs that it is
// not allowed to.
func (g *guest) readsIstioKinds(ctx context.Context) {
	g.Helper()
	admin, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	var permissions []audit.Permission
	for _, kind := range model.IstioKinds() {
		for _, verb := range []string{"list", "watch"} {
			permissions = append(permissions, audit.Permission{Group: kind.Group, Resource: kind.Resource, Verb: verb})
		}
	}
	user := deploy.UserOf(namespace, "hypergate-istiod-"+revision)
	g.Expect(deploy.TakesEffect(ctx, admin, user, permissions, true)).To(gomega.Succeed())
}

// environmentOfGateway returns the names of the variables that istiod gives to the proxies of a Gateway.
func (g *guest) environmentOfGateway(ctx context.Context) (names []string) {
	g.Helper()
	deployment := &appsv1.Deployment{}
	g.Expect(g.get(ctx, "web", deployment)).To(gomega.Succeed())
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		names = append(names, variable.Name)
	}
	return names
}

// review asks istiod's webhook about an object, as an API server does.
func (i istiod) review(ctx context.Context, t *testing.T, s settings, object *unstructured.Unstructured) *admissionv1.AdmissionResponse {
	t.Helper()
	gvk := object.GroupVersionKind()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("1"), Kind: metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
			Name: object.GetName(), Namespace: object.GetNamespace(), Operation: admissionv1.Create,
			Object: runtime.RawExtension{Object: object},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+i.webhook+"/validate", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.files["etc/cacerts/root-cert.pem"]))
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: "istiod-" + revision + "." + namespace + ".svc", MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil || review.Response == nil {
		t.Fatalf("istiod's webhook: %s, %v", response.Status, err)
	}
	return review.Response
}
