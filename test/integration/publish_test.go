package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// serveOn installs a CRD of a Go module on the management cluster until the end of the test.
func (w *harness) serveOn(module string, path ...string) {
	w.Helper()
	dir, err := servers.ModuleDir(w.Context(), ".", module)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	data, err := os.ReadFile(filepath.Join(append([]string{dir}, path...)...))
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.serve(fromyaml.Object(w, data))
}

// serve installs a CRD on the management cluster until the end of the test.
func (w *harness) serve(crd *unstructured.Unstructured) {
	w.Helper()
	crds := dynamic.NewForConfigOrDie(w.mgmtAdmin()).Resource(crdResource)
	_, err := crds.Create(w.Context(), crd, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Cleanup(func() {
		w.Expect(crds.Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{})).To(gomega.Succeed())
		w.Eventually(func() bool {
			_, err := crds.Get(context.Background(), crd.GetName(), metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}).Should(gomega.BeTrue())
	})
}

// serveRoutes installs OpenShift's own CRD of Routes.
func (w *harness) serveRoutes() {
	w.Helper()
	w.serveOn("github.com/openshift/api", "route", "v1", "zz_generated.crd-manifests", "routes.crd.yaml")
	w.Eventually(func() error {
		_, err := w.routes().List(w.Context(), metav1.ListOptions{})
		return err
	}).Should(gomega.Succeed())
}

func (w *harness) routes() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.pair.Mgmt.Config).
		Resource(schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}).Namespace(w.cfg.MgmtNamespace)
}

// publishAPIServer sets the publish strategy of the guest's API server in the HostedControlPlane.
func (w *harness) publishAPIServer(strategy string) {
	w.Helper()
	all := `{"service":"APIServer","servicePublishingStrategy":` + strategy + `}`
	for _, part := range []string{"OAuthServer", "Konnectivity", "Ignition"} {
		all += `,{"service":"` + part + `","servicePublishingStrategy":{"type":"Route"}}`
	}
	w.patchControlPlane("guest1", `{"spec":{"services":[`+all+`]}}`)
}

// installedText returns a function that returns the condition ControllerInstalled as text.
func (w *harness) installedText(class string) func() string {
	return func() string {
		if c := w.condition(class, "ControllerInstalled"); c != nil {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
		return ""
	}
}

// publishedAt returns a function that reports whether istiod's Deployment has a certificate for a host, and its mesh
// configuration has the address.
func (w *harness) publishedAt(host string, port int32) func() bool {
	return func() bool {
		d := w.istiod()
		if d == nil {
			return false
		}
		volumes := d.Spec.Template.Spec.Volumes
		mounted := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "mesh" && v.ConfigMap != nil })
		if mounted < 0 {
			return false
		}
		mesh, err := w.mgmt.CoreV1().ConfigMaps(w.cfg.MgmtNamespace).
			Get(w.Context(), volumes[mounted].ConfigMap.Name, metav1.GetOptions{})
		at := fmt.Sprintf("%s:%d", host, port)
		return err == nil && strings.Contains(mesh.Data["mesh"], at) &&
			slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Env, func(e corev1.EnvVar) bool {
				return e.Name == "ISTIOD_CUSTOM_HOST" && strings.HasPrefix(e.Value, host+",")
			})
	}
}

func (w *harness) xdsService() *corev1.Service {
	s, err := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Get(w.Context(), w.cfg.XDSService(), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return s
}

// TestPublishedByNodePort checks that the API server allocates the port, and that the address follows that of the
// HostedControlPlane.
func TestPublishedByNodePort(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	w.createControlPlane("guest1", "")
	w.publishAPIServer(`{"type":"NodePort","nodePort":{"address":"192.0.2.7"}}`)
	w.cfg.XDS, w.cfg.Publish = model.HostPort{}, model.Publish{Strategy: model.PublishAuto}
	stop := w.run()
	w.install("demo")
	port := w.xdsService().Spec.Ports[0].NodePort
	w.Expect(port).NotTo(gomega.BeZero())
	w.Expect(w.publishedAt("192.0.2.7", port)()).To(gomega.BeTrue())
	generation := w.istiod().Generation

	t.Log("a restart finds the same port")
	stop()
	again := w.run()
	w.settle()
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
	w.Expect(w.xdsService().Spec.Ports[0].NodePort).To(gomega.Equal(port))

	t.Log("a conflict about a port is reported")
	other := newWorldOn(t, w.pair)
	other.cfg.XDS = model.HostPort{}
	other.cfg.Publish = model.Publish{Strategy: model.PublishNodePort, At: model.HostPort{Host: "192.0.2.7", Port: uint16(port)}}
	other.run()
	other.createClass("late")
	other.Eventually(other.installedText("late")).Should(gomega.ContainSubstring("management side: Service: rejected as invalid"))
	other.Eventually(other.log.String).Should(gomega.ContainSubstring("provided port is already allocated"))

	t.Log("the HostedControlPlane cannot change its publish strategy while hypergate runs")
	w.publishAPIServer(`{"type":"LoadBalancer"}`)
	w.Eventually(w.log.String).Should(gomega.ContainSubstring(
		"istiod is published by nodeport, but the HostedControlPlane now requires loadbalancer: restart hypergate",
	))
	w.Expect(w.installedText("demo")()).To(gomega.ContainSubstring("istiod has been serving"))
	again()
}

// TestPublishedByLoadBalancer checks that only istiod waits for the address.
func TestPublishedByLoadBalancer(t *testing.T) {
	w := newHarness(t)
	w.cfg.XDS, w.cfg.Publish = model.HostPort{}, model.Publish{Strategy: model.PublishLoadBalancer}
	w.run()
	w.createClass("demo")
	w.Eventually(w.installedText("demo")).
		Should(gomega.HavePrefix("Unknown Pending: waiting for an address for istiod's load balancer (management side)"))
	w.Eventually(func() error {
		_, err := w.guest.RbacV1().ClusterRoles().Get(w.Context(), w.cfg.GuestIstiodName(), metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
	w.settle()
	w.Expect(w.istiod()).To(gomega.BeNil())

	assign := func(patch string) {
		_, err := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).
			Patch(w.Context(), w.cfg.XDSService(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
	assign(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.44"}]}}}`)
	w.Eventually(w.publishedAt("192.0.2.44", 15012)).Should(gomega.BeTrue())
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.installedText("demo")).
		Should(gomega.HavePrefix("True Installed: istiod has been serving"))

	t.Log("the address is removed: istiod does not change")
	w.settle()
	assign(`{"status":{"loadBalancer":null}}`)
	w.Eventually(w.installedText("demo")).Should(gomega.ContainSubstring("but it waits for an address for istiod's load balancer"))
	w.settle()
	w.Expect(w.publishedAt("192.0.2.44", 15012)()).To(gomega.BeTrue())

	t.Log("another address is assigned")
	assign(`{"status":{"loadBalancer":{"ingress":[{"hostname":"lb.example.com"}]}}}`)
	w.Eventually(w.publishedAt("lb.example.com", 15012)).Should(gomega.BeTrue())
}

// TestPublishedByRoute checks hypergate's own Route, a router that refuses it, and a Route of the control plane
// operator. hypergate creates the Service before the Route, and deletes it after the Route.
func TestPublishedByRoute(t *testing.T) {
	w := newHarness(t)
	w.cfg.XDS, w.cfg.Publish = model.HostPort{},
		model.Publish{Strategy: model.PublishRoute, At: model.HostPort{Host: "istiod-guest1.apps.example.com"}}
	w.run()
	w.createClass("demo")
	w.Eventually(w.installedText("demo")).Should(gomega.ContainSubstring("False InstallFailed"))
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("the management cluster serves no Routes"))

	w.serveRoutes()
	w.Eventually(w.publishedAt("istiod-guest1.apps.example.com", 443)).Should(gomega.BeTrue())
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.installedText("demo")).Should(gomega.HavePrefix("True Installed"))
	route, err := w.routes().Get(w.Context(), w.cfg.XDSService(), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(route.GetLabels()).NotTo(gomega.HaveKey("hypershift.openshift.io/hosted-control-plane"))
	w.Expect(w.first(0, "PATCH", "/services/"+w.cfg.XDSService())).
		To(gomega.BeNumerically("<", w.first(0, "PATCH", "/routes/"+w.cfg.XDSService())))

	t.Log("a deleted Route is created again")
	w.Expect(w.routes().Delete(w.Context(), w.cfg.XDSService(), metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() error {
		_, err := w.routes().Get(w.Context(), w.cfg.XDSService(), metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())

	t.Log("a router reports that the host is already in use")
	w.settle()
	w.patchRoute(w.cfg.XDSService(), `{"status":{"ingress":[{"host":"istiod-guest1.apps.example.com","routerName":"default",`+
		`"conditions":[{"type":"Admitted","status":"False","reason":"HostAlreadyClaimed"}]}]}}`)
	w.Eventually(w.installedText("demo")).Should(gomega.ContainSubstring("but hypergate changes nothing until this is resolved"))
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("HostAlreadyClaimed"))
	w.patchRoute(w.cfg.XDSService(), `{"status":{"ingress":[{"host":"istiod-guest1.apps.example.com","routerName":"default",`+
		`"conditions":[{"type":"Admitted","status":"True"}]}]}}`)
	w.Eventually(w.installedText("demo")).ShouldNot(gomega.ContainSubstring("hypergate changes nothing"))

	t.Log("the control plane operator publishes istiod itself")
	u := fromyaml.Object(w,
		`{apiVersion: route.openshift.io/v1, kind: Route, metadata: {name: istiod}, spec: {host: `+
			`istiod.apps.guest1.hypershift.local, to: {kind: Service, name: istiod}}}`)
	_, err = w.routes().Create(w.Context(), u, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(w.publishedAt("istiod.apps.guest1.hypershift.local", 443)).Should(gomega.BeTrue())
	w.Eventually(func() []bool {
		_, err := w.routes().Get(w.Context(), w.cfg.XDSService(), metav1.GetOptions{})
		return []bool{apierrors.IsNotFound(err), w.xdsService() == nil}
	}).Should(gomega.Equal([]bool{true, true}))
	w.Expect(w.routes().Delete(w.Context(), "istiod", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(w.publishedAt("istiod-guest1.apps.example.com", 443)).Should(gomega.BeTrue())
	w.playIstiod(corev1.ConditionTrue)
	w.settle()

	from := w.mgmtRequests.count()
	w.deleteClass("demo")
	w.Eventually(w.xdsService).Should(gomega.BeNil())
	w.Expect(w.first(from, "DELETE", "/routes/"+w.cfg.XDSService())).
		To(gomega.BeNumerically("<", w.first(from, "DELETE", "/services/"+w.cfg.XDSService())))
}

// TestPublishedByTLSRoute checks that hypergate uses the version that the cluster serves, once the cluster serves
// one.
func TestPublishedByTLSRoute(t *testing.T) {
	w := newHarness(t)
	w.cfg.XDS = model.HostPort{}
	w.cfg.Publish = model.Publish{
		Strategy: model.PublishTLSRoute, At: model.HostPort{Host: "istiod-guest1.example.com"},
		Gateway: model.ParentGateway{Namespace: "infra", Name: "edge"},
	}
	w.run()
	w.createClass("demo")
	w.Eventually(w.installedText("demo")).Should(gomega.HavePrefix("False InstallFailed"))
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("the management cluster serves no TLSRoutes"))

	w.serveOn("sigs.k8s.io/gateway-api", "config", "crd", "experimental", "gateway.networking.k8s.io_tlsroutes.yaml")
	w.Eventually(w.publishedAt("istiod-guest1.example.com", 443)).Should(gomega.BeTrue())
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.installedText("demo")).Should(gomega.HavePrefix("True Installed"))
	routes := dynamic.NewForConfigOrDie(w.pair.Mgmt.Config).
		Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1alpha3", Resource: "tlsroutes"}).
		Namespace(w.cfg.MgmtNamespace)
	_, err := routes.Get(w.Context(), w.cfg.XDSService(), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.deleteClass("demo")
	w.Eventually(w.xdsService).Should(gomega.BeNil())
	_, err = routes.Get(w.Context(), w.cfg.XDSService(), metav1.GetOptions{})
	w.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
}

func (w *harness) patchRoute(name, patch string) {
	w.Helper()
	_, err := w.routes().Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// first returns the index of the first request with a method and a path, after the given number of requests.
func (w *harness) first(after int, method, path string) int {
	w.Helper()
	i := slices.IndexFunc(w.mgmtRequests.since(after), func(r string) bool {
		return strings.HasPrefix(r, method+" ") && strings.Contains(r, path)
	})
	w.Expect(i).NotTo(gomega.Equal(-1), "no request to %s %s", method, path)
	return i
}
