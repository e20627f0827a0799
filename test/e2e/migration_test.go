package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/golden"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/world"
)

// TestMigration runs the stories about guests that have an istiod of their own before hypergate comes: by OLM and the
// real sail-operator (origin A), and by the sail library of the ingress operator (origin B). The stories follow each
// other: B begins with the ingress operator's own migration of what A has left.
func TestMigration(t *testing.T) {
	t.Parallel()
	startMigrationTest(t, "e2e-migrate", 1).runAll([]migrationStory{
		{"origin A serves gateways", originA},
		{"hypergate stands by beside origin A", standsByBesideA},
		{"origin A leaves an istiod at 0 replicas, and repairs the rest", parked},
		{"origin A's operators are away, and no request fails", operatorsAway},
		{"control: another revision instead of ours costs requests", anotherRevisionIsSeen},
		{"origin B replaces origin A", originB},
		{"origin B leaves an istiod at 0 replicas, and repairs the rest", parked},
		{"hypergate stands by beside origin B", standsByBesideB},
	})
}

// migrationTest is the state that the stories share.
type migrationTest struct {
	*fixture
	istio origin.Options
	// withoutPlane leaves out the HostedControlPlane.
	withoutPlane bool
	*guestState
}

// guestState is what a story leaves for the next one.
type guestState struct {
	origin *origin.Origin
	edgeAt *edgeOfTheGuest
	// small are the Gateways besides the edge. rows are the results of the stories.
	small []smallAt
	rows  []migrationRow
}

// migrationStory is a story of a guest with an istiod of its own.
type migrationStory struct {
	name string
	run  func(*migrationTest)
}

// startMigrationTest starts clusters with real nodes of the guest. The istiod of the origin can run on them.
func startMigrationTest(t *testing.T, name string, guestNodes int) *migrationTest {
	t.Helper()
	return startMigrationTestIn(t, world.Options{Name: name, GuestNodes: guestNodes})
}

func startMigrationTestIn(t *testing.T, options world.Options) *migrationTest {
	t.Helper()
	istio := inGuest(t)
	image, err := istio.Image(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	options.GuestImages = []cluster.Image{image}
	out := &migrationTest{fixture: alone(t, options), istio: istio, guestState: &guestState{}}
	t.Cleanup(func() {
		if out.origin != nil {
			out.origin.Stop()
		}
	})
	return out
}

// migrationTimeout ends a story that hangs. A migration of many Gateways takes minutes.
const migrationTimeout = 45 * time.Minute

// runAll runs the stories, one after the other.
func (t *migrationTest) runAll(stories []migrationStory) {
	whole := t.T.Context()
	for _, s := range stories {
		t.Run(s.name, func(test *testing.T) {
			ctx, cancel := context.WithTimeout(whole, migrationTimeout)
			test.Cleanup(cancel) // after all other cleanups
			fixture := *t.fixture
			fixture.ctx, fixture.T, fixture.Gomega = ctx, test, hang.Gomega(test)
			fixture.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
			one := *t
			one.fixture = &fixture
			s.run(&one)
			fixture.nothingRejected()
		})
	}
}

// inGuest returns the istiod of the origins: the version that hypergate embeds, or 1.28.2 if ORIGIN_ISTIO says so.
func inGuest(t *testing.T) origin.Options {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real clusters: run without -short")
	}
	options := origin.Options{
		Version: charts.EmbeddedVersion, Server: "pilot-discovery", Charts: testcharts.DirEmbedded(t), Sail: testcharts.SailOperator(t),
	}
	if os.Getenv("ORIGIN_ISTIO") == "1.28.2" {
		options.Version, options.Server, options.Charts = "1.28.2", "pilot-discovery-1.28", testcharts.Dir1282(t)
	}
	return options
}

func originA(t *migrationTest) {
	start := func() (*origin.Origin, error) { return origin.StartOLM(t.step(), origin.In(t.World), t.istio) }
	var err error
	t.origin, err = start()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	t.istiodInGuest(1)
	t.firstEdge(start)
	load := t.edgeAt.load(t.fixture)
	t.more(load, 1000)
	t.judge(load, 1500)
	t.Expect(t.origin.Err()).NotTo(gomega.HaveOccurred())
	t.snapshot("olm")
}

// originB starts the ingress operator's own installation. It deletes the resource Istio, waits until the sail-operator
// has removed its release, and installs the same one again. istiod is away meanwhile, and gateways keep what they have.
func originB(t *migrationTest) {
	load := t.edgeAt.load(t.fixture)
	old, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, origin.Deployment, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	sailOperator := t.origin
	sailOperator.StopIngressOperator()
	t.origin, err = origin.StartSail(t.step(), origin.In(t.World), t.istio)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	defer sailOperator.Stop()
	t.Eventually(func() (types.UID, error) {
		d, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, origin.Deployment, metav1.GetOptions{})
		if err != nil {
			return old.UID, nil //nolint:nilerr // between the two releases
		}
		return d.UID, nil
	}).ShouldNot(gomega.Equal(old.UID))
	t.istiodInGuest(1)
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.more(load, 1000)
	t.judge(load, 1500)
	t.served(t.edgeAt)
	t.Expect(t.origin.Err()).NotTo(gomega.HaveOccurred())
	t.snapshot("sail")
}

// parked checks the facts on which parking rests. An administrator sets istiod's replicas to 0 and the failurePolicy of
// its validating webhook to Ignore. The operator leaves both, also when it repairs other fields of both objects.
func parked(t *migrationTest) {
	load := t.edgeAt.load(t.fixture)
	deployments := t.GuestClient.AppsV1().Deployments(world.GuestNamespace)
	webhooks := t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	t.Eventually(t.originsFailurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail)) // istiod sets it
	patch := func(replicas string) {
		_, err := deployments.Patch(t.ctx, origin.Deployment, types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`),
			metav1.PatchOptions{FieldManager: "guest-admin"})
		t.Expect(err).NotTo(gomega.HaveOccurred())
	}
	patch("0")
	t.Eventually(func() []corev1.Pod { return t.podsOf(world.GuestNamespace, "app=istiod") }).Should(gomega.BeEmpty())
	_, err := webhooks.Patch(t.ctx, origin.ValidatingWebhook, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`), metav1.PatchOptions{FieldManager: "guest-admin"})
	t.Expect(err).NotTo(gomega.HaveOccurred())

	t.Log("a changed label of each object is put back, which shows that the operator has written it again")
	const changed = `{"metadata":{"labels":{"app":"changed"}}}`
	_, err = deployments.Patch(t.ctx, origin.Deployment, types.MergePatchType, []byte(changed),
		metav1.PatchOptions{FieldManager: "guest-admin"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = webhooks.Patch(t.ctx, origin.ValidatingWebhook, types.MergePatchType, []byte(changed),
		metav1.PatchOptions{FieldManager: "guest-admin"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	var deployment *appsv1.Deployment
	t.Eventually(func() (map[string]string, error) {
		deployment, err = deployments.Get(t.ctx, origin.Deployment, metav1.GetOptions{})
		return deployment.Labels, err
	}).Should(gomega.HaveKeyWithValue("app", "istiod"))
	t.Expect(*deployment.Spec.Replicas).To(gomega.BeZero())
	t.Eventually(func() (map[string]string, error) {
		webhook, err := webhooks.Get(t.ctx, origin.ValidatingWebhook, metav1.GetOptions{})
		return webhook.Labels, err
	}).Should(gomega.HaveKeyWithValue("app", "istiod"))
	t.Expect(t.originsFailurePolicy()).To(gomega.Equal(admissionregistrationv1.Ignore))

	t.Log("without istiod, no request fails")
	t.more(load, 1000)
	t.judge(load, 1500)
	patch("1")
	t.istiodInGuest(1)
	t.Expect(t.origin.Err()).NotTo(gomega.HaveOccurred())
	t.Eventually(t.originsFailurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
}

func (t *migrationTest) originsFailurePolicy() admissionregistrationv1.FailurePolicyType {
	webhook, err := t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Get(t.ctx, origin.ValidatingWebhook, metav1.GetOptions{})
	if err != nil || len(webhook.Webhooks) == 0 || webhook.Webhooks[0].FailurePolicy == nil {
		return ""
	}
	return *webhook.Webhooks[0].FailurePolicy
}

func operatorsAway(t *migrationTest) {
	t.undisturbed(t.edgeAt, func() { t.origin.Stop() })
	var err error
	t.origin, err = origin.StartOLM(t.step(), origin.In(t.World), t.istio)
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// anotherRevisionIsSeen moves the Gateway to another revision, and not to another istiod of the same one: the outage
// of istio/istio#59959. The ingress operator would put its label back.
func anotherRevisionIsSeen(t *migrationTest) {
	t.origin.Stop()
	t.canaryIsSeen(t.edgeAt)
	t.Log("with its operators, the origin heals this")
	var err error
	t.origin, err = origin.StartOLM(t.step(), origin.In(t.World), t.istio)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.served(t.edgeAt)
}

func standsByBesideA(t *migrationTest) {
	t.standsBy("istios.sailoperator.io openshift-gateway")
	installed := t.condition("ControllerInstalled")
	t.Expect(installed.Status).To(gomega.Equal(metav1.ConditionFalse))
	t.Expect(installed.Message).To(gomega.ContainSubstring("istios.sailoperator.io openshift-gateway"))
}

func standsByBesideB(t *migrationTest) {
	before := t.condition("ControllerInstalled")
	t.standsBy("its finalizer is on GatewayClass")
	t.Expect(t.condition("ControllerInstalled").Message).To(gomega.Equal(before.Message), "the condition is the ingress operator's")
}

// standsBy starts hypergate beside an origin. It says why it does not install anything, and neither the gateway nor
// istiod nor the webhook of the guest changes. istiod's Deployment and the class are written by their operators alone.
func (t *migrationTest) standsBy(because string) {
	h := t.start()
	defer h.Terminate()
	t.undisturbed(t.edgeAt, func() {
		t.Eventually(func() (string, error) {
			log, err := os.ReadFile(h.Log())
			return string(log), err
		}).Should(gomega.ContainSubstring(because))
		before := t.versions()
		t.Consistently(t.versions, "15s").Should(gomega.Equal(before))
	})
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(pods.Items).To(gomega.BeEmpty())
}

// versions returns the resource versions of what an origin and hypergate could both write.
func (t *migrationTest) versions() map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(kind string, object metav1.Object, err error) {
		t.Expect(err).NotTo(gomega.HaveOccurred())
		out[kind] = object.GetResourceVersion()
	}
	d, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, origin.Deployment, metav1.GetOptions{})
	add("istiod", d, err)
	edge, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, trafficGateway+"-"+class, metav1.GetOptions{})
	add("gateway", edge, err)
	webhook, err := t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Get(t.ctx, origin.ValidatingWebhook, metav1.GetOptions{})
	add("webhook", webhook, err)
	gatewayClass, err := t.Gateways.GatewayClasses().Get(t.ctx, class, metav1.GetOptions{})
	add("class", gatewayClass, err)
	return out
}

// istiodInGuest waits until istiod in the guest has that number of pods, all ready.
func (t *migrationTest) istiodInGuest(replicas int) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		t.Expect(t.origin.Err()).NotTo(gomega.HaveOccurred()) // and wait no longer
		d, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, origin.Deployment, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(d.Status.ObservedGeneration).To(gomega.Equal(d.Generation))
		g.Expect(d.Status.UpdatedReplicas).To(gomega.BeEquivalentTo(replicas))
		g.Expect(d.Status.AvailableReplicas).To(gomega.BeEquivalentTo(replicas))
	}).Should(gomega.Succeed())
}

// snapshot writes the objects of an origin that serves to test/origin/testdata, with UPDATE=1. TestParking compares
// those of an origin without nodes. The status of pods and addresses would differ here.
func (t *migrationTest) snapshot(name string) {
	t.Helper()
	got, err := origin.Snapshot(t.ctx, origin.In(t.World))
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(string(got)).To(gomega.ContainSubstring("name: " + trafficGateway + "-" + class))
	if golden.Updating() {
		file := filepath.Join("../origin/testdata", name, "serving-"+t.istio.Version+".yaml")
		t.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(gomega.Succeed())
		t.Expect(os.WriteFile(file, got, 0o600)).To(gomega.Succeed())
	}
}
