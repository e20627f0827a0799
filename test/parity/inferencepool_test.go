package parity_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// inferenceCRDs returns the folder of the CRDs of the inference extension in the module that istiod was built with.
func inferenceCRDs(ctx context.Context, t *testing.T) string {
	t.Helper()
	root, err := servers.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := servers.ModuleDir(ctx, filepath.Join(root, "hack/servers/istiod"), "sigs.k8s.io/gateway-api-inference-extension")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "config/crd/bases")
}

const pool = `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: models, namespace: openshift-ingress}
spec:
  selector: {matchLabels: {app: model}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: picker, port: {number: 9002}}
---
apiVersion: v1
kind: Service
metadata: {name: picker, namespace: openshift-ingress}
spec: {ports: [{port: 9002}], selector: {app: picker}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: models, namespace: openshift-ingress}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: models}]}]
`

// as returns a kubeconfig with a token of a service account.
func (g *guest) as(ctx context.Context, account string) string {
	g.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	clients, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	token, err := clients.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	file := filepath.Join(g.TempDir(), "kubeconfig")
	g.Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"guest": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"istiod": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"guest": {Cluster: "guest", AuthInfo: "istiod"}},
		CurrentContext: "guest",
	}, file)).To(gomega.Succeed())
	return file
}

// condition returns the status of a condition of an object, wherever its status has it.
func (g *guest) condition(ctx context.Context, object *unstructured.Unstructured, name string) string {
	if err := g.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return err.Error()
	}
	parents, _, _ := unstructured.NestedSlice(object.Object, "status", "parents")
	for _, item := range parents {
		parent, _ := item.(map[string]any)
		conditions, _ := parent["conditions"].([]any)
		if i := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == name }); i >= 0 {
			return conditions[i].(map[string]any)["status"].(string)
		}
	}
	return ""
}

// TestInferencePools checks that an istiod with hypergate's permissions starts without the CRD of InferencePools, and
// serves a route to a pool as soon as the CRD is there, without a restart.
func TestInferencePools(t *testing.T) {
	ctx, source, g := realGuest(t)
	s := ofHypergate(t, source, "", model.SeveralNodes)
	g.apply(ctx, s.guest)
	startIstiod(ctx, t, g.as(ctx, "hypergate-istiod-"+revision), s)

	t.Log("the CRD appears, and then a pool")
	g.haveCRDs(inferenceCRDs(ctx, t))
	made := fromyaml.Objects(t, pool)
	for _, object := range made {
		g.Expect(g.client.Create(ctx, object)).To(gomega.Succeed())
	}
	g.Eventually(func() string { return g.condition(ctx, made[2], "ResolvedRefs") }).Should(gomega.Equal("True"))
	g.Eventually(func() string { return g.condition(ctx, made[0], "Accepted") }).Should(gomega.Equal("True"))
	services := &corev1.ServiceList{}
	g.Expect(g.client.List(ctx, services, client.InNamespace(namespace),
		client.MatchingLabels{"istio.io/inferencepool-name": "models"})).To(gomega.Succeed())
	g.Expect(services.Items).To(gomega.HaveLen(1), "istiod makes a Service of the pool")
}

// TestAnInferencePoolCRDWithoutV1 checks what an istiod does that starts while the CRD of InferencePools does not serve
// v1. As hypergate plans it for such a guest, it becomes ready. With InferencePools, it would not. Then it becomes
// ready, without a restart, when the CRD serves v1.
func TestAnInferencePoolCRDWithoutV1(t *testing.T) {
	ctx, source, g := realGuest(t)
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	g.haveCRDs(inferenceCRDs(ctx, t))
	serve := func(v1 bool) {
		g.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the API server writes the CRD's status
			g.Expect(g.client.Get(ctx, client.ObjectKey{Name: model.InferencePoolCRD}, crd)).To(gomega.Succeed())
			versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Expect(versions).To(gomega.ContainElement(gomega.HaveKeyWithValue("name", "v1")))
			for _, version := range versions {
				if version := version.(map[string]any); version["name"] == "v1" {
					version["served"] = v1
				}
			}
			g.Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(gomega.Succeed())
			return g.client.Update(ctx, crd)
		})).To(gomega.Succeed())
	}
	serve(false)
	unreadable := model.GuestObservation{IgnoredCRDs: []string{model.InferencePoolCRD}}
	ignoring := ofHypergateFor(t, source, "", model.LayeredProductResources(), unreadable)
	g.apply(ctx, ignoring.guest)
	account := g.as(ctx, "hypergate-istiod-"+revision)
	startIstiod(ctx, t, account, ignoring)()

	t.Log("an istiod that serves InferencePools")
	s := ofHypergate(t, source, "", model.SeveralNodes)
	i := launchIstiod(ctx, t, account, s)
	syncing := func() int {
		return strings.Count(i.output.String(), `controller "inference.networking.k8s.io/v1/InferencePool" is syncing`)
	}
	g.Eventually(syncing).Should(gomega.BeNumerically(">", 20), "it waits for the first list, and logs ten lines per second")
	g.Expect(ready(ctx, i.health)).To(gomega.HaveOccurred())

	t.Log("the CRD serves v1")
	serve(true)
	g.Eventually(func() error { return ready(ctx, i.health) }).Should(gomega.Succeed())
}
