package parity_test

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// TestTheOldestDefaultsCount checks the facts behind the condition about defaults of others, with a real istiod: of all
// ConfigMaps with defaults for a class, it uses only the oldest. If that one has a key that istiod does not know, or a
// value that the API server rejects, it makes no gateway of the class. If there are several of the same second, the
// name decides.
func TestTheOldestDefaultsCount(t *testing.T) {
	ctx, source, g := realGuest(t)
	mine := g.defaults(ctx, "a-guests-own", "horizontalPodAutoscaler", "spec: {minReplicas: 5, maxReplicas: 6}")
	s := ofHypergate(t, source, "", model.SeveralNodes)
	hypergates := &unstructured.Unstructured{}
	g.Expect(hypergates.UnmarshalJSON(s.classDefaults)).To(gomega.Succeed())
	g.Expect(g.client.Create(ctx, hypergates)).To(gomega.Succeed())
	g.defaults(ctx, "z-later", "horizontalPodAutoscaler", "spec: {minReplicas: 7, maxReplicas: 8}")
	i := startIstiodProcess(ctx, t, g.kubeconfig, s)
	scaler := &autoscalingv2.HorizontalPodAutoscaler{}
	g.makes(ctx, "web", scaler)
	g.Expect(scaler.Spec.MinReplicas).To(gomega.HaveValue(gomega.BeEquivalentTo(5)), "the guest's own replace hypergate's")

	t.Log("a key that istiod does not know stops all gateways of the class")
	mine.Data = map[string]string{"deploymnet": "spec: {}"}
	g.Expect(g.client.Update(ctx, mine)).To(gomega.Succeed())
	g.Expect(model.DefaultsProblem(mine.Data)).NotTo(gomega.BeEmpty(), "hypergate finds the mistake")
	// istiod reads ConfigMaps and Gateways by different watches.
	g.Eventually(i.output.String).Should(gomega.MatchRegexp(`unsupported overlay "deploymnet".*gateway=openshift-ingress/web`))
	late := fromyaml.Object(t, `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
		metadata: {name: late, namespace: openshift-ingress, labels: {istio.io/rev: openshift-gateway}},
		spec: {gatewayClassName: openshift-default, listeners: [{name: http, port: 80, protocol: HTTP}]}}`)
	g.Expect(g.client.Create(ctx, late)).To(gomega.Succeed())
	g.Eventually(i.output.String).Should(gomega.MatchRegexp(`unsupported overlay "deploymnet".*gateway=openshift-ingress/late`))
	g.Expect(apierrors.IsNotFound(g.get(ctx, "late", &corev1.Service{}))).To(gomega.BeTrue())

	t.Log("so does what the API server rejects")
	for value, reason := range map[string]string{
		"spec: {template: {spec: {nodeSelectors: {}}}}": "nodeSelectors: field not declared in schema",
		"spec: {replicas: three}":                       "replicas: expected numeric",
		"metadata: {finalizers: [example.com/a]}":       "illegal metadata change",
	} {
		mine.Data = map[string]string{"deployment": value}
		g.Expect(g.client.Update(ctx, mine)).To(gomega.Succeed())
		g.Eventually(i.output.String).Should(gomega.ContainSubstring(reason))
		g.Expect(model.DefaultsProblem(mine.Data)).NotTo(gomega.BeEmpty(), "hypergate finds the mistake")
	}

	t.Log("without it, hypergate's count, and a later one does not")
	g.Expect(g.client.Delete(ctx, mine)).To(gomega.Succeed())
	g.Eventually(func() *int32 {
		g.touchClass(ctx)
		g.Expect(g.get(ctx, "web", scaler)).To(gomega.Succeed())
		return scaler.Spec.MinReplicas
	}).WithPolling(time.Second).Should(gomega.HaveValue(gomega.BeEquivalentTo(2)))
	g.makes(ctx, "late", &corev1.Service{})
}

// defaults makes a ConfigMap with defaults for the gateways of the class.
func (g *guest) defaults(ctx context.Context, name, key, value string) *corev1.ConfigMap {
	g.Helper()
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: map[string]string{model.ClassDefaultsLabel: className},
		},
		Data: map[string]string{key: value},
	}
	g.Expect(g.client.Create(ctx, made)).To(gomega.Succeed())
	return made
}

// TestGatewaysKeepTheirPods plays the end of a migration with a real istiod: hypergate's defaults of a class wait
// behind those of cluster-ingress-operator, which are removed with its installation. The pod template of a gateway
// stays. A Gateway that is made afterwards gets hypergate's, so istiod has read them. The control: without hypergate's,
// the pod template changes.
func TestGatewaysKeepTheirPods(t *testing.T) {
	ctx, source, g := realGuest(t)
	create := func(content []byte) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		g.Expect(u.UnmarshalJSON(content)).To(gomega.Succeed())
		g.Expect(g.client.Create(ctx, u)).To(gomega.Succeed())
		return u
	}
	s := ofHypergate(t, source, "", model.SeveralNodes)
	operators := create(ofOperator(t, source, model.Proxy{}).classDefaults)
	startIstiodProcess(ctx, t, g.kubeconfig, s)
	generation := func() int64 { return g.deployed(ctx, "web", false).Deployment.Generation }
	before := generation()
	hypergates := create(s.classDefaults)

	t.Log("the ingress operator's are removed, and the gateway gets hypergate's disruption budget")
	g.Expect(g.client.Delete(ctx, operators)).To(gomega.Succeed())
	g.makes(ctx, "web", &policyv1.PodDisruptionBudget{})
	g.touchClass(ctx)
	g.Expect(g.client.Create(ctx, fromyaml.Object(t, `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
		metadata: {name: marker, namespace: openshift-ingress, labels: {istio.io/rev: openshift-gateway}},
		spec: {gatewayClassName: openshift-default, listeners: [{name: http, port: 80, protocol: HTTP}]}}`))).To(gomega.Succeed())
	g.deployed(ctx, "marker", true) // istiod takes Gateways one after another
	g.Expect(generation()).To(gomega.Equal(before))

	t.Log("control: without any, the pods are replaced")
	g.Expect(g.client.Delete(ctx, hypergates)).To(gomega.Succeed())
	g.Eventually(func() int64 {
		g.touchClass(ctx)
		return generation()
	}).WithPolling(time.Second).Should(gomega.BeNumerically(">", before))
}
