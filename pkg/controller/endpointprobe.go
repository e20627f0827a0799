package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/pkg/tunnel"
)

// Probe is how istiod's endpoint is probed. The zero value is a TLS handshake with the published address.
type Probe struct {
	// Off disables the probe. It is for a management cluster that cannot reach an address that the guest's nodes can.
	Off bool
	// Via is the host:port to connect to instead of the published address. The handshake still uses the published name.
	Via string
}

// The names of a private link can be resolved only in the guest's network. They lead to the router of the hosted
// control plane, which is in the control plane namespace (hypershift
// control-plane-operator/controllers/awsprivatelink).
const (
	privateDomain = ".hypershift.local"
	privateRouter = "private-router:443"
)

// target returns the address to connect to.
func (p Probe) target(published model.HostPort) string {
	switch {
	case p.Via != "":
		return p.Via
	case strings.HasSuffix(published.Host, privateDomain):
		return privateRouter
	default:
		return published.String()
	}
}

// endpointProbe is what is known of istiod's endpoint. A successful handshake verifies the name, and a certificate of
// the mesh CA. Over the same connection, istiod is asked for its version. Both results are valid until the address, the
// roots, or the instance of istiod changes, because istiod may be in another place then.
//
// After such a change, and after a time, the endpoint is probed again. The last result stays valid until a few attempts
// have failed. The handshake runs in its own goroutine, so an address that drops all packets delays no pass.
//
// An address that answered, and fails now, is lost. Another instance of istiod, or other roots, do not change that. An
// address that comes back after none was known counts as a new one: a load balancer that is made again can get the same
// name. A process does not know what answered before it started.
type endpointProbe struct {
	probe Probe
	// dial returns how to connect to istiod where it is published. Nil: by TCP.
	dial func(published model.HostPort) dialer
	// every is how often an endpoint that was reached is probed again. Zero: never. A load balancer can stop to work,
	// or a DNS record can disappear, without an event on any cluster.
	every time.Duration
	// wake requests a pass.
	wake func()
	// planned is the version that istiod should have.
	planned string
	target  probeTarget
	// known and running are the results. Without a probe they keep their zero values, or those of assume.
	known   status.EndpointProbe
	running status.RunningVersion
	// answer receives the result of the running handshake. Nil: no handshake is running.
	answer   chan probeResult
	done     bool
	failures throttle.Backoff
	// unanswered counts the attempts in which istiod was reached, and did not answer which version it has.
	unanswered throttle.Backoff
	// seen is when istiod last answered. Zero: it did not yet. answered is what answered. It is zero while no address
	// is known.
	seen     time.Time
	answered probeTarget
}

// probeTarget is the subject of a handshake.
type probeTarget struct {
	at    model.HostPort
	roots string
	since time.Time
}

// probeResult is the result of a handshake, and when it began. version is what istiod answered after a handshake that
// succeeded, or unanswered is why it did not.
type probeResult struct {
	about      probeTarget
	began      time.Time
	err        error
	version    string
	unanswered error
}

// observe returns what is known now, and when to call it again. Zero: when woken, or not at all.
func (r *endpointProbe) observe(
	ctx context.Context, hosted model.ManagementObservation, plan desired.Plan, now time.Time,
) (status.EndpointProbe, time.Duration) {
	r.collect()
	published, known := plan.Endpoint.(publish.EndpointKnown)
	switch _, awaited := plan.Endpoint.(publish.EndpointPending); {
	case hosted.Istiod != model.Available:
		return status.EndpointReached(), 0
	case awaited:
		r.turnTo(probeTarget{})
		r.answered = probeTarget{}
		return status.EndpointUnreached(model.SideMgmt, "the address is not known yet"), 0
	case !known:
		return status.EndpointReached(), 0
	case r.probe.Off:
		return r.known, 0
	}
	about := probeTarget{published.At, string(slices.Concat(hosted.CA.Root, []byte("\n"), hosted.Rotation.Next.Root)), hosted.IstiodSince}
	r.turnTo(about)
	wait, due := r.due(now)
	if !due {
		return r.known, wait
	}
	r.done, r.answer = false, make(chan probeResult, 1)
	dial := byTCP(r.probe.target(about.at))
	if r.dial != nil {
		dial = r.dial(about.at)
	}
	go func(to chan<- probeResult, ca pki.CA, planned string) {
		to <- ask(context.WithoutCancel(ctx), dial, probeResult{about: about, began: now}, ca, planned)
		r.wake()
	}(r.answer, hosted.CA, r.planned)
	return r.known, 0
}

// due reports whether a handshake is due, and otherwise when it is. Zero: when something changes, or when the running
// handshake ends.
func (r *endpointProbe) due(now time.Time) (wait time.Duration, is bool) {
	switch {
	case r.answer != nil, r.done && r.every == 0:
		return 0, false
	case r.done:
		wait = r.seen.Add(r.every).Sub(now)
	default:
		wait = max(r.failures.Wait(now), r.unanswered.Wait(now))
	}
	return max(wait, 0), wait <= 0
}

// turnTo begins with another target, if it is another one. The last results stay valid until the next ones, unless they
// are about another address or instance.
func (r *endpointProbe) turnTo(about probeTarget) {
	if r.target == about {
		return
	}
	if r.target.at != about.at {
		r.known = status.EndpointProbing()
	}
	if r.target.at != about.at || !r.target.since.Equal(about.since) {
		r.running = status.VersionAsked()
	}
	r.target, r.done, r.failures, r.unanswered = about, false, throttle.Backoff{}, throttle.Backoff{}
}

// last returns what is known of a running istiod in a pass without a plan. It starts no handshake.
func (r *endpointProbe) last(hosted model.ManagementObservation) status.EndpointProbe {
	r.collect()
	if hosted.Istiod != model.Available {
		return status.EndpointReached()
	}
	return r.known
}

// assume takes over what a summary has of the endpoint, for a preview, which does not probe. The summary does not have
// the cause of a failed probe.
func (r *endpointProbe) assume(last summary.Summary) {
	if version := last.Istiod.Version; version != "" {
		r.running = status.VersionReported(version)
	}
	switch last.Published.State {
	case summary.PublishedProbing:
		r.known = status.EndpointProbing()
	case summary.PublishedUnreached:
		r.known = status.EndpointUnreached(model.SideMgmt, "the cause is in hypergate's own conditions")
	}
}

// isReady reports whether the newest istiod is rolled out, and has answered where it is published.
func (r *endpointProbe) isReady(hosted model.ManagementObservation) bool {
	if !isRolledOut(hosted) {
		return false
	}
	return r.probe.Off || r.answered.since.Equal(hosted.IstiodSince) && r.answered.at != (model.HostPort{})
}

// isRolledOut reports whether the newest istiod is available.
func isRolledOut(hosted model.ManagementObservation) bool {
	return hosted.Istiod == model.Available && hosted.Rollout == model.RolledOut
}

// collect takes the result of a handshake that has ended. It discards the result for an old target.
func (r *endpointProbe) collect() {
	var a probeResult
	select {
	case a = <-r.answer:
		r.answer = nil
	default:
		return
	}
	switch {
	case a.about != r.target:
	case a.err == nil:
		r.known, r.seen, r.answered, r.failures = status.EndpointReached(), a.began, a.about, throttle.Backoff{}
		r.heard(a)
	default:
		r.failures.Failed(a.began, firstProbeDelay, maxProbeDelay)
		if r.failures.Failures() >= probePatience {
			r.known = r.failed(a.err)
		}
	}
}

// failed returns the result of a handshake that failed: whether istiod answered at this address before. Another
// instance of istiod is behind the same address.
func (r *endpointProbe) failed(err error) status.EndpointProbe {
	side, why := unreachedSide(err), unreachedReason(err)
	if r.answered.at == r.target.at {
		return status.EndpointLost(side, why)
	}
	return status.EndpointUnreached(side, why)
}

// dialer connects to istiod, and completes the TLS handshake: only that shows that istiod answers.
type dialer = func(ctx context.Context, istiod *tls.Config) (*tls.Conn, error)

// byTCP returns how to connect to an address.
func byTCP(address string) dialer {
	return overTLS(func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", address) })
}

// overTLS returns how to connect to istiod over a connection that leads to it.
func overTLS(dial func(context.Context) (net.Conn, error)) dialer {
	return func(ctx context.Context, istiod *tls.Config) (*tls.Conn, error) {
		return tunnel.OverTLS(ctx, dial, istiod)
	}
}

// handshake connects to istiod. The caller closes the connection. Without an error, istiod answered. The certificate is
// for a server that requests one.
func handshake(ctx context.Context, dial dialer, about probeTarget, certificate tls.Certificate) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bytes.TrimSpace([]byte(about.roots)))
	return dial(ctx, &tls.Config{
		ServerName: about.at.Host, RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
	})
}

// unreachedSide returns where to look for the reason of a failed handshake. The guest's API server and the relays
// behind it are on the guest's side, and so is what fails behind a relay, because that one comes first. What hypergate
// presents to them is on the management side, and so is istiod.
func unreachedSide(err error) model.Side {
	if reason, is := tunnel.DialReason(err); is && reason != tunnel.Unconfigured {
		return model.SideGuest
	}
	if _, is := errors.AsType[behindRelayError](err); is {
		return model.SideGuest
	}
	return model.SideMgmt
}

// unreachedReason returns why a handshake failed. The text is for a condition in the guest, and is the same for each
// attempt.
func unreachedReason(err error) string {
	if reason, is := tunnel.DialReason(err); is {
		return "no relay of the tunnel can be reached: " + string(reason)
	}
	if behind, is := errors.AsType[behindRelayError](err); is {
		return "the cause is a relay or istiod: " + unreachedReason(behind.error)
	}
	if _, is := errors.AsType[*net.DNSError](err); is {
		return "its host name does not resolve"
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return "the server's certificate is not istiod's, or is for another name"
	}
	if timeout, is := errors.AsType[net.Error](err); errors.Is(err, context.DeadlineExceeded) || is && timeout.Timeout() {
		return "no answer"
	}
	for errno, reason := range map[syscall.Errno]string{
		syscall.ECONNREFUSED: "the connection was refused",
		syscall.ECONNRESET:   "the connection was closed",
		syscall.EPIPE:        "the connection was closed",
		syscall.EHOSTUNREACH: "no route leads there",
		syscall.ENETUNREACH:  "no route leads there",
	} {
		if errors.Is(err, errno) {
			return reason
		}
	}
	return "the server does not answer the TLS handshake"
}
