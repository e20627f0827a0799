package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/capi"
	"github.com/hypergate/hypergate/test/cluster/guestnode"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/world"
)

// quickstart is a user who follows one of docs/quickstart-*.md.
type quickstart struct {
	*fixture

	// dir is the working directory: a stand-in for the checkout. env is the environment.
	dir string
	env []string
}

// TestQuickstart runs the commands of each quickstart as they are in docs/, on clusters that have none of hypergate's
// objects. The test does only what the pages require before: contexts, a Cluster, a cloud with load balancers.
func TestQuickstart(t *testing.T) {
	for name, tc := range map[string]struct {
		topology model.Topology
		// require creates what the page requires.
		require func(*fixture)
	}{
		"hypershift": {model.TopologyHosted, func(t *fixture) {
			t.Expect(t.AddControlPlane(t.step())).To(gomega.Succeed())
		}},
		"cluster-api": {model.TopologyHosted, (*fixture).likeKamaji},
		"standalone":  {model.TopologyStandalone, func(*fixture) {}},
	} {
		t.Run(name, func(t *testing.T) {
			f := started(t, world.Options{Name: "quick-" + name[:2], Topology: tc.topology, AsPod: true, Bare: true})
			tc.require(f)
			if tc.topology == model.TopologyHosted {
				f.playCloud(guestnode.Options{OnlyLoadBalancers: true})
				f.allowDNS()
			}
			q := newQuickstart(f)
			commands := commandsOf(t, name)
			for i, block := range commands {
				q.run(block)
				if i == len(commands)-2 {
					q.isInstalled()
				}
			}
			q.isRemoved()
		})
	}
}

// commandsOf returns the commands of a quickstart: each of its code blocks in the language sh.
func commandsOf(t *testing.T, name string) []string {
	t.Helper()
	root, err := servers.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "quickstart-"+name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, part := range strings.Split(string(page), "\n```sh\n")[1:] {
		block, _, closed := strings.Cut(part, "\n```\n")
		if !closed {
			t.Fatalf("a code block of %s has no end", name)
		}
		out = append(out, block)
	}
	if len(out) < 4 {
		t.Fatalf("%s has %d blocks of commands", name, len(out))
	}
	return out
}

func newQuickstart(t *fixture) quickstart {
	t.Helper()
	q := quickstart{fixture: t, dir: t.TempDir()}
	bin, home := t.TempDir(), t.TempDir()
	tools, err := servers.Find(t.ctx, "kubectl", "helm")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	root, err := servers.ModuleRoot()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	for link, target := range map[string]string{
		filepath.Join(bin, "kubectl"): tools["kubectl"], filepath.Join(bin, "helm"): tools["helm"],
		filepath.Join(bin, "hypergate"): t.Binary(), filepath.Join(q.dir, "deploy"): filepath.Join(root, "deploy"),
	} {
		t.Expect(os.Symlink(target, link)).To(gomega.Succeed())
	}
	file := filepath.Join(home, "kubeconfig")
	t.Expect(clientcmd.WriteToFile(*t.contexts(), file)).To(gomega.Succeed())
	q.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+home, "KUBECONFIG="+file, "COLUMNS=120")
	return q
}

// contexts returns a kubeconfig with the contexts mgmt and guest. Standalone, mgmt is the current one.
func (t *fixture) contexts() *clientcmdapi.Config {
	t.Helper()
	all := clientcmdapi.NewConfig()
	files := map[string]string{"mgmt": t.MgmtKubeconfig}
	if t.Topology == model.TopologyHosted {
		files["guest"] = t.GuestKubeconfig
	} else {
		all.CurrentContext = "mgmt"
	}
	for name, file := range files {
		one, err := clientcmd.LoadFromFile(file)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		from := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[from.Cluster], one.AuthInfos[from.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	return all
}

// run runs the commands of one block in bash. Each of them must end well.
func (q quickstart) run(block string) {
	q.Helper()
	_, err := q.try(block)
	q.Expect(err).NotTo(gomega.HaveOccurred())
}

// try runs the commands of one block in bash, and returns their output.
func (q quickstart) try(block string) (string, error) {
	q.Helper()
	begun := time.Now()
	command := exec.CommandContext(q.ctx, "bash", "-euxo", "pipefail", "-c", block)
	command.Dir, command.Env = q.dir, q.env
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	q.Logf("%s after %s:\n%s", block, time.Since(begun).Round(100*time.Millisecond), out.String())
	return out.String(), err
}

// isInstalled checks that istiod runs as a pod, and that the Gateway has an address.
func (q quickstart) isInstalled() {
	q.Helper()
	q.rolledOut()
	gateway, err := q.Gateways.Gateways(world.GuestNamespace).Get(q.step(), "gw", metav1.GetOptions{})
	q.Expect(err).NotTo(gomega.HaveOccurred())
	q.Expect(gateway.Status.Addresses).NotTo(gomega.BeEmpty())
}

// isRemoved checks that nothing is left but the CRDs.
func (q quickstart) isRemoved() {
	q.Helper()
	q.Eventually(func(g gomega.Gomega) {
		pods, err := q.MgmtClient.CoreV1().Pods(q.MgmtNamespace).List(q.ctx, metav1.ListOptions{LabelSelector: "app in (hypergate,istiod)"})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(pods.Items).To(gomega.BeEmpty())
	}).Should(gomega.Succeed())
	q.Expect(q.members()).To(gomega.BeEmpty())
	_, err := q.GuestClient.CoreV1().ServiceAccounts(world.GuestNamespace).Get(q.ctx, "hypergate", metav1.GetOptions{})
	q.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
	_, err = q.Gateways.GatewayClasses().List(q.ctx, metav1.ListOptions{})
	q.Expect(err).NotTo(gomega.HaveOccurred(), "the CRDs stay")
}

// playCloud gives Services of the management cluster load balancers, until the end of the test.
func (t *fixture) playCloud(o guestnode.Options) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.ctx))
	ended := make(chan error, 1)
	go func() { ended <- guestnode.Play(ctx, t.Mgmt, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// allowDNS permits istiod to reach the DNS server of this management cluster. It is a process on the node, unlike that
// of most clusters, so that hypergate's policy for istiod does not select it. hypergate's own pod has no policy for
// egress, and one for DNS alone would cut it off.
func (t *fixture) allowDNS() {
	t.Helper()
	_, err := t.MgmtClient.NetworkingV1().NetworkPolicies(t.MgmtNamespace).Create(t.step(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "dns"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "istiod"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{
				IPBlock: &networkingv1.IPBlock{CIDR: t.DNSAddress().String() + "/32"},
			}}}},
		},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// likeKamaji creates the Cluster, and gives the pods of its API server the label that Kamaji's have.
func (t *fixture) likeKamaji() {
	t.Helper()
	clusters := t.serveClusters()
	_, err := clusters.Create(t.step(), capi.Cluster(capi.V1Beta2, t.MgmtNamespace, "guest1"), metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(patchCluster(t.step(), clusters, "guest1", capi.Initialized(capi.V1Beta2), "status")).To(gomega.Succeed())
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.step(), metav1.ListOptions{LabelSelector: "app=kube-apiserver"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(pods.Items).NotTo(gomega.BeEmpty())
	for i := range pods.Items {
		_, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).Patch(t.step(), pods.Items[i].Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"kamaji.clastix.io/name":"guest1"}}}`), metav1.PatchOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
	}
}
