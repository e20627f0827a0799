package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
)

func TestAForbiddenKindDoesNotStopTheRest(t *testing.T) {
	w := newHarness(t)
	t.Log("on the management side, hypergate has all permissions except writing Services")
	user := "limited-" + w.cfg.Revision
	w.allow(user, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps", "serviceaccounts"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"*"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"*"}},
	})
	w.mgmtConfig = rest.CopyConfig(w.mgmtConfig)
	w.mgmtConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	stop, _ := w.tryRun()
	t.Cleanup(stop)
	w.createClass("demo")

	w.Eventually(w.istiod).ShouldNot(gomega.BeNil(), "the rest converges")
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "InstallFailed"),
		gomega.HaveField("Message", gomega.ContainSubstring("management side: not allowed to patch services (RBAC)"))))

	t.Log("once it is allowed, hypergate continues")
	w.allow(user, []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "networking.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	})
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionTrue, "Installed"))
}

// TestAPermanentFailureIsLoggedOnce checks that a permanent failure is logged once, however often hypergate retries.
func TestAPermanentFailureIsLoggedOnce(t *testing.T) {
	w := newHarness(t)
	user := "limited-" + w.cfg.Revision
	w.allow(user, []rbacv1.PolicyRule{
		{
			APIGroups: []string{"", "apps", "networking.k8s.io"},
			Resources: []string{"secrets", "configmaps", "serviceaccounts", "deployments", "networkpolicies"}, Verbs: []string{"*"},
		},
		{APIGroups: []string{""}, Resources: []string{"namespaces", "services"}, Verbs: []string{"get", "list", "watch"}},
	})
	w.mgmtConfig = rest.CopyConfig(w.mgmtConfig)
	w.mgmtConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	stop, _ := w.tryRun()
	t.Cleanup(stop)
	w.createClass("demo")
	tries := func() (n int) {
		for _, request := range w.mgmtRequests.since(0) {
			if strings.HasPrefix(request, "PATCH") && strings.Contains(request, "/services/"+w.cfg.IstiodName()) {
				n++
			}
		}
		return n
	}
	w.Eventually(w.istiod).ShouldNot(gomega.BeNil(), "it is installed except for the Service")
	// A pass logs its writes at its end, so the pass of the Deployment has logged them when two more tries were made.
	installed := tries()
	w.Eventually(tries).Should(gomega.BeNumerically(">=", installed+2))
	before, said := tries(), w.log.lines()
	w.Eventually(tries).Should(gomega.BeNumerically(">=", before+2))
	w.Expect(w.log.lines()).To(gomega.Equal(said))
	w.Expect(strings.Count(w.log.String(), "Reconciliation failed, retrying with backoff")).To(gomega.Equal(1))
}

// TestInsecureSettingsAreReported checks the report of insecure settings. The log contains their names. The condition,
// which the guest can read, contains only their number.
func TestInsecureSettingsAreReported(t *testing.T) {
	w := newHarness(t)
	w.cfg.NetworkPolicies = model.NoPolicies{}
	w.caOverlap = time.Hour
	w.run()
	w.createClass("demo")
	w.Eventually(func() string { return w.installedMessage("demo") }).Should(
		gomega.HaveSuffix("; 2 of hypergate's settings are insecure: see Insecure settings in docs/security.md"))
	w.Expect(w.installedMessage("demo")).NotTo(gomega.ContainSubstring("--"))
	for _, flag := range []string{"--network-policies=false: ", "--ca-overlap=1h0m0s: "} {
		w.Expect(w.log.String()).To(gomega.ContainSubstring(`why="` + flag))
	}
}

// allow gives a user these permissions in the management namespace, and removes all others.
func (w *harness) allow(user string, rules []rbacv1.PolicyRule) {
	w.Helper()
	roles := w.mgmt.RbacV1().Roles(w.cfg.MgmtNamespace)
	// Without permission to list HostedControlPlanes, hypergate does nothing at all.
	rules = append(slices.Clone(rules),
		rbacv1.PolicyRule{
			APIGroups: []string{"hypershift.openshift.io"}, Resources: []string{"hostedcontrolplanes"},
			Verbs: []string{"list", "watch"},
		})
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	if _, err := roles.Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		_, err := roles.Update(w.Context(), role, metav1.UpdateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return
	}
	_, err := w.mgmt.RbacV1().RoleBindings(w.cfg.MgmtNamespace).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

func TestAForeignObjectWithOurNameIsNotTakenOver(t *testing.T) {
	w := newHarness(t)
	theirs := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: w.cfg.IstiodName(), Labels: map[string]string{"app": "theirs"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "theirs"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	created, err := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).
		Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.run()
	w.createClass("demo")
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "InstallFailed"),
		gomega.HaveField("Message", gomega.ContainSubstring("managed by another client"))))
	now, err := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Get(t.Context(), theirs.Name, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(now.ResourceVersion).To(gomega.Equal(created.ResourceVersion))
}

func TestAGuestThatIsTheManagementClusterIsRefused(t *testing.T) {
	w := newHarness(t)
	w.guestConfig = w.mgmtConfig
	_, ended := w.tryRun()
	w.Eventually(ended).Should(gomega.Receive(gomega.MatchError(controller.ErrSameCluster)))
	w.Expect(writes(w.mgmtRequests.since(0))).To(gomega.BeEmpty())
}

func TestAMissingManagementNamespaceIsNamed(t *testing.T) {
	w := newHarness(t)
	w.cfg.MgmtNamespace = "nowhere"
	_, ended := w.tryRun()
	w.Eventually(ended).Should(
		gomega.Receive(gomega.MatchError(
			gomega.ContainSubstring(`the management cluster has no namespace "nowhere": create it, or name another with --namespace`))))
}

func TestAGuestOutageChangesNothing(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	generation := w.istiod().Generation
	w.pair.Guest.StopAPI()
	t.Log("drift on the management side is still repaired")
	w.Expect(w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Delete(t.Context(), w.cfg.IstiodName(), metav1.DeleteOptions{})).
		To(gomega.Succeed())
	w.Eventually(func() error {
		_, err := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Get(t.Context(), w.cfg.IstiodName(), metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
	w.Expect(w.pair.Guest.StartAPI(t.Context())).To(gomega.Succeed())

	t.Log("drift in the guest is repaired soon after its return")
	w.Expect(w.guest.RbacV1().ClusterRoles().Delete(t.Context(), w.cfg.GuestIstiodName(), metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() error {
		_, err := w.guest.RbacV1().ClusterRoles().Get(t.Context(), w.cfg.GuestIstiodName(), metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
}

func TestAnExpiredGuestCredentialDoesNotCrash(t *testing.T) {
	w := newHarness(t)
	good := w.guestConfig
	expired := rest.AnonymousClientConfig(good)
	expired.BearerToken = "expired"
	w.guestConfig = counted(expired, w.guestRequests)
	stop, ended := w.tryRun()
	t.Cleanup(stop)
	w.Eventually(func() bool { return len(ended) > 0 || w.guestRequests.unauthorized() >= 3 }).Should(gomega.BeTrue(), "it keeps trying")
	w.Expect(ended).NotTo(gomega.Receive())
	w.Expect(writes(w.mgmtRequests.since(0))).To(gomega.BeEmpty(), "nothing is written while the guest is not known")
}

func TestARecreatedServiceAccountGetsAToken(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	before := w.token()
	t.Log("a guest administrator deletes istiod's account, which invalidates the token")
	w.Expect(w.guest.CoreV1().ServiceAccounts(w.cfg.GuestNamespace).Delete(t.Context(), w.cfg.GuestIstiodName(), metav1.DeleteOptions{})).
		To(gomega.Succeed())
	w.Eventually(w.token).ShouldNot(gomega.Equal(before))
	review, err := w.guest.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: w.token()},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(review.Status.Authenticated).To(gomega.BeTrue(), review.Status.Error)
}

// token returns the guest token that istiod's pod mounts.
func (w *harness) token() string {
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), "istio-kubeconfig", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return string(secret.Data["token"])
}

func TestAnUnusableCAIsNotReplaced(t *testing.T) {
	w := newHarness(t)
	broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cacerts"}, Data: map[string][]byte{
		"ca-cert.pem": []byte("x"), "ca-key.pem": []byte("x"), "cert-chain.pem": []byte("x"), "root-cert.pem": []byte("x"),
	}}
	created, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Create(t.Context(), broken, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	stop, _ := w.tryRun()
	t.Cleanup(stop)
	w.createClass("demo")
	w.Eventually(func() *metav1.Condition {
		return w.condition("demo", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionFalse, "InstallFailed"))
	w.Expect(w.istiod()).To(gomega.BeNil())
	now, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(t.Context(), "cacerts", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(now.ResourceVersion).To(gomega.Equal(created.ResourceVersion))
}
