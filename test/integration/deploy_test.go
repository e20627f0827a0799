package integration_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/proc"
)

// Names from the manifests. These tests can use them unchanged, because they have their own clusters.
const (
	deployedMgmtNamespace  = deploy.MgmtNamespace
	deployedGuestNamespace = deploy.GuestNamespace
	deployedRevision       = "openshift-gateway"
	deployedController     = "openshift.io/gateway-controller/v1"
	deployedAccount        = deploy.Account
)

// TestDeploy checks that the objects of deploy/ are valid, and that hypergate's identities in it have exactly the
// permissions that hypergate needs.
func TestDeploy(t *testing.T) {
	needsServers(t)
	t.Parallel()
	own, err := planes.Start(t.Context(), planes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	prepare(t, own) // not in a subtest, so that each one can run alone
	t.Run("manifests", func(t *testing.T) { checkManifests(t, own) })
	t.Run("hosted", func(t *testing.T) {
		newDeployed(t, model.TopologyHosted, own.Mgmt, own.Guest, []string{"hosted/example"},
			[]string{"hosted/guest", "sidecar-injection"}).checkLifecycle()
	})
	t.Run("cluster-api", func(t *testing.T) { deployedForClusterAPI(t, own) })
	t.Run("standalone", func(t *testing.T) {
		newDeployed(t, model.TopologyStandalone, own.Mgmt, own.Mgmt, nil, []string{"standalone", "sidecar-injection"}).checkLifecycle()
	})
}

// TestHypergate is not a test. In a separate process, which the subtests of TestDeploy start, it runs hypergate.
func TestHypergate(t *testing.T) {
	if os.Getenv(asHypergate) == "" {
		t.Skip("only as a process of TestDeploy")
	}
	os.Args = append([]string{"hypergate"}, flag.Args()...)
	os.Exit(app.Main())
}

const asHypergate = "TEST_AS_HYPERGATE"

// startHypergate starts hypergate with arguments and additional environment variables.
func startHypergate(t *testing.T, args []string, env ...string) *proc.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{self, "-test.short", "-test.run=^TestHypergate$", "--"}, args...)
	return startProcess(t, argv, append(env, asHypergate+"=true"))
}

// startProcess starts a hypergate that argv begins with.
func startProcess(t *testing.T, argv, env []string) *proc.Process {
	t.Helper()
	p, err := proc.Spec{Name: "hypergate", LogDir: t.TempDir(), Argv: argv, Env: env}.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of its log:\n%s", proc.Tail(p.Log(), 40))
		}
	})
	return p
}

// deployed is hypergate as deploy/ installs it.
type deployed struct {
	*harness
	// roles are all roles to which hypergate's identities are bound, by side.
	roles map[model.Side][]role
	// users are its user names on each side. logs are the audit logs of each side.
	users, logs map[model.Side]string
	deployment  *appsv1.Deployment
	// began is the start time of the test.
	began time.Time
	// later means that an earlier test used the same guest, where the CRDs are still installed.
	later bool
	// args are the arguments with which its container would start it.
	args []string
	// previous is the folder of the previous hypergate, if that is the one that runs. Empty: the one of this checkout.
	previous string
}

// newDeployed applies the manifests and creates the kubeconfigs that its pod would have. In the standalone topology,
// both planes are the same.
func newDeployed(t *testing.T, topology model.Topology, mgmt, guest *planes.Plane, mgmtDirs, guestDirs []string) *deployed {
	t.Helper()
	return newDeployedFrom(t, "", topology, mgmt, guest, mgmtDirs, guestDirs)
}

// newDeployedFrom does the same with the previous hypergate, which is in a folder, if the folder is not empty.
func newDeployedFrom(
	t *testing.T, previous string, topology model.Topology, mgmt, guest *planes.Plane, mgmtDirs, guestDirs []string,
) *deployed {
	t.Helper()
	d := &deployed{
		began: time.Now(), previous: previous,
		harness: &harness{
			T: t, Gomega: hang.Gomega(t),
			mgmt: kubernetes.NewForConfigOrDie(mgmt.Config), guest: kubernetes.NewForConfigOrDie(guest.Config),
			gateway:    gatewayclient.NewForConfigOrDie(guest.Config),
			mgmtConfig: mgmt.Config, guestConfig: guest.Config, ownMgmt: mgmt.Config,
			cfg: model.Config{
				Topology: topology, MgmtNamespace: deployedMgmtNamespace, GuestNamespace: deployedGuestNamespace,
				ControllerName: deployedController, Revision: deployedRevision,
			},
		},
		roles: map[model.Side][]role{}, users: map[model.Side]string{},
		logs: map[model.Side]string{model.SideMgmt: mgmt.AuditLog, model.SideGuest: guest.AuditLog},
	}
	if topology == model.TopologyStandalone {
		d.cfg.MgmtNamespace = d.cfg.GuestNamespace
	}
	d.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	go playGarbageCollector(d.Context(), d.mgmt, d.cfg.MgmtNamespace)
	d.deploy(model.SideMgmt, mgmt.Config, mgmtDirs)
	d.deploy(model.SideGuest, guest.Config, guestDirs)
	d.args = d.containerArgs(
		"--kubeconfig="+d.kubeconfig(mgmt.Config, d.cfg.MgmtNamespace),
		d.kubeconfig(guest.Config, d.cfg.GuestNamespace))
	d.users[model.SideMgmt] = deploy.UserOf(d.cfg.MgmtNamespace, deployedAccount)
	d.users[model.SideGuest] = deploy.UserOf(d.cfg.GuestNamespace, deployedAccount)
	d.takesEffect(mgmt.Config, model.SideMgmt)
	d.takesEffect(guest.Config, model.SideGuest)
	return d
}

// deploy applies manifests as a cluster administrator, and records the roles that they give hypergate.
func (d *deployed) deploy(side model.Side, config *rest.Config, dirs []string) {
	d.Helper()
	for _, dir := range dirs {
		d.deployIn(side, config, dir, "")
	}
}

// deployIn does the same with one folder, in a namespace if the folder has none.
func (d *deployed) deployIn(side model.Side, config *rest.Config, dir, namespace string) {
	d.Helper()
	objects := d.render(dir)
	if namespace != "" {
		objects = inNamespace(objects, namespace)
	}
	d.Expect(deploy.Apply(d.Context(), config, objects)).To(gomega.Succeed())
	d.roles[side] = append(d.roles[side], rolesOf(d.T, objects)...)
	if found := deploymentOf(d.T, objects); found != nil {
		d.deployment = found
	}
}

// render returns the objects of a folder of deploy/.
func (d *deployed) render(dir string) []*unstructured.Unstructured {
	d.Helper()
	if d.previous == "" {
		return render(d.T, dir)
	}
	out, err := deploy.RenderFrom(filepath.Join(d.previous, "deploy"), dir)
	d.Expect(err).NotTo(gomega.HaveOccurred())
	return out
}

// takesEffect waits until the API server uses the new roles and bindings, about which it learns through its own
// watches.
func (d *deployed) takesEffect(config *rest.Config, side model.Side) {
	d.Helper()
	d.Expect(deploy.TakesEffect(d.Context(), config, d.users[side], audit.Permissions(d.roles[side]), true)).To(gomega.Succeed())
}

// kubeconfig returns the name of a kubeconfig file with a token of hypergate's service account.
func (d *deployed) kubeconfig(config *rest.Config, namespace string) string {
	d.Helper()
	file := filepath.Join(d.TempDir(), "kubeconfig")
	d.Expect(deploy.Kubeconfig(d.Context(), config, namespace, file, time.Hour)).To(gomega.Succeed())
	return file
}

func (d *deployed) token(config *rest.Config, namespace, account string) string {
	d.Helper()
	got, err := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts(namespace).
		CreateToken(d.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	return got.Status.Token
}

// publishedByOther is istiod's address in the tests of deploy/. Its examples have none, and the test's control plane
// does not say how hypergate can publish istiod.
const publishedByOther = "istiod-guest1.apps.mgmt.example.com:443"

// containerArgs returns the arguments of the Deployment's container as the kubelet would expand them. It replaces
// what only a pod has: the service account's files, the mounted kubeconfig, and its own addresses. It also sets
// istiod's address.
func (d *deployed) containerArgs(mgmtKubeconfig, guestKubeconfig string) []string {
	d.Helper()
	container := d.deployment.Spec.Template.Spec.Containers[0]
	var pairs []string
	for _, v := range container.Env {
		value := v.Value
		if v.ValueFrom != nil {
			d.Expect(v.ValueFrom.FieldRef.FieldPath).To(gomega.Equal("metadata.namespace"))
			value = d.deployment.Namespace
		}
		if v.Name == "XDS_ADDRESS" {
			value = publishedByOther
		}
		pairs = append(pairs, "$("+v.Name+")", value)
	}
	expand := strings.NewReplacer(pairs...)
	const mounted = "--guest-kubeconfig=/etc/kubernetes"
	args := make([]string, 0, len(container.Args)+3)
	for _, arg := range container.Args {
		if arg == mounted {
			arg = "--guest-kubeconfig=" + guestKubeconfig
		}
		args = append(args, expand.Replace(arg))
	}
	return append(args, mgmtKubeconfig, "--metrics-address=0", "--v=1", "--publish-probe=off") // nothing answers at publishedByOther
}

// start starts hypergate, and returns when both probes of its container succeed.
func (d *deployed) start(more []string, env ...string) *proc.Process {
	d.Helper()
	address := freeport.Address(d.T)
	args := append(append([]string{}, d.args...), more...)
	p := d.process(append(args, "--health-address="+address), env)
	container := d.deployment.Spec.Template.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		d.Eventually(func(g gomega.Gomega) {
			select {
			case <-p.Done():
				gomega.StopTrying(p.Exit().Error()).Now()
			default:
			}
			request, err := http.NewRequestWithContext(d.Context(), http.MethodGet, "http://"+address+probe.HTTPGet.Path, nil)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			response, err := http.DefaultClient.Do(request)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			defer func() { _ = response.Body.Close() }()
			g.Expect(response.StatusCode).To(gomega.Equal(http.StatusOK))
		}).Should(gomega.Succeed())
	}
	return p
}

// process starts hypergate.
func (d *deployed) process(args, env []string) *proc.Process {
	d.Helper()
	if d.previous == "" {
		return startHypergate(d.T, args, env...)
	}
	for i, arg := range args { // the flag has another name there
		if value, is := strings.CutPrefix(arg, "--kubeconfig="); is {
			args[i] = "--management-kubeconfig=" + value
		}
	}
	return startProcess(d.T, append([]string{filepath.Join(d.previous, "hypergate")}, args...), env)
}

// checkLifecycle runs the test: install, drift of each object, restart, uninstall. hypergate does all of it with its
// own identities.
func (d *deployed) checkLifecycle() {
	d.Log("a namespace that admits only restricted pods admits this pod")
	d.admitPod()
	if d.cfg.Topology == model.TopologyHosted {
		d.serveHyperShift()
		d.createControlPlane("guest1", "")
	}
	d.Log("install with the webhook that only --sidecar-injection enables")
	first := d.start([]string{"--sidecar-injection"})
	d.createClass("demo")
	d.playIstiod(corev1.ConditionTrue)
	d.Eventually(func() *metav1.Condition { return d.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionTrue, "Installed"))
	d.Eventually(d.injector).Should(gomega.Succeed())
	if d.cfg.Topology == model.TopologyHosted {
		d.hasReport("guest1", status.ControlPlaneAvailable, haveStatus(metav1.ConditionTrue, "AsExpected"))
	}
	granted := d.istiodRoles()

	d.Log("drift: each object loses hypergate's label and is then deleted, unless it is a CRD; the guest is first, while istiod runs")
	d.drift(d.guest, model.SideGuest, model.GuestKinds())
	d.drift(d.mgmt, model.SideMgmt, model.MgmtKinds())
	d.end(first)

	d.Log("a restart without the flag removes that webhook, even without streaming lists")
	second := d.start(nil, "KUBE_FEATURE_WatchListClient=false")
	d.Eventually(d.injector).Should(gomega.Satisfy(apierrors.IsNotFound))
	d.end(second)
	d.changeWebhooks()
	d.Log("uninstall")
	last := d.start(nil)
	d.deleteClass("demo")
	d.Eventually(d.members).Should(gomega.BeEmpty())
	d.end(last)
	d.Log("CRDs stay protected until the flag ends the protection")
	d.Expect(d.protection()).To(gomega.Succeed())
	third := d.start([]string{"--protect-crds=false"})
	d.Eventually(d.protection).Should(gomega.Satisfy(apierrors.IsNotFound))
	d.end(third)

	d.checkGrants(granted)
	d.checkAudit()
	if d.cfg.Topology == model.TopologyHosted {
		d.nothingOutsideItsNamespace()
	}
}

// changeWebhooks changes over to webhooks of another party, with the additional permissions for it, and back.
func (d *deployed) changeWebhooks() {
	d.Helper()
	d.Log("webhooks of another party: the Secret for it is written, and returns after its deletion")
	d.deployIn(model.SideMgmt, d.mgmtConfig, "external-webhooks", d.cfg.MgmtNamespace)
	d.takesEffect(d.mgmtConfig, model.SideMgmt)
	external := d.start([]string{"--webhooks=External"})
	d.Eventually(d.webhook).Should(gomega.BeNil())
	d.Eventually(d.webhookSecret).ShouldNot(gomega.BeNil())
	deleted := d.webhookSecret()
	d.Expect(d.mgmt.CoreV1().Secrets(deleted.Namespace).Delete(d.Context(), deleted.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	d.Eventually(d.webhookSecret).Should(gomega.And(gomega.Not(gomega.BeNil()), gomega.Not(gomega.HaveField("UID", deleted.UID))))
	d.end(external)
	d.Log("hypergate's own webhooks again: the Secret is deleted")
	managed := d.start(nil)
	d.playIstiod(corev1.ConditionTrue) // the drift deleted its Deployment, and a webhook without istiod answers nothing
	d.Eventually(d.webhook).ShouldNot(gomega.BeNil())
	d.Eventually(d.webhookSecret).Should(gomega.BeNil())
	d.end(managed)
}

func (d *deployed) end(p *proc.Process) {
	d.Helper()
	p.Terminate()
	d.Expect(p.ExitCode()).To(gomega.Equal(0), "%v", p.Exit())
}

// admitPod creates the Deployment's pod as a dry run, because nothing runs on these clusters.
func (d *deployed) admitPod() {
	d.Helper()
	template := d.deployment.Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName = d.deployment.Name + "-"
	_, err := d.mgmt.CoreV1().Pods(d.deployment.Namespace).
		Create(d.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	d.Expect(err).NotTo(gomega.HaveOccurred())
}

// injector returns nil if the pod-mutating webhook exists.
func (d *deployed) injector() error {
	_, err := d.guest.AdmissionregistrationV1().MutatingWebhookConfigurations().
		Get(d.Context(), "istio-sidecar-injector-"+d.cfg.Revision+"-"+d.cfg.GuestNamespace, metav1.GetOptions{})
	return err
}

// protection returns nil if the policy that protects CRDs, or its binding, exists.
func (d *deployed) protection() error {
	policies := d.guest.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Get(d.Context(), desired.CRDPolicyName(d.cfg), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = policies.ValidatingAdmissionPolicyBindings().Get(d.Context(), desired.CRDPolicyName(d.cfg), metav1.GetOptions{})
	}
	return err
}

// drift removes hypergate's label from each object of a side, then deletes the object, and waits until it comes back
// each time. It does not delete CRDs, because others may have objects of these kinds.
func (d *deployed) drift(client kubernetes.Interface, side model.Side, kinds []model.Kind) {
	d.Helper()
	admin := client.CoreV1().RESTClient()
	for _, kind := range kinds {
		for _, o := range d.ours(client, side, kind) {
			path := resourcePath(kind, o.Namespace) + "/" + o.Name
			patch := func(body string) func() error {
				return func() error {
					return admin.Patch(types.MergePatchType).RequestURI(path).Body([]byte(body)).Do(d.Context()).Error()
				}
			}
			if kind.NeverPrune {
				d.comesBack(client, path, "", patch(vandalised(o)))
				continue
			}
			d.comesBack(client, path, "", patch(unlabelled))
			d.comesBack(client, path, o.UID, func() error { return admin.Delete().RequestURI(path).Do(d.Context()).Error() })
		}
	}
}

// unlabelled is a patch that removes hypergate's label.
const unlabelled = `{"metadata":{"labels":{"` + model.OwnerLabel + `":null}}}`

// vandalised returns a patch that removes hypergate's label from a CRD and changes another field. hypergate must find
// out if the CRD was its own.
func vandalised(crd metav1.PartialObjectMetadata) string {
	if _, gatewayAPI := crd.Annotations[bundleVersion]; gatewayAPI {
		return `{"metadata":{"labels":{"` + model.OwnerLabel + `":null},"annotations":{"` + bundleVersion + `":"v0"}}}`
	}
	return `{"metadata":{"labels":{"` + model.OwnerLabel + `":null,"app":"another"}}}`
}

// bundleVersion is an annotation of the Gateway API's CRDs. Istio's CRDs have the label app.
const bundleVersion = "gateway.networking.k8s.io/bundle-version"

// comesBack damages an object and waits until it has hypergate's label again and a UID other than the given one.
func (d *deployed) comesBack(client kubernetes.Interface, path string, not types.UID, harm func() error) {
	d.Helper()
	d.Expect(harm()).To(gomega.Succeed(), path)
	d.Eventually(func(g gomega.Gomega) {
		data, err := client.CoreV1().RESTClient().Get().RequestURI(path).DoRaw(d.Context())
		g.Expect(err).NotTo(gomega.HaveOccurred())
		var o metav1.PartialObjectMetadata
		g.Expect(json.Unmarshal(data, &o)).To(gomega.Succeed())
		g.Expect(o.UID).NotTo(gomega.Equal(not))
		g.Expect(o.Labels).To(gomega.HaveKey(model.OwnerLabel))
	}).Should(gomega.Succeed(), path)
}

// nothingOutsideItsNamespace checks hypergate's permissions on the management cluster outside of its namespace. They
// must equal those of an account without any grants. A cluster-wide permission would be a permission in every
// namespace.
func (d *deployed) nothingOutsideItsNamespace() {
	d.Helper()
	bare := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	_, err := d.mgmt.CoreV1().ServiceAccounts(d.cfg.MgmtNamespace).Create(d.Context(), bare, metav1.CreateOptions{})
	d.Expect(err).To(gomega.Or(gomega.Not(gomega.HaveOccurred()), gomega.Satisfy(apierrors.IsAlreadyExists)))
	may := func(account, namespace string) []authorizationv1.ResourceRule {
		config := rest.AnonymousClientConfig(d.mgmtConfig)
		config.BearerToken = d.token(d.mgmtConfig, d.cfg.MgmtNamespace, account)
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		got, err := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectRulesReviews().
			Create(d.Context(), review, metav1.CreateOptions{})
		d.Expect(err).NotTo(gomega.HaveOccurred())
		d.Expect(got.Status.Incomplete).To(gomega.BeFalse())
		return got.Status.ResourceRules
	}
	d.Expect(may(deployedAccount, metav1.NamespaceDefault)).To(gomega.ConsistOf(may(bare.Name, metav1.NamespaceDefault)))
	d.Expect(len(may(deployedAccount, d.cfg.MgmtNamespace))).To(gomega.BeNumerically(">", len(may(bare.Name, d.cfg.MgmtNamespace))))
}
