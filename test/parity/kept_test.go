package parity_test

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/values"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
)

// TestConditionsAndParametersOfGateways checks with a real istiod, and with hypergate's settings, that conditions of
// the ingress operator stay, and that istiod rejects the parameters that hypergate preflight warns of.
func TestConditionsAndParametersOfGateways(t *testing.T) {
	ctx, source, g := realGuest(t)
	s := ofHypergate(t, source, "", model.SeveralNodes)
	defaults := &unstructured.Unstructured{}
	g.Expect(defaults.UnmarshalJSON(s.classDefaults)).To(gomega.Succeed())
	g.Expect(g.client.Create(ctx, defaults)).To(gomega.Succeed())
	i := startIstiodProcess(ctx, t, g.kubeconfig, s)
	t.Run("conditions of the operator stay", func(t *testing.T) { keepsConditions(ctx, g.with(t)) })
	t.Run("parameters", func(t *testing.T) { rejectsParameters(ctx, g.with(t), i, dataOf(t, defaults)) })
}

// with returns the guest for a subtest.
func (g *guest) with(t *testing.T) *guest {
	t.Helper()
	return &guest{Gomega: hang.Gomega(t), T: t, client: g.client, kubeconfig: g.kubeconfig}
}

// keepsConditions writes conditions as the operator's controller gateway-status does, and waits for istiod's next
// status.
func keepsConditions(ctx context.Context, g *guest) {
	written := func(generation int64) gomega.AsyncAssertion {
		return g.Eventually(func() bool {
			c := meta.FindStatusCondition(g.gateway(ctx, "web").Status.Conditions, string(gatewayv1.GatewayConditionAccepted))
			return c != nil && c.ObservedGeneration == generation && len(g.gateway(ctx, "web").Status.Listeners) == 1
		})
	}
	g.touchClass(ctx)
	written(1).Should(gomega.BeTrue())
	// istiod can write the Gateway at any time.
	for _, of := range []string{"DNSReady", "LoadBalancerReady"} {
		g.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			after := g.gateway(ctx, "web")
			ready := metav1.Condition{Type: of, Status: metav1.ConditionTrue, Reason: "NoFailedZones"}
			meta.SetStatusCondition(&after.Status.Conditions, ready)
			meta.SetStatusCondition(&after.Status.Listeners[0].Conditions, ready)
			return g.client.Status().Update(ctx, g.unstructured(after))
		})).To(gomega.Succeed())
	}
	var update *unstructured.Unstructured
	g.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		changed := g.gateway(ctx, "web")
		changed.Spec.Listeners[0].Port = 8080
		update = g.unstructured(changed)
		return g.client.Update(ctx, update)
	})).To(gomega.Succeed())
	written(update.GetGeneration()).Should(gomega.BeTrue())
	status := g.gateway(ctx, "web").Status
	for _, of := range []string{"DNSReady", "LoadBalancerReady"} {
		g.Expect(meta.IsStatusConditionTrue(status.Conditions, of)).To(gomega.BeTrue(), of)
		g.Expect(meta.IsStatusConditionTrue(status.Listeners[0].Conditions, of)).To(gomega.BeTrue(), "listener: %s", of)
	}
}

func (g *guest) gateway(ctx context.Context, name string) *gatewayv1.Gateway {
	g.Helper()
	u := fromyaml.Object(g.T, "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway}")
	g.Expect(g.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u)).To(gomega.Succeed())
	out := &gatewayv1.Gateway{}
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)).To(gomega.Succeed())
	return out
}

// unstructured returns a Gateway for the client, which does not know its type.
func (g *guest) unstructured(gateway *gatewayv1.Gateway) *unstructured.Unstructured {
	g.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(gateway)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return &unstructured.Unstructured{Object: object}
}

// rejectsParameters gives Gateway own parameters that istiod rejects, one after another.
func rejectsParameters(ctx context.Context, g *guest, i istiod, defaults map[string]string) {
	into := values.Target{Namespace: namespace, Names: []string{"own-" + className}, Defaults: defaults}
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
	for _, test := range []struct{ key, value, reason string }{
		{"podDisruptionBudget", "spec: {maxUnavailable: 1}", "minAvailable and maxUnavailable cannot be both set"},
		{"horizontalPodAutoscaler", "spec: {maxReplicas: 1}", "must be greater than or equal to `minReplicas`"},
		{"service", "metadata: {namespace: other}", "illegal metadata change"},
	} {
		own.Data, own.ResourceVersion = map[string]string{test.key: test.value}, ""
		g.Expect(values.ParametersProblem(own.Data, into)).NotTo(gomega.BeEmpty(), "hypergate finds the mistake")
		g.Expect(g.client.Update(ctx, own)).To(gomega.Succeed())
		g.Eventually(i.output.String).Should(gomega.ContainSubstring(test.reason))
	}
	g.Expect(g.client.Delete(ctx, own)).To(gomega.Succeed())
	g.Eventually(i.output.String).Should(gomega.ContainSubstring("configmap does not exist"))
}

func dataOf(t *testing.T, configMap *unstructured.Unstructured) map[string]string {
	t.Helper()
	data, _, err := unstructured.NestedStringMap(configMap.Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	return data
}
