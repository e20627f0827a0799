package integration_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/previous"
)

// TestFromThePreviousHypergate moves an installation of the previous hypergate, with the names of Istio's chart in the
// guest, to this one. Both run as processes with the accounts of their own deploy/.
//
// First only the process is replaced. What works with the previous permissions continues, and a condition names the
// missing ones. Then an administrator applies the manifests. The test takes more than three minutes, because hypergate
// waits that long before it deletes the service account that istiod may still use.
func TestFromThePreviousHypergate(t *testing.T) {
	needsServers(t)
	t.Parallel()
	dir, err := previous.Build(t.Context(), previous.ChartNames)
	if err != nil {
		t.Fatal(err)
	}
	own, err := planes.Start(t.Context(), planes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	prepare(t, own)
	t.Run("hosted", func(t *testing.T) {
		t.Parallel()
		move{dir, model.TopologyHosted, own.Mgmt, own.Guest, []string{"hosted/example"}, []string{"hosted/guest"}}.run(t)
	})
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		move{dir, model.TopologyStandalone, own.Mgmt, own.Mgmt, nil, []string{"standalone"}}.run(t)
	})
}

// move is the move of an installation from the previous hypergate, which is in a folder, to this one.
type move struct {
	previous            string
	topology            model.Topology
	mgmt, guest         *planes.Plane
	mgmtDirs, guestDirs []string
}

func (m move) run(t *testing.T) {
	t.Helper()
	d := newDeployedFrom(t, m.previous, m.topology, m.mgmt, m.guest, m.mgmtDirs, m.guestDirs)
	if m.topology == model.TopologyHosted {
		d.serveHyperShift()
		d.createControlPlane("guest1", "")
	}
	former := d.start(nil)
	d.createClass("demo")
	d.playIstiod(corev1.ConditionTrue)
	installed := func() *metav1.Condition { return d.condition("demo", "ControllerInstalled") }
	d.Eventually(installed).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	d.Expect(d.istiodsToken().AccountName()).To(gomega.Equal(d.cfg.IstiodName()))
	d.end(former)
	seen := d.witness()
	marked := d.alwaysMarked()

	t.Log("this hypergate with the previous permissions: it repairs drift, renews the token, and names what it lacks")
	before, guestBefore, mgmtBefore := d.istiodsToken(), d.content(model.SideGuest), d.content(model.SideMgmt)
	d.previous = ""
	first := d.start(nil)
	d.Eventually(func() string { return installed().Message }).Should(gomega.ContainSubstring("not allowed to patch clusterroles"))
	if m.topology == model.TopologyHosted {
		d.hasReport("guest1", status.ControlPlaneDegraded, gomega.And(
			gomega.HaveField("Reason", "Forbidden"), gomega.HaveField("Message", gomega.ContainSubstring("deploy/hosted/guest"))))
	}
	d.end(first)
	d.makeTokenDue()
	current := d.start(nil)
	d.Eventually(func() string { return d.istiodsToken().Token }).ShouldNot(gomega.Equal(before.Token))
	d.Expect(d.istiodsToken().Account()).To(gomega.Equal(before.Account()), "the account that istiod has rights with")
	d.repairsService()
	guestNow := d.content(model.SideGuest)
	if m.topology == model.TopologyStandalone { // where this object goes over to the management side
		const account = "serviceaccounts/istiod-openshift-gateway"
		guestNow[account] = d.content(model.SideMgmt)[account]
	}
	d.Expect(diffOf(d.former(guestBefore), d.former(guestNow))).To(gomega.BeEmpty(), "nothing of istiod's went away")

	t.Log("the manifests are applied, and the installation moves")
	newDeployed(t, m.topology, m.mgmt, m.guest, m.mgmtDirs, m.guestDirs)
	d.Eventually(func() string { return d.istiodsToken().AccountName() }).Should(gomega.Equal(d.cfg.GuestIstiodName()))
	d.Eventually(func() []string { return d.former(d.content(model.SideGuest)).names() }, "10m").Should(gomega.BeEmpty())
	d.Eventually(installed).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	seen.end(t)
	marked()

	t.Log("nothing else changed")
	guestAfter, mgmtAfter := d.content(model.SideGuest), d.content(model.SideMgmt)
	d.Expect(diffOf(d.others(guestBefore), d.others(guestAfter))).To(gomega.BeEmpty())
	d.Expect(mgmtAfter["secrets/cacerts"].data).To(gomega.Equal(mgmtBefore["secrets/cacerts"].data), "the mesh CA")
	const istiod = "deployments/istiod-openshift-gateway"
	d.Expect(mgmtAfter[istiod].uid).To(gomega.Equal(mgmtBefore[istiod].uid))
	for _, name := range []string{"istio-" + d.cfg.Revision, "istio-sidecar-injector-" + d.cfg.Revision} {
		d.Expect(mgmtAfter).NotTo(gomega.HaveKey("configmaps/"+name), "the ConfigMaps have slots now")
	}
	d.end(current)
	d.usesPreviousNames()
}

// istiodsToken returns istiod's credential, or an empty one.
func (d *deployed) istiodsToken() model.Credential {
	secret, err := d.mgmt.CoreV1().Secrets(d.cfg.MgmtNamespace).Get(d.Context(), model.CredentialSecretName, metav1.GetOptions{})
	if err != nil {
		return model.Credential{}
	}
	credential, err := model.CredentialFromSecret(secret.Annotations, secret.Data)
	if err != nil {
		return model.Credential{}
	}
	return credential
}

// makeTokenDue changes the times of istiod's token, so that hypergate renews it. No hypergate runs meanwhile.
func (d *deployed) makeTokenDue() {
	d.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		model.IssuedAnnotation:  time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
		model.ExpiresAnnotation: time.Now().Add(5 * time.Minute).UTC().Format(time.RFC3339),
	}}})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = d.mgmt.CoreV1().Secrets(d.cfg.MgmtNamespace).
		Patch(d.Context(), model.CredentialSecretName, types.MergePatchType, patch, metav1.PatchOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
}

// repairsService deletes istiod's Service on the management side and waits until it exists again.
func (d *deployed) repairsService() {
	d.Helper()
	services := d.mgmt.CoreV1().Services(d.cfg.MgmtNamespace)
	d.Expect(services.Delete(d.Context(), d.cfg.IstiodName(), metav1.DeleteOptions{})).To(gomega.Succeed())
	d.Eventually(func() error {
		_, err := services.Get(d.Context(), d.cfg.IstiodName(), metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
}

// usesPreviousNames checks that hypergate used the permissions for the previous names: it deleted what has them.
func (d *deployed) usesPreviousNames() {
	d.Helper()
	deleted := map[string]bool{}
	for _, r := range d.requests(model.SideGuest) {
		if r.Verb == "delete" {
			deleted[r.Resource] = true
		}
	}
	for _, resource := range []string{
		"clusterroles", "clusterrolebindings", "roles", "rolebindings", "validatingwebhookconfigurations", "configmaps", "services",
	} {
		d.Expect(deleted).To(gomega.HaveKey(resource))
	}
}

// thing is what counts of an object: what another client would notice. data is everything but metadata and status.
type thing struct {
	uid        types.UID
	generation int64
	labels     map[string]string
	data       string
}

// things are objects, by resource and name.
type things map[string]thing

func (all things) names() []string {
	out := make([]string, 0, len(all))
	for name := range all {
		out = append(out, name)
	}
	return out
}

// diffOf returns the differences of two collections, without generations and labels: a version is a label.
func diffOf(a, b things) string {
	plain := func(all things) map[string]string {
		out := map[string]string{}
		for name, o := range all {
			out[name] = string(o.uid) + " " + o.data
		}
		return out
	}
	return cmp.Diff(plain(a), plain(b))
}

// content returns hypergate's objects of a side. Of CRDs, which come with a version of Istio, it returns no data.
func (d *deployed) content(side model.Side) things {
	d.Helper()
	client, kinds, namespace := d.guest, model.GuestKinds(), d.cfg.GuestNamespace
	if side == model.SideMgmt {
		client, kinds, namespace = d.mgmt, model.MgmtKinds(), d.cfg.MgmtNamespace
	}
	out := things{}
	for _, kind := range kinds {
		path := resourcePath(kind, "")
		if kind.Namespaced {
			path = resourcePath(kind, namespace)
		}
		for _, u := range d.list(client, side, path) {
			o := thing{uid: u.GetUID(), generation: u.GetGeneration(), labels: u.GetLabels()}
			delete(u.Object, "metadata")
			delete(u.Object, "status")
			if name := u.GetKind(); name != "CustomResourceDefinition" {
				data, err := json.Marshal(u.Object)
				d.Expect(err).NotTo(gomega.HaveOccurred())
				o.data = string(data)
			}
			out[kind.Resource+"/"+u.name] = o
		}
	}
	return out
}

// listed is an object with its name, which remains when its metadata is removed.
type listed struct {
	unstructured.Unstructured
	name string
}

func (d *deployed) list(client kubernetes.Interface, side model.Side, path string) []listed {
	d.Helper()
	data, err := client.CoreV1().RESTClient().Get().
		RequestURI(path + "?labelSelector=" + model.OwnerLabel + "%3D" + d.cfg.OwnerValue(side)).DoRaw(d.Context())
	d.Expect(err).NotTo(gomega.HaveOccurred())
	var all unstructured.UnstructuredList
	d.Expect(json.Unmarshal(data, &all)).To(gomega.Succeed())
	out := make([]listed, 0, len(all.Items))
	for _, u := range all.Items {
		out = append(out, listed{u, u.GetName()})
	}
	return out
}

// former returns the objects of the guest with the names of Istio's chart, others those that were not renamed.
func (d *deployed) former(all things) things {
	return all.where(func(name string) bool {
		return strings.HasSuffix(name, "/"+d.cfg.IstiodName()) || strings.Contains(name, "/istio-") ||
			name == "services/istiod-revision-tag-default"
	})
}

func (d *deployed) others(all things) things {
	former := d.former(all)
	return all.where(func(name string) bool {
		_, is := former[name]
		renamed := strings.HasSuffix(name, "/"+d.cfg.GuestIstiodName()) || strings.HasSuffix(name, "/"+d.cfg.ValidatorName()) ||
			strings.HasSuffix(name, "/"+d.cfg.ClassDefaultsName("demo")) || strings.HasSuffix(name, "/"+model.DefaultRevisionMarker)
		return !is && !renamed
	})
}

func (all things) where(is func(name string) bool) things {
	out := things{}
	for name, o := range all {
		if is(name) {
			out[name] = o
		}
	}
	return out
}
