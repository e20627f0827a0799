package controller

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/tunnel"
)

// TestRelayProbe checks that istiod counts as reached while a relay is ready, and as unreached only after no relay was
// ready for a while. It counts as probed only before the first relay is ready, and after a time without one was
// reported.
func TestRelayProbe(t *testing.T) {
	t.Parallel()
	var probe relayProbe
	for _, step := range []struct {
		at     time.Duration
		istiod model.Availability
		ready  int
		want   status.EndpointProbe
		again  time.Duration
	}{
		{0, model.Absent, 0, status.EndpointReached(), 0},
		{time.Second, model.Available, 0, status.EndpointProbing(), relayPatience},
		{2 * time.Second, model.Available, 0, status.EndpointProbing(), relayPatience - time.Second},
		{3 * time.Second, model.Available, 1, status.EndpointReached(), 0},
		{4 * time.Second, model.Available, 0, status.EndpointReached(), relayPatience},
		{34 * time.Second, model.Available, 0, status.EndpointReached(), relayPatience - 30*time.Second},
		{4*time.Second + relayPatience, model.Available, 0, status.EndpointWithoutRelays(), 0},
		{time.Hour, model.Available, 0, status.EndpointWithoutRelays(), 0},
		{2 * time.Hour, model.Available, 2, status.EndpointReached(), 0},
		{3 * time.Hour, model.Unavailable, 0, status.EndpointReached(), 0},
		{4 * time.Hour, model.Available, 0, status.EndpointReached(), relayPatience},
		{4*time.Hour + relayPatience, model.Available, 0, status.EndpointWithoutRelays(), 0},
		{5 * time.Hour, model.Unavailable, 0, status.EndpointReached(), 0},
		{6 * time.Hour, model.Available, 0, status.EndpointProbing(), relayPatience},
	} {
		got, again := probe.observe(Probe{}, step.istiod, step.ready, start.Add(step.at))
		if got != step.want || again != step.again {
			t.Errorf("after %s with %d relays: %+v, again in %s; want %+v, %s", step.at, step.ready, got, again, step.want, step.again)
		}
	}
	if got, again := probe.observe(Probe{Off: true}, model.Available, 0, start); got != status.EndpointReached() || again != 0 {
		t.Errorf("the probe is off, and says %+v", got)
	}
}

// TestTheDialerFollowsTheStrategy checks that istiod is asked where it is published now. With --publish=auto, a change
// of the HostedControlPlane ends the tunnel, and the probe must not connect through a relay any more.
func TestTheDialerFollowsTheStrategy(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	published := model.HostPort{Host: "127.0.0.1", Port: uint16(listener.Addr().(*net.TCPAddr).Port)}
	r := &Reconciler{config: model.Config{
		Topology: model.TopologyHosted, Publish: model.Publish{Strategy: model.PublishAuto, RelayImage: "i"},
	}}
	for _, step := range []struct {
		access   string
		byTunnel bool
	}{{"Private", true}, {"Public", false}} {
		plane := model.ControlPlane{
			Name: "guest1", UID: "7f3a", Platform: "AWS", EndpointAccess: step.access,
			Services: []model.PublishedService{{Service: "APIServer", Strategy: "LoadBalancer"}},
		}
		if got := publish.UsesTunnel(r.config, plane); got != step.byTunnel {
			t.Fatalf("%s: by the tunnel: %t", step.access, got)
		}
		r.probeEndpoint(t.Context(), observation{mgmt: model.ManagementObservation{ControlPlane: plane}}, desired.Plan{}, start)
	}
	reached := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.Close()
		}
		reached <- err
	}()
	dial := r.memory.endpointProbe.dial(published)
	if _, err := dial(t.Context(), &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "a"}); err == nil {
		t.Error("it reached an istiod")
	}
	if err := <-reached; err != nil {
		t.Error(err)
	}
}

// TestTheLastHandshakeCountsWithoutARelay checks what is reported while no relay is ready since a moment: the result of
// the last handshake through the tunnel. One with an address that another strategy published does not count.
func TestTheLastHandshakeCountsWithoutARelay(t *testing.T) {
	t.Parallel()
	lost := status.EndpointLost(model.SideGuest, "no answer")
	r := &Reconciler{config: model.Config{
		Topology: model.TopologyHosted, Publish: model.Publish{Strategy: model.PublishAuto, RelayImage: "i"},
	}}
	r.memory.endpointProbe.known = lost
	for _, step := range []struct {
		access string
		ready  int
		want   status.EndpointProbe
		again  time.Duration
	}{
		{"Private", 1, status.EndpointReached(), 0}, // the plan has no address: no handshake
		{"Private", 0, lost, relayPatience},
		{"Public", 0, status.EndpointReached(), 0},
		{"Private", 0, status.EndpointProbing(), relayPatience},
	} {
		o := observation{mgmt: model.ManagementObservation{Istiod: model.Available, ControlPlane: model.ControlPlane{
			Name: "guest1", UID: "7f3a", Platform: "AWS", EndpointAccess: step.access,
			Services: []model.PublishedService{{Service: "APIServer", Strategy: "LoadBalancer"}},
		}}}
		o.guest.ReadyRelays = step.ready
		if got, again := r.probeEndpoint(t.Context(), o, desired.Plan{}, start); got != step.want || again != step.again {
			t.Errorf("%s with %d relays: %+v, again in %s; want %+v, %s", step.access, step.ready, got, again, step.want, step.again)
		}
	}
}

// TestAPodInTheRelaysPlace checks what is reported if a pod of the guest accepts a connection of hypergate as a relay
// does, and ends it instead of passing it on to istiod.
func TestAPodInTheRelaysPlace(t *testing.T) {
	t.Parallel()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
			"Upgrade: " + r.Header.Get("Upgrade") + "\r\n\r\n")
		_ = buffered.Flush()
		accepts := tls.Client(conn, &tls.Config{
			MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"hypergate-gateway/1"},
		})
		if err := accepts.HandshakeContext(r.Context()); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(api.Close)
	_, pair := tunnelPair(t)
	caller := tunnel.Caller{
		Server: api.URL, Token: "a", Cert: pair.Cert, Key: pair.Key,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}),
	}
	_, err := byRelay(caller)(t.Context(), &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "istiod"})
	side, why := unreachedSide(err), unreachedReason(err)
	if side != model.SideGuest || !strings.HasPrefix(why, "the cause is a relay or istiod: ") {
		t.Errorf("%v: %s side: %s", err, side, why)
	}
}

// tunnelPair returns a CA, and a key pair of it for the tunnel.
func tunnelPair(t *testing.T) (pki.CA, pki.Serving) {
	t.Helper()
	ca, err := pki.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Serving(time.Now(), "tunnel")
	if err != nil {
		t.Fatal(err)
	}
	return ca, pair
}

// TestTheSideOfAnUnreachedRelay checks on which side a failed attempt through a relay is to be looked for: a file for
// the tunnel is of the management side. The API server that answers, or does not, and the relays behind it are the
// guest's.
func TestTheSideOfAnUnreachedRelay(t *testing.T) {
	t.Parallel()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.Header.Get("Authorization")[len("Bearer "):])
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(api.Close)
	ca, pair := tunnelPair(t)
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	for _, tc := range []struct {
		reason tunnel.Reason
		caller tunnel.Caller
		want   model.Side
	}{
		{tunnel.Unconfigured, tunnel.Caller{Server: api.URL, CA: roots, Token: "401"}, model.SideMgmt},
		{tunnel.Unreachable, tunnel.Caller{Server: api.URL, CA: ca.Root, Cert: pair.Cert, Key: pair.Key}, model.SideGuest},
		{tunnel.Forbidden, tunnel.Caller{Server: api.URL, CA: roots, Token: "401", Cert: pair.Cert, Key: pair.Key}, model.SideGuest},
		{tunnel.Forbidden, tunnel.Caller{Server: api.URL, CA: roots, Token: "403", Cert: pair.Cert, Key: pair.Key}, model.SideGuest},
		{tunnel.NoRelay, tunnel.Caller{Server: api.URL, CA: roots, Token: "404", Cert: pair.Cert, Key: pair.Key}, model.SideGuest},
		{tunnel.Unavailable, tunnel.Caller{Server: api.URL, CA: roots, Token: "503", Cert: pair.Cert, Key: pair.Key}, model.SideGuest},
	} {
		_, err := tc.caller.DialAny(t.Context(), model.RelayPodNames(), &tls.Config{MinVersion: tls.VersionTLS13})
		if got, _ := tunnel.DialReason(err); got != tc.reason {
			t.Errorf("%v has the reason %q, want %q", err, got, tc.reason)
		}
		probe := endpointProbe{}
		if got, want := probe.failed(err), status.EndpointLost(tc.want, unreachedReason(err)); got != want {
			t.Errorf("%s: %+v, want %+v", tc.reason, got, want)
		}
	}
	if got := unreachedSide(io.EOF); got != model.SideMgmt {
		t.Errorf("without a tunnel, the side is %s", got)
	}
}
