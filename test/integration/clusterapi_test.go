package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/capi"
	"github.com/hypergate/hypergate/test/freeport"
)

// capiWorld is a test with a Cluster of Cluster API and its kubeconfig Secret, without HyperShift.
type capiWorld struct {
	*harness
	version, name string
	// users are hypergate's user names in the guest, one for each kubeconfig.
	users []string
}

// withClusterAPI serves Clusters in one version until the end of the test. It does not create the Secret.
func withClusterAPI(t *testing.T, version string) *capiWorld {
	t.Helper()
	w := &capiWorld{harness: newHarness(t), version: version, name: "guest1"}
	// Without Istio resources there is no webhook. Nothing here could answer its probe, so hypergate would probe and
	// report it repeatedly.
	w.cfg.IstioResources, w.cfg.GuestKubeconfigSecret, w.guestConfig = nil, "guest1-kubeconfig", nil
	w.haveCRDs()
	remove, err := capi.Serve(t.Context(), w.pair.Mgmt.Config, version)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() {
		w.patchCluster(`{"metadata":{"finalizers":null}}`)
		w.Expect(remove(context.Background())).To(gomega.Succeed())
		w.Eventually(func() error {
			clusters, err := capi.Clusters(w.pair.Mgmt.Config, version, w.cfg.MgmtNamespace)
			w.Expect(err).NotTo(gomega.HaveOccurred())
			_, err = clusters.List(context.Background(), metav1.ListOptions{})
			return err
		}).Should(gomega.Satisfy(apierrors.IsNotFound))
	})
	w.health = freeport.Address(w.T)
	return w
}

// createCluster creates the Cluster and returns its UID.
func (w *capiWorld) createCluster() types.UID {
	w.Helper()
	clusters, err := capi.Clusters(w.pair.Mgmt.Config, w.version, w.cfg.MgmtNamespace)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	made, err := clusters.Create(w.Context(), capi.Cluster(w.version, w.cfg.MgmtNamespace, w.name), metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return made.GetUID()
}

// patchCluster changes the Cluster or its status. It does nothing if the Cluster does not exist.
func (w *capiWorld) patchCluster(patch string, subresources ...string) {
	w.Helper()
	clusters, err := capi.Clusters(w.pair.Mgmt.Config, w.version, w.cfg.MgmtNamespace)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = clusters.Patch(context.Background(), w.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	w.Expect(err).To(gomega.Or(gomega.Not(gomega.HaveOccurred()), gomega.Satisfy(apierrors.IsNotFound)))
}

func (w *capiWorld) initialize() { w.patchCluster(capi.Initialized(w.version), "status") }

func (w *capiWorld) deleteCluster() {
	w.Helper()
	clusters, err := capi.Clusters(w.pair.Mgmt.Config, w.version, w.cfg.MgmtNamespace)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(clusters.Delete(w.Context(), w.name, metav1.DeleteOptions{})).To(gomega.Succeed())
}

// access returns a configuration with which hypergate reaches the guest under its own account.
func (w *capiWorld) access(account string) *rest.Config {
	w.Helper()
	config := w.guestToken(account)
	w.users = append(w.users, "system:serviceaccount:"+metav1.NamespaceDefault+":"+w.cfg.Revision+"-"+account)
	return config
}

// putSecret creates or replaces the Secret with the guest's kubeconfig.
func (w *capiWorld) putSecret(config *rest.Config, edits ...func(*corev1.Secret)) {
	w.Helper()
	secret, err := capi.KubeconfigSecret(w.cfg.MgmtNamespace, w.name, config)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, edit := range edits {
		edit(secret)
	}
	secrets := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace)
	if _, err = secrets.Create(w.Context(), secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(w.Context(), secret, metav1.UpdateOptions{})
	}
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// guestWrites returns the number of writes that hypergate sent to the guest with any of its kubeconfigs. It includes
// failed writes and dry runs. Before it has a kubeconfig, there are none.
func (w *capiWorld) guestWrites() int {
	w.Helper()
	if len(w.users) == 0 {
		return 0 // audit.Read would return the requests of all users
	}
	requests, err := audit.Read(w.pair.Guest.AuditLog, w.users...)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	n := 0
	for _, r := range requests {
		if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			n++
		}
	}
	return n
}

// leavesAlone checks that hypergate writes on neither side in its next passes. If it cannot reach the guest, no event
// there causes passes, and it must write nothing for some time.
func (w *capiWorld) leavesAlone(why string) {
	w.Helper()
	mgmt, guest := w.mgmtRequests.count(), w.guestWrites()
	if strings.HasPrefix(w.ready("guest"), "200 ") {
		w.looksAgain()
	} else {
		w.Consistently(func() []string { return writes(w.mgmtRequests.since(mgmt)) }, "2s").Should(gomega.BeEmpty(), why)
	}
	w.Expect(writes(w.mgmtRequests.since(mgmt))).To(gomega.BeEmpty(), why)
	w.Expect(w.guestWrites()).To(gomega.Equal(guest), why)
}

// ready returns the status and the text of a readiness check.
func (w *capiWorld) ready(check string) string {
	status, text := w.healthAnswer("readyz/" + check)
	return status + " " + text
}

func okay() gomega.OmegaMatcher { return gomega.HavePrefix("200 ") }

// quiet waits until hypergate has made no request for some time.
func (w *capiWorld) quiet() {
	w.settle()
	before := -1
	w.Eventually(func() bool {
		was := before
		before = w.guestWrites()
		return was == before
	}).WithPolling(500 * time.Millisecond).Should(gomega.BeTrue())
}

// TestTheLifeOfAClusterOfClusterAPI checks the life of a Cluster in each version of the API: it comes up after
// hypergate, is paused, and is deleted.
func TestTheLifeOfAClusterOfClusterAPI(t *testing.T) {
	for _, version := range []string{capi.V1Beta1, capi.V1Beta2} {
		t.Run(version, func(t *testing.T) {
			w := withClusterAPI(t, version)
			t.Log("there is only a Cluster, without a kubeconfig or a control plane")
			uid := w.createCluster()
			w.run()
			w.Eventually(func() string { return w.ready("management") }).Should(okay())
			w.Eventually(func() string { return w.ready("guest") }).Should(gomega.HavePrefix("500 "))
			w.leavesAlone("the guest cannot be reached")
			w.Expect(w.log.String()).
				To(gomega.And(gomega.ContainSubstring("Secret guest1-kubeconfig"), gomega.ContainSubstring("hypergate waits for it")))

			t.Log("the kubeconfig exists before the control plane is initialized")
			w.putSecret(w.access("first"))
			w.Eventually(func() string { return w.ready("guest") }).Should(okay())
			w.Eventually(w.log.String).Should(gomega.ContainSubstring("its control plane is not initialized yet"))
			w.quiet()
			w.leavesAlone("it is not initialized")
			w.Expect(w.guestWrites()).To(gomega.BeZero())

			w.initialize()
			w.install("demo")
			w.quiet()
			owner := metav1.OwnerReference{
				APIVersion: capi.Group + "/" + version, Kind: "Cluster", Name: "guest1", UID: uid,
				Controller: new(true),
			}
			w.Expect(w.owners()).To(gomega.ConsistOf(owner))
			w.Expect(*w.istiod().Spec.Replicas).To(gomega.BeEquivalentTo(1))
			for _, name := range []string{model.CASecretName, model.CredentialSecretName} {
				secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(t.Context(), name, metav1.GetOptions{})
				w.Expect(err).NotTo(gomega.HaveOccurred())
				w.Expect(secret.OwnerReferences).To(gomega.ConsistOf(owner), name)
			}

			for how, patches := range map[string][2]string{
				"by its spec": {`{"spec":{"paused":true}}`, `{"spec":{"paused":null}}`},
				"by its annotation": {
					`{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`,
					`{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`,
				},
			} {
				t.Log("it is paused " + how + ", and resumed")
				logged := strings.Count(w.log.String(), "it is paused")
				w.patchCluster(patches[0])
				w.Eventually(func() int { return strings.Count(w.log.String(), "it is paused") }).Should(gomega.BeNumerically(">", logged))
				w.spoil()
				w.leavesAlone("it is paused")
				w.Expect(w.repaired()).To(gomega.BeFalse())
				w.patchCluster(patches[1])
				w.Eventually(w.repaired).Should(gomega.BeTrue())
				w.quiet()
			}

			t.Log("it is deleted and waits for its finalizer, then it is gone")
			w.deleteCluster()
			w.Eventually(w.log.String).Should(gomega.ContainSubstring("it is being deleted"))
			w.spoil()
			w.leavesAlone("it is being deleted")
			w.patchCluster(`{"metadata":{"finalizers":null}}`)
			w.deleteClass("demo")
			w.leavesAlone("what it owned goes with it")
			w.Expect(w.istiod()).NotTo(gomega.BeNil(), "there is no garbage collector here")
			w.Expect(w.istiod().Generation).To(gomega.BeEquivalentTo(1), "none of this rolled istiod out")
		})
	}
}

// TestAKubeconfigSecretIsReplaced checks the same as TestTheGuestKubeconfigIsReplaced, but hypergate must notice the
// change at once.
func TestAKubeconfigSecretIsReplaced(t *testing.T) {
	w := withClusterAPI(t, capi.V1Beta2)
	w.createCluster()
	w.initialize()
	first, second := w.access("first"), w.access("second")
	w.putSecret(first)
	w.run()
	w.install("demo")
	w.quiet()
	generation, mgmt, guest := w.istiod().Generation, w.mgmtRequests.count(), w.guestWrites()

	t.Log("the old kubeconfig is revoked just before")
	w.revoke("first", first)
	start := time.Now()
	w.putSecret(second)
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("The guest kubeconfig was replaced"))
	t.Logf("in use after %s", time.Since(start).Round(time.Millisecond))
	w.quiet()
	w.Expect(w.guestWrites()).To(gomega.Equal(guest))
	w.Expect(writes(w.mgmtRequests.since(mgmt))).To(gomega.BeEmpty())
	w.repairsDrift()
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))

	for name, tc := range map[string]struct {
		spoil func()
		want  string
	}{
		"the key goes": {func() {
			w.putSecret(second, func(s *corev1.Secret) { s.Data = map[string][]byte{"admin.conf": s.Data["value"]} })
		}, "neither the key value"},
		"it is not a kubeconfig": {func() {
			w.putSecret(second, func(s *corev1.Secret) { s.Data["value"] = []byte("none") })
		}, "Secret guest1-kubeconfig, key value: it is not a kubeconfig"},
		"it leads to the management cluster":     {func() { w.putSecret(w.pair.Mgmt.Config) }, "leads to the management cluster itself"},
		"the Secret goes":                        {func() { w.deleteSecret() }, "it does not exist in namespace"},
		"it runs a program":                      {func() { w.putSecret(second, runsAProgram) }, "from the program steal (exec)"},
		"it is one that the guest does not know": {func() { w.putSecret(first) }, "Unauthorized"},
	} {
		t.Log(name)
		tc.spoil()
		w.Eventually(func() string { return w.ready("guest") }).Should(gomega.HavePrefix("500 "), name)
		w.Eventually(w.log.String).Should(gomega.ContainSubstring(tc.want), name)
		w.repairsDrift() // with the kubeconfig in use
		w.putSecret(second)
		w.Eventually(func() string { return w.ready("guest") }).Should(okay(), name)
	}
	w.quiet()
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
}

// runsAProgram changes a kubeconfig so that it runs a program.
func runsAProgram(s *corev1.Secret) {
	config, err := clientcmd.Load(s.Data["value"])
	if err != nil {
		return
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "steal", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	}
	s.Data["value"], _ = clientcmd.Write(*config)
}

func (w *capiWorld) deleteSecret() {
	w.Helper()
	w.Expect(w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Delete(w.Context(), w.cfg.GuestKubeconfigSecret, metav1.DeleteOptions{})).
		To(gomega.Succeed())
}

// TestAnInvalidKubeconfigSecretIsCorrected checks that hypergate waits for a valid Secret, whatever is wrong with it,
// and that the process continues to run.
func TestAnInvalidKubeconfigSecretIsCorrected(t *testing.T) {
	w := withClusterAPI(t, capi.V1Beta2)
	good := w.access("first")
	stop, ended := w.tryRun()
	defer stop()
	for _, step := range []struct {
		put  func()
		want string
	}{
		{func() {}, "it does not exist in namespace"},
		{func() { w.putSecret(good, func(s *corev1.Secret) { s.Data = nil }) }, "but none at all"},
		{func() { w.putSecret(good, func(s *corev1.Secret) { s.Data["value"] = nil }) }, "its key value is empty"},
		{func() { w.putSecret(good, runsAProgram) }, "from the program steal (exec)"},
		{func() { w.putSecret(w.pair.Mgmt.Config) }, "leads to the management cluster itself"},
	} {
		step.put()
		w.Eventually(w.log.String).Should(gomega.ContainSubstring(step.want))
		w.Eventually(func() string { return w.ready("guest") }).Should(gomega.HavePrefix("500 "), step.want)
		w.Expect(ended).NotTo(gomega.Receive(), step.want)
		w.Expect(w.ready("management")).To(okay(), step.want)
	}
	w.leavesAlone("the guest cannot be reached")
	t.Log("then it is valid, under HyperShift's key; there is no Cluster, and none is needed")
	w.putSecret(good, func(s *corev1.Secret) { s.Data = map[string][]byte{"kubeconfig": s.Data["value"]} })
	w.Eventually(func() string { return w.ready("guest") }).Should(okay())
	w.install("demo")
	w.Expect(w.owners()).To(gomega.BeEmpty())
	stop()
	w.Expect(<-ended).To(gomega.Succeed())
}
