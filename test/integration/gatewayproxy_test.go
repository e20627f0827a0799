package integration_test

import (
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// proxyDefinition is OpenShift's CRD as far as hypergate reads it.
const proxyDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: proxies.config.openshift.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: Proxy, listKind: ProxyList, plural: proxies, singular: proxy}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// proxied is a guest with OpenShift's Proxy. It is a guest of its own, because each hypergate there reads the Proxy.
type proxied struct {
	*harness
	dynamic dynamic.Interface
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	w := &proxied{harness: newHarness(t)}
	plane, err := planes.StartPlane(t.Context(), "guest", t.TempDir(), false)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(plane.Stop)
	w.guest, w.gateway = kubernetes.NewForConfigOrDie(plane.Config), gatewayclient.NewForConfigOrDie(plane.Config)
	w.guestConfig, w.dynamic = counted(plane.Config, w.guestRequests), dynamic.NewForConfigOrDie(plane.Config)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err = w.dynamic.Resource(definitions).Create(t.Context(), fromyaml.Object(t, proxyDefinition), metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return w
}

// set sets the proxy of the guest.
func (w *proxied) set(url string) {
	w.Helper()
	proxy := fromyaml.Object(w.T,
		"{apiVersion: config.openshift.io/v1, kind: Proxy, metadata: {name: cluster}, status: {httpProxy: '"+url+"'}}")
	proxies := w.dynamic.Resource(schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "proxies"})
	w.Eventually(func() error { // the CRD is served a little later
		_, err := proxies.Apply(w.Context(), "cluster", proxy, metav1.ApplyOptions{FieldManager: "third-party", Force: true})
		return err
	}).Should(gomega.Succeed())
}

// mark returns what identifies the settings in the defaults of a class.
func (w *proxied) mark(class string) string {
	defaults, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Get(w.Context(), w.cfg.ClassDefaultsName(class), metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return defaults.Annotations[model.SettingsAnnotation]
}

// TestAProxyThatChangedDuringARestartHoldsGateways changes the guest's proxy while no hypergate runs. The next process
// finds out from the defaults of the class that its Gateways have other settings.
func TestAProxyThatChangedDuringARestartHoldsGateways(t *testing.T) {
	guest := newProxied(t)
	guest.set("http://a.example.com:3128")
	w, stop := newGatewayWorldOn(guest.harness, "a", "b")
	w.Eventually(func() string { return guest.mark("demo") }).ShouldNot(gomega.BeEmpty())
	before := guest.mark("demo")
	w.settle()
	w.Expect(w.held()).To(gomega.BeEmpty(), "the first settings replace no pods")
	stop()

	t.Log("a restart alone holds nothing")
	stop = w.run()
	w.settle()
	w.Expect(w.held()).To(gomega.BeEmpty())
	stop()

	t.Log("both Gateways are held before they get the changed settings, and released one by one")
	guest.set("http://b.example.com:3128")
	w.run()
	w.Eventually(func() string { return guest.mark("demo") }).ShouldNot(gomega.Equal(before))
	w.Expect(w.held()).To(gomega.ContainElement("b"), "b waits for the pods of a")
	w.Eventually(w.held).Should(gomega.Equal([]string{"b"}))
	w.playGateway("a", "registry.example.com/proxyv2:a", 1)
	w.Eventually(w.held).Should(gomega.BeEmpty())
	w.playGateway("b", "registry.example.com/proxyv2:a", 1)
	w.settle()
}
