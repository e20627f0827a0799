package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/capi"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/world"
)

// TestClusterAPI has its own clusters without a HostedControlPlane. hypergate needs only a Cluster of Cluster API and
// the Secret of its contract.
func TestClusterAPI(t *testing.T) {
	fixture := alone(t, world.Options{Name: "e2e-capi", Folder: world.ClusterAPI})
	clusterAPI(fixture)
	nothingForbidden(fixture)
}

// alone starts hosted clusters for one story.
func alone(t *testing.T, options world.Options) *fixture {
	t.Helper()
	options.AsPod = true
	return started(t, options)
}

// started starts clusters for a test of their own. Without AsPod, hypergate runs as a process on this machine.
func started(t *testing.T, options world.Options) *fixture {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real clusters: run without -short")
	}
	options.Topology, options.Binary = cmp.Or(options.Topology, model.TopologyHosted), build(t)
	options.Progress, options.Dir = t.Output(), artifacts(t, options.Name)
	w, err := world.Start(t.Context(), options)
	if errors.Is(err, cluster.ErrNeedsRoot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), storyTimeout)
	t.Cleanup(cancel)
	fixture := &fixture{T: t, Gomega: hang.Gomega(t), World: w, suite: &suite{}, ctx: ctx}
	fixture.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	t.Cleanup(func() {
		if t.Failed() {
			fixture.explain()
		}
		if options.GuestNodes > 0 || options.RealGateways {
			fixture.usedMemory()
		}
	})
	return fixture
}

// usedMemory fails the test if clusters with real gateways have used more memory than they may.
func (t *fixture) usedMemory() {
	t.Helper()
	peak, err := t.PeakMemory()
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("peak memory of all clusters, page cache included: %.1f GiB", float64(peak)/(1<<30))
	if peak < 1<<30 || peak > 12<<30 {
		t.Errorf("the peak memory is %d bytes: between 1 and 12 GiB are possible", peak)
	}
}

// clusterAPI checks that the management cluster's garbage collector deletes hypergate's objects with the Cluster.
func clusterAPI(t *fixture) {
	const name = "guest1"
	clusters := t.serveClusters()
	_, err := clusters.Create(t.ctx, capi.Cluster(capi.V1Beta2, t.MgmtNamespace, name), metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	h := t.start("--guest-api-peers=pods:app=kube-apiserver")
	t.Expect(h.Ready(t.step(), "readyz/management")).To(gomega.Succeed())
	t.Log("the kubeconfig is created, then the control plane is initialized")
	secret := t.contractSecret(name)
	_, err = t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Create(t.ctx, secret, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(h.Ready(t.step(), "readyz/guest")).To(gomega.Succeed())
	t.Expect(patchCluster(t.ctx, clusters, name, capi.Initialized(capi.V1Beta2), "status")).To(gomega.Succeed())

	t.Log("it installs and serves")
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	t.Eventually(t.istiodsOwner).Should(gomega.Equal("Cluster " + name))
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	proxy, err := t.Proxy(t.ctx, world.GuestNamespace, "gw")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = proxy.CSR(t.step())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(proxy.Close()).To(gomega.Succeed())

	t.Log("the Cluster is deleted: hypergate's objects on the management side are deleted with it, and hypergate writes nothing " +
		"in the guest")
	deleted := time.Now()
	t.Expect(clusters.Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Expect(patchCluster(t.ctx, clusters, name, `{"metadata":{"finalizers":null}}`)).To(gomega.Succeed())
	t.Eventually(t.ownedOnMgmt).Should(gomega.BeEmpty())
	_, err = t.GuestClient.RbacV1().ClusterRoleBindings().Get(t.ctx, world.GuestIstiod, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred(), "objects in the guest are deleted with the guest")
	requests, err := audit.Read(t.AuditLog(model.SideGuest), t.GuestUser())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(slices.DeleteFunc(requests, func(r audit.Request) bool {
		return r.At.Before(deleted.Add(time.Second)) || slices.Contains([]string{"get", "list", "watch"}, r.Verb)
	})).To(gomega.BeEmpty())
}

// serveClusters makes the management cluster serve Clusters.
func (t *fixture) serveClusters() dynamic.ResourceInterface {
	t.Helper()
	_, err := capi.Serve(t.ctx, t.Mgmt, capi.V1Beta2)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	clusters, err := capi.Clusters(t.Mgmt, capi.V1Beta2, t.MgmtNamespace)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return clusters
}

func patchCluster(ctx context.Context, clusters dynamic.ResourceInterface, name, patch string, subresources ...string) error {
	_, err := clusters.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// contractSecret returns a Secret with a kubeconfig of hypergate's account in the guest. Its address is the one that
// pods use.
func (t *fixture) contractSecret(name string) *corev1.Secret {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	t.Expect(deploy.Kubeconfig(t.step(), t.GuestConfig, world.GuestNamespace, file, time.Hour)).To(gomega.Succeed())
	config, err := clientcmd.BuildConfigFromFlags("", file)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	config.Host = cluster.GuestServerInPods
	secret, err := capi.KubeconfigSecret(t.MgmtNamespace, name, config)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return secret
}

// istiodsOwner returns the kind and name of the owner of istiod's Deployment.
func (t *fixture) istiodsOwner() string {
	d, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
	if err != nil || len(d.OwnerReferences) != 1 {
		return ""
	}
	return d.OwnerReferences[0].Kind + " " + d.OwnerReferences[0].Name
}

// ownedOnMgmt returns the existing ones of some objects that hypergate creates on the management side.
func (t *fixture) ownedOnMgmt() []string {
	var out []string
	there := func(what string, err error) {
		if !apierrors.IsNotFound(err) {
			out = append(out, what)
		}
	}
	_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
	there("istiod's Deployment", err)
	_, err = t.MgmtClient.CoreV1().Services(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
	there("istiod's Service", err)
	for _, name := range []string{model.CASecretName, model.CredentialSecretName} {
		_, err = t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, name, metav1.GetOptions{})
		there("Secret "+name, err)
	}
	return out
}
