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

// probeTimeout ends a handshake that goes nowhere.
const probeTimeout = 5 * time.Second

// reach is what is known of the way to istiod where it is published. It was seen to answer, by its name and with a certificate of the mesh CA, and that
// holds until something of this changes: the address, the roots, or istiod, which may have come back in another place. Then it is looked at again, and what
// was known before holds until that has failed a few times. The handshake runs beside the passes: an address that swallows connections holds up nothing.
type reach struct {
	probe Probe
	// wake asks for a pass.
	wake  func()
	about looked
	known status.Reach
	// answer is what the handshake under way ends with; nil: there is none.
	answer chan reply
	done   bool
	tries  tries
}

// looked is what a handshake was about.
type looked struct {
	at    desired.HostPort
	roots string
	since time.Time
}

// reply is what a handshake that began at a time ended with.
type reply struct {
	about looked
	began time.Time
	err   error
}

// of is what is known now, and when to ask again; zero: when woken, or not at all.
func (r *reach) of(ctx context.Context, hosted desired.Hosted, plan desired.State, now time.Time) (status.Reach, time.Duration) {
	r.hear()
	published, known := plan.Publication.(desired.Published)
	switch _, awaited := plan.Publication.(desired.Awaited); {
	case hosted.Istiod != desired.Available:
		return status.Reached(), 0
	case awaited:
		return status.Unreached("it has no address"), 0
	case r.probe.Off || !known:
		return status.Reached(), 0
	}
	about := looked{published.At, string(slices.Concat(hosted.CA.Root, []byte("\n"), hosted.Rotation.Next.Root)), hosted.IstiodSince}
	if r.about != about {
		if r.about.at != about.at {
			r.known = status.Proving()
		}
		r.about, r.done, r.tries = about, false, tries{}
	}
	if r.done || r.answer != nil {
		return r.known, 0
	}
	if wait := r.tries.wait(now); wait > 0 {
		return r.known, wait
	}
	r.answer = make(chan reply, 1)
	go func(to chan<- reply) {
		to <- reply{about, now, handshake(context.WithoutCancel(ctx), r.probe.at(about.at), about)}
		r.wake()
	}(r.answer)
	return r.known, 0
}

// last is what is known of an istiod that serves, in a pass that has no plan: nobody looks again, and what was known holds.
func (r *reach) last(hosted desired.Hosted) status.Reach {
	r.hear()
	if hosted.Istiod != desired.Available || r.probe.Off {
		return status.Reached()
	}
	return r.known
}

// hear takes the answer of a handshake that has ended. One about what is asked no more says nothing.
func (r *reach) hear() {
	var a reply
	select {
	case a = <-r.answer:
		r.answer = nil
	default:
		return
	}
	switch {
	case a.about != r.about:
	case a.err == nil:
		r.known, r.done = status.Reached(), true
	default:
		r.tries.failed(a.began, firstProofDelay, maxProofDelay)
		if r.tries.count >= patience {
			r.known = status.Unreached(whyUnreached(a.err))
		}
	}
}

// handshake succeeds if istiod answers.
func handshake(ctx context.Context, address string, about looked) error {
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

// whyUnreached is why a handshake failed, in words that the guest may read and that stay the same from try to try.
func whyUnreached(err error) string {
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
