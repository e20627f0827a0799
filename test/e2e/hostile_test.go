package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/world"
	"github.com/hypergate/hypergate/test/xds"
)

// floodSize is the number of routes that the guest creates at once.
const floodSize = 2000

// hostileLabel is a label on the objects that the hostile guest creates.
const hostileLabel = "hostile.example.com/made"

// hostileGuest checks a hostile guest administrator: nothing on the management side changes, and hypergate writes
// nothing there.
func hostileGuest(t *fixture) {
	t.installed()
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	// Webhooks are the last step of an installation. So when hypergate has restored one, it has finished its initial
	// work on the management side.
	webhooks := t.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	t.Expect(webhooks.Delete(t.step(), t.webhooks().Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	before, began := t.mgmtState(), time.Now()
	t.Expect(before).To(gomega.HaveKey("deployments.apps/istiod-" + world.Revision))

	t.Log("istiod's account gets all permissions in the guest, and a token that does not expire")
	t.strengthenIstiod()
	t.Log("names and annotations that break out of the places into which they are pasted")
	t.hostileObjects()
	t.Log("as many routes as possible at once, and then none")
	t.flood()
	t.Expect(t.Gateways.HTTPRoutes("demo").
		DeleteCollection(t.step(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: hostileLabel})).To(gomega.Succeed())

	t.Log("normal operation afterwards: a new gateway is programmed")
	t.Expect(t.Apply(t.step(), "gateway.yaml", map[string]string{"name": "after", "namespace": world.GuestNamespace, "class": class})).
		To(gomega.Succeed())
	t.Cleanup(func() {
		_ = t.Gateways.Gateways(world.GuestNamespace).Delete(context.Background(), "after", metav1.DeleteOptions{})
	})
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "after")).To(gomega.Succeed())
	t.Expect(cmp.Diff(before, t.mgmtState())).To(gomega.BeEmpty(), "the management side, before and after")
	t.Expect(t.mgmtWritesSince(began)).To(gomega.BeEmpty())
	t.Expect(t.installedMessage()).To(gomega.HavePrefix("istiod "), "istiod serves, and the message contains nothing else")
}

// mgmtState returns the state of each object in istiod's namespace on the management side. It leaves out what changes
// without a write by a person or by hypergate: leases, events, and Endpoints, which duplicate EndpointSlices. The
// state of a pod is its UID and generation, its restarts, and the last change of its readiness.
func (t *fixture) mgmtState() map[string]string {
	t.Helper()
	lists, err := t.MgmtClient.Discovery().ServerPreferredNamespacedResources()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	out := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		for _, r := range list.APIResources {
			if slices.Contains([]string{"leases", "events", "pods", "endpoints"}, r.Name) || !slices.Contains(r.Verbs, "list") {
				continue
			}
			objects, err := t.MgmtDynamic.Resource(gv.WithResource(r.Name)).Namespace(t.MgmtNamespace).List(t.step(), metav1.ListOptions{})
			t.Expect(err).NotTo(gomega.HaveOccurred(), r.Name)
			for _, o := range objects.Items {
				out[r.Name+"."+gv.Group+"/"+o.GetName()] = fmt.Sprintf("%s, generation %d, version %s", o.GetUID(), o.GetGeneration(),
					o.GetResourceVersion())
			}
		}
	}
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.step(), metav1.ListOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	for _, p := range pods.Items {
		state := fmt.Sprintf("%s, generation %d", p.UID, p.Generation)
		for _, c := range p.Status.ContainerStatuses {
			state += fmt.Sprintf(", %s restarted %d times", c.Name, c.RestartCount)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				state += fmt.Sprintf(", ready %s since %s", c.Status, c.LastTransitionTime)
			}
		}
		out["pods/"+p.Name] = state
	}
	return out
}

// mgmtWritesSince returns hypergate's write requests on the management side, except those for its Lease.
func (t *fixture) mgmtWritesSince(began time.Time) []string {
	t.Helper()
	requests, err := audit.Read(t.AuditLog(model.SideMgmt), t.MgmtUser())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(requests).NotTo(gomega.BeEmpty(), "the audit log contains the users")
	var out []string
	for _, r := range requests {
		reads := slices.Contains([]string{"get", "list", "watch"}, r.Verb)
		if !reads && r.Resource != "leases" && r.At.After(began) {
			out = append(out, r.String())
		}
	}
	return out
}

// strengthenIstiod gives istiod's account all that a guest's administrator can give it, and checks that this has no
// effect on the management side.
func (t *fixture) strengthenIstiod() {
	t.Helper()
	name := world.GuestIstiod
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: world.GuestNamespace}},
	}
	_, err := t.GuestClient.RbacV1().ClusterRoleBindings().Create(t.ctx, binding, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	secrets := t.GuestClient.CoreV1().Secrets(world.GuestNamespace)
	_, err = secrets.Create(t.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile", Annotations: map[string]string{corev1.ServiceAccountNameKey: name}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() {
		_ = t.GuestClient.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
		_ = secrets.Delete(context.Background(), "hostile", metav1.DeleteOptions{})
	})
	token := ""
	t.Eventually(func() string {
		got, err := secrets.Get(t.ctx, "hostile", metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		token = string(got.Data[corev1.ServiceAccountTokenKey])
		return token
	}).ShouldNot(gomega.BeEmpty())
	t.Expect(t.authenticated(token)).To(gomega.BeTrue(), "the token is valid in the guest")
	t.Expect(t.istiodToken()).NotTo(gomega.Equal(token), "istiod keeps its own token")
	for what, token := range map[string]string{"the token that the guest made": token, "the token that istiod holds": t.istiodToken()} {
		stranger := rest.AnonymousClientConfig(t.Mgmt)
		stranger.BearerToken = token
		_, err = kubernetes.NewForConfigOrDie(stranger).CoreV1().Namespaces().Get(t.ctx, t.MgmtNamespace, metav1.GetOptions{})
		t.Expect(apierrors.IsUnauthorized(err)).To(gomega.BeTrue(), "%s, at the management API: %v", what, err)
	}
}

// nasty returns values that would break out of a template, shell, document or format into which they were pasted
// unquoted.
func nasty() map[string]string {
	return map[string]string{
		"hostile.example.com/yaml":     "x\"\n    hostNetwork: true\n---\nkind: Secret\nmetadata: {name: pwned}\n...",
		"hostile.example.com/template": `{{ fail "pwned" }}{{ .Values.pwned }}{{`,
		"hostile.example.com/shell":    "$(POD_NAME) ${x} `pwned` ; pwned # \" ' \\ \x00 %s %n",
	}
}

// hostileObjects creates classes, gateways and a route whose names and annotations are at the limits of the API.
// istiod serves them like any others, with two exceptions. For these two gateways it cannot create a Deployment or a
// Service, which does no harm to others:
//
//   - A gateway whose name is not a string in YAML. Istio's template does not quote the name.
//   - A gateway whose Service would have an invalid type.
func (t *fixture) hostileObjects() {
	t.Helper()
	large := nasty()
	large["hostile.example.com/large"] = strings.Repeat("pwned ", 200<<10/6)
	classes := []string{"null", strings.Repeat("a", 63), strings.Repeat("abcdefgh.", 28) + "z"}
	for _, name := range classes {
		_, err := t.Gateways.GatewayClasses().Create(t.ctx, &gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: large},
			Spec:       gatewayv1.GatewayClassSpec{ControllerName: world.ControllerName},
		}, metav1.CreateOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Cleanup(func() { _ = t.DeleteClass(context.Background(), name) })
		t.Expect(t.ClassCondition(t.step(), name, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	}
	long := "n-" + strings.Repeat("a", 40)
	t.hostileGateway("hostile", "null", large)
	t.hostileGateway(long, class, nasty())
	t.hostileGateway("true", class, nasty())
	mistyped := nasty()
	mistyped["networking.istio.io/service-type"] = "ClusterIP\"\n  externalIPs: [192.0.2.1]\n  x: \""
	t.hostileGateway("mistyped", class, mistyped)
	for _, name := range []string{"hostile", long} {
		t.Expect(t.Programmed(t.step(), world.GuestNamespace, name)).To(gomega.Succeed())
	}
	deployment, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.step(), "hostile-null", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(deployment.Spec.Template.Annotations).
		To(gomega.HaveKeyWithValue("hostile.example.com/yaml", nasty()["hostile.example.com/yaml"]),
			"the text is only a value")
	t.Expect(deployment.Spec.Template.Spec.HostNetwork).To(gomega.BeFalse())

	route := floodRoute(0)
	route.Name, route.Annotations = strings.Repeat("abcdefgh.", 28)+"z", large
	header := gatewayv1.HTTPHeader{Name: "X-Nasty", Value: `%START_TIME(")% {{ . }} $(X) "'\`}
	route.Spec.Rules[0].Filters = []gatewayv1.HTTPRouteFilter{{
		Type:                  gatewayv1.HTTPRouteFilterRequestHeaderModifier,
		RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{Set: []gatewayv1.HTTPHeader{header}},
	}}
	_, err = t.Gateways.HTTPRoutes("demo").Create(t.ctx, route, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.RouteAccepted(t.step(), "demo", route.Name)).To(gomega.Succeed())
}

// hostileGateway creates a Gateway with annotations, on itself and on the objects that istiod creates for it.
func (t *fixture) hostileGateway(name, class string, annotations map[string]string) {
	t.Helper()
	infrastructure := &gatewayv1.GatewayInfrastructure{Annotations: map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{}}
	for key, value := range nasty() {
		infrastructure.Annotations[gatewayv1.AnnotationKey(key)] = gatewayv1.AnnotationValue(value)
	}
	gateways := t.Gateways.Gateways(world.GuestNamespace)
	_, err := gateways.Create(t.ctx, &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: gatewayv1.ObjectName(class), Infrastructure: infrastructure,
			Listeners: []gatewayv1.Listener{{Name: "null", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = gateways.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func floodRoute(i int) *gatewayv1.HTTPRoute {
	namespace, port := gatewayv1.Namespace(world.GuestNamespace), gatewayv1.PortNumber(8080)
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("flood-%d", i), Labels: map[string]string{hostileLabel: "true"}},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gw", Namespace: &namespace}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("r%d.apps.guest1.example.com", i))},
			Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{
				BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "echo", Port: &port}},
			}}}},
		},
	}
}

// flood creates many routes at once, and checks that all get a status and that a proxy gets all of them.
func (t *fixture) flood() {
	t.Helper()
	proxy := t.proxyOf("gw")
	makers := errgroup.Group{}
	makers.SetLimit(32)
	for i := range floodSize {
		makers.Go(func() error {
			_, err := t.Gateways.HTTPRoutes("demo").Create(t.ctx, floodRoute(i), metav1.CreateOptions{})
			return err
		})
	}
	t.Expect(makers.Wait()).To(gomega.Succeed())
	t.Eventually(t.acceptedInFlood).WithPolling(time.Second).Should(gomega.Equal(floodSize))
	_, err := proxy.WaitFor(t.step(), func(c *xds.Config) error {
		for i := range floodSize {
			if _, err := c.Reach(80, fmt.Sprintf("r%d.apps.guest1.example.com", i), "/"); err != nil {
				return err
			}
		}
		return reaches(c)
	})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// acceptedInFlood returns the number of routes in the flood that istiod has accepted.
func (t *fixture) acceptedInFlood() int {
	t.Helper()
	routes, err := t.Gateways.HTTPRoutes("demo").List(t.ctx, metav1.ListOptions{LabelSelector: hostileLabel})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	n := 0
	for _, r := range routes.Items {
		if len(r.Status.Parents) == 1 && strings.HasPrefix(r.Name, "flood-") {
			n++
		}
	}
	return n
}
