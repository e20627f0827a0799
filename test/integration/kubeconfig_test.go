package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

func TestTheGuestKubeconfigIsReplaced(t *testing.T) {
	for name, revoked := range map[string]bool{"and the old one works on": false, "and the old one is revoked": true} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			kubeconfig := w.kubeconfig()
			first := w.guestToken("first")
			kubeconfig.replace(first)
			w.run()
			w.install("demo")
			generation := w.istiod().Generation
			mgmtCount, guestCount := w.mgmtRequests.count(), w.guestRequests.count()

			if revoked {
				w.revoke("first", first)
			}
			replaced := kubeconfig.replaced()
			used := kubeconfig.replace(w.guestToken("second"))
			w.Eventually(kubeconfig.replaced).Should(gomega.BeNumerically(">", replaced), "it was verified")
			w.settle()
			w.Expect(writes(w.guestRequests.since(guestCount))).To(gomega.BeEmpty())
			w.Expect(writes(w.mgmtRequests.since(mgmtCount))).To(gomega.BeEmpty())

			before := used.count()
			w.repairsDrift()
			w.Expect(writes(used.since(before))).To(gomega.HaveLen(1), "the repair, by the new kubeconfig")
			w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
		})
	}
}

// TestA401TriggersAKubeconfigRead checks that a refusal triggers a read of the kubeconfig before the
// next regular read.
func TestA401TriggersAKubeconfigRead(t *testing.T) {
	w := newHarness(t)
	kubeconfig := w.kubeconfig()
	first := w.guestToken("first")
	kubeconfig.replace(first)
	w.run()
	w.install("demo")
	second := w.guestToken("second")
	w.revoke("first", first)
	used := kubeconfig.replace(second)
	start := time.Now()
	// the watch continues; the write is refused
	w.repairsDrift()
	// the status reports a failure that lasts
	repairs := slices.DeleteFunc(writes(used.since(0)), func(r string) bool { return strings.Contains(r, "/gatewayclasses/") })
	w.Expect(repairs).To(gomega.HaveLen(1))
	// The time is not checked. The kubeconfig is read every ten seconds anyway, so that less than ten seconds would not
	// show that the refusal triggers the read. Package guestconn shows it.
	t.Logf("it took %s", time.Since(start).Round(time.Millisecond))
}

func TestAKubeconfigOfTheManagementClusterIsRefused(t *testing.T) {
	w := newHarness(t)
	kubeconfig := w.kubeconfig()
	good := kubeconfig.replace(w.guestToken("first"))
	w.run()
	w.install("demo")
	wrong := kubeconfig.replace(w.pair.Mgmt.Config)
	w.Eventually(wrong.count).Should(gomega.BeNumerically(">=", 2), "it was looked at more than once")
	for _, request := range wrong.since(0) {
		w.Expect(request).To(gomega.HavePrefix("GET /api/v1/namespaces?"))
	}
	before := good.count()
	w.repairsDrift()
	w.Expect(writes(good.since(before))).To(gomega.HaveLen(1), "the repair, by the kubeconfig that was in use")
}

// TestTheGuestAPIServerMoves checks that istiod gets the new address of the guest's API server and rolls out once.
func TestTheGuestAPIServerMoves(t *testing.T) {
	w := newHarness(t)
	w.cfg.GuestServer = "" // as in the kubeconfig
	kubeconfig := w.kubeconfig()
	config := w.guestToken("first")
	kubeconfig.replace(config)
	w.run()
	w.install("demo")
	generation, guestCount := w.istiod().Generation, w.guestRequests.count()

	moved := rest.CopyConfig(config)
	moved.Host = strings.Replace(config.Host, "127.0.0.1", "localhost", 1)
	kubeconfig.replace(moved)
	w.Eventually(func() string { return string(w.credential()["config"]) }).Should(gomega.ContainSubstring(moved.Host))
	w.Eventually(func() int64 { return w.istiod().Generation }).Should(gomega.Equal(generation + 1))
	w.playIstiod(corev1.ConditionTrue)
	w.settle()
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation + 1))
	for _, write := range writes(w.guestRequests.since(guestCount)) {
		w.Expect(write).To(gomega.Or(gomega.ContainSubstring("/token?"), gomega.ContainSubstring("/gatewayclasses/demo/status?")),
			"nothing else has changed")
	}
}

// TestTheGuestsCAIsReplaced checks that istiod rolls out once, and also accepts the old CA until the next renewal of
// its token.
func TestTheGuestsCAIsReplaced(t *testing.T) {
	w := newHarness(t)
	kubeconfig := w.kubeconfig()
	config := w.guestToken("first")
	guestCA, oldCA, newCA := config.CAData, w.pair.Mgmt.Config.CAData, w.anotherCA()
	config.CAData = slices.Concat(guestCA, oldCA)
	kubeconfig.replace(config)
	w.run()
	w.install("demo")
	w.Expect(w.credential()["ca.crt"]).To(gomega.Equal(config.CAData))
	generation := w.istiod().Generation
	replace := func(ca []byte) {
		next := rest.CopyConfig(config)
		next.CAData = ca
		kubeconfig.replace(next)
		generation++
		w.Eventually(func() int64 { return w.istiod().Generation }).Should(gomega.Equal(generation))
		w.playIstiod(corev1.ConditionTrue)
		w.settle()
		w.Expect(w.istiod().Generation).To(gomega.Equal(generation), "it rolls out once")
	}

	t.Log("a CA is replaced by another one")
	replace(slices.Concat(guestCA, newCA))
	w.Expect(string(w.credential()["ca.crt"])).To(gomega.Equal(string(guestCA) + string(newCA) + string(oldCA)))

	t.Log("a CA is removed: the Secret does not change before it must")
	before := w.credential()
	replace(guestCA)
	w.Expect(w.credential()).To(gomega.Equal(before))
}

// anotherCA returns a CA certificate that has signed nothing.
func (w *harness) anotherCA() []byte {
	w.Helper()
	ca, err := pki.New(time.Now())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return ca.Root
}

// kubeconfig returns the guest kubeconfig with which hypergate runs. Each test sets its content.
func (w *harness) kubeconfig() *kubeconfig {
	// Without Istio resources there is no webhook. Nothing here could answer its probe, so hypergate would probe and
	// report it repeatedly.
	w.cfg.IstioResources = nil
	k := &kubeconfig{world: w}
	w.loadGuest = k.load
	return k
}

type kubeconfig struct {
	world *harness
	mu    sync.Mutex
	now   *rest.Config
}

// replace replaces the kubeconfig and returns the requests that are made with the new one.
func (k *kubeconfig) replace(config *rest.Config) *requests {
	k.mu.Lock()
	defer k.mu.Unlock()
	by := &requests{}
	k.now = counted(counted(config, k.world.guestRequests), by)
	k.world.guestConfig = k.now
	return by
}

func (k *kubeconfig) load() (*rest.Config, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now, nil
}

// guestToken returns the configuration of a guest administrator with a token that can be revoked.
func (w *harness) guestToken(name string) *rest.Config {
	w.Helper()
	const namespace = metav1.NamespaceDefault
	name = w.cfg.Revision + "-" + name
	_, err := w.guest.CoreV1().ServiceAccounts(namespace).
		Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.guest.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Cleanup(func() {
		_ = w.guest.RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	token, err := w.guest.CoreV1().ServiceAccounts(namespace).
		CreateToken(w.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	config := rest.AnonymousClientConfig(w.pair.Guest.Config)
	config.BearerToken = token.Status.Token
	return config
}

// revoke revokes a token and returns when the guest refuses it.
func (w *harness) revoke(name string, config *rest.Config) {
	w.Helper()
	w.Expect(w.guest.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		Delete(w.Context(), w.cfg.Revision+"-"+name, metav1.DeleteOptions{})).To(gomega.Succeed())
	client := kubernetes.NewForConfigOrDie(config)
	w.Eventually(func() bool {
		_, err := client.CoreV1().Namespaces().Get(w.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	}).Should(gomega.BeTrue())
}

// repairsDrift deletes an object of hypergate in the guest and waits until hypergate restores it.
func (w *harness) repairsDrift() {
	w.Helper()
	roles := w.guest.RbacV1().ClusterRoles()
	name := w.cfg.GuestIstiodName()
	w.Expect(roles.Delete(w.Context(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() error {
		_, err := roles.Get(w.Context(), name, metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed(), fmt.Sprint("ClusterRole ", name))
	w.settle()
}

// credential returns the data of the Secret with which istiod's pod reaches the guest.
func (w *harness) credential() map[string][]byte {
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), model.CredentialSecretName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return secret.Data
}
