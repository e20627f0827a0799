package chaos_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/leak"
	"github.com/hypergate/hypergate/test/proc"
)

const (
	className = "openshift-default"
	// patience is the timeout for everything that hangs. No test measures it.
	patience = hang.Deadline
	// glance is the polling interval for conditions.
	glance = 100 * time.Millisecond
)

// chaosRun is the two clusters, hypergate, and istiod.
type chaosRun struct {
	*testing.T
	gomega.Gomega
	// root is the test that started everything. T is the test of the current fault.
	root        *testing.T
	cfg         model.Config
	istio       istioVersion
	dir, binary string
	mgmt, guest *side
	gateways    gatewayclient.GatewayV1Interface
	toxiproxy   *toxiproxy
	stile       *turnstile
	kubelet     *kubelet
	secrets     *leak.Secrets
	cas         *caWatch
	// reference is the state after an undisturbed installation.
	reference map[string]string
	// undisturbed is how long that installation took.
	undisturbed time.Duration
}

// istioVersion is an Istio that hypergate installs.
type istioVersion struct {
	// server is the name of istiod's binary, see hack/servers/build.sh.
	server string
	// flags are hypergate's additional flags.
	flags []string
}

// embeddedIstio is the Istio whose charts are compiled into hypergate.
func embeddedIstio() istioVersion { return istioVersion{server: "pilot-discovery"} }

// side is one of the two clusters, seen with its administrator's permissions.
type side struct {
	name    model.Side
	plane   *planes.Plane
	clients kubernetes.Interface
	objects dynamic.Interface
	meta    metadata.Interface
	kinds   []model.Kind
	// user is hypergate's user. direct is its kubeconfig through toxiproxy. gated is its kubeconfig through the gate
	// that counts requests.
	user, direct, gated string
	seen                map[string]seen
}

// hypergate is a running process.
type hypergate struct {
	*proc.Process
	hostname, health string
}

func newChaosRun(t *testing.T, istio istioVersion) *chaosRun {
	t.Helper()
	w := &chaosRun{
		root: t, istio: istio, dir: t.TempDir(), stile: &turnstile{}, secrets: leak.NewSecrets(),
		cfg: model.Config{
			Topology: model.TopologyHosted, MgmtNamespace: deploy.MgmtNamespace, GuestNamespace: deploy.GuestNamespace,
			ControllerName: "openshift.io/gateway-controller/v1", Revision: "openshift-gateway", WebhookHost: loopback(t),
		},
	}
	w.use(t)
	root, err := servers.ModuleRoot()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.binary = filepath.Join(w.dir, "hypergate.bin")
	goBuild(t, root, w.binary, "./cmd/hypergate")
	pair, err := planes.Start(t.Context(), planes.Options{Dir: filepath.Join(w.dir, "planes")})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { w.Expect(pair.Stop()).To(gomega.Succeed()) })
	w.toxiproxy = w.startToxiproxy()
	w.mgmt = w.newSide(model.SideMgmt, pair.Mgmt, model.MgmtKinds(), w.cfg.MgmtNamespace, "hosted/example")
	w.guest = w.newSide(model.SideGuest, pair.Guest, model.GuestKinds(), w.cfg.GuestNamespace, "hosted/guest")
	w.gateways, err = gatewayclient.NewForConfig(pair.Guest.Config)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.kubelet = newKubelet(t, w)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { w.kubelet.run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	w.knowSecrets()
	return w
}

// use sets the test to which the following steps belong.
func (w *chaosRun) use(t *testing.T) {
	t.Helper()
	w.T, w.Gomega = t, gomega.NewWithT(t)
	w.SetDefaultEventuallyTimeout(patience)
	w.SetDefaultEventuallyPollingInterval(glance)
}

// gate starts a proxy that counts requests in front of an API server, and returns its URL.
func (w *chaosRun) gate(plane *planes.Plane) string {
	w.Helper()
	pki := filepath.Dir(plane.Kubeconfig)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
	w.Expect(err).NotTo(gomega.HaveOccurred())
	roots := x509.NewCertPool()
	w.Expect(roots.AppendCertsFromPEM(plane.Config.CAData)).To(gomega.BeTrue())
	server, err := url.Parse(plane.Config.Host)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return newGate(w.T, server, roots, certificate, w.stile)
}

// loopback returns a random loopback address, so that parallel runs are unlikely to share one. The webhook uses port
// 443 of this address.
func loopback(t *testing.T) string {
	t.Helper()
	number := make([]byte, 2)
	if _, err := rand.Read(number); err != nil {
		t.Fatal(err)
	}
	host := fmt.Sprintf("127.%d.%d.1", 1+number[0]%250, number[1])
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", host+":443")
	if err != nil {
		t.Skipf("the webhook is at port 443, which needs root, or sysctl net.ipv4.ip_unprivileged_port_start=443: %v", err)
	}
	_ = listener.Close()
	return host
}

func (w *chaosRun) sides() []*side { return []*side{w.mgmt, w.guest} }

func (w *chaosRun) newSide(name model.Side, plane *planes.Plane, kinds []model.Kind, namespace, folder string) *side {
	w.Helper()
	config := rest.CopyConfig(plane.Config)
	config.WarningHandler = rest.NoWarnings{}
	s := &side{
		name: name, plane: plane, kinds: kinds, user: deploy.UserOf(namespace, deploy.Account), seen: map[string]seen{},
		clients: kubernetes.NewForConfigOrDie(config), objects: dynamic.NewForConfigOrDie(config), meta: metadata.NewForConfigOrDie(config),
		direct: filepath.Join(w.dir, string(name)+"-direct.kubeconfig"), gated: filepath.Join(w.dir, string(name)+"-gated.kubeconfig"),
	}
	_, err := s.clients.CoreV1().Namespaces().
		Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	objects, err := deploy.Render(folder)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })
	w.Expect(deploy.Apply(w.Context(), plane.Config, objects)).To(gomega.Succeed())
	roles, err := audit.RolesOf(objects)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(deploy.TakesEffect(w.Context(), plane.Config, s.user, audit.Permissions(roles), true)).To(gomega.Succeed())

	upstream, err := url.Parse(plane.Config.Host)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.kubeconfig(s, namespace, s.direct, "https://"+w.toxiproxy.between(string(name), upstream.Host))
	w.kubeconfig(s, namespace, s.gated, w.gate(plane))
	w.others(s, namespace)
	return s
}

// kubeconfig writes a kubeconfig of hypergate's account that points to the given server, which is a proxy.
func (w *chaosRun) kubeconfig(s *side, namespace, file, server string) {
	w.Helper()
	w.Expect(deploy.Kubeconfig(w.Context(), s.plane.Config, namespace, file, 24*time.Hour)).To(gomega.Succeed())
	config, err := clientcmd.LoadFromFile(file)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	w.Expect(clientcmd.WriteToFile(*config, file)).To(gomega.Succeed())
}

// others creates objects that must not change, also in hypergate's namespaces.
func (w *chaosRun) others(s *side, namespace string) {
	w.Helper()
	for _, ns := range []string{namespace, metav1.NamespaceDefault} {
		meta := metav1.ObjectMeta{Name: "foreign"}
		_, err := s.clients.CoreV1().ConfigMaps(ns).
			Create(w.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = s.clients.CoreV1().Services(ns).Create(w.Context(), &corev1.Service{
			ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = s.clients.CoreV1().ServiceAccounts(ns).
			Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// way is the path by which hypergate reaches the API servers.
type way int

const (
	direct way = iota
	gated
)

// start starts hypergate and does not wait. Each hypergate has its own host name, as a pod has, because that name
// identifies the holder of the Lease.
func (w *chaosRun) start(by way, hostname string) *hypergate {
	w.Helper()
	mgmt, guest := w.mgmt.direct, w.guest.direct
	if by == gated {
		mgmt, guest = w.mgmt.gated, w.guest.gated
	}
	h := &hypergate{hostname: hostname, health: freeport.Address(w.T)}
	argv := []string{
		w.binary, "run", "--namespace", w.cfg.MgmtNamespace, "--kubeconfig", mgmt, "--guest-kubeconfig", guest,
		"--istiod-guest-server", w.guest.plane.Config.Host, "--webhook-host", w.cfg.WebhookHost,
		"--xds-address", "istiod.apps.example.com:443", "--publish-probe", w.kubelet.xds,
		"--pilot-image", "registry.example.com/pilot:" + charts.EmbeddedVersion, "--proxy-image", "registry.example.com/proxyv2:" +
			charts.EmbeddedVersion,
		"--health-address", h.health, "--metrics-address", "0", "--v", "1",
	}
	argv = append(argv, w.istio.flags...)
	p, err := proc.Spec{
		Name: hostname, LogDir: w.dir, Cloneflags: syscall.CLONE_NEWUTS,
		Argv: append([]string{"/bin/sh", "-c", `echo "$0" > /proc/sys/kernel/hostname && exec "$@"`, hostname}, argv...),
	}.Start()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	h.Process = p
	w.root.Cleanup(p.Kill)
	return h
}

// check returns nil if a health check of hypergate answers 200. The names are readyz, readyz/guest and
// readyz/management.
func (h *hypergate) check(ctx context.Context, name string) error {
	if closed(h.Done()) {
		return gomega.StopTrying("hypergate has ended").Wrap(h.Exit())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.health+"/"+name, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", name, response.Status)
	}
	return nil
}

// ready waits until hypergate has observed both sides.
func (w *chaosRun) ready(h *hypergate) {
	w.Helper()
	w.Eventually(func() error { return h.check(w.Context(), "readyz") }).Should(gomega.Succeed())
}

func (w *chaosRun) createClass() {
	w.Helper()
	// The CRD may have been installed just before.
	w.Eventually(func() error {
		_, err := w.gateways.GatewayClasses().Create(w.Context(), &gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: className},
			Spec:       gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(w.cfg.ControllerName)},
		}, metav1.CreateOptions{})
		return err
	}).Should(gomega.Succeed())
}

// uninstall deletes the class and waits until hypergate's objects are gone from both sides.
func (w *chaosRun) uninstall() {
	w.Helper()
	w.Expect(w.gateways.GatewayClasses().Delete(w.Context(), className, metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() ([]string, error) {
		now, err := w.look(w.Context())
		var left []string
		for id := range now {
			kept := func(kind string) bool { return strings.Contains(id, kind) }
			stays := []string{"customresourcedefinitions", "/namespaces ", "validatingadmissionpolic", "hostedcontrolplanes "}
			if !slices.ContainsFunc(stays, kept) {
				left = append(left, id)
			}
		}
		return left, err
	}).Should(gomega.BeEmpty())
	w.cas.forget()
}
