package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/hang"
)

const publishedName = "istiod.apps.example.com"

// server is a TLS server with a self-signed certificate.
type server struct {
	address string
	root    []byte
	// handshakes is the number of completed handshakes.
	handshakes atomic.Int32
}

func serve(t *testing.T, name string) *server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &server{address: listener.Addr().String(), root: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if conn.(*tls.Conn).HandshakeContext(context.Background()) == nil {
					s.handshakes.Add(1)
				}
				_ = conn.Close()
			}()
		}
	}()
	return s
}

// looker calls an endpointProbe repeatedly, as passes do.
type looker struct {
	gomega.Gomega
	*testing.T
	probe  *endpointProbe
	hosted model.ManagementObservation
	plan   desired.Plan
}

func newLooker(t *testing.T, via string, root []byte) *looker {
	t.Helper()
	l := &looker{Gomega: hang.Gomega(t), T: t, probe: &endpointProbe{probe: Probe{Via: via}, wake: func() {}}}
	l.hosted = model.ManagementObservation{Istiod: model.Available, IstiodSince: time.Unix(1, 0), CA: pki.CA{Root: root}}
	l.plan.Endpoint = publish.EndpointKnown{At: model.HostPort{Host: publishedName, Port: 443}}
	return l
}

func (l *looker) sees() status.EndpointProbe {
	known, _ := l.probe.observe(l.Context(), l.hosted, l.plan, time.Now())
	return known
}

func TestEndpointIsReached(t *testing.T) {
	s := serve(t, publishedName)
	l := newLooker(t, s.address, s.root)
	l.Expect(l.sees()).To(gomega.Equal(status.EndpointProbing()))
	l.Eventually(l.sees).Should(gomega.Equal(status.EndpointReached()))
	l.Eventually(s.handshakes.Load).Should(gomega.BeEquivalentTo(1))
	for range 100 {
		l.Expect(l.sees()).To(gomega.Equal(status.EndpointReached()))
	}
	l.Expect(s.handshakes.Load()).To(gomega.BeEquivalentTo(1), "there is no further probe while nothing changes")

	t.Log("istiod restarted: the last result is valid until the next probe ends")
	l.hosted.IstiodSince = time.Unix(2, 0)
	l.Expect(l.sees()).To(gomega.Equal(status.EndpointReached()))
	l.Eventually(func() int32 { l.sees(); return s.handshakes.Load() }).Should(gomega.BeEquivalentTo(2))

	t.Log("another address is probed again")
	l.plan.Endpoint = publish.EndpointKnown{At: model.HostPort{Host: "other.example.com", Port: 443}}
	l.Expect(l.sees()).To(gomega.Equal(status.EndpointProbing()))
	l.Eventually(l.sees).Should(gomega.Equal(status.EndpointUnreached("the certificate there is not istiod's, or is for another name")))
}

func TestEndpointProbeFailures(t *testing.T) {
	right, other := serve(t, publishedName), serve(t, "kube-apiserver")
	published := model.HostPort{Host: publishedName, Port: 443}
	closed, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		t.Fatal(err)
	}
	refused := closed.Addr().String()
	_ = closed.Close()
	for name, tc := range map[string]struct{ via, want string }{
		"another name, as of a router's default": {other.address, "the certificate there is not istiod's"},
		"nothing listens":                        {refused, "the connection was refused or closed"},
		"no such name":                           {"unknown.invalid:443", "its host name does not resolve"},
	} {
		t.Run(name, func(t *testing.T) {
			err := handshake(t.Context(), byTCP(tc.via), probeTarget{at: published, roots: string(right.root) + "\n" + string(other.root)})
			if err == nil || !strings.HasPrefix(unreachedReason(err), tc.want) {
				t.Errorf("%v: %s", err, unreachedReason(err))
			}
		})
	}
	err = handshake(t.Context(), byTCP(right.address), probeTarget{at: published, roots: string(other.root)})
	if err == nil || unreachedReason(err) != "the certificate there is not istiod's, or is for another name" {
		t.Errorf("of another CA: %v", err)
	}
}

// TestAnEndpointThatIsNotProbedIsReached checks that an endpoint that is not probed counts as reached.
func TestAnEndpointThatIsNotProbedIsReached(t *testing.T) {
	for name, edit := range map[string]func(*looker){
		"switched off":    func(l *looker) { l.probe.probe.Off = true },
		"istiod is away":  func(l *looker) { l.hosted.Istiod = model.Unavailable },
		"nothing planned": func(l *looker) { l.plan.Endpoint = nil },
	} {
		l := newLooker(t, "127.0.0.1:1", nil)
		edit(l)
		if l.sees() != status.EndpointReached() || l.probe.answer != nil {
			t.Errorf("%s: %v", name, l.sees())
		}
	}
}

// TestIstiodWithoutAddressIsUnreached checks that an istiod without an address counts as unreached, even if the probe
// is off.
func TestIstiodWithoutAddressIsUnreached(t *testing.T) {
	l := newLooker(t, "127.0.0.1:1", nil)
	l.probe.probe.Off, l.plan.Endpoint = true, publish.EndpointPending{Why: "an address"}
	if got := l.sees(); got != status.EndpointUnreached("it has no address") {
		t.Errorf("%v", got)
	}
}

func TestEndpointProbeAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		probe Probe
		host  string
		want  string
	}{
		"there":          {Probe{}, "istiod.apps.example.com", "istiod.apps.example.com:443"},
		"a private link": {Probe{}, "istiod.apps.guest1.hypershift.local", "private-router:443"},
		"elsewhere":      {Probe{Via: "192.0.2.7:8443"}, "istiod.apps.guest1.hypershift.local", "192.0.2.7:8443"},
	} {
		if got := tc.probe.at(model.HostPort{Host: tc.host, Port: 443}); got != tc.want {
			t.Errorf("%s: %s, not %s", name, got, tc.want)
		}
	}
}
