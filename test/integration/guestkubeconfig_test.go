package integration_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	guestconfig "github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/test/deploy"
)

// guestKubeconfig is a user with one kubeconfig for both clusters.
type guestKubeconfig struct {
	*harness

	file string
}

// TestTheGuestKubeconfigCommand makes hypergate's kubeconfig for the guest, and uses it.
func TestTheGuestKubeconfigCommand(t *testing.T) {
	w := guestKubeconfig{newHarness(t), filepath.Join(t.TempDir(), "kubeconfig")}
	w.writeContexts()

	t.Log("the account does not exist")
	w.fails("create it with kubectl apply -k deploy/hosted/guest", w.command()...)

	w.createNamespace(w.guest, w.cfg.GuestNamespace)
	_, err := w.guest.CoreV1().ServiceAccounts(w.cfg.GuestNamespace).
		Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: deploy.Account}}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())

	t.Log("it is printed, and works")
	code, out, errOut := w.run(w.command()...)
	w.Expect(code).To(gomega.BeZero(), errOut)
	w.isOfAccount([]byte(out))

	t.Log("it is written, and works")
	w.stored("hypergate-service-account-kubeconfig", guestconfig.KeyHyperShift)
	w.stored("guest1-hypergate", guestconfig.KeyClusterAPI, "--cluster-name=guest1")
	w.stored("another", guestconfig.KeyHyperShift, "--secret=another")

	w.checkConflicts()
	w.checkRootCA()

	t.Log("the same cluster, and no such namespace")
	w.fails("the guest kubeconfig leads to the management cluster itself", w.command("--guest-context=mgmt")...)
	w.fails(`namespace "none" does not exist on the management cluster: check --namespace`, w.command("--namespace=none")...)
}

// writeContexts writes a kubeconfig with both clusters.
func (w guestKubeconfig) writeContexts() {
	w.Helper()
	all := clientcmdapi.NewConfig()
	for name, file := range map[string]string{"mgmt": w.pair.Mgmt.Kubeconfig, "guest": w.pair.Guest.Kubeconfig} {
		one, err := clientcmd.LoadFromFile(file)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		context := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[context.Cluster], one.AuthInfos[context.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	w.Expect(clientcmd.WriteToFile(*all, w.file)).To(gomega.Succeed())
}

// command returns the arguments of the command, followed by other flags, which take precedence.
func (w guestKubeconfig) command(others ...string) []string {
	return append([]string{
		"guest-kubeconfig", "--guest-kubeconfig=" + w.file, "--guest-context=guest", "--kubeconfig=" + w.file,
		"--context=mgmt", "--namespace=" + w.cfg.MgmtNamespace, "--guest-namespace=" + w.cfg.GuestNamespace,
	}, others...)
}

func (w guestKubeconfig) run(args ...string) (code int, out, errOut string) {
	w.Helper()
	var stdout, stderr bytes.Buffer
	code = app.Execute(w.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func (w guestKubeconfig) fails(want string, args ...string) {
	w.Helper()
	code, out, errOut := w.run(args...)
	w.Expect(code).To(gomega.Equal(1))
	w.Expect(out).To(gomega.BeEmpty())
	w.Expect(errOut).To(gomega.ContainSubstring(want))
}

// stored writes a Secret, and checks what is in it.
func (w guestKubeconfig) stored(name, key string, flags ...string) {
	w.Helper()
	code, out, errOut := w.run(w.command(append(flags, "--apply")...)...)
	w.Expect(code).To(gomega.BeZero(), errOut)
	w.Expect(out).To(gomega.HavePrefix("secret/" + name + ": kubeconfig of " + w.cfg.GuestNamespace + "/hypergate, valid until 2"))
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), name, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	content, in, err := guestconfig.InSecret(secret.Data)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(in).To(gomega.Equal(key))
	w.Expect(secret.Labels["cluster.x-k8s.io/cluster-name"] != "").To(gomega.Equal(key == guestconfig.KeyClusterAPI))
	w.Expect(out).NotTo(gomega.ContainSubstring(w.isOfAccount(content)), "the token is not printed")
}

// isOfAccount checks that the guest takes the user of a kubeconfig for hypergate's account. It returns the token.
func (w guestKubeconfig) isOfAccount(content []byte) string {
	w.Helper()
	config, err := guestconfig.Parse(content)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	got, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().
		Create(w.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(got.Status.UserInfo.Username).To(gomega.Equal(deploy.UserOf(w.cfg.GuestNamespace, deploy.Account)))
	return config.BearerToken
}

// checkConflicts checks that a kubeconfig of another client is replaced only on request.
func (w guestKubeconfig) checkConflicts() {
	w.Helper()
	w.Log("another client wrote the Secret")
	_, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Data: map[string][]byte{"kubeconfig": []byte("theirs")},
	}, metav1.CreateOptions{FieldManager: "their-tool"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.fails("otherwise, replace it with --force-conflicts", w.command("--secret=theirs", "--apply")...)
	w.fails("their-tool", w.command("--secret=theirs", "--apply")...)
	w.stored("theirs", guestconfig.KeyHyperShift, "--secret=theirs", "--force-conflicts")
}

// checkRootCA checks which certificate authority the kubeconfig has.
func (w guestKubeconfig) checkRootCA() {
	w.Helper()
	w.Log("the certificate authority of another address")
	ca := func(flags ...string) string {
		code, out, errOut := w.run(w.command(flags...)...)
		w.Expect(code).To(gomega.BeZero(), errOut)
		config, err := guestconfig.Parse([]byte(out))
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return config.Host + " " + strings.TrimSpace(string(config.CAData))
	}
	theirs := strings.TrimSpace(string(w.pair.Guest.Config.CAData))
	w.Expect(ca("--server=https://kube-apiserver:6443")).To(gomega.Equal("https://kube-apiserver:6443 " + theirs))
	_, err := w.mgmt.CoreV1().ConfigMaps(w.cfg.MgmtNamespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "root-ca"}, Data: map[string]string{"ca.crt": "root of HyperShift"},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(ca("--server=https://kube-apiserver:6443")).To(gomega.Equal("https://kube-apiserver:6443 root of HyperShift"))
	w.Expect(ca()).To(gomega.Equal(w.pair.Guest.Config.Host+" "+theirs), "the address is the user's")
	file := filepath.Join(w.TempDir(), "ca.crt")
	w.Expect(os.WriteFile(file, []byte("of the user"), 0o600)).To(gomega.Succeed())
	w.Expect(ca("--certificate-authority=" + file)).To(gomega.Equal(w.pair.Guest.Config.Host + " of the user"))
}
