package integration_test

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/test/leak"
)

// TestTheBundleHasNoSecret writes an archive of an installation, and searches it for each value of each Secret of both
// clusters, and for tokens and keys in places where users put them.
func TestTheBundleHasNoSecret(t *testing.T) {
	w := newHarness(t)
	w.removeCRDs(dynamic.NewForConfigOrDie(w.pair.Guest.Config))
	w.cfg.IstioResources, w.elects = nil, true
	w.run()
	w.install("demo")
	planted := w.plantCredentials()
	w.settle()

	entries := w.bundle()
	secrets := leak.NewSecrets()
	for _, cluster := range []struct {
		name   string
		client kubernetes.Interface
	}{{"management", w.mgmt}, {"guest", w.guest}} {
		all, err := cluster.client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		for _, secret := range all.Items {
			for key, value := range secret.Data {
				if !isPublic(key) {
					secrets.Add(cluster.name+" "+secret.Namespace+"/"+secret.Name+" "+key, value)
				}
			}
		}
	}
	for name, value := range planted {
		secrets.Add(name, []byte(value))
	}
	w.Expect(len(secrets.Names())).To(gomega.BeNumerically(">=", 5), "%v", secrets.Names())
	w.Expect(secrets.Search(entries...)).To(gomega.BeEmpty())

	t.Log("it has what an investigation needs")
	names := map[string]bool{}
	for _, e := range entries {
		names[strings.SplitN(e.Where, "/", 2)[1]] = true
	}
	w.Expect(w.bundleFolder()).To(gomega.Equal(names), "a folder has the same files")
	mgmt, guest := "management/namespaces/"+w.cfg.MgmtNamespace+"/", "guest/namespaces/"+w.cfg.GuestNamespace+"/"
	for _, want := range []string{
		"version.txt", "status.txt", "status.json", "status.html", mgmt + "apps/deployments.yaml", mgmt + "core/configmaps.yaml",
		mgmt + "coordination.k8s.io/leases.yaml", mgmt + "networking.k8s.io/networkpolicies.yaml",
		guest + "core/serviceaccounts.yaml", guest + "coordination.k8s.io/leases.yaml", guest + "core/configmaps.yaml",
		"guest/cluster-scoped-resources/gateway.networking.k8s.io/gatewayclasses.yaml",
		"guest/cluster-scoped-resources/rbac.authorization.k8s.io/clusterroles.yaml",
		"guest/cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions.yaml",
	} {
		w.Expect(names).To(gomega.HaveKey(want))
	}
}

// isPublic reports whether a key of a Secret has no secret: certificates of authorities, and names.
func isPublic(key string) bool {
	return strings.HasSuffix(key, ".crt") || strings.HasSuffix(key, "cert.pem") || strings.HasSuffix(key, "chain.pem") || key == "config"
}

// plantCredentials puts credentials into objects where users put them. It returns them by their place.
func (w *harness) plantCredentials() map[string]string {
	w.Helper()
	const token = "eyJhbGciOiJub25lIn0.eyJwbGFudGVkIjoidG9rZW4ifQ.c2lnbmF0dXJlLW9mLXRoZS1wbGFudGVkLXRva2Vu"
	planted := map[string]string{"a variable": "correct-horse-battery", "an annotation": token, "a copy": "staple-of-the-copy"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "istiod-planted", Labels: map[string]string{"app": "istiod"},
			Annotations: map[string]string{
				"example.com/login": "use " + token,
				"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"a":"` + planted["a copy"] + `"}}`,
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "a", Image: "registry.example.com/a:1", Env: []corev1.EnvVar{{Name: "DB_PASSWORD", Value: planted["a variable"]}},
		}}},
	}
	_, err := w.mgmt.CoreV1().Pods(w.cfg.MgmtNamespace).Create(w.Context(), pod, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return planted
}

// bundle writes an archive, and returns its files.
func (w *harness) bundle() []leak.Entry {
	w.Helper()
	file := filepath.Join(w.TempDir(), "bundle.tar.gz")
	w.Expect(w.bundleTo(file)).To(gomega.Equal(file))
	entries, err := leak.Archive(file)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return entries
}

// bundleFolder writes the archive as a folder, and returns the names of its files.
func (w *harness) bundleFolder() map[string]bool {
	w.Helper()
	parent := filepath.Join(w.TempDir(), "support")
	root := w.bundleTo(parent + "/")
	w.Expect(filepath.Dir(root)).To(gomega.Equal(parent))
	names := map[string]bool{}
	w.Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names[strings.TrimPrefix(path, root+"/")] = true
		}
		return err
	})).To(gomega.Succeed())
	return names
}

// bundleTo runs the command with --output, and returns what it prints.
func (w *harness) bundleTo(output string) string {
	w.Helper()
	var stdout, stderr bytes.Buffer
	code := app.Execute(w.Context(), []string{
		"bundle", "--kubeconfig=" + w.pair.Mgmt.Kubeconfig, "-n=" + w.cfg.MgmtNamespace, "--guest-kubeconfig=" + w.pair.Guest.Kubeconfig,
		"--guest-namespace=" + w.cfg.GuestNamespace, "-o=" + output,
	}, &stdout, &stderr)
	w.Expect(code).To(gomega.BeZero(), stderr.String())
	w.Expect(stderr.String()).To(gomega.BeEmpty(), "everything was read")
	return strings.TrimSpace(stdout.String())
}
