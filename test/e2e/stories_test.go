package e2e_test

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/proc"
	"github.com/hypergate/hypergate/test/world"
	"github.com/hypergate/hypergate/test/xds"
)

const class = "openshift-default"

// start runs hypergate with the settings of the world and exactly these arguments. hypergate continues to run after the
// story, until another story starts it with other arguments.
func (t *fixture) start(more ...string) *world.Hypergate {
	t.Helper()
	h, err := t.StartHypergate(t.ctx, slices.Concat(t.settings, more)...)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(h.Release)
	return h
}

// installed runs hypergate and creates a class, and waits until istiod serves it.
func (t *fixture) installed() *world.Hypergate {
	t.Helper()
	h := t.start()
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	// The condition may be from an earlier process. Only a ready process has observed both sides.
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.rolledOut()
	return h
}

// rolledOut waits until there is exactly one pod of istiod, which is ready and matches the current Deployment. The
// end of the story before may have changed the Deployment.
func (t *fixture) rolledOut() {
	t.Helper()
	t.rolledOutTo(1)
}

// rolledOutTo waits until istiod has exactly this number of pods, all as in rolledOut.
func (t *fixture) rolledOutTo(replicas int) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		d, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(d.Status.ObservedGeneration).To(gomega.Equal(d.Generation))
		g.Expect(d.Status.UpdatedReplicas).To(gomega.BeEquivalentTo(replicas))
		g.Expect(d.Status.AvailableReplicas).To(gomega.BeEquivalentTo(replicas))
		pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(pods.Items).To(gomega.HaveLen(replicas))
	}).Should(gomega.Succeed())
}

// gateway creates a Gateway with an application behind it.
func (t *fixture) gateway(name string) {
	t.Helper()
	t.Expect(t.Apply(t.step(), "gateway.yaml", map[string]string{"name": name, "namespace": world.GuestNamespace, "class": class})).
		To(gomega.Succeed())
	t.Expect(t.Apply(t.step(), "app.yaml", map[string]string{"namespace": "demo", "image": world.ProxyImage})).To(gomega.Succeed())
	t.Expect(t.Apply(t.step(), "route.yaml",
		map[string]string{"namespace": "demo", "gateway": name, "gatewayNamespace": world.GuestNamespace})).To(gomega.Succeed())
}

func install(t *fixture) {
	t.installed()
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	t.Log("the route has no revision label, and still gets a status")
	t.Expect(t.RouteAccepted(t.step(), "demo", "echo")).To(gomega.Succeed())
	t.Expect(t.ClassCondition(t.step(), class, "CRDsReady", metav1.ConditionTrue)).To(gomega.Succeed())

	t.Log("the class has the version that the running istiod reports")
	t.Eventually(func() (string, error) {
		got, err := t.Gateways.GatewayClasses().Get(t.ctx, class, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return meta.FindStatusCondition(got.Status.Conditions, "ControllerInstalled").Message, nil
	}).Should(gomega.HavePrefix("istiod " + charts.EmbeddedVersion + " has been serving since "))

	t.Log("gateways get one address for everything")
	deployment, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, "gw-"+class, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	env := envOf(deployment)
	t.Expect(env["CA_ADDR"]).To(gomega.Equal(t.XDS().String()))
	t.Expect(env["PROXY_CONFIG"]).To(gomega.ContainSubstring(t.XDS().String()))

	t.Log("istiod's own namespace is in the guest: a single istiod holds no election there, and the guest has no namespace with " +
		"the name of the management namespace")
	leases, err := t.GuestClient.CoordinationV1().Leases(world.GuestNamespace).
		List(t.ctx, metav1.ListOptions{LabelSelector: "!" + model.OwnershipLabel})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool {
		return strings.HasPrefix(l.Name, "hypergate-")
	})).To(gomega.BeEmpty())
	if t.Topology == model.TopologyHosted {
		_, err = t.GuestClient.CoreV1().Namespaces().Get(t.ctx, t.MgmtNamespace, metav1.GetOptions{})
		t.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
	}

	t.granted = t.istiodRoles()
	t.Log("istiod's pod has no credential of the cluster on which it runs")
	pod := t.istiodPod()
	t.Expect(pod.Spec.Volumes).NotTo(gomega.ContainElement(gomega.HaveField("VolumeSource.Projected", gomega.Not(gomega.BeNil()))))
}

func envOf(d *appsv1.Deployment) map[string]string {
	out := map[string]string{}
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			out[e.Name] = e.Value
		}
	}
	return out
}

// istiodPod returns istiod's newest pod.
func (t *fixture) istiodPod() *corev1.Pod {
	t.Helper()
	list, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(list.Items).NotTo(gomega.BeEmpty())
	newest := &list.Items[0]
	for i := range list.Items {
		if list.Items[i].CreationTimestamp.After(newest.CreationTimestamp.Time) {
			newest = &list.Items[i]
		}
	}
	return newest
}

func proxy(t *fixture) {
	t.installed()
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	client := t.proxyOf("gw")

	certificate, err := client.CSR(t.step())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(certificate.ID).To(gomega.Equal("spiffe://cluster.local/ns/" + world.GuestNamespace + "/sa/gw-" + class))
	config, err := client.WaitFor(t.step(), reaches)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Log(config.String())

	t.Log("istiod's certificate contains the names in use, and those that istiod adds for Services of its system namespace")
	names, err := t.ServingNames(t.step())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	used := []string{t.XDS().Host}
	if t.Topology == model.TopologyHosted {
		used = append(used, "gw-webhook-"+world.Revision)
	}
	for _, own := range []string{"istiod", "istiod-remote", "istio-pilot", "istiod-" + world.Revision} {
		used = append(used, own+"."+world.GuestNamespace+".svc")
	}
	slices.Sort(used)
	t.Expect(names).To(gomega.Equal(slices.Compact(used)))

	t.Log("a token of the management cluster is not accepted")
	if t.Topology == model.TopologyHosted {
		pod, err := t.GatewayPod(t.step(), world.GuestNamespace, "gw")
		t.Expect(err).NotTo(gomega.HaveOccurred())
		stranger, err := t.ProxyWith(t.ctx, pod, t.mgmtToken())
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Cleanup(func() { _ = stranger.Close() })
		_, err = stranger.CSR(t.step())
		t.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("Unauthenticated")))
	}
}

// proxyOf returns a proxy of a Gateway with a stream to istiod. Like any proxy, it retries until it gets a
// connection. A Gateway may be programmed shortly before the node's kube-proxy knows that istiod's pod is ready.
func (t *fixture) proxyOf(gateway string) *xds.Client {
	t.Helper()
	var client *xds.Client
	t.Eventually(func() (err error) {
		client, err = t.Proxy(t.ctx, world.GuestNamespace, gateway)
		return err
	}).Should(gomega.Succeed())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// reaches checks that a proxy's configuration leads to the echo application.
func reaches(c *xds.Config) error {
	_, err := c.Reach(80, "echo.apps.guest1.example.com", "/api/x")
	return err
}

func (t *fixture) mgmtToken() string {
	t.Helper()
	token, err := t.MgmtToken(t.ctx, t.MgmtNamespace, "default", "istio-ca")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return token
}

func otherKinds(t *fixture) {
	t.installed()
	t.gateway("gw")
	t.Expect(t.Apply(t.step(), "others.yaml",
		map[string]string{"namespace": "demo", "gateway": "gw", "gatewayNamespace": world.GuestNamespace})).To(gomega.Succeed())
	for resource, list := range map[string]string{"grpcroutes": "parents", "backendtlspolicies": "ancestors"} {
		client := t.GuestDynamic.Resource(world.Resource("gateway.networking.k8s.io", "v1", resource)).Namespace("demo")
		t.Eventually(func() ([]any, error) {
			got, err := client.Get(t.ctx, "echo", metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			statuses, _, err := unstructured.NestedSlice(got.Object, "status", list)
			return statuses, err
		}).Should(gomega.ContainElement(gomega.HaveKeyWithValue("controllerName", world.ControllerName)), resource)
		t.Expect(client.Delete(t.ctx, "echo", metav1.DeleteOptions{})).To(gomega.Succeed())
	}
}

func webhook(t *fixture) {
	t.installed()
	t.Log("it becomes Fail only after hypergate has observed a rejection")
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	bad := destinationRule("bad", "not a host")
	_, err := t.GuestDynamic.Resource(world.Resource("networking.istio.io", "v1", "destinationrules")).Namespace(world.GuestNamespace).
		Create(t.ctx, bad, metav1.CreateOptions{})
	t.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(`admission webhook "rev.validation.istio.io" denied the request`)))
	good := destinationRule("good", "echo.demo.svc.cluster.local")
	t.Expect(t.ApplyObject(t.step(), good)).To(gomega.Succeed())
	t.Expect(t.GuestDynamic.Resource(world.Resource("networking.istio.io", "v1", "destinationrules")).Namespace(world.GuestNamespace).
		Delete(t.ctx, "good", metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Log("there is no webhook for pods")
	mutating, err := t.GuestClient.AdmissionregistrationV1().MutatingWebhookConfigurations().
		List(t.ctx, metav1.ListOptions{LabelSelector: model.OwnerLabel})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(mutating.Items).To(gomega.BeEmpty())
}

func destinationRule(name, host string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
		"metadata": map[string]any{
			"name": name, "namespace": world.GuestNamespace,
			"labels": map[string]any{"istio.io/rev": world.Revision},
		},
		"spec": map[string]any{"host": host},
	}}
}

// webhooks returns hypergate's webhook configuration, or nil.
func (t *fixture) webhooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	list, err := t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations().
		List(t.ctx, metav1.ListOptions{LabelSelector: model.OwnerLabel})
	if err != nil || len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

func (t *fixture) failurePolicy() admissionregistrationv1.FailurePolicyType {
	if w := t.webhooks(); w != nil && w.Webhooks[0].FailurePolicy != nil {
		return *w.Webhooks[0].FailurePolicy
	}
	return ""
}

// diffAtRest runs the command diff with the flags of the running hypergate, which has reported istiod's version. diff
// does not connect to istiod, and still must not show a condition as changed.
func diffAtRest(t *fixture) {
	t.installed()
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	args := t.Args()
	t.Expect(args[0]).To(gomega.Equal("run"))
	args[0] = "diff"
	for _, flag := range []string{"--metrics-address", "--v"} { // these are flags of run alone
		i := slices.Index(args, flag)
		args = slices.Delete(args, i, i+2)
	}
	t.Eventually(func() string {
		out, err := exec.CommandContext(t.step(), t.Binary(), args...).CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}).Should(gomega.Equal("Nothing would change.\n"))
}

func drift(t *fixture) {
	t.installed()
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))

	t.Log("guest: the webhook's CA bundle is removed, and a role is deleted")
	_, err := t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.ctx, t.webhooks().Name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(func() []byte {
		if w := t.webhooks(); w != nil {
			return w.Webhooks[0].ClientConfig.CABundle
		}
		return nil
	}).ShouldNot(gomega.BeEmpty())
	t.Expect(t.GuestClient.RbacV1().ClusterRoles().Delete(t.ctx, world.GuestIstiod, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func() error {
		_, err := t.GuestClient.RbacV1().ClusterRoles().Get(t.ctx, world.GuestIstiod, metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())

	t.Log("management: istiod is scaled to zero manually, and its CA is deleted")
	name := "istiod-" + world.Revision
	before, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, "cacerts", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).
		Patch(t.ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(func() int32 {
		d, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, name, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		return *d.Spec.Replicas
	}).Should(gomega.Equal(int32(1)))
	t.Expect(t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Delete(t.ctx, "cacerts", metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func() map[string][]byte {
		after, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, "cacerts", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return after.Data
	}).Should(gomega.Equal(before.Data), "the same CA, not a new one")
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
}

func restarts(t *fixture) {
	const kills = 6
	h := t.start()
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	for range kills {
		moment := time.Duration(rand.IntN(1200)) * time.Millisecond
		select {
		case <-time.After(moment): // the story is about random times
		case <-h.Done():
			t.Fatalf("hypergate ended unexpectedly with exit code %d: %v", h.ExitCode(), h.Exit())
		}
		h.Kill()
		h = t.start()
	}
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	pods, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(pods.Items).To(gomega.HaveLen(1), "there is only one Deployment")

	// The Lease belongs to the pod, so the last container need not wait until it expires, 137 s later. An evicted pod
	// releases the Lease. TestANewPodTakesTheLease (test/integration) checks that.
	t.putsBackMgmtDrift(startTime)
}

func istiodAway(t *fixture) {
	h := t.installed()
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	t.Log("hypergate is stopped, so that nothing restores istiod: the worst case")
	h.Terminate()
	name := "istiod-" + world.Revision
	_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).
		Patch(t.ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(func() int {
		list, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		return len(list.Items)
	}).Should(gomega.BeZero())
	t.Expect(t.Apply(t.step(), "gateway.yaml", map[string]string{"name": "meanwhile", "namespace": world.GuestNamespace, "class": class})).
		To(gomega.Succeed())
	t.Expect(t.Apply(t.step(), "app.yaml", map[string]string{"namespace": "meanwhile", "image": world.ProxyImage})).To(gomega.Succeed())

	t.Log("it converges from there")
	t.start()
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "meanwhile")).To(gomega.Succeed())
	t.Expect(t.Gateways.Gateways(world.GuestNamespace).Delete(t.ctx, "meanwhile", metav1.DeleteOptions{})).To(gomega.Succeed())
}

func gatewaysFirst(t *fixture) {
	h := t.installed()
	t.Expect(t.DeleteClass(t.ctx, class)).To(gomega.Succeed())
	t.Eventually(t.members).Should(gomega.BeEmpty())
	h.Terminate()
	gateways := 20
	if t.Topology == model.TopologyStandalone {
		gateways = 8 // there, a real node with two cores must run them
	}
	for i := range gateways {
		name := "first-" + string(rune('a'+i))
		t.Expect(t.Apply(t.step(), "gateway.yaml", map[string]string{"name": name, "namespace": world.GuestNamespace, "class": class})).
			To(gomega.Succeed())
		t.Cleanup(func() {
			_ = t.Gateways.Gateways(world.GuestNamespace).Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	t.start()
	for i := range gateways {
		t.Expect(t.Programmed(t.step(), world.GuestNamespace, "first-"+string(rune('a'+i)))).To(gomega.Succeed())
	}
}

// foreignDefault marks another revision as the default: its validator and its default tag, as a user's mesh has them.
// They are deleted when the story ends.
func (t *fixture) foreignDefault() (
	*admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfiguration,
) {
	t.Helper()
	validator := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "istiod-default-validator", Labels: map[string]string{"istio.io/rev": "default"}},
	}
	tag := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: "istio-revision-tag-default", Labels: map[string]string{"istio.io/rev": "users", "istio.io/tag": "default"},
	}}
	admission := t.GuestClient.AdmissionregistrationV1()
	t.Cleanup(func() {
		_ = admission.ValidatingWebhookConfigurations().Delete(context.Background(), validator.Name, metav1.DeleteOptions{})
		_ = admission.MutatingWebhookConfigurations().Delete(context.Background(), tag.Name, metav1.DeleteOptions{})
	})
	createdValidator, err := admission.ValidatingWebhookConfigurations().Create(t.ctx, validator, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	createdTag, err := admission.MutatingWebhookConfigurations().Create(t.ctx, tag, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return createdValidator, createdTag
}

func foreignMesh(t *fixture) {
	t.Log("a user's mesh has the default revision")
	validator, tag := t.foreignDefault()
	t.installed()
	t.gateway("beside-a-mesh")
	t.Cleanup(func() {
		_ = t.Gateways.Gateways(world.GuestNamespace).Delete(context.Background(), "beside-a-mesh", metav1.DeleteOptions{})
		_ = t.Gateways.HTTPRoutes("demo").Delete(context.Background(), "echo", metav1.DeleteOptions{})
	})
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "beside-a-mesh")).To(gomega.Succeed())
	t.Expect(t.RouteAccepted(t.step(), "demo", "echo")).To(gomega.Succeed())

	t.Log("the mesh's objects have not changed")
	admission := t.GuestClient.AdmissionregistrationV1()
	validatorNow, err := admission.ValidatingWebhookConfigurations().Get(t.ctx, validator.Name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	tagNow, err := admission.MutatingWebhookConfigurations().Get(t.ctx, tag.Name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(validatorNow.ResourceVersion).To(gomega.Equal(validator.ResourceVersion))
	t.Expect(tagNow.ResourceVersion).To(gomega.Equal(tag.ResourceVersion))
}

func missingKubeconfig(t *fixture) {
	h := t.installed()
	h.Terminate()
	t.Log("the Secret is deleted while hypergate does not run, and so is istiod's pod")
	t.Expect(t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Delete(t.ctx, "istio-kubeconfig", metav1.DeleteOptions{})).To(gomega.Succeed())
	old := t.istiodPod()
	t.Expect(t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).Delete(t.ctx, old.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func() string {
		pod := t.istiodPod()
		if pod.UID == old.UID || len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Waiting == nil {
			return ""
		}
		return pod.Status.ContainerStatuses[0].State.Waiting.Reason
	}).Should(gomega.Equal("ContainerCreating"))
	t.Consistently(func() bool {
		pod := t.istiodPod()
		return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil
	}, "3s").Should(gomega.BeFalse())

	t.Log("hypergate creates a new Secret, and istiod starts")
	t.start()
	t.Eventually(func() bool {
		pod := t.istiodPod()
		return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].Ready
	}, 2*stepTimeout).Should(gomega.BeTrue())
}

func uninstall(t *fixture) {
	t.installed()
	t.Expect(t.DeleteClass(t.ctx, class)).To(gomega.Succeed())
	t.Eventually(t.members).Should(gomega.BeEmpty())
	t.Eventually(func() int {
		list, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		return len(list.Items)
	}).Should(gomega.BeZero())
	t.Log("CRDs stay, and so do the users' objects")
	_, err := t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, "gw", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// members returns the names of hypergate's objects on both sides that an uninstallation must remove.
func (t *fixture) members() ([]string, error) {
	var out []string
	options := metav1.ListOptions{LabelSelector: model.OwnerLabel}
	for _, kind := range append(model.MgmtKinds(), model.GuestKinds()...) {
		if kind.NeverPrune || strings.HasPrefix(kind.GVK.Kind, "ValidatingAdmissionPolicy") {
			continue // CRDs and their protection stay
		}
		resource := world.Resource(kind.GVK.Group, kind.GVK.Version, kind.Resource)
		for _, client := range t.Dynamics() {
			list, err := client.Resource(resource).List(t.ctx, options)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for _, u := range list.Items {
				if u.GetNamespace() != t.MgmtNamespace && strings.HasPrefix(u.GetNamespace(), "clusters-") {
					continue // belongs to another hosted cluster
				}
				out = append(out, u.GetKind()+" "+u.GetName())
			}
		}
	}
	return out, nil
}

// explain logs the end of hypergate's log after a failed story.
func (t *fixture) explain() {
	t.Helper()
	t.Logf("the end of hypergate's log:\n%s", proc.Tail(t.HypergateLog(), 40))
}
