package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

const (
	trafficGateway = "edge"
	backends       = "shop" // the namespace of the backends
	trafficHost    = "shop.guest1.example.com"
	grpcHost       = "grpc.guest1.example.com"
	// passthroughHost is the name in the certificate of the backends.
	passthroughHost = "passthrough.guest1.example.com"
)

// TestTraffic runs the stories with real gateways on real nodes of the guest, under load from outside.
func TestTraffic(t *testing.T) {
	t.Parallel()
	world := alone(t, world.Options{Name: "e2e-traffic", GuestNodes: 2, Conformance: true})
	edge := world.trafficGateway()
	world.runAll(edge, trafficStories())
}

// oneLoad makes tests with a load take turns, story by story. A load starts requests at a constant pace. Two CPUs that
// other work keeps busy cannot answer two loads: the median of a request was six seconds, and some took more than 20.
var oneLoad sync.Mutex

// runAll runs stories with a gateway, one after the other.
func (t *fixture) runAll(edge *edgeOfTheGuest, stories []trafficStory) {
	whole := t.T.Context()
	for _, s := range stories {
		t.Run(s.name, func(test *testing.T) {
			oneLoad.Lock()
			defer oneLoad.Unlock()
			fixture := *t
			var cancel context.CancelFunc
			fixture.ctx, cancel = context.WithTimeout(whole, storyTimeout)
			test.Cleanup(cancel) // after all other cleanups
			fixture.T, fixture.Gomega = test, hang.Gomega(test)
			fixture.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
			s.run(&fixture, edge)
			fixture.nothingRejected()
		})
	}
}

// trafficStory is a story with real gateways.
type trafficStory struct {
	name string
	run  func(*fixture, *edgeOfTheGuest)
}

// trafficStories returns the stories in their order. The Makefile names those that `make test` runs.
func trafficStories() []trafficStory {
	return []trafficStory{
		{"requests go through a gateway that istiod programs", requestsPass},
		{"tests of Gateway API's conformance suite pass", conformance},
		{"istiod is replaced, and no request fails", istiodRolls},
		{"hypergate is killed, and no request fails", hypergateKilled},
		{"hypergate loses its Lease, and no request fails", leaseLost},
		{"the guest kubeconfig is replaced, and no request fails", guestKubeconfigReplaced},
		{"the guest's API server is away, and no request fails", servesWithoutGuestAPI},
		{"the management API server is away, and no request fails", servesWithoutMgmtAPI},
		{"konnectivity is away, and no request fails", konnectivityAway},
		{"the mesh CA is rotated, and no request fails", servesDuringRotation},
		{"a user's mesh becomes the default revision, and no request fails", usersDefaultRevision},
		{"bad input is answered with its status, and no other request fails", badInput},
		{"a hostile gateway pod takes nothing from the others, and no request fails", hostilePod},
		{"istiod is down for longer than a gateway's certificate lives, and no request fails", istiodDownForLong},
		{"the guest's API server is away for longer than a gateway's certificate lives, and no request fails", guestAPIDownForLong},
		{"the management API server is away for longer than a gateway's certificate lives, and no request fails", mgmtAPIDownForLong},
		{"a backend is replaced every 2 s, and no request fails", backendsReplaced},
		{"the gateway is replaced, and no request fails", gatewayReplaced},
		{"a node of the guest is drained, and no request fails", guestNodeDrained},
		{"two replicas of istiod are replaced, and no request fails", twoIstiodsReplaced},
		{"TLS passes through to the backend, and no request fails", passthrough},
		{"an InferencePool's picker decides where requests go, and no other request fails", inferencePool},
		{"the guest has a proxy, and gateways reach istiod without it", guestsProxy},
		{"a class gets other values, the gateways roll one by one, and no request fails", changedClassValues},
		{"the published address moves to a load balancer and back, and no request fails", publishedByLoadBalancer},
		{"istiod is published by the tunnel instead, and no request fails", publishedByTunnel},
	}
}

// edgeOfTheGuest is a gateway with a certificate, seen from outside.
type edgeOfTheGuest struct {
	address string
	// roots verify the certificate of the gateway, backendRoots that of the backends.
	roots, backendRoots *x509.CertPool
}

// trafficGateway installs hypergate, a gateway and its backend.
func (t *fixture) trafficGateway() *edgeOfTheGuest {
	t.Helper()
	t.installed()
	return t.edge()
}

// edge creates a gateway and its backend, and shows that the load sees failures there: without that, a test whose
// requests all succeed proves nothing.
func (t *fixture) edge() *edgeOfTheGuest {
	t.Helper()
	certificate, key, roots := t.certificate(trafficHost, grpcHost)
	_, err := t.GuestClient.CoreV1().Secrets(world.GuestNamespace).Create(t.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-certificate"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	backendCertificate, backendKey, backendRoots := t.certificate(passthroughHost)
	t.applyOptions("on", "at first")
	t.Expect(t.Apply(t.step(), "traffic.yaml", map[string]string{
		"namespace": backends, "image": world.BackendImage, "gateway": trafficGateway, "gatewayNamespace": world.GuestNamespace,
		"class": class, "certificate": "edge-certificate", "host": trafficHost, "grpcHost": grpcHost,
		"backendCertificate": base64.StdEncoding.EncodeToString(backendCertificate),
		"backendKey":         base64.StdEncoding.EncodeToString(backendKey),
	})).To(gomega.Succeed())
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, trafficGateway)).To(gomega.Succeed())
	gateway, err := t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, trafficGateway, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(gateway.Status.Addresses).NotTo(gomega.BeEmpty())
	t.available(world.GuestNamespace, trafficGateway+"-"+class)
	t.available(backends, "backend")
	edge := &edgeOfTheGuest{address: gateway.Status.Addresses[0].Value, roots: roots, backendRoots: backendRoots}
	t.served(edge)
	t.Expect(t.nothingRejected()).To(gomega.BeNumerically(">", 0), "there is a pod to ask")
	t.controls(edge)
	return edge
}

// served waits until one request of each stream succeeds. kube-proxy learns the address of a pod after the Deployment's
// status shows that the pod is ready, and no condition of a Gateway waits for it.
func (t *fixture) served(edge *edgeOfTheGuest) {
	t.Helper()
	t.answered(edge.streams(time.Second, time.Second))
}

func (t *fixture) answered(streams []traffic.Stream) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		load, err := traffic.Start(t.ctx, streams...)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		report, err := load.Stop(len(streams))
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(report.Failed).To(gomega.BeZero(), report.String)
	}).Should(gomega.Succeed())
}

// available waits until all pods of a Deployment of the guest are ready.
func (t *fixture) available(namespace, name string) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		d, err := t.GuestClient.AppsV1().Deployments(namespace).Get(t.ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(d.Status.ObservedGeneration).To(gomega.Equal(d.Generation))
		g.Expect(d.Status.UpdatedReplicas).To(gomega.Equal(*d.Spec.Replicas))
		g.Expect(d.Status.AvailableReplicas).To(gomega.Equal(*d.Spec.Replicas))
	}).Should(gomega.Succeed())
}

// certificate returns a certificate for names, with its key and the roots that verify it.
func (t *fixture) certificate(names ...string) (certificate, key []byte, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	encoded, err := x509.MarshalECPrivateKey(private)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), roots
}

// load starts the load of the stories: 200 short requests per second, downloads and gRPC streams, or a share of them.
func (e *edgeOfTheGuest) load(t *fixture) *traffic.Load {
	t.Helper()
	return t.loaded(e.streams(20*time.Second, 5*time.Second))
}

// loaded starts a load at a pace that the machine can keep, and returns when it runs.
func (t *fixture) loaded(streams []traffic.Stream) *traffic.Load {
	t.Helper()
	load, err := traffic.Paced(t.ctx, streams...)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	if load.Pace() < 1 {
		t.Logf("the machine is busy: the load runs at %.3g of its pace", load.Pace())
	}
	return load
}

// more waits until a load has sent that many further requests, or their share at a lower pace.
func (t *fixture) more(load *traffic.Load, requests int) {
	t.Helper()
	after := load.Sent()
	t.Eventually(load.Sent).Should(gomega.BeNumerically(">", after+load.Share(requests)))
}

// streams returns the streams of the load, with the durations of a download and of a gRPC stream.
func (e *edgeOfTheGuest) streams(download, grpc time.Duration) []traffic.Stream {
	plain, secure := net.JoinHostPort(e.address, "80"), net.JoinHostPort(e.address, "443")
	config := &tls.Config{RootCAs: e.roots, MinVersion: tls.VersionTLS12}
	return []traffic.Stream{
		{Name: "HTTP, new", Kind: traffic.NewConnection, Address: plain, Host: trafficHost, Rate: 40},
		{Name: "HTTP, kept", Kind: traffic.KeptConnection, Address: plain, Host: trafficHost, Rate: 100},
		{Name: "HTTPS, new", Kind: traffic.NewConnection, Address: secure, Host: trafficHost, TLS: config, Rate: 20},
		{Name: "HTTPS, kept", Kind: traffic.KeptConnection, Address: secure, Host: trafficHost, TLS: config, Rate: 40},
		{Name: "download", Kind: traffic.Download, Address: plain, Host: trafficHost, Rate: 0.5, Duration: download},
		{Name: "gRPC", Kind: traffic.GRPC, Address: plain, Host: grpcHost, Rate: 2, Duration: grpc},
	}
}

// judge ends a load, prints its table, and fails the story if a request failed, or if a stream had no success for long.
func (t *fixture) judge(load *traffic.Load, least int) traffic.Report {
	t.Helper()
	report := t.ended(load, least)
	t.Expect(report.Failed).To(gomega.BeZero())
	t.Expect(report.Silent()).To(gomega.BeEmpty())
	return report
}

// reportsVariable names the folder to which the reports of all loads are written, as JSON.
const reportsVariable = "TRAFFIC_REPORTS"

// ended ends a load, and prints its table. Fewer requests than the least number at its pace, or than a share of the
// rate, fail the story.
func (t *fixture) ended(load *traffic.Load, least int) traffic.Report {
	t.Helper()
	report, err := load.Stop(least)
	t.Log("\n" + report.String())
	if dir := os.Getenv(reportsVariable); dir != "" {
		data, err := json.MarshalIndent(report, "", "  ")
		t.Expect(err).NotTo(gomega.HaveOccurred())
		name := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.T.Name(), "-") + report.Began.UTC().Format("-150405.000") + ".json"
		t.Expect(os.MkdirAll(dir, 0o700)).To(gomega.Succeed())
		t.Expect(os.WriteFile(filepath.Join(dir, name), data, 0o600)).To(gomega.Succeed())
	}
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return report
}

func requestsPass(t *fixture, edge *edgeOfTheGuest) {
	load := edge.load(t)
	t.more(load, 500)
	t.judge(load, 1000)
}

// gatewayPod returns the pod of the gateway. There is one.
func (t *fixture) gatewayPod() *corev1.Pod {
	t.Helper()
	pod, err := t.GatewayPod(t.step(), world.GuestNamespace, trafficGateway)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return pod
}

// undisturbed runs an operation under load. No request may fail, and the gateway's pod must stay. After the operation,
// a new route must reach the gateway. A gateway that has lost istiod keeps what it has, so requests alone do not show
// it.
func (t *fixture) undisturbed(edge *edgeOfTheGuest, operation func()) {
	t.Helper()
	t.undisturbedUnder(edge, edge.load(t), operation)
}

func (t *fixture) undisturbedUnder(edge *edgeOfTheGuest, load *traffic.Load, operation func()) {
	t.Helper()
	before := t.gatewayPod()
	operation()
	t.reconfigured(edge)
	t.more(load, 1000)
	t.judge(load, 1500)
	pod := t.gatewayPod()
	t.Expect(pod.UID).To(gomega.Equal(before.UID), "the gateway's pod is another one")
	t.Expect(restartsOf(pod)).To(gomega.Equal(restartsOf(before)))
}

func hypergateKilled(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	t.undisturbed(edge, func() {
		h.Kill()
		h = t.start()
		t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	})
}

func servesWithoutGuestAPI(t *fixture, edge *edgeOfTheGuest) {
	t.undisturbed(edge, func() {
		back := t.withoutGuestAPI()
		<-time.After(30 * time.Second) // the load goes on meanwhile, and the story is about this time
		back()
	})
}

// servesDuringRotation rotates the mesh CA. The certificate of the edge lives for a day, and stays. A second gateway,
// whose certificate lives for a minute, gets one of the new CA after the rotation.
func servesDuringRotation(t *fixture, edge *edgeOfTheGuest) {
	h := t.start("--ca-overlap", "20s")
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	brief := smallStreams(briefGateway, t.smallGateway(briefGateway, briefLife.String()))
	defer t.deleteSmallGateway(briefGateway)
	t.answered(brief)
	old := t.caFiles()
	t.undisturbedUnder(edge, t.loaded(slices.Concat(edge.streams(20*time.Second, 5*time.Second), brief)), func() {
		_, err := h.Exec(t.step(), "/hypergate", "rotate-ca", "--namespace", t.MgmtNamespace)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		for _, phase := range []string{"spreading", "settling", ""} {
			t.Eventually(t.caPhase, stepTimeout).Should(gomega.Equal(phase))
		}
		t.signedAgain(t.briefPods())
	})
	t.Expect(t.caFiles()["root-cert.pem"]).NotTo(gomega.Equal(old["root-cert.pem"]))
}

func istiodRolls(t *fixture, edge *edgeOfTheGuest) {
	t.undisturbed(edge, func() {
		old := t.istiodPod()
		t.Expect(t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).Delete(t.ctx, old.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
		t.Eventually(func() string { return t.istiodPod().Name }).ShouldNot(gomega.Equal(old.Name))
		t.rolledOut()
	})
}
