package origin_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/charts"
	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/golden"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/world"
)

// TestParking checks the facts on which parking rests, with a real API server and the operators, and without nodes:
// with origin A, after cluster-ingress-operator's own migration to origin B, and with origin B.
func TestParking(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real servers: run without -short")
	}
	t.Parallel()
	plane, err := planes.StartPlane(t.Context(), "guest", t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	client, err := dynamic.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	p := &parking{
		Gomega: hang.Gomega(t), ctx: t.Context(),
		guest: origin.Guest{Kubeconfig: plane.Kubeconfig, Dynamic: client, Dir: t.TempDir()},
		istio: origin.Options{
			Version: charts.EmbeddedVersion, Server: "pilot-discovery",
			Charts: testcharts.DirEmbedded(t), Sail: testcharts.SailOperator(t),
		},
	}
	p.create(world.Resource("", "v1", "namespaces"), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"openshift-ingress"}}`)

	t.Log("origin A")
	olm, err := origin.StartOLM(p.ctx, p.guest, p.istio)
	p.Expect(err).NotTo(gomega.HaveOccurred())
	defer olm.Stop()
	p.create(world.Resource("gateway.networking.k8s.io", "v1", "gatewayclasses"), `{"apiVersion":"gateway.networking.k8s.io/v1",
"kind":"GatewayClass","metadata":{"name":"openshift-default"},"spec":{"controllerName":"`+world.ControllerName+`"}}`)
	first := p.installed(olm, "sail-operator", "")
	golden.Equal(t, "testdata/olm/installed.yaml", p.settled())
	p.park(olm)

	t.Log("from A to B: the release is another one, and nothing is left of the resource Istio")
	olm.StopIngressOperator()
	sail, err := origin.StartSail(p.ctx, p.guest, p.istio)
	p.Expect(err).NotTo(gomega.HaveOccurred())
	defer sail.Stop()
	p.Expect(p.installed(sail, "sail-library", first)).NotTo(gomega.Equal(first))
	for _, resource := range []string{"istios", "istiorevisions"} {
		_, err := p.guest.Dynamic.Resource(world.Resource("sailoperator.io", "v1", resource)).
			Get(p.ctx, world.Revision, metav1.GetOptions{})
		p.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "%s: %v", resource, err)
	}
	olm.Stop()
	golden.Equal(t, "testdata/sail/installed.yaml", p.settled())

	t.Log("origin B")
	p.park(sail)
}

// parking is a guest with an origin.
type parking struct {
	gomega.Gomega
	ctx   context.Context
	guest origin.Guest
	istio origin.Options
}

func (p *parking) create(resource schema.GroupVersionResource, text string) {
	object := &unstructured.Unstructured{}
	p.Expect(object.UnmarshalJSON([]byte(text))).To(gomega.Succeed())
	_, err := p.guest.Dynamic.Resource(resource).Create(p.ctx, object, metav1.CreateOptions{})
	p.Expect(err).NotTo(gomega.HaveOccurred())
}

// installed waits until the chart has been installed by an operator, which is not the installation before, and returns
// the UID of istiod's Deployment.
func (p *parking) installed(by *origin.Origin, label string, before types.UID) types.UID {
	var uid types.UID
	p.Eventually(func(g gomega.Gomega) {
		p.Expect(by.Err()).NotTo(gomega.HaveOccurred())
		d, err := p.deployments().Get(p.ctx, origin.Deployment, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(d.GetUID()).NotTo(gomega.Equal(before))
		_, err = p.webhooks().Get(p.ctx, origin.ValidatingWebhook, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		uid = d.GetUID()
		if label == "sail-library" {
			g.Expect(d.GetLabels()).To(gomega.HaveKeyWithValue("managed-by", label))
		} else {
			g.Expect(d.GetOwnerReferences()).To(gomega.ContainElement(gomega.HaveField("Kind", "IstioRevision")))
		}
	}).Should(gomega.Succeed())
	return uid
}

// settled returns a snapshot of the guest that two looks have shown.
func (p *parking) settled() string {
	var last []byte
	p.Eventually(func() (bool, error) {
		next, err := origin.Snapshot(p.ctx, p.guest)
		same := bytes.Equal(last, next)
		last = next
		return same, err
	}).WithPolling(5 * time.Second).Should(gomega.BeTrue())
	return string(last)
}

// park sets istiod's replicas to 0 and the policy of its webhook to Ignore. The operator leaves both, also when it
// repairs another field of the same objects.
//
// There is one exception, which is why a repair comes first. The chart has the policy Ignore in the installation, and
// none in upgrades. Helm's first upgrade therefore removes the field, and the API server's default is Fail.
func (p *parking) park(by *origin.Origin) {
	p.repaired(by)
	p.patch(p.deployments(), origin.Deployment, types.MergePatchType, `{"spec":{"replicas":0}}`)
	p.patch(p.webhooks(), origin.ValidatingWebhook, types.JSONPatchType,
		`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
	p.repaired(by)
	d, err := p.deployments().Get(p.ctx, origin.Deployment, metav1.GetOptions{})
	p.Expect(err).NotTo(gomega.HaveOccurred())
	replicas, found, err := unstructured.NestedInt64(d.Object, "spec", "replicas")
	p.Expect(err).NotTo(gomega.HaveOccurred())
	p.Expect(found).To(gomega.BeTrue())
	p.Expect(replicas).To(gomega.BeZero())
	webhook, err := p.webhooks().Get(p.ctx, origin.ValidatingWebhook, metav1.GetOptions{})
	p.Expect(err).NotTo(gomega.HaveOccurred())
	entries, _, err := unstructured.NestedSlice(webhook.Object, "webhooks")
	p.Expect(err).NotTo(gomega.HaveOccurred())
	p.Expect(entries).To(gomega.ContainElement(gomega.HaveKeyWithValue("failurePolicy", "Ignore")))
}

// repaired changes a label of istiod's Deployment and of its webhook, and waits until the operator has put it back.
func (p *parking) repaired(by *origin.Origin) {
	for name, client := range map[string]dynamic.ResourceInterface{
		origin.Deployment: p.deployments(), origin.ValidatingWebhook: p.webhooks(),
	} {
		p.patch(client, name, types.MergePatchType, `{"metadata":{"labels":{"app":"changed"}}}`)
		p.Eventually(func() (map[string]string, error) {
			p.Expect(by.Err()).NotTo(gomega.HaveOccurred())
			object, err := client.Get(p.ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return object.GetLabels(), nil
		}).Should(gomega.HaveKeyWithValue("app", "istiod"))
	}
}

func (p *parking) deployments() dynamic.ResourceInterface {
	return p.guest.Dynamic.Resource(world.Resource("apps", "v1", "deployments")).Namespace(world.GuestNamespace)
}

func (p *parking) webhooks() dynamic.ResourceInterface {
	return p.guest.Dynamic.Resource(world.Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"))
}

func (p *parking) patch(client dynamic.ResourceInterface, name string, kind types.PatchType, patch string) {
	_, err := client.Patch(p.ctx, name, kind, []byte(patch), metav1.PatchOptions{FieldManager: "guest-admin"})
	p.Expect(err).NotTo(gomega.HaveOccurred())
}
