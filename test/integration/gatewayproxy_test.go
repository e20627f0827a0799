package integration_test

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/ocpcrds"
)

// lonely is a world whose guest no other world uses. Each hypergate there reads the guest's configuration.
type lonely struct {
	*harness
	dynamic dynamic.Interface
}

// ownGuest returns a world with a new guest.
func ownGuest(t *testing.T) *lonely {
	t.Helper()
	w := &lonely{harness: newHarness(t)}
	plane, err := planes.StartPlane(t.Context(), "guest", t.TempDir(), false)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(plane.Stop)
	w.guest, w.gateway = kubernetes.NewForConfigOrDie(plane.Config), gatewayclient.NewForConfigOrDie(plane.Config)
	w.guestConfig, w.dynamic = counted(plane.Config, w.guestRequests), dynamic.NewForConfigOrDie(plane.Config)
	return w
}

// proxied is a guest with OpenShift's Proxy.
type proxied struct{ *lonely }

func newProxied(t *testing.T) *proxied {
	t.Helper()
	w := &proxied{ownGuest(t)}
	w.serve(ocpcrds.Proxies)
	return w
}

// serve installs a CRD of OpenShift in the guest.
func (w *lonely) serve(file string) {
	w.Helper()
	crd, err := ocpcrds.CRD(w.Context(), file)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.dynamic.Resource(crdsResource).Create(w.Context(), crd, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// configure sets the spec and the status of an object of OpenShift's configuration, as its operators do.
func (w *lonely) configure(kind, resource, fields string) {
	w.Helper()
	object := fromyaml.Object(w.T, "{apiVersion: config.openshift.io/v1, kind: "+kind+", metadata: {name: cluster}, "+fields+"}")
	client := w.dynamic.Resource(schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: resource})
	options := metav1.ApplyOptions{FieldManager: "third-party", Force: true}
	w.Eventually(func() error { // the CRD is served a little later
		if _, err := client.Apply(w.Context(), "cluster", object, options); err != nil {
			return err
		}
		_, err := client.ApplyStatus(w.Context(), "cluster", object, options)
		return err
	}).Should(gomega.Succeed())
}

// set sets the proxy of the guest.
func (w *proxied) set(url string) {
	w.Helper()
	w.configure("Proxy", "proxies", "spec: {httpProxy: '"+url+"'}, status: {httpProxy: '"+url+"'}")
}

// defaults returns the defaults of a class. They are empty if there are none.
func (w *proxied) defaults(class string) *corev1.ConfigMap {
	defaults, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Get(w.Context(), w.cfg.ClassDefaultsName(class), metav1.GetOptions{})
	if err != nil {
		return &corev1.ConfigMap{}
	}
	return defaults
}

// mark returns what identifies the settings in the defaults of a class.
func (w *proxied) mark(class string) string {
	return w.defaults(class).Annotations[model.SettingsAnnotation]
}

// TestAProxyThatChangedDuringARestartHoldsGateways changes the guest's proxy while no hypergate runs. The next process
// finds out from the defaults of the class that its Gateways have other settings, and when the last change was used.
func TestAProxyThatChangedDuringARestartHoldsGateways(t *testing.T) {
	guest, clock := newProxied(t), &movedClock{}
	guest.clock = clock
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
	clock.stop()
	stop = w.run()
	w.Eventually(func() string { return guest.mark("demo") }).ShouldNot(gomega.Equal(before))
	w.Expect(w.held()).To(gomega.ContainElement("b"), "b waits for the pods of a")
	w.Eventually(w.heldMoving(clock, 2)).WithPolling(time.Second).Should(gomega.Equal([]string{"b"}))
	w.playGateway("a", "registry.example.com/proxyv2:a", 1)
	w.Eventually(w.heldMoving(clock, 1)).WithPolling(time.Second).Should(gomega.BeEmpty())
	w.playGateway("b", "registry.example.com/proxyv2:a", 1)
	w.settle()
	stop()

	t.Log("the next change waits for ten minutes, also in a new process, which changes nothing")
	guest.set("http://c.example.com:3128")
	before, version := guest.mark("demo"), guest.defaults("demo").ResourceVersion
	w.run()
	w.Eventually(func() *metav1.Condition { return w.condition("demo", status.SettingsApplied) }).
		Should(haveStatus(metav1.ConditionFalse, status.ReasonChangeDelayed))
	w.settle()
	w.Expect(guest.mark("demo")).To(gomega.Equal(before))
	w.Expect(guest.defaults("demo").ResourceVersion).To(gomega.Equal(version))
	w.Expect(w.held()).To(gomega.BeEmpty())
}

// denyDefaults makes the guest deny each change of the defaults of a class.
func (w *proxied) denyDefaults(class string) (remove func()) {
	w.Helper()
	name := w.cfg.ClassDefaultsName(class)
	end := w.enforce(guestPolicy{
		name:       w.cfg.Revision + "-defaults",
		operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		conditions: []admissionregistrationv1.MatchCondition{{Name: "one", Expression: "object.metadata.name == '" + name + "'"}},
		validation: admissionregistrationv1.Validation{Expression: "false", Message: "a change freeze"},
	})
	w.Eventually(func() error {
		_, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Patch(w.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).Should(gomega.MatchError(gomega.ContainSubstring("a change freeze")))
	return end
}

// TestRefusedDefaultsOfOneClassDoNotHoldTheOthers lets a policy of the guest deny the defaults of one class. After two
// minutes, the Gateways of the other class roll, and a condition names the class, the cause and the next step. When the
// guest accepts the defaults, Gateways are held before they are written, and released one after another.
func TestRefusedDefaultsOfOneClassDoNotHoldTheOthers(t *testing.T) {
	guest := newProxied(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	guest.clock = clock
	guest.set("http://a.example.com:3128")
	w, _ := newGatewayWorldOn(guest.harness, "a", "b")
	w.createClass("other")
	w.Eventually(func() []string { return []string{guest.mark("demo"), guest.mark("other")} }).ShouldNot(gomega.ContainElement(""))
	before := guest.mark("other")
	w.settle()
	remove := guest.denyDefaults("other")

	guest.set("http://b.example.com:3128")
	w.Eventually(func() string { return guest.mark("demo") }).ShouldNot(gomega.Equal(before))
	w.looksAgain()
	clock.SetTime(clock.Now().Add(2*time.Minute - 10*time.Second))
	w.looksAgain()
	w.Expect(w.held()).To(gomega.Equal([]string{"a", "b"}), "the policy can be an accident")
	// Steps are shorter than the time that a released Gateway has to change (5 s).
	oneIsReleased := func() []string {
		held := w.held()
		if len(held) == 2 {
			clock.SetTime(clock.Now().Add(2 * time.Second))
		}
		return held
	}
	w.Eventually(oneIsReleased).WithPolling(time.Second).Should(gomega.Equal([]string{"b"}))
	w.playGateway("a", "registry.example.com/proxyv2:a", 1)
	w.Eventually(w.held).Should(gomega.BeEmpty())
	w.playGateway("b", "registry.example.com/proxyv2:a", 1)
	w.Expect(guest.mark("other")).To(gomega.Equal(before))
	for _, class := range []string{"demo", "other"} {
		w.Eventually(func() string { return w.installedMessage(class) }).Should(gomega.And(
			gomega.ContainSubstring("denied by the admission policy "+w.cfg.Revision+"-defaults"),
			gomega.ContainSubstring("the guest has not accepted the new defaults of GatewayClass other for two minutes"),
			gomega.ContainSubstring("let hypergate write the ConfigMap")))
	}

	t.Log("the guest accepts them in the end")
	remove()
	w.Eventually(func() []string {
		held := w.held()
		if len(held) == 0 { // the API server may still know the policy
			clock.SetTime(clock.Now().Add(4 * time.Second))
		}
		return held
	}).WithPolling(time.Second).Should(gomega.Equal([]string{"a", "b"}), "Gateways are held first")
	w.Eventually(func() string { return guest.mark("other") }).Should(gomega.Equal(guest.mark("demo")))
	w.Eventually(func() string { return w.installedMessage("other") }).ShouldNot(gomega.ContainSubstring("not accepted"))
	w.looksAgain()
	w.Expect(w.held()).To(gomega.Equal([]string{"a", "b"}), "istiod has five seconds to read them")
	w.Eventually(oneIsReleased).WithPolling(time.Second).Should(gomega.Equal([]string{"b"}))
	w.playGateway("a", "registry.example.com/proxyv2:b", 1)
	w.Eventually(w.held).Should(gomega.BeEmpty())
}

// TestTheConfigurationOfOpenShift checks that the real CRDs of OpenShift accept what the tests give to guests, and that
// hypergate obeys what they keep: the Proxy and the Infrastructure, in the defaults of a class.
func TestTheConfigurationOfOpenShift(t *testing.T) {
	w := ownGuest(t)
	for _, file := range []string{ocpcrds.Proxies, ocpcrds.Infrastructures, ocpcrds.APIServers} {
		w.serve(file)
	}
	w.configure("Proxy", "proxies", "spec: {}, status: {httpProxy: 'http://a.example.com:3128', noProxy: .svc}")
	w.configure("Infrastructure", "infrastructures", "spec: {}, status: {infrastructureTopology: SingleReplica}")
	const custom = "type: Custom, custom: {minTLSVersion: VersionTLS12, ciphers: [ECDHE-RSA-AES128-GCM-SHA256], groups: [secp384r1]}"
	w.configure("APIServer", "apiservers", "spec: {tlsAdherence: StrictAllComponents, tlsSecurityProfile: {"+custom+"}}")
	w.configure("APIServer", "apiservers", "spec: {tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern, custom: null}}")
	w.configure("APIServer", "apiservers", "spec: {tlsAdherence: LegacyAdheringComponentsOnly, tlsSecurityProfile: {type: Modern}}")
	w.run()
	w.createClass("demo")
	w.Eventually(func(g gomega.Gomega) {
		maps := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace)
		defaults, err := maps.Get(t.Context(), w.cfg.ClassDefaultsName("demo"), metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(defaults.Data["deployment"]).To(gomega.ContainSubstring("http://a.example.com:3128"))
		g.Expect(defaults.Data["horizontalPodAutoscaler"]).To(gomega.ContainSubstring("minReplicas: 1"))
	}).Should(gomega.Succeed())
}
