package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/leak"
	"github.com/hypergate/hypergate/test/world"
)

// nothingLeaks performs all operations that write to the guest, and searches all of the guest's data after each, and
// the archive of hypergate bundle. The limits in the documentation of package leak apply.
func nothingLeaks(t *fixture) {
	p := t.watchForLeaks()
	h := t.start("--ca-overlap", "2s")
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	p.search("the installation")
	key := t.caFiles()["ca-key.pem"]

	t.guestDrift()
	p.search("drift")
	old := t.istiodToken()
	t.Expect(t.GuestClient.CoreV1().ServiceAccounts(world.GuestNamespace).Delete(t.ctx, world.GuestIstiod, metav1.DeleteOptions{})).
		To(gomega.Succeed())
	t.Eventually(t.istiodToken).ShouldNot(gomega.Equal(old))
	p.search("a new token")

	t.Log("the mesh CA is rotated, and hypergate is killed during the rotation")
	_, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Patch(t.ctx, model.CASecretName, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+model.RotateAnnotation+`":"`+time.Now().Format(time.RFC3339Nano)+`"}}}`),
		metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(t.caPhase).Should(gomega.Equal("spreading"))
	h.Kill()
	p.search("a crash in the middle of a rotation")
	h = t.start("--ca-overlap", "2s")
	t.Eventually(t.caPhase).Should(gomega.Equal(""))
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	p.search("a rotation of the mesh CA")

	t.Log("with the long host, the URL of the webhook contains the namespace, and nothing else does")
	h.Terminate()
	p.webhookHost = "gw-webhook-" + world.Revision + "." + t.MgmtNamespace + ".svc"
	h = t.start("--webhook-host", p.webhookHost)
	t.Eventually(func() string { return *t.webhooks().Webhooks[0].ClientConfig.URL }).Should(gomega.HavePrefix("https://" + p.webhookHost))
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	p.search("an installation with the long host")
	h.Terminate()

	t.start()
	t.Eventually(func() string {
		return *t.webhooks().Webhooks[0].ClientConfig.URL
	}).ShouldNot(gomega.HavePrefix("https://" + p.webhookHost))
	t.Expect(t.DeleteClass(t.ctx, class)).To(gomega.Succeed())
	t.Eventually(t.members).Should(gomega.BeEmpty())
	p.search("the uninstallation")
	p.canFail(key) // last, because the planted data stays in etcd's history
}

// guestDrift changes hypergate's objects in the guest, and waits until they are repaired.
func (t *fixture) guestDrift() {
	t.Helper()
	_, err := t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.ctx, t.webhooks().Name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.GuestClient.RbacV1().ClusterRoles().Delete(t.ctx, world.GuestIstiod, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func() []byte { return t.webhooks().Webhooks[0].ClientConfig.CABundle }).ShouldNot(gomega.BeEmpty())
	t.Eventually(func() error {
		_, err := t.GuestClient.RbacV1().ClusterRoles().Get(t.ctx, world.GuestIstiod, metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
}

// leakSearch is a search of a guest for secrets.
type leakSearch struct {
	*fixture
	secrets *leak.Secrets
	// credentials are those of secrets that are no names and addresses. The archive of hypergate bundle has these,
	// because it is for an administrator of the management side.
	credentials *leak.Secrets
	// etcd is the address of the guest's etcd.
	etcd string
	// webhookHost is the webhook's host in its long form. In this form, the webhook's URL may contain the management
	// namespace.
	webhookHost string
}

// watchForLeaks starts to collect secrets of the management side, and continues until the end of the story.
func (t *fixture) watchForLeaks() *leakSearch {
	t.Helper()
	p := &leakSearch{fixture: t, secrets: leak.NewSecrets(), credentials: leak.NewSecrets()}
	p.secrets.AddName("the name of the management namespace", t.MgmtNamespace)
	server, err := url.Parse(t.Mgmt.Host)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	service, err := t.MgmtClient.CoreV1().Services("default").Get(t.ctx, "kubernetes", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	p.secrets.AddName("the address of the management API", server.Hostname())
	p.secrets.AddName("the management API's address in the cluster", service.Spec.ClusterIP)
	p.secrets.AddCertificates("the management API's CA", t.Mgmt.CAData)
	for _, pattern := range []string{"pki/mgmt/*", "*.kubeconfig"} {
		files, err := filepath.Glob(filepath.Join(t.Dir, pattern))
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Expect(files).NotTo(gomega.BeEmpty(), pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			t.Expect(err).NotTo(gomega.HaveOccurred())
			p.add("the file "+filepath.Base(file), data)
		}
	}
	p.collect()
	p.etcd = t.guestsEtcd()
	return p
}

// add adds a credential.
func (p *leakSearch) add(name string, value []byte) {
	p.secrets.Add(name, value)
	p.credentials.Add(name, value)
}

// guestsEtcd returns the address of the guest's etcd.
func (t *fixture) guestsEtcd() string {
	t.Helper()
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=etcd"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(pods.Items).To(gomega.HaveLen(1))
	return "http://" + pods.Items[0].Status.PodIP + ":2379"
}

// collect adds every value that a Secret in the management namespace has from now on.
func (p *leakSearch) collect() {
	factory := informers.NewSharedInformerFactoryWithOptions(p.MgmtClient, 0, informers.WithNamespace(p.MgmtNamespace))
	add := func(obj any) {
		secret, ok := obj.(*corev1.Secret)
		if !ok {
			return
		}
		for key, value := range secret.Data {
			p.add("the Secret "+secret.Name+"'s "+key, value)
		}
	}
	informer := factory.Core().V1().Secrets().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, now any) { add(now) }})
	p.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(p.ctx)
	factory.StartWithContext(ctx)
	p.Cleanup(func() { cancel(); factory.Shutdown() })
	p.Expect(cache.WaitForCacheSync(p.step().Done(), informer.HasSynced)).To(gomega.BeTrue())
}

// found searches all data of the guest.
func (p *leakSearch) found() []leak.Finding {
	p.Helper()
	ctx := p.step()
	objects, err := leak.Objects(ctx, p.GuestConfig)
	p.Expect(err).NotTo(gomega.HaveOccurred())
	keys, err := leak.Keys(ctx, p.etcd)
	p.Expect(err).NotTo(gomega.HaveOccurred())
	file, err := leak.File(ctx, p.etcd)
	p.Expect(err).NotTo(gomega.HaveOccurred())
	// These checks ensure that the search covers real data. A search of nothing would always pass.
	p.Expect(len(objects)).To(gomega.BeNumerically(">", 200))
	p.Expect(len(keys)).To(gomega.BeNumerically(">", 200))
	p.Expect(bytes.Contains(file.Data, []byte("/registry/namespaces/"+world.GuestNamespace))).To(gomega.BeTrue())
	p.Logf("searching %d objects, %d keys and a file of %d KiB for %d secrets", len(objects), len(keys), len(file.Data)>>10,
		len(p.secrets.Names()))
	return p.secrets.Search(p.permit(append(append(objects, keys...), file))...)
}

// foundInBundle writes an archive with hypergate bundle, and searches it for credentials.
func (p *leakSearch) foundInBundle() []leak.Finding {
	p.Helper()
	file := filepath.Join(p.TempDir(), "bundle.tar.gz")
	out, err := exec.CommandContext(p.step(), p.Binary(), "bundle", "--kubeconfig", p.MgmtKubeconfig, "-n", p.MgmtNamespace,
		"--guest-kubeconfig", p.GuestKubeconfig, "--guest-namespace", world.GuestNamespace, "-o", file).CombinedOutput()
	p.Expect(err).NotTo(gomega.HaveOccurred(), string(out))
	entries, err := leak.Archive(file)
	p.Expect(err).NotTo(gomega.HaveOccurred())
	// The archive must have both sides. A search of nothing would always pass.
	for _, part := range []string{"/management/namespaces/" + p.MgmtNamespace + "/", "/guest/cluster-scoped-resources/"} {
		p.Expect(entries).To(gomega.ContainElement(gomega.HaveField("Where", gomega.ContainSubstring(part))))
	}
	p.Logf("searching an archive of %d files for %d credentials", len(entries), len(p.credentials.Names()))
	return p.credentials.Search(entries...)
}

// permit removes the webhook's URL from the places where it is allowed: the webhook's configuration, and etcd's file.
func (p *leakSearch) permit(entries []leak.Entry) []leak.Entry {
	if p.webhookHost == "" {
		return entries
	}
	for i, e := range entries {
		if strings.Contains(e.Where, "webhookconfigurations/") || e.Where == "etcd's file" {
			entries[i].Data = bytes.ReplaceAll(e.Data, []byte("https://"+p.webhookHost+":443/"), []byte("https://permitted/"))
		}
	}
	return entries
}

// search fails the story if the guest contains a secret, or the archive of hypergate bundle a credential.
func (p *leakSearch) search(after string) {
	p.Helper()
	begin := time.Now()
	for _, f := range append(p.found(), p.foundInBundle()...) {
		p.Errorf("after %s: %s", after, f)
	}
	if p.Failed() {
		p.FailNow() // all later searches would find it, too
	}
	p.Logf("searched after %s in %s; too short to be looked for: %q", after, time.Since(begin).Round(time.Millisecond), p.secrets.Skipped())
}

// canFail plants secrets and checks that they are found: through the API, in etcd, and in etcd's file after they are
// deleted.
func (p *leakSearch) canFail(key string) {
	p.Helper()
	planted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "planted", Annotations: map[string]string{"for": "Namespace=" + p.MgmtNamespace}},
		Data:       map[string]string{"plain": key, "base64": base64.StdEncoding.EncodeToString([]byte("x" + key)), "address": p.Mgmt.Host},
	}
	configMaps := p.GuestClient.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	_, err := configMaps.Create(p.ctx, planted, metav1.CreateOptions{})
	p.Expect(err).NotTo(gomega.HaveOccurred())
	found := p.found()
	p.Expect(configMaps.Delete(p.ctx, planted.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	for _, where := range []string{"the API: configmaps/default/planted", "etcd: /registry/configmaps/default/planted"} {
		p.Expect(found).To(gomega.ContainElements(
			leak.Finding{Name: "the name of the management namespace", Form: "plain", Where: where},
			leak.Finding{Name: "the address of the management API", Form: "plain", Where: where},
			leak.Finding{Name: "the Secret cacerts's ca-key.pem", Form: "plain", Where: where},
			leak.Finding{Name: "the Secret cacerts's ca-key.pem", Form: "base64", Where: where},
		))
	}
	p.Expect(p.found()).To(gomega.And(
		gomega.Not(gomega.BeEmpty()),
		gomega.HaveEach(gomega.HaveField("Where", gomega.HavePrefix("etcd's file"))),
	), "deleted data is in the history")
	p.Expect(p.credentials.Search(leak.Entry{Where: "an archive", Data: []byte(key)})).To(gomega.ContainElement(
		leak.Finding{Name: "the Secret cacerts's ca-key.pem", Form: "plain", Where: "an archive"}))
}
