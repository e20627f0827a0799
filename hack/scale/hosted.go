package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/hack/internal/istiod"
	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/hypershift"
	"github.com/hypergate/hypergate/test/proc"
)

func gatewayClasses() schema.GroupVersionResource {
	return gatewayv1.SchemeGroupVersion.WithResource("gatewayclasses")
}

// hosted is one hosted cluster with its hypergate.
type hosted struct {
	fleet  *fleet
	number int
	// namespace is the namespace on the management side. user is hypergate's user on both sides.
	namespace, user string
	// revision is also the name of the namespace and of the GatewayClass in the guest.
	revision string
	webhook  *istiod.Webhook
	process  *proc.Process
}

func newHosted(f *fleet, number int) *hosted {
	id := fmt.Sprintf("%03d", number)
	return &hosted{fleet: f, number: number, namespace: "clusters-hosted" + id, user: userPrefix + id, revision: "rev" + id}
}

func (h *hosted) guest() *apiServer { return h.fleet.guests[h.number/h.fleet.opts.share] }

func (h *hosted) dir() string { return filepath.Join(h.fleet.dir, h.namespace) }

func (h *hosted) istiod() string { return "istiod-" + h.revision }

// webhookHost returns a loopback address that is unique for the cluster and for this process.
func webhookHost(number int) string {
	return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()%128, 1+number/250, 1+number%250)
}

// create creates the hosted cluster, starts its hypergate, and returns when everything is installed.
func (h *hosted) create(ctx context.Context) (err error) {
	if h.webhook, err = istiod.Listen(ctx, webhookHost(h.number)); err != nil {
		return err
	}
	if err := os.Mkdir(h.dir(), 0o700); err != nil {
		return err
	}
	if err := errors.Join(h.writeKubeconfig(h.fleet.mgmt), h.writeKubeconfig(h.guest())); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}}
	if _, err := h.fleet.mgmt.typed.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	plane, err := h.controlPlane()
	if err != nil {
		return err
	}
	client := h.fleet.mgmt.objects.Resource(hypershift.ControlPlanes()).Namespace(h.namespace)
	if _, err := client.Create(ctx, plane, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := h.start(); err != nil {
		return err
	}
	return errors.Join(h.createClass(ctx), h.untilInstalled(ctx))
}

// controlPlane returns a HostedControlPlane like those that HyperShift creates.
func (h *hosted) controlPlane() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	err := yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedControlPlane
metadata: {name: hosted%03[1]d, namespace: %[2]s}
spec:
  releaseImage: quay.io/openshift-release-dev/ocp-release:4.21.0
  issuerURL: https://kubernetes.default.svc
  pullSecret: {name: pull-secret}
  sshKey: {name: ssh-key}
  etcd: {managementType: Managed, managed: {storage: {type: PersistentVolume, persistentVolume: {size: 8Gi}}}}
  dns: {baseDomain: example.com}
  infraID: hosted%03[1]d-abcde
  clusterID: 5f7c0000-0000-4000-8000-%012[1]d
  controllerAvailabilityPolicy: SingleReplica
  platform: {type: None}
  services:
  - {service: APIServer, servicePublishingStrategy: {type: LoadBalancer}}
  - {service: OAuthServer, servicePublishingStrategy: {type: Route}}
  - {service: Konnectivity, servicePublishingStrategy: {type: Route}}
  - {service: Ignition, servicePublishingStrategy: {type: Route}}
`, h.number, h.namespace), &u.Object)
	return u, err
}

// writeKubeconfig writes a kubeconfig with a new user for this hosted cluster's hypergate.
func (h *hosted) writeKubeconfig(s *apiServer) error {
	config, err := s.plane.ClientCertificate(h.user, hypergateGroup, time.Now().Add(24*time.Hour))
	if err != nil {
		return err
	}
	file := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"c": {Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
	return clientcmd.WriteToFile(file, h.kubeconfig(s))
}

func (h *hosted) kubeconfig(s *apiServer) string {
	return filepath.Join(h.dir(), strings.TrimRight(s.name, "-0123456789")+".kubeconfig")
}

func (h *hosted) start() (err error) {
	h.process, err = proc.Start("hypergate", h.dir(), h.fleet.binary, "run",
		"--namespace", h.namespace, "--kubeconfig", h.kubeconfig(h.fleet.mgmt), "--guest-kubeconfig", h.kubeconfig(h.guest()),
		"--guest-namespace", h.revision, "--revision", h.revision, "--controller-name", "example.com/"+h.revision,
		"--istiod-guest-server", "https://kube-apiserver:6443", "--webhook-host", h.webhook.Host,
		"--publish-probe", "off", // no istiod answers at the published address
		"--pilot-image", h.image(), "--proxy-image", "registry.example.com/proxyv2:"+charts.EmbeddedVersion,
		"--leader-elect=true", "--metrics-address", "0", "--health-address", "0")
	return err
}

// image returns istiod's image of the fleet's current release.
func (h *hosted) image() string {
	return fmt.Sprintf("registry.example.com/pilot:release-%d", h.fleet.release)
}

// createClass creates the GatewayClass as soon as hypergate has installed its CRD.
func (h *hosted) createClass(ctx context.Context) error {
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gatewayClasses().GroupVersion().String(), "kind": "GatewayClass", "metadata": map[string]any{"name": h.revision},
		"spec": map[string]any{"controllerName": "example.com/" + h.revision},
	}}
	return until(ctx, "the guest has GatewayClasses", func(ctx context.Context) (bool, error) {
		_, err := h.guest().objects.Resource(gatewayClasses()).Create(ctx, class, metav1.CreateOptions{})
		return err == nil, errors.Join(ignoreNotFound(err), h.alive())
	})
}

// untilInstalled waits until the GatewayClass reports the installation.
func (h *hosted) untilInstalled(ctx context.Context) error {
	var last any
	err := until(ctx, "all is installed", func(ctx context.Context) (bool, error) {
		class, err := h.guest().objects.Resource(gatewayClasses()).Get(ctx, h.revision, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(class.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "ControllerInstalled" {
				last = c["message"]
				return c["status"] == "True", h.alive()
			}
		}
		return false, h.alive()
	})
	if err != nil {
		return fmt.Errorf("%w; the GatewayClass says %v", err, last)
	}
	return nil
}

// upgrade replaces hypergate with the fleet's current release, and returns when istiod has that release.
func (h *hosted) upgrade(ctx context.Context) error {
	h.process.Terminate()
	if err := h.start(); err != nil {
		return err
	}
	return until(ctx, "istiod is upgraded", func(ctx context.Context) (bool, error) {
		d, err := h.fleet.mgmt.typed.AppsV1().Deployments(h.namespace).Get(ctx, h.istiod(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return d.Spec.Template.Spec.Containers[0].Image == h.image(), h.alive()
	})
}

// stop kills the process, because its state is not needed any more.
func (h *hosted) stop() {
	if h.process != nil {
		h.process.Kill()
	}
	if h.webhook != nil {
		_ = h.webhook.Close()
	}
}

func (h *hosted) alive() error {
	select {
	case <-h.process.Done():
		return h.process.Exit()
	default:
		return nil
	}
}

// needs is the resource usage of a process: memory in bytes, CPU in seconds since its start.
type needs struct{ rssAnon, rss, peak, cpu float64 }

func (n needs) anonMiB() float64 { return n.rssAnon / mib }
func (n needs) rssMiB() float64  { return n.rss / mib }
func (n needs) peakMiB() float64 { return n.peak / mib }

func (h *hosted) needs() (out needs, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.process.PID()))
	if err != nil {
		return out, fmt.Errorf("reading the memory of a hypergate: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "VmRSS":
			out.rss = kib * 1024
		case "VmHWM":
			out.peak = kib * 1024
		case "RssAnon":
			out.rssAnon = kib * 1024
		}
	}
	if out.rssAnon == 0 {
		return out, fmt.Errorf("reading the memory of a hypergate: /proc shows %q", status)
	}
	out.cpu, err = h.cpu()
	return out, err
}

// cpu returns the CPU time of the process's threads in seconds. The kernel's value for the whole process is in
// hundredths of a second, which is more than a process uses at rest.
func (h *hosted) cpu() (seconds float64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", h.process.PID()))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of a hypergate: %w", err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has just ended
		}
		first, _, _ := strings.Cut(string(stat), " ")
		nanoseconds, err := strconv.ParseFloat(first, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of a hypergate: %w", err)
		}
		seconds += nanoseconds / 1e9
	}
	if seconds == 0 {
		return 0, fmt.Errorf("reading the CPU time of a hypergate: /proc shows %d threads and no time", len(threads))
	}
	return seconds, nil
}
