package parity_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// passthrough is a Gateway with a listener for a TLSRoute, and one for an HTTPRoute. The HTTPRoute is the last object,
// so istiod has seen the others when it has written its status.
const passthrough = `
apiVersion: gateway.networking.k8s.io/%s
kind: TLSRoute
metadata: {name: passthrough, namespace: openshift-ingress}
spec:
  parentRefs: [{name: passthrough, sectionName: tls}]
  hostnames: [tls.example.com]
  rules: [{backendRefs: [{name: backend, port: 8443}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: passthrough, namespace: openshift-ingress}
spec:
  gatewayClassName: openshift-default
  listeners:
  - {name: tls, port: 443, protocol: TLS, hostname: tls.example.com, tls: {mode: Passthrough}}
  - {name: http, port: 80, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: plain, namespace: openshift-ingress}
spec:
  parentRefs: [{name: passthrough, sectionName: http}]
  rules: [{backendRefs: [{name: backend, port: 8080}]}]
`

// tlsRoutes is a CRD of TLSRoutes: of a channel of the Gateway API with which one of hack/servers was built.
type tlsRoutes struct {
	server, channel, version string
	// known means that Istio 1.29 does not ignore the CRD for its version.
	known bool
	// newer means that Kubernetes 1.30 rejects the CRD: a rule of it calls CEL's function isIP.
	newer bool
}

// TestTLSListeners checks what a real istiod with hypergate's settings makes of a listener of the protocol TLS, and of
// a TLSRoute, with the CRDs that a guest can have.
func TestTLSListeners(t *testing.T) {
	for name, crd := range map[string]tlsRoutes{
		"experimental channel of 1.4": {server: "istiod", channel: "experimental", version: "v1alpha3", known: true},
		"standard channel of 1.5":     {server: "istiod-next", channel: "standard", version: "v1", newer: true},
	} {
		t.Run(name, func(t *testing.T) {
			if crd.newer && servers.HasOlderGuest() {
				t.Skip("Kubernetes of this version rejects the CRD")
			}
			refusesTLS(t, crd)
		})
	}
}

// refusesTLS checks that istiod refuses only the listener, and gives the TLSRoute no status. The control is an istiod
// with Istio's alpha features, which accepts the listener, and the TLSRoute if it does not ignore the CRD.
func refusesTLS(t *testing.T, crd tlsRoutes) {
	t.Helper()
	ctx, source, g := realGuest(t)
	g.haveCRDs(crd.file(ctx, t))
	s := ofHypergate(t, source, "", model.SeveralNodes)
	g.apply(ctx, s.guest) // without the default revision, istiod ignores routes that have no label with a revision
	i := g.started(ctx, g.kubeconfig, s)
	made := fromyaml.Objects(t, fmt.Sprintf(passthrough, crd.version))
	for _, object := range made {
		g.Expect(g.client.Create(ctx, object)).To(gomega.Succeed())
	}
	route, plain := made[0], made[2]
	g.Eventually(func() string { return g.condition(ctx, plain, "Accepted") }).Should(gomega.Equal("True"))
	g.Eventually(func() *metav1.Condition { return g.ofListener(ctx, "tls", gatewayv1.ListenerConditionAccepted) }).
		Should(gomega.HaveValue(gomega.And(
			gomega.HaveField("Status", metav1.ConditionFalse),
			gomega.HaveField("Reason", string(gatewayv1.ListenerReasonUnsupportedProtocol)),
			gomega.HaveField("Message", `protocol "TLS" is supported, but only when PILOT_ENABLE_ALPHA_GATEWAY_API=true is configured`),
		)))
	g.Expect(g.ofListener(ctx, "tls", gatewayv1.ListenerConditionProgrammed)).To(isTrue(), "although istiod does not serve it")
	g.Expect(g.ofListener(ctx, "http", gatewayv1.ListenerConditionAccepted)).To(isTrue())
	ofGateway := g.gateway(ctx, "passthrough").Status.Conditions
	g.Expect(meta.FindStatusCondition(ofGateway, string(gatewayv1.GatewayConditionAccepted))).To(isTrue())
	g.Expect(g.status(ctx, route)).To(gomega.BeEmpty())
	i.stop()

	t.Log("an istiod with alpha features")
	s.env = maps.Clone(s.env)
	s.env["PILOT_ENABLE_ALPHA_GATEWAY_API"] = "true"
	g.started(ctx, g.kubeconfig, s)
	g.Eventually(func() *metav1.Condition { return g.ofListener(ctx, "tls", gatewayv1.ListenerConditionAccepted) }).Should(isTrue())
	if crd.known {
		g.Eventually(func() string { return g.condition(ctx, route, "Accepted") }).Should(gomega.Equal("True"))
	}
}

func isTrue() gomega.OmegaMatcher {
	return gomega.HaveValue(gomega.HaveField("Status", metav1.ConditionTrue))
}

// ofListener returns a condition of a listener of the Gateway passthrough, or nil.
func (g *guest) ofListener(
	ctx context.Context, name gatewayv1.SectionName, condition gatewayv1.ListenerConditionType,
) *metav1.Condition {
	g.Helper()
	for _, listener := range g.gateway(ctx, "passthrough").Status.Listeners {
		if listener.Name == name {
			return meta.FindStatusCondition(listener.Conditions, string(condition))
		}
	}
	return nil
}

// status returns the status of an object.
func (g *guest) status(ctx context.Context, object *unstructured.Unstructured) map[string]any {
	g.Helper()
	g.Expect(g.client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
	status, _, err := unstructured.NestedMap(object.Object, "status")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return status
}

// file returns the file of the CRD.
func (crd tlsRoutes) file(ctx context.Context, t *testing.T) string {
	t.Helper()
	root, err := servers.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := servers.ModuleDir(ctx, filepath.Join(root, "hack/servers", crd.server), "sigs.k8s.io/gateway-api")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "config/crd", crd.channel, "gateway.networking.k8s.io_tlsroutes.yaml")
}
