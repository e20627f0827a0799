package integration_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/untouched"
)

// TestAFleetOfHostedClusters has three hosted clusters on one management cluster. Each has its own guest, and all use
// the same names in it. The management cluster also runs a user's own Istio. An operation on one hosted cluster must
// not change any object of the others.
func TestAFleetOfHostedClusters(t *testing.T) {
	fleet := newFleet(t)
	first, second, third := fleet[0], fleet[1], fleet[2]
	usersIstio(first)
	stop := map[*harness]func(){first: first.run(), second: second.run()}
	first.install("demo")
	second.install("demo")

	before := fleet.settled(third)
	third.run()
	third.install("demo")
	fleet.unchanged(t, "installing one", before, third, first, second)

	before = fleet.settled(second)
	stop[second]()
	second.cfg.PilotImage = "registry.example.com/pilot:next"
	second.run()
	second.Eventually(func() string {
		return second.istiod().Spec.Template.Spec.Containers[0].Image
	}).Should(gomega.Equal(second.cfg.PilotImage))
	second.playIstiod(corev1.ConditionTrue)
	second.settle()
	fleet.unchanged(t, "upgrading one", before, second, first, third)

	before = fleet.settled(first)
	first.deleteClass("demo")
	first.Eventually(func() []string {
		// The label does not contain the namespace, because all have the same revision.
		return slices.DeleteFunc(first.members(), func(m string) bool {
			return strings.HasPrefix(m, "management") && !strings.Contains(m, "/"+first.cfg.MgmtNamespace+"/")
		})
	}).Should(gomega.BeEmpty())
	first.Eventually(first.holders).Should(gomega.BeEmpty())
	first.settle()
	fleet.unchanged(t, "removing one", before, first, second, third)
}

// fleet is a set of hosted clusters on one management cluster.
type fleet []*harness

// newFleet starts two additional guests.
func newFleet(t *testing.T) fleet {
	t.Helper()
	pair, out := takePair(t), make(fleet, 3)
	for i := range out {
		out[i] = newWorldOn(t, pair)
		out[i].cfg.GuestNamespace, out[i].cfg.ControllerName, out[i].cfg.Revision = "fleet", "example.com/fleet", "fleet"
		out[i].cfg.WebhookHost = out[i].cfg.WebhookService()
		out[i].cfg.IstioResources = nil // without a webhook, because nothing here could answer its probe
	}
	started, dir := make([]*planes.Plane, len(out)), t.TempDir()
	t.Cleanup(func() {
		for _, plane := range started {
			if plane != nil {
				plane.Stop()
			}
		}
	})
	var group errgroup.Group
	for i, name := range []string{1: "guest2", 2: "guest3"} {
		if name != "" {
			group.Go(func() (err error) {
				started[i], err = planes.StartPlane(t.Context(), name, filepath.Join(dir, name), false)
				return err
			})
		}
	}
	out[0].Expect(group.Wait()).To(gomega.Succeed())
	for i, w := range out {
		if plane := started[i]; plane != nil {
			w.guest, w.gateway = kubernetes.NewForConfigOrDie(plane.Config), gatewayclient.NewForConfigOrDie(plane.Config)
			w.guestConfig = counted(plane.Config, w.guestRequests)
		}
	}
	return out
}

// settled returns the result of others once nothing changes any more.
func (f fleet) settled(one *harness) map[string]string {
	one.Helper()
	return untouched.Settled(one, time.Second, func() map[string]string { return f.others(one) })
}

// others returns the resourceVersions of all objects of the management cluster outside of one's namespace, and of all
// guests except its own.
func (f fleet) others(one *harness) map[string]string {
	one.Helper()
	out := map[string]string{}
	for _, w := range f {
		if w == one {
			everything(w, "mgmt ", w.mgmtConfig, w.cfg.MgmtNamespace, out)
		} else {
			everything(w, "guest of "+w.cfg.MgmtNamespace+" ", w.guestConfig, "", out)
		}
	}
	return out
}

// unchanged compares the current versions with those from before. These must include hypergate's objects of the
// installed worlds, and the user's Istio.
func (f fleet) unchanged(t *testing.T, doing string, before map[string]string, one *harness, installed ...*harness) {
	t.Helper()
	parts := []string{
		"mgmt apps/deployments istio-system/istiod",
		"mgmt apiextensions.k8s.io/customresourcedefinitions /destinationrules.networking.istio.io",
	}
	for _, w := range installed {
		guest := "guest of " + w.cfg.MgmtNamespace + " "
		parts = append(parts, "mgmt apps/deployments "+w.cfg.MgmtNamespace+"/istiod-fleet", "mgmt /secrets "+w.cfg.MgmtNamespace+"/cacerts",
			guest+"coordination.k8s.io/leases fleet/"+ownership.Leases(w.cfg)[0].Name, guest+
				"gateway.networking.k8s.io/gatewayclasses /demo", guest+"/serviceaccounts fleet/"+w.cfg.GuestIstiodName())
	}
	if err := untouched.Compare(before, f.others(one), parts); err != nil {
		t.Errorf("%s: %v", doing, err)
	}
}

// everything notes each object of a cluster, except those in one namespace.
func everything(w *harness, prefix string, config *rest.Config, except string, into map[string]string) {
	w.Helper()
	config = rest.CopyConfig(config)
	config.WrapTransport = nil // this is not a request of hypergate
	w.Expect(untouched.Note(w.Context(), config, untouched.Scope{But: except}, prefix, into)).To(gomega.Succeed())
}

// usersIstio creates the objects of a user's own Istio on the management cluster, including CRDs.
func usersIstio(w *harness) {
	w.Helper()
	source, err := charts.Embedded()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	objects, err := source.CRDs([]string{"destinationrules.networking.istio.io", "envoyfilters.networking.istio.io"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	add := func(typed runtime.Object) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		delete(content, "status")
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "istio-system", Name: name} }
	labels := map[string]string{"app": "istiod"}
	// Nothing here answers the webhook, and no object matches it.
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"istio.io/rev": "the-users"}}
	none, ignore := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore
	add(&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "istio-system"},
	})
	add(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta("istio"),
		Data: map[string]string{"mesh": "{}"},
	})
	add(&corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta("istiod"),
		Spec: corev1.ServiceSpec{
			Selector: labels,
			Ports:    []corev1.ServicePort{{Name: "https-dns", Port: 15012, Protocol: corev1.ProtocolTCP}},
		},
	})
	add(&appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta("istiod"),
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "discovery", Image: "registry.example.com/pilot:1"}}},
		}},
	})
	add(&admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "istio-validator-istio-system"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "rev.validation.istio.io", ObjectSelector: selector, SideEffects: &none, FailurePolicy: &ignore,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "istio-system", Name: "istiod"},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{"networking.istio.io"}, APIVersions: []string{"*"},
					Resources: []string{"*"},
				},
			}},
		}},
	})
	w.Expect(deploy.Apply(w.Context(), w.pair.Mgmt.Config, objects)).To(gomega.Succeed())
	w.Cleanup(func() {
		if err := deploy.Delete(context.Background(), w.pair.Mgmt.Config, objects); err != nil {
			w.Error(err)
		}
	})
}
