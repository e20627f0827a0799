package controller

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/hang"
)

const publishedName = "istiod.apps.example.com"

// server is an HTTP/2 server with a certificate of a CA of its own. It says that it is an istiod of version.
type server struct {
	address string
	ca      pki.CA
	// handshakes is the number of completed handshakes, asked that of requests.
	handshakes, asked atomic.Int32
	version           atomic.Value
}

func serve(t *testing.T, name string) *server {
	t.Helper()
	ca, err := pki.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.Serving(time.Now(), name)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: listener.Addr().String(), ca: ca}
	s.version.Store(plannedVersion)
	web := &http.Server{ReadHeaderTimeout: hang.Deadline, Handler: s, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert,
		VerifyConnection: func(tls.ConnectionState) error { s.handshakes.Add(1); return nil },
	}}
	go func() { _ = web.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = web.Close() })
	return s
}

// ServeHTTP answers each request as an istiod does. Without a version it refuses.
func (s *server) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	s.asked.Add(1)
	version, _ := s.version.Load().(string)
	w.Header().Set("Content-Type", "application/grpc")
	if len(request.TLS.PeerCertificates) == 0 || version == "" {
		w.Header().Set("Grpc-Status", "16")
		return
	}
	message, err := proto.Marshal(&discoveryv3.DiscoveryResponse{
		ControlPlane: &corev3.ControlPlane{Identifier: `{"Info":{"version":"` + version + `"}}`},
	})
	if err == nil {
		_, _ = w.Write(append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
	}
}

// plannedVersion is the planned version of istiod.
const plannedVersion = "1.20.3"

// looker calls an endpointProbe repeatedly, as passes do.
type looker struct {
	gomega.Gomega
	*testing.T
	probe  *endpointProbe
	hosted model.ManagementObservation
	plan   desired.Plan
}

func newLooker(t *testing.T, via string, ca pki.CA) *looker {
	t.Helper()
	l := &looker{Gomega: hang.Gomega(t), T: t, probe: &endpointProbe{probe: Probe{Via: via}, planned: plannedVersion, wake: func() {}}}
	l.hosted = model.ManagementObservation{Istiod: model.Available, IstiodSince: time.Unix(1, 0), CA: ca}
	l.plan.Endpoint = publish.EndpointKnown{At: model.HostPort{Host: publishedName, Port: 443}}
	return l
}

func (l *looker) sees() status.EndpointProbe {
	known, _ := l.probe.observe(l.Context(), l.hosted, l.plan, time.Now())
	return known
}

func (l *looker) version() status.RunningVersion { return l.probe.version(l.hosted) }

func TestEndpointIsReached(t *testing.T) {
	s := serve(t, publishedName)
	l := newLooker(t, s.address, s.ca)
	l.Expect(l.sees()).To(gomega.Equal(status.EndpointProbing()))
	l.Eventually(l.sees).Should(gomega.Equal(status.EndpointReached()))
	l.Expect(l.version()).To(gomega.Equal(status.VersionReported(plannedVersion)))
	for range 100 {
		l.Expect(l.sees()).To(gomega.Equal(status.EndpointReached()))
	}
	l.Expect(s.handshakes.Load()).To(gomega.BeEquivalentTo(1), "there is no further probe while nothing changes")
	l.Expect(s.asked.Load()).To(gomega.BeEquivalentTo(1), "there is no further request while nothing changes")

	t.Log("istiod restarted: the last result is valid until the next probe ends")
	l.hosted.IstiodSince = time.Unix(2, 0)
	s.version.Store("1.19.8")
	l.Expect(l.sees()).To(gomega.Equal(status.EndpointReached()))
	l.Expect(l.version()).To(gomega.Equal(status.VersionAsked()))
	l.Eventually(func() status.RunningVersion { l.sees(); return l.version() }).Should(gomega.Equal(status.VersionReported("1.19.8")))
	l.Expect(s.handshakes.Load()).To(gomega.BeEquivalentTo(2))

	t.Log("another address is probed again")
	l.plan.Endpoint = publish.EndpointKnown{At: model.HostPort{Host: "other.example.com", Port: 443}}
	l.Expect(l.sees()).To(gomega.Equal(status.EndpointProbing()))
	l.Eventually(l.sees).Should(gomega.Equal(
		status.EndpointUnreached(model.SideMgmt, "the server's certificate is not istiod's, or is for another name")))
}

// TestAnEndpointThatGoesAway checks that an endpoint that was reached is probed again after a time.
func TestAnEndpointThatGoesAway(t *testing.T) {
	s := serve(t, publishedName)
	l := newLooker(t, s.address, s.ca)
	l.probe.every = probeEvery
	now := time.Now()
	pass := func() (status.EndpointProbe, time.Duration) {
		return l.probe.observe(l.Context(), l.hosted, l.plan, now)
	}
	reached := func() bool { known, again := pass(); return known == status.EndpointReached() && again == probeEvery }
	l.Eventually(reached).Should(gomega.BeTrue())
	l.Expect(s.handshakes.Load()).To(gomega.BeEquivalentTo(1))

	now = now.Add(probeEvery - time.Second)
	known, again := pass()
	l.Expect(known).To(gomega.Equal(status.EndpointReached()))
	l.Expect(again).To(gomega.Equal(time.Second))
	now = now.Add(time.Second)
	l.Eventually(reached).Should(gomega.BeTrue())
	l.Expect(s.handshakes.Load()).To(gomega.BeEquivalentTo(2))

	t.Log("it goes away, also with another instance of istiod: a few attempts must fail")
	l.probe.probe.Via, l.hosted.IstiodSince = "127.0.0.1:1", time.Unix(2, 0)
	now = now.Add(probeEvery)
	for failed := range probePatience {
		l.Eventually(func() int { known, _ = pass(); return l.probe.failures.Failures() }).Should(gomega.Equal(failed + 1))
		if failed < probePatience-1 {
			l.Expect(known).To(gomega.Equal(status.EndpointReached()))
		}
		now = now.Add(maxProbeDelay)
	}
	l.Expect(known).To(gomega.Equal(status.EndpointLost(model.SideMgmt, "the connection was refused")))

	t.Log("it comes back")
	l.probe.probe.Via = s.address
	l.Eventually(reached).Should(gomega.BeTrue())
	l.Expect(l.probe.failures.Failures()).To(gomega.BeZero())
}

// TestAnAddressThatIsMadeAgainIsNew checks that an address that was not known for a time counts as one that has not
// answered yet, although it is the same name: a new load balancer can get it.
func TestAnAddressThatIsMadeAgainIsNew(t *testing.T) {
	s := serve(t, publishedName)
	l := newLooker(t, s.address, s.ca)
	l.Eventually(l.sees).Should(gomega.Equal(status.EndpointReached()))
	before := l.plan.Endpoint
	l.plan.Endpoint = publish.EndpointPending{Why: "an address"}
	l.Expect(l.sees()).To(gomega.Equal(status.EndpointUnreached(model.SideMgmt, "the address is not known yet")))
	l.Expect(l.probe.isReady(l.hosted)).To(gomega.BeFalse())
	l.plan.Endpoint, l.probe.probe.Via = before, "127.0.0.1:1"
	now := time.Now()
	l.Eventually(func() status.EndpointProbe {
		known, again := l.probe.observe(l.Context(), l.hosted, l.plan, now)
		now = now.Add(again)
		return known
	}).Should(gomega.Equal(status.EndpointUnreached(model.SideMgmt, "the connection was refused")))
}

// TestAnIstiodThatDoesNotSayItsVersion checks that istiod counts as reached, and that it is asked again only a few
// times.
func TestAnIstiodThatDoesNotSayItsVersion(t *testing.T) {
	s := serve(t, publishedName)
	s.version.Store("")
	l := newLooker(t, s.address, s.ca)
	now := time.Now()
	pass := func() (status.EndpointProbe, time.Duration) {
		known, again := l.probe.observe(l.Context(), l.hosted, l.plan, now)
		now = now.Add(again)
		return known, again
	}
	for attempt := 1; attempt <= versionAttempts; attempt++ {
		l.Eventually(func() int32 { pass(); return s.asked.Load() }).Should(gomega.BeEquivalentTo(attempt))
		l.Eventually(func() bool { known, _ := pass(); return known == status.EndpointReached() }).Should(gomega.BeTrue())
	}
	l.Eventually(func() bool { pass(); return l.probe.done }).Should(gomega.BeTrue())
	l.Expect(l.version()).To(gomega.Equal(status.VersionUnknown("istiod refuses to answer, gRPC status 16")))
	_, again := pass()
	l.Expect(again).To(gomega.BeZero())
	l.Expect(s.asked.Load()).To(gomega.BeEquivalentTo(versionAttempts))

	t.Log("a CA that cannot issue a certificate does not keep istiod from being reached")
	l = newLooker(t, s.address, pki.CA{Root: s.ca.Root})
	l.Eventually(l.sees).Should(gomega.Equal(status.EndpointReached()))
	l.Expect(l.version()).To(gomega.Equal(status.VersionAsked()))
}

func TestEndpointProbeFailures(t *testing.T) {
	right, other := serve(t, publishedName), serve(t, "kube-apiserver")
	published := model.HostPort{Host: publishedName, Port: 443}
	for name, tc := range map[string]struct{ via, want string }{
		"another name, as of a router's default": {other.address, "the server's certificate is not istiod's"},
		"nothing listens":                        {"127.0.0.1:1", "the connection was refused"},
		"no such name":                           {"unknown.invalid:443", "its host name does not resolve"},
	} {
		t.Run(name, func(t *testing.T) {
			about := probeTarget{at: published, roots: string(right.ca.Root) + "\n" + string(other.ca.Root)}
			_, err := handshake(t.Context(), byTCP(tc.via), about, tls.Certificate{})
			if err == nil || !strings.HasPrefix(unreachedReason(err), tc.want) {
				t.Errorf("%v: %s", err, unreachedReason(err))
			}
		})
	}
	_, err := handshake(t.Context(), byTCP(right.address), probeTarget{at: published, roots: string(other.ca.Root)}, tls.Certificate{})
	if err == nil || unreachedReason(err) != "the server's certificate is not istiod's, or is for another name" {
		t.Errorf("of another CA: %v", err)
	}
	for want, err := range map[string]error{
		"no route leads there":                         &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH},
		"the connection was closed":                    &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		"the server does not answer the TLS handshake": &net.OpError{Op: "remote error", Err: tls.AlertError(40)},
	} {
		if got := unreachedReason(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// TestAnEndpointThatIsNotProbedIsReached checks that an endpoint that is not probed counts as reached.
func TestAnEndpointThatIsNotProbedIsReached(t *testing.T) {
	for name, edit := range map[string]func(*looker){
		"switched off":    func(l *looker) { l.probe.probe.Off = true },
		"istiod is away":  func(l *looker) { l.hosted.Istiod = model.Unavailable },
		"nothing planned": func(l *looker) { l.plan.Endpoint = nil },
	} {
		l := newLooker(t, "127.0.0.1:1", pki.CA{})
		edit(l)
		if l.sees() != status.EndpointReached() || l.probe.answer != nil {
			t.Errorf("%s: %v", name, l.sees())
		}
	}
}

// TestAPreviewAssumesWhatTheSummaryHas checks that a preview, which does not probe, reports what the summary has.
func TestAPreviewAssumesWhatTheSummaryHas(t *testing.T) {
	for name, tc := range map[string]struct {
		last summary.Summary
		want status.EndpointProbe
		runs status.RunningVersion
	}{
		"no summary": {},
		"reached": {
			last: summary.Summary{
				Istiod: summary.Istiod{Version: "1.2.3"}, Published: summary.Published{State: summary.PublishedReached},
			},
			runs: status.VersionReported("1.2.3"),
		},
		"the version is not known": {last: summary.Summary{Published: summary.Published{State: summary.PublishedReached}}},
		"probing": {
			last: summary.Summary{Published: summary.Published{State: summary.PublishedProbing}}, want: status.EndpointProbing(),
		},
		"unreached": {
			last: summary.Summary{
				Istiod: summary.Istiod{Version: "1.2.3"}, Published: summary.Published{State: summary.PublishedUnreached},
			},
			want: status.EndpointUnreached(model.SideMgmt, "the cause is in hypergate's own conditions"),
			runs: status.VersionReported("1.2.3"),
		},
	} {
		l := newLooker(t, "127.0.0.1:1", pki.CA{})
		l.probe.probe.Off = true
		l.probe.assume(tc.last)
		got, runs := l.sees(), l.probe.version(l.hosted)
		if got != tc.want || runs != tc.runs || l.probe.answer != nil {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, runs, tc.want, tc.runs)
		}
	}
}

// TestIstiodWithoutAddressIsUnreached checks that an istiod without an address counts as unreached, even if the probe
// is off.
func TestIstiodWithoutAddressIsUnreached(t *testing.T) {
	l := newLooker(t, "127.0.0.1:1", pki.CA{})
	l.probe.probe.Off, l.plan.Endpoint = true, publish.EndpointPending{Why: "an address"}
	if got := l.sees(); got != status.EndpointUnreached(model.SideMgmt, "the address is not known yet") {
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
		if got := tc.probe.target(model.HostPort{Host: tc.host, Port: 443}); got != tc.want {
			t.Errorf("%s: %s, not %s", name, got, tc.want)
		}
	}
}
