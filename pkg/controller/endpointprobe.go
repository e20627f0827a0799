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
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// Probe is how it is proven that istiod answers where it is published. The zero value: by a TLS handshake at that address.
type Probe struct {
	// Off: nobody looks, as where the management side cannot reach what the guest's nodes can.
	Off bool
	// Via is host:port to connect to in place of the published address, whose name is asked for all the same.
	Via string
}

// The names of a private link are known to the guest's network only. What they lead to is the hosted control plane's own router, a neighbour
// (hypershift control-plane-operator/controllers/awsprivatelink).
const (
	privateDomain = ".hypershift.local"
	privateRouter = "private-router:443"
)

// at is where to connect to.
func (p Probe) at(published desired.HostPort) string {
	switch {
	case p.Via != "":
		return p.Via
	case strings.HasSuffix(published.Host, privateDomain):
		return privateRouter
	default:
		return published.String()
	}
}

// endpointProbe is what is known of the way to istiod where it is published. It was seen to answer, by its name and with a certificate of the mesh CA, and that
// holds until something of this changes: the address, the roots, or istiod, which may have come back in another place. Then it is looked at again, and what
// was known before holds until that has failed a few times. The handshake runs beside the passes: an address that swallows connections holds up nothing.
type endpointProbe struct {
	probe Probe
	// wake asks for a pass.
	wake   func()
	target probeTarget
	known  status.EndpointProbe
	// answer is what the handshake under way ends with; nil: there is none.
	answer   chan probeResult
	done     bool
	failures throttle.Backoff
}

// probeTarget is what a handshake was about.
type probeTarget struct {
	at    desired.HostPort
	roots string
	since time.Time
}

// probeResult is what a handshake that began at a time ended with.
type probeResult struct {
	about probeTarget
	began time.Time
	err   error
}

// observe returns what is known now, and when to ask again; zero: when woken, or not at all.
func (r *endpointProbe) observe(ctx context.Context, hosted desired.ManagementObservation, plan desired.Plan, now time.Time) (status.EndpointProbe, time.Duration) {
	r.collect()
	published, known := plan.Endpoint.(desired.EndpointKnown)
	switch _, awaited := plan.Endpoint.(desired.EndpointPending); {
	case hosted.Istiod != desired.Available:
		return status.EndpointReached(), 0
	case awaited:
		return status.EndpointUnreached("it has no address"), 0
	case r.probe.Off || !known:
		return status.EndpointReached(), 0
	}
	about := probeTarget{published.At, string(slices.Concat(hosted.CA.Root, []byte("\n"), hosted.Rotation.Next.Root)), hosted.IstiodSince}
	if r.target != about {
		if r.target.at != about.at {
			r.known = status.EndpointProbing()
		}
		r.target, r.done, r.failures = about, false, throttle.Backoff{}
	}
	if r.done || r.answer != nil {
		return r.known, 0
	}
	if wait := r.failures.Wait(now); wait > 0 {
		return r.known, wait
	}
	r.answer = make(chan probeResult, 1)
	go func(to chan<- probeResult) {
		to <- probeResult{about, now, handshake(context.WithoutCancel(ctx), r.probe.at(about.at), about)}
		r.wake()
	}(r.answer)
	return r.known, 0
}

// last is what is known of an istiod that serves, in a pass that has no plan: nobody looks again, and what was known holds.
func (r *endpointProbe) last(hosted desired.ManagementObservation) status.EndpointProbe {
	r.collect()
	if hosted.Istiod != desired.Available || r.probe.Off {
		return status.EndpointReached()
	}
	return r.known
}

// collect takes the answer of a handshake that has ended. One about what is asked no more says nothing.
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
		r.known, r.done = status.EndpointReached(), true
	default:
		r.failures.Failed(a.began, firstProbeDelay, maxProbeDelay)
		if r.failures.Failures() >= probePatience {
			r.known = status.EndpointUnreached(unreachedReason(a.err))
		}
	}
}

// handshake succeeds if istiod answers.
func handshake(ctx context.Context, address string, about probeTarget) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bytes.TrimSpace([]byte(about.roots)))
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: about.at.Host, RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// unreachedReason is why a handshake failed, in words that the guest may read and that stay the same from try to try.
func unreachedReason(err error) string {
	if _, is := errors.AsType[*net.DNSError](err); is {
		return "its name is not known"
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return "another server answers there, or by another name"
	}
	if timeout, is := errors.AsType[net.Error](err); errors.Is(err, context.DeadlineExceeded) || is && timeout.Timeout() {
		return "no answer"
	}
	if _, is := errors.AsType[*net.OpError](err); is {
		return "the connection is refused or broken"
	}
	return "what answers there does not speak TLS as istiod does"
}
