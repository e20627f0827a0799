package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clocktesting "k8s.io/utils/clock/testing"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestRepairsOfARevertingGuestAreRateLimited has a guest administrator who undoes each repair as fast as hypergate
// makes it. In the guest, this costs a burst of writes, and then one write in ten seconds for each object. On the
// management side it costs nothing. The conditions report the problem.
func TestRepairsOfARevertingGuestAreRateLimited(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	name := w.cfg.GuestIstiodName()
	harms := []harm{
		{"rbac.authorization.k8s.io", "clusterroles", "", name, `{"rules":[]}`},
		{"rbac.authorization.k8s.io", "clusterrolebindings", "", name, `{"subjects":[]}`},
		{"rbac.authorization.k8s.io", "rolebindings", w.cfg.GuestNamespace, name, `{"subjects":[]}`},
		{
			"admissionregistration.k8s.io", "validatingwebhookconfigurations", "",
			w.cfg.ValidatorName(), `{"webhooks":[]}`,
		},
	}
	began, mgmt, guest := time.Now(), w.mgmtRequests.count(), w.guestRequests.count()
	makePeace := w.fight(harms)
	// An empty list is not a field, so its writer owns nothing and cannot be named.
	for kind, who := range map[string]string{
		"ClusterRole": "vandal (rules)", "ClusterRoleBinding": "another client", "RoleBinding": "another client",
		"ValidatingWebhookConfiguration": "another client",
	} {
		w.Eventually(func() string { return w.installedMessage("demo") }).
			Should(gomega.ContainSubstring("guest side: " + kind + ": " + who + " keeps reverting it"))
	}
	w.Expect(writes(w.mgmtRequests.since(mgmt))).To(gomega.BeEmpty(), "after a burst of repairs in the guest")
	makePeace()
	t.Log("in peace, all is as planned within ten seconds and a moment, and the condition is clean")
	w.Eventually(func() string { return w.installedMessage("demo") }).ShouldNot(gomega.ContainSubstring("keeps reverting it"))
	w.settle()

	const burst = 10
	most := burst + 2 + int(time.Since(began)/(10*time.Second))
	sent := writes(w.guestRequests.since(guest))
	for _, h := range harms {
		n := countPrefix(sent, http.MethodPatch+" "+h.path()+"?")
		w.Expect(n).To(gomega.And(gomega.BeNumerically(">=", burst), gomega.BeNumerically("<=", most)), h.path())
	}
	t.Log("the conditions follow, at a limited rate")
	w.Expect(countPrefix(sent, http.MethodPatch+" /apis/gateway.networking.k8s.io/v1/gatewayclasses/demo/status?")).
		To(gomega.BeNumerically("<=", 2*len(harms)+4+int(time.Since(began)/(10*time.Second))))
	w.Expect(writes(w.mgmtRequests.since(mgmt))).To(gomega.BeEmpty())
}

// TestTokenWritesAreRateLimited checks that token writes are rate-limited. Each new account of
// istiod needs a new token, which is in a Secret on the management side. This is the only write there that a guest
// can cause.
func TestTokenWritesAreRateLimited(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	account := harm{"", "serviceaccounts", w.cfg.GuestNamespace, w.cfg.GuestIstiodName(), ""}
	began, generation, mgmt, guest := time.Now(), w.istiod().Generation, w.mgmtRequests.count(), w.guestRequests.count()
	makePeace := w.fight([]harm{account})
	w.Eventually(func() string { return w.installedMessage("demo") }).
		Should(gomega.ContainSubstring("guest side: ServiceAccount: another client keeps reverting it"))
	makePeace()
	t.Log("after the fight, istiod gets a valid token")
	w.Eventually(func() bool {
		review, err := w.guest.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: w.token()},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Authenticated
	}).Should(gomega.BeTrue())

	const burst, tokenBurst = 10, 5
	w.Expect(countPrefix(writes(w.guestRequests.since(guest)), http.MethodPatch+" "+account.path()+"?")).
		To(gomega.BeNumerically("<=", burst+3+int(time.Since(began)/(10*time.Second))))
	secret := http.MethodPatch + " /api/v1/namespaces/" + w.cfg.MgmtNamespace + "/secrets/istio-kubeconfig?"
	sent := writes(w.mgmtRequests.since(mgmt))
	w.Expect(sent).To(gomega.HaveEach(gomega.HavePrefix(secret)))
	w.Expect(len(sent)).To(gomega.And(gomega.BeNumerically(">", 0),
		gomega.BeNumerically("<=", tokenBurst+1+int(time.Since(began)/(30*time.Second)))))
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation), "istiod is not rolled out")
}

// TestGatewayClassesOfAnyNameAndAnnotation has GatewayClasses whose names are not strings in YAML, are not valid
// label values, or have the maximum length. Their annotations would escape from any template, shell or document into
// which they were pasted.
func TestGatewayClassesOfAnyNameAndAnnotation(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	mgmt := w.mgmtRequests.count()
	names := []string{
		"null", "true", "off", "1e3", "0x1f", "017", "2001-01-01", "1.5", "a.b.c", "default", w.cfg.Revision,
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("abcdefgh.", 28) + "z",
	}
	for _, name := range names {
		w.hostileClass(name)
	}
	for _, name := range names {
		w.Eventually(func() *metav1.Condition {
			return w.condition(name, "ControllerInstalled")
		}).Should(haveStatus(metav1.ConditionTrue, "Installed"), name)
	}
	w.settle()
	maps, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: model.OwnerLabel})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, name := range append(names, "demo") {
		want := 1
		if len(name) > 63 {
			want = 0 // its defaults would need a label with that value
		}
		got := 0
		for _, m := range maps.Items {
			if m.Labels["gateway.istio.io/defaults-for-class"] == name && m.Name == w.cfg.ClassDefaultsName(name) {
				got++
			}
		}
		w.Expect(got).To(gomega.Equal(want), "ConfigMaps for the gateways of class %s", name)
	}
	for _, m := range maps.Items {
		w.Expect(fmt.Sprint(m.Data, m.Annotations, m.Labels)).
			NotTo(gomega.ContainSubstring("pwned"), "no content of an annotation is copied")
	}
	w.Expect(w.mgmtRequests.since(mgmt)).To(gomega.BeEmpty())
}

// hostileClass creates a class for hypergate, with annotations of the maximum size.
func (w *harness) hostileClass(name string) {
	w.Helper()
	description := `{{ .Values }} $(X) "'`
	class := &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			"pwned.example.com/yaml":     "x\n---\nkind: Secret\nmetadata: {name: pwned}\n...",
			"pwned.example.com/template": `{{ fail "pwned" }}{{ .Values.pwned }}`,
			"pwned.example.com/shell":    "$(pwned) `pwned` ; pwned # \" ' \\ \x00",
			"pwned.example.com/large":    strings.Repeat("pwned ", 200<<10/6),
		}},
		Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(w.cfg.ControllerName), Description: &description},
	}
	_, err := w.gateway.GatewayClasses().Create(w.Context(), class, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred(), name)
	w.Cleanup(func() { _ = w.gateway.GatewayClasses().Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// harm is a change of hypergate's object by the guest's administrator: a patch, which has no effect if the object
// already has its values, or a deletion if the patch is empty.
type harm struct{ group, resource, namespace, name, patch string }

func (h harm) path() string {
	kind := model.Kind{Resource: h.resource}
	kind.GVK.Group, kind.GVK.Version = h.group, "v1"
	return resourcePath(kind, h.namespace) + "/" + h.name
}

// fight does each harm now and after every change of the object, until the returned function is called.
func (w *harness) fight(harms []harm) (makePeace func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{}, len(harms))
	client := dynamic.NewForConfigOrDie(w.pair.Guest.Config)
	for _, h := range harms {
		objects := client.Resource(schema.GroupVersionResource{Group: h.group, Version: "v1", Resource: h.resource}).Namespace(h.namespace)
		changes, err := objects.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + h.name})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		go func() {
			defer func() { ended <- struct{}{} }()
			for change := range changes.ResultChan() {
				switch {
				case ctx.Err() != nil || change.Type == watch.Deleted:
				case h.patch == "":
					_ = objects.Delete(ctx, h.name, metav1.DeleteOptions{})
				default:
					_, _ = objects.Patch(ctx, h.name, types.MergePatchType, []byte(h.patch), metav1.PatchOptions{FieldManager: vandal})
				}
			}
		}()
	}
	return func() {
		cancel()
		for range harms {
			<-ended
		}
	}
}

// installedMessage returns the message of a class's condition ControllerInstalled.
func (w *harness) installedMessage(class string) string {
	if c := w.condition(class, "ControllerInstalled"); c != nil {
		return c.Message
	}
	return ""
}

// countPrefix returns the number of requests with this prefix.
func countPrefix(all []string, prefix string) (n int) {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// TestStatusWritesAreRateLimited checks the rate of status writes. Each write of hypergate triggers istiod,
// and the guest decides how often it undoes a write. The clock stops, so hypergate writes only the burst until the
// test moves the clock.
func TestStatusWritesAreRateLimited(t *testing.T) {
	const burst, every = 10, 10 * time.Second
	w := newHarness(t)
	w.cfg.IstioResources = nil // without a webhook, because its probe would also be reported
	now := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = now
	w.run()
	w.install("demo")
	said := func(class string) int {
		return countPrefix(w.guestRequests.since(0),
			http.MethodPatch+" /apis/gateway.networking.k8s.io/v1/gatewayclasses/"+class+"/status?")
	}
	round := 0
	rewrite := func() {
		round++
		_, err := w.gateway.GatewayClasses().Patch(t.Context(), "demo", types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":"ControllerInstalled","status":"False","reason":"Mine",`+
				`"message":"%d","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, round),
			metav1.PatchOptions{FieldManager: "third-party"}, "status")
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
	installed := func() {
		w.Eventually(func() *metav1.Condition {
			return w.condition("demo", "ControllerInstalled")
		}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	}
	w.Expect(said("demo")).To(gomega.BeNumerically("<", burst))
	for said("demo") < burst {
		rewrite()
		installed()
	}
	t.Log("then hypergate leaves it unchanged, however often it is rewritten")
	for range 3 * burst {
		rewrite()
	}
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("The conditions of a GatewayClass change too often"))
	w.createClass("marker") // events of one kind are in order, so this class is observed after all rewrites
	w.Eventually(func() *metav1.Condition {
		return w.condition("marker", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.Expect(said("demo")).To(gomega.Equal(burst))
	w.Expect(w.condition("demo", "ControllerInstalled").Reason).To(gomega.Equal("Mine"))

	t.Log("hypergate repairs it at a limited rate, and the last value is hypergate's")
	now.SetTime(now.Now().Add(every))
	w.createClass("waker")
	installed()
	w.Expect(said("demo")).To(gomega.Equal(burst + 1))
}
