package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
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
	trafficHost    = "shop.guest1.example.com"
	grpcHost       = "grpc.guest1.example.com"
)

// TestTraffic runs the stories with real gateways on real nodes of the guest, under load from outside.
func TestTraffic(t *testing.T) {
	t.Parallel()
	world := alone(t, world.Options{Name: "e2e-traffic", GuestNodes: 2})
	edge := world.trafficGateway()
	for _, s := range []struct {
		name string
		tell func(*teller, *edgeOfTheGuest)
	}{
		{"requests go through a gateway that istiod programs", requestsPass},
		{"istiod is replaced, and no request fails", istiodRolls},
	} {
		t.Run(s.name, func(t *testing.T) {
			teller := *world
			teller.T, teller.Gomega = t, hang.Gomega(t)
			s.tell(&teller, edge)
		})
	}
}

// edgeOfTheGuest is a gateway with a certificate, seen from outside.
type edgeOfTheGuest struct {
	address string
	roots   *x509.CertPool
}

// trafficGateway installs hypergate, a gateway and its backend.
func (t *teller) trafficGateway() *edgeOfTheGuest {
	t.Helper()
	t.installed()
	certificate, key, roots := t.certificate(trafficHost, grpcHost)
	_, err := t.GuestClient.CoreV1().Secrets(world.GuestNamespace).Create(t.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-certificate"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.Apply(t.step(), "traffic.yaml", map[string]string{
		"namespace": "shop", "image": world.BackendImage, "gateway": trafficGateway, "gatewayNamespace": world.GuestNamespace, "class": class,
		"certificate": "edge-certificate", "host": trafficHost, "grpcHost": grpcHost,
	})).To(gomega.Succeed())
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, trafficGateway)).To(gomega.Succeed())
	gateway, err := t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, trafficGateway, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(gateway.Status.Addresses).NotTo(gomega.BeEmpty())
	t.available(world.GuestNamespace, trafficGateway+"-"+class)
	t.available("shop", "backend")
	return &edgeOfTheGuest{address: gateway.Status.Addresses[0].Value, roots: roots}
}

// available waits until all pods of a Deployment of the guest are ready.
func (t *teller) available(namespace, name string) {
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
func (t *teller) certificate(names ...string) (certificate, key []byte, roots *x509.CertPool) {
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

// load starts the load of the stories: 200 short requests per second, downloads and gRPC streams.
func (e *edgeOfTheGuest) load(t *teller) *traffic.Load {
	t.Helper()
	plain, secure := net.JoinHostPort(e.address, "80"), net.JoinHostPort(e.address, "443")
	config := &tls.Config{RootCAs: e.roots, MinVersion: tls.VersionTLS12}
	load, err := traffic.Start(t.ctx,
		traffic.Stream{Name: "HTTP, new", Kind: traffic.NewConnection, Address: plain, Host: trafficHost, Rate: 40},
		traffic.Stream{Name: "HTTP, kept", Kind: traffic.KeptConnection, Address: plain, Host: trafficHost, Rate: 100},
		traffic.Stream{Name: "HTTPS, new", Kind: traffic.NewConnection, Address: secure, Host: trafficHost, TLS: config, Rate: 20},
		traffic.Stream{Name: "HTTPS, kept", Kind: traffic.KeptConnection, Address: secure, Host: trafficHost, TLS: config, Rate: 40},
		traffic.Stream{
			Name: "download", Kind: traffic.Download, Address: plain, Host: trafficHost, Rate: 0.5, Duration: 20 * time.Second,
		},
		traffic.Stream{
			Name: "gRPC", Kind: traffic.GRPC, Address: plain, Host: grpcHost, Rate: 2, Duration: 5 * time.Second,
		})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return load
}

// judge ends a load, prints its table, and fails the story if a request failed.
func (t *teller) judge(load *traffic.Load, least int) {
	t.Helper()
	report, err := load.Stop(least)
	t.Log("\n" + report.String())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(report.Failed).To(gomega.BeZero())
}

func requestsPass(t *teller, edge *edgeOfTheGuest) {
	load := edge.load(t)
	t.Eventually(load.Sent).Should(gomega.BeNumerically(">", 1000))
	t.judge(load, 1000)
}

func istiodRolls(t *teller, edge *edgeOfTheGuest) {
	load := edge.load(t)
	t.Eventually(load.Sent).Should(gomega.BeNumerically(">", 500))
	old := t.istiodPod()
	t.Expect(t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).Delete(t.ctx, old.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Eventually(func() string { return t.istiodPod().Name }).ShouldNot(gomega.Equal(old.Name))
	t.rolledOut()
	after := load.Sent()
	t.Eventually(load.Sent).Should(gomega.BeNumerically(">", after+1000))
	t.judge(load, 1500)
}
