package integration_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/published"
)

// originWorld is a guest with an istiod of its own and one Gateway. The test plays both istiods, and all Deployments.
type originWorld struct {
	*gatewayWorld
}

func newOriginWorld(t *testing.T, changes ...func(*harness)) *originWorld {
	t.Helper()
	w := &originWorld{&gatewayWorld{harness: newHarness(t)}}
	w.cfg.IstioResources = nil
	w.probe = controller.Probe{Via: published.Listen(t, w.meshCA)} // without a probe, a migration is blocked
	for _, change := range changes {
		change(w.harness)
	}
	w.namespace = "shop-" + w.cfg.Revision
	w.haveCRDs()
	w.createNamespace(w.guest, w.cfg.GuestNamespace)
	w.createNamespace(w.guest, w.namespace)
	w.createIstiod()
	w.patchOrigin(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/version":"1.29.0"}}}`)
	w.originPod("origin-1")
	w.leads("origin-1")
	w.createClass("demo")
	w.createGateway("web")
	w.gatewayOf(migration.OriginAddress(w.cfg), "openshift-gw-ca-root-cert")
	_, err := w.gateway.Gateways(w.namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Programmed","status":"True","reason":"Programmed","message":"",
			"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`), metav1.PatchOptions{}, "status")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return w
}

// meshCA returns the content of the Secret with the mesh CA. It is empty if there is none.
func (w *originWorld) meshCA() map[string][]byte {
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), model.CASecretName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return secret.Data
}

func (w *originWorld) patchOrigin(patch string) {
	w.Helper()
	_, err := w.guest.AppsV1().Deployments(w.cfg.GuestNamespace).Patch(
		w.Context(), w.cfg.IstiodName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// originPod makes a ready pod of the origin.
func (w *originWorld) originPod(name string) {
	w.Helper()
	_, err := w.guest.CoreV1().Pods(w.cfg.GuestNamespace).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "istiod", "istio.io/rev": w.cfg.Revision}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "discovery", Image: "registry.example.com/pilot:1.29.0"}}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.originReady(1)
}

func (w *originWorld) originReady(ready int32) {
	w.Helper()
	deployments := w.guest.AppsV1().Deployments(w.cfg.GuestNamespace)
	w.Eventually(func() error {
		d, err := deployments.Get(w.Context(), w.cfg.IstiodName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: ready, UpdatedReplicas: ready, ReadyReplicas: ready, AvailableReplicas: ready,
		}
		_, err = deployments.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
		return err
	}).Should(gomega.Succeed())
}

// leads gives the lock of the controller that deploys Gateways to a name.
func (w *originWorld) leads(name string) {
	w.Helper()
	leases := w.guest.CoordinationV1().Leases(w.cfg.GuestNamespace)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "istio-gateway-deployment-" + w.cfg.Revision},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name},
	}
	_ = leases.Delete(w.Context(), lease.Name, metav1.DeleteOptions{})
	_, err := leases.Create(w.Context(), lease, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// publishRoots publishes the roots of the hosted istiod in the guest, as istiod does.
func (w *originWorld) publishRoots() {
	w.Helper()
	ca, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), model.CASecretName, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: w.cfg.TrustBundleName()},
		Data:       map[string]string{"root-cert.pem": string(ca.Data[model.CARootFile])},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// gatewayOf gives the Gateway's Deployment the address and the roots of an istiod.
func (w *originWorld) gatewayOf(address, root string) {
	w.Helper()
	deployments := w.guest.AppsV1().Deployments(w.namespace)
	d, err := deployments.Get(w.Context(), "web-demo", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CA_ADDR", Value: address}}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "istiod-ca-cert", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: root}},
	}}}
	_, err = deployments.Update(w.Context(), d, metav1.UpdateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.playGateway("web", "", 1)
}

// originDefaults gives the class defaults of the origin's installation.
func (w *originWorld) originDefaults() {
	w.Helper()
	_, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "of-the-origin", Labels: map[string]string{model.ClassDefaultsLabel: "demo"}},
		Data:       map[string]string{"horizontalPodAutoscaler": "spec:\n  minReplicas: 2\n  maxReplicas: 10\n"},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// classDefaults returns the names of all defaults of the class.
func (w *originWorld) classDefaults() (out []string) {
	w.Helper()
	list, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).List(w.Context(),
		metav1.ListOptions{LabelSelector: model.ClassDefaultsLabel + "=demo"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, m := range list.Items {
		out = append(out, m.Name)
	}
	return out
}

// request sets the goal of the migration on its Lease.
func (w *originWorld) request(goal migration.Goal, at string) {
	w.Helper()
	leases := w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace)
	annotations := map[string]string{migration.GoalAnnotation: string(goal), migration.RequestedAtAnnotation: at}
	_, err := leases.Create(w.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: migration.LeaseName(w.cfg.Revision), Annotations: annotations},
	}, metav1.CreateOptions{})
	if err == nil {
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = leases.Patch(w.Context(), migration.LeaseName(w.cfg.Revision), types.MergePatchType, patch, metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// report returns what hypergate has reported on the Lease.
func (w *originWorld) report() migration.Report {
	lease, err := w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace).
		Get(w.Context(), migration.LeaseName(w.cfg.Revision), metav1.GetOptions{})
	if err != nil {
		return migration.Report{}
	}
	record, _, _ := migration.ParseRecord(lease.Annotations)
	return record.Report
}

func (w *originWorld) why() migration.Reason { return w.report().Why }

// mode returns the mode of the hosted istiod, or none if it is not installed.
func (w *originWorld) mode() string {
	d := w.istiod()
	if d == nil {
		return "none"
	}
	return d.Spec.Template.Annotations[model.IstiodModeAnnotation]
}

func (w *originWorld) originReplicas() int32 {
	d, err := w.guest.AppsV1().Deployments(w.cfg.GuestNamespace).Get(w.Context(), w.cfg.IstiodName(), metav1.GetOptions{})
	if err != nil || d.Spec.Replicas == nil {
		return -1
	}
	return *d.Spec.Replicas
}

// starts goes on until the first Gateway is released: the hosted istiod leads, and the origin serves its proxies.
func (w *originWorld) starts() {
	w.Helper()
	w.Log("the hosted istiod serves, and the Gateway is held")
	w.Eventually(w.mode).Should(gomega.Equal("Serving"))
	w.Expect(w.held()).To(gomega.BeEmpty())
	w.Expect(len(w.classDefaults())).To(gomega.BeNumerically("<", 2), "hypergate's would replace pods")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.held).Should(gomega.Equal([]string{"web"}))

	w.Log("the lock goes over while the origin has no pods")
	w.Eventually(w.mode).Should(gomega.Equal("Leading"))
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.originReplicas).Should(gomega.BeZero())
	w.Expect(w.guest.CoreV1().Pods(w.cfg.GuestNamespace).Delete(w.Context(), "origin-1", metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
	})).To(gomega.Succeed())
	w.originReady(0)
	w.leads(model.HostedIdentity + "istiod-1")
	w.Consistently(w.originReplicas, "2s").Should(gomega.BeZero(), "gateways do not trust the hosted istiod yet")
	w.publishRoots()
	w.Eventually(w.originReplicas).Should(gomega.BeEquivalentTo(1))
	w.Expect(w.held()).To(gomega.Equal([]string{"web"}))
	w.originPod("origin-2")

	w.Log("the Gateway is released")
	w.Eventually(w.held).Should(gomega.BeEmpty())
	w.Eventually(w.why).Should(gomega.Equal(migration.GatewayRolling))
}

// TestAMigrationOnTwoAPIServers goes to the hosted istiod until the Gateway waits for its proxies, and back. Real
// proxies are in the stories of `make migration`.
func TestAMigrationOnTwoAPIServers(t *testing.T) { newOriginWorld(t).thereAndBack() }

// TestAMigrationOnAStandaloneCluster does the same on one API server. The hosted istiod has a namespace of its own
// there.
func TestAMigrationOnAStandaloneCluster(t *testing.T) {
	w := newOriginWorld(t, func(w *harness) {
		w.cfg.Topology = model.TopologyStandalone
		w.cfg.XDS = model.HostPort{Host: w.cfg.IstiodName() + "." + w.cfg.MgmtNamespace + ".svc", Port: 15012}
		w.cfg.WebhookHost, w.cfg.GuestServer, w.cfg.NetworkPolicies = "", "", nil
		w.mgmt, w.mgmtConfig = w.guest, counted(w.pair.Guest.Config, w.mgmtRequests)
		w.createNamespace(w.mgmt, w.cfg.MgmtNamespace)
		go playGarbageCollector(w.Context(), w.mgmt, w.cfg.MgmtNamespace)
	})
	w.thereAndBack()
}

func (w *originWorld) thereAndBack() {
	w.Helper()
	crds := w.crdContents(dynamic.NewForConfigOrDie(w.pair.Guest.Config))
	w.originDefaults()
	w.run()
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionFalse, "OwnedByAnother"))
	w.request(migration.Forward, "2026-01-01T00:00:00Z")
	w.starts()
	w.gatewayOf(w.cfg.XDS.String(), w.cfg.TrustBundleName())
	w.settleReport(migration.StateRolling)
	w.Expect(w.classDefaults()).To(gomega.ConsistOf("of-the-origin", w.cfg.ClassDefaultsName("demo")), "istiod uses the oldest ones")
	w.Expect(w.condition("demo", model.ConditionDomain+"Migration")).To(haveStatus(metav1.ConditionTrue, "Roll"))

	w.Log("and back: the origin leads again, and gets the Gateway")
	w.request(migration.Backward, "2026-01-01T00:01:00Z")
	w.Eventually(w.held).Should(gomega.Equal([]string{"web"}))
	w.Eventually(w.mode).Should(gomega.Equal("Serving"))
	w.Eventually(w.classDefaults).Should(gomega.HaveLen(1), "those of the origin, before it gets the Gateway")
	w.playIstiod(corev1.ConditionTrue)
	w.leads("origin-2")
	w.Eventually(w.held).Should(gomega.BeEmpty())
	w.gatewayOf(migration.OriginAddress(w.cfg), "openshift-gw-ca-root-cert")
	w.Eventually(w.mode).Should(gomega.Equal("none"))
	w.Eventually(w.why).Should(gomega.Equal(migration.RolledBack))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionFalse, "OwnedByAnother"))

	w.Log("nothing of hypergate is left, CRDs are as before, no Secret of the guest was read, and hypergate is at rest")
	w.Eventually(w.oursInGuest).Should(gomega.BeEmpty())
	w.Expect(w.crdContents(dynamic.NewForConfigOrDie(w.pair.Guest.Config))).To(gomega.Equal(crds))
	for _, request := range w.guestRequests.since(0) {
		w.Expect(strings.Contains(request, "/secrets")).To(gomega.BeFalse(), request)
	}
	w.settle()
}

// settleReport waits until the report shows a state of the Gateway.
func (w *originWorld) settleReport(state migration.GatewayState) {
	w.Helper()
	w.Eventually(func() migration.GatewayState {
		if gateways := w.report().Gateways; len(gateways) == 1 {
			return gateways[0].State
		}
		return ""
	}).Should(gomega.Equal(state))
}

// TestAMigrationThatIsBlocked checks that nothing is written while a finding blocks, that a condition names it, and
// that the migration begins by itself once it is gone.
func TestAMigrationThatIsBlocked(t *testing.T) {
	w := newOriginWorld(t)
	w.run()
	_, err := w.gateway.Gateways(w.namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+model.HoldAnnotation+`":"1000"}}}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.request("sideways", "2026-01-01T00:00:00Z")
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("supported values are start, rollback, retire"))
	w.request(migration.Forward, "2026-01-01T00:00:01Z")
	w.Eventually(func() string { return w.installedMessage("demo") }).Should(gomega.And(
		gomega.ContainSubstring("ForeignHold: Gateway "+w.namespace+"/web"), gomega.ContainSubstring("remove the annotation")))
	w.Expect(w.why()).To(gomega.Equal(migration.Blocked))
	w.Expect(w.mode()).To(gomega.Equal("none"))
	w.Expect(w.originReplicas()).To(gomega.BeEquivalentTo(1))
	_, err = w.gateway.Gateways(w.namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+model.HoldAnnotation+`":null}}}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(w.mode).Should(gomega.Equal("Serving"))
	_ = w.gateway.GatewayClasses().Delete(context.Background(), "demo", metav1.DeleteOptions{})
	w.Eventually(w.mode).Should(gomega.Equal("none"))
}

// TestTheGuestDeniesTheHoldOfAMigration lets an admission policy of the guest deny the hold. The condition and the
// report have its cause, and the migration continues once the policy is gone.
func TestTheGuestDeniesTheHoldOfAMigration(t *testing.T) {
	w := newOriginWorld(t)
	remove := w.freeze("web")
	w.run()
	w.request(migration.Forward, "2026-01-01T00:00:00Z")
	w.Eventually(w.mode).Should(gomega.Equal("Serving"))
	w.playIstiod(corev1.ConditionTrue)
	cause := w.namespace + "/web: denied by the admission policy " + w.cfg.Revision + "-frozen"
	w.Eventually(func() string { return w.report().Cause }).Should(gomega.Equal(cause))
	w.Expect(w.report().Phase).To(gomega.Equal(migration.Hold))
	text := "the guest denies a write of the migration: " + cause + " [change what denies it in the guest; hypergate repeats the write]"
	w.Eventually(func() *metav1.Condition { return w.condition("demo", model.ConditionDomain+"Migration") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "Hold"), gomega.HaveField("Message", text)))
	w.Expect(w.mode()).To(gomega.Equal("Serving"), "no Gateway is held, so the lock stays")
	remove()
	w.Eventually(w.mode).Should(gomega.Equal("Leading"))
	w.Expect(w.held()).To(gomega.Equal([]string{"web"}))
	w.Eventually(func() string { return w.report().Cause }).Should(gomega.BeEmpty())
}
