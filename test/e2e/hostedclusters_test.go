package e2e_test

import (
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/leak"
	"github.com/hypergate/hypergate/test/untouched"
	"github.com/hypergate/hypergate/test/world"
)

const (
	usersNamespace = "istio-system"
	// nextIstiod and nextProxy are the images of an upgrade.
	nextIstiod = "registry.example.com/pilot:next"
	nextProxy  = "registry.example.com/proxyv2:next"
)

// TestHostedClusters has its own clusters: three hosted clusters on one management cluster. All use the same names in
// them, and a user runs Istio on the management cluster too. An operation on one hosted cluster must not change any
// object of the others. No guest may contain information about another.
func TestHostedClusters(t *testing.T) {
	first := alone(t, world.Options{Name: "e2e-three", MoreGuests: []string{"guest2", "guest3"}, IstiodImages: []string{nextIstiod}})
	first.runUsersIstio()
	all := hostedClusters{first}
	for _, w := range first.More {
		other := *first
		other.World = w
		all = append(all, &other)
		t.Cleanup(func() {
			if t.Failed() {
				other.explain()
			}
		})
	}
	for _, one := range all {
		one.Expect(one.AddControlPlane(one.step())).To(gomega.Succeed())
	}
	second, third := all[1], all[2]
	for _, one := range []*fixture{first, second} {
		one.start() // both start at the same time
		one.Expect(one.Apply(one.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	}
	first.serves()
	second.serves()

	t.Log("installing one")
	before := all.settled(third)
	third.serves()
	all.unchanged("installing one", before, third, first, second)

	t.Log("upgrading one")
	before = all.settled(second)
	second.upgrade()
	all.unchanged("upgrading one", before, second, first, third)

	t.Log("the content of each guest")
	for _, one := range all {
		all.knowsNoOther(one)
	}

	t.Log("removing one, and then its hosted cluster")
	before = all.settled(first)
	first.remove()
	all.unchanged("removing one", before, first, second, third)
	for _, one := range all {
		nothingForbidden(one)
	}
}

// hostedClusters are hosted clusters on one management cluster.
type hostedClusters []*fixture

// serves installs, and waits until istiod serves a gateway.
func (t *fixture) serves() {
	t.Helper()
	t.installed()
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	t.Expect(t.RouteAccepted(t.step(), "demo", "echo")).To(gomega.Succeed())
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	_, err := t.proxyOf("gw").CSR(t.step())
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// upgrade replaces hypergate with one of another release, which has other images of istiod and of gateways.
func (t *fixture) upgrade() {
	t.Helper()
	h := t.start("--pilot-image="+nextIstiod, "--proxy-image="+nextProxy)
	t.Eventually(func() string { return t.istiodPod().Spec.Containers[0].Image }).Should(gomega.Equal(nextIstiod))
	t.rolledOut()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.Eventually(func() (string, error) {
		d, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, "gw-"+class, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return d.Spec.Template.Spec.Containers[0].Image, nil
	}).Should(gomega.Equal(nextProxy))
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.proxyOf("gw")
}

// remove uninstalls and deletes hypergate with its account and roles. Then it deletes the namespace, which contains
// the hosted cluster and its API server.
func (t *fixture) remove() {
	t.Helper()
	t.Expect(t.DeleteClass(t.step(), class)).To(gomega.Succeed())
	t.Eventually(t.members).Should(gomega.BeEmpty())
	t.Expect(t.Withdraw(t.step())).To(gomega.Succeed())
	namespaces := t.MgmtClient.CoreV1().Namespaces()
	t.Expect(namespaces.Delete(t.step(), t.MgmtNamespace, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func() bool {
		_, err := namespaces.Get(t.ctx, t.MgmtNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(gomega.BeTrue())
}

// settled returns the result of others once nothing changes any more.
func (all hostedClusters) settled(one *fixture) map[string]string {
	one.Helper()
	return untouched.Settled(one, 2*time.Second, func() map[string]string { return all.others(one) })
}

// others notes each object of the management cluster outside of one's namespace, and of all guests except its own.
func (all hostedClusters) others(one *fixture) map[string]string {
	one.Helper()
	out := map[string]string{}
	for _, t := range all {
		config, prefix, scope := t.GuestConfig, "guest of "+t.GuestName+": ", untouched.Scope{Nodes: true}
		if t == one {
			config, prefix, scope.But = t.Mgmt, "mgmt: ", t.MgmtNamespace
		}
		t.Expect(untouched.Note(t.step(), config, scope, prefix, out)).To(gomega.Succeed())
	}
	return out
}

// unchanged compares the current notes with those from before. These must include the objects of the installed
// clusters, and the user's Istio.
func (all hostedClusters) unchanged(doing string, before map[string]string, one *fixture, installed ...*fixture) {
	one.Helper()
	istiod := "istiod-" + world.Revision
	parts := []string{
		"mgmt: apps/deployments " + usersNamespace + "/istiod",
		"mgmt: apiextensions.k8s.io/customresourcedefinitions /" + usersCRDs()[0],
	}
	for _, t := range installed {
		guest := "guest of " + t.GuestName + ": "
		parts = append(parts, "mgmt: apps/deployments "+t.MgmtNamespace+"/"+istiod, "mgmt: /secrets "+t.MgmtNamespace+"/cacerts",
			guest+"rbac.authorization.k8s.io/clusterroles /"+world.GuestIstiod,
			guest+"gateway.networking.k8s.io/gateways "+world.GuestNamespace+"/gw")
	}
	if err := untouched.Compare(before, all.others(one), parts); err != nil {
		one.Errorf("%s: %v", doing, err)
	}
}

// knowsNoOther searches a guest for the names of the other hosted clusters, and for secrets of the management cluster
// other than its own.
func (all hostedClusters) knowsNoOther(one *fixture) {
	one.Helper()
	const own = "its own published host"
	p := &leakSearch{fixture: one, secrets: leak.NewSecrets(), etcd: one.guestsEtcd()}
	p.secrets.AddName(own, one.XDS().Host)
	for _, t := range all {
		if t != one {
			p.secrets.AddName("the management namespace of "+t.GuestName, t.MgmtNamespace)
			p.secrets.AddName("the published host of "+t.GuestName, t.XDS().Host)
			p.secrets.AddName("the infrastructure ID of "+t.GuestName, t.GuestName+"-abcde")
			p.secrets.AddName("the API server of "+t.GuestName, t.GuestConfig.Host)
		}
	}
	secrets, err := one.MgmtClient.CoreV1().Secrets(metav1.NamespaceAll).List(one.step(), metav1.ListOptions{})
	one.Expect(err).NotTo(gomega.HaveOccurred())
	for _, s := range secrets.Items {
		for key, value := range s.Data {
			if s.Namespace != one.MgmtNamespace {
				p.secrets.Add("the Secret "+s.Namespace+"/"+s.Name+"'s "+key, value)
			}
		}
	}
	found := p.found()
	others := slices.DeleteFunc(slices.Clone(found), func(f leak.Finding) bool { return f.Name == own })
	one.Expect(others).To(gomega.BeEmpty())
	one.Expect(found).NotTo(gomega.BeEmpty(), "the search finds the address that gateways get")
}

// usersCRDs returns the CRDs of Istio that the user has on the management cluster. Guests have CRDs with some of the
// same names.
func usersCRDs() []string {
	return []string{"destinationrules.networking.istio.io", "envoyfilters.networking.istio.io"}
}

// runUsersIstio installs Istio's own chart on the management cluster, and returns when it works.
func (t *fixture) runUsersIstio() {
	t.Helper()
	source, err := charts.Embedded()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	objects, err := source.CRDs(usersCRDs())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	istio, err := source.Render(charts.Release{Name: "istiod", Namespace: usersNamespace, Values: map[string]any{
		"global": map[string]any{"hub": "registry.example.com", "tag": charts.EmbeddedVersion},
		"pilot": map[string]any{
			"autoscaleEnabled": false, "resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "100Mi"}},
			"env": map[string]any{"ENABLE_LEADER_ELECTION": "false"}, // leader election would write all the time
		},
	}})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	namespace := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": usersNamespace}},
	}
	t.Expect(deploy.Apply(t.step(), t.Mgmt, slices.Concat([]*unstructured.Unstructured{namespace}, objects, istio))).To(gomega.Succeed())
	t.Eventually(func() (map[string]string, error) {
		root, err := t.MgmtClient.CoreV1().ConfigMaps(t.MgmtNamespace).Get(t.ctx, "istio-ca-root-cert", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return root.Data, nil
	}).Should(gomega.HaveKey("root-cert.pem"), "it publishes its root to every namespace")
}
