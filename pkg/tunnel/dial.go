package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Reason is why a sidecar dials again. Metrics and logs use it.
type Reason string

const (
	// Unconfigured: a file of the credential or of the identity cannot be used.
	Unconfigured Reason = "unconfigured"
	// NoIstiod: istiod does not listen, or does not answer. A tunnel to a relay would take gateways away from another
	// istiod.
	NoIstiod Reason = "no_istiod"
	// Unreachable: the guest's API server does not answer, or is not verified.
	Unreachable Reason = "unreachable"
	// Forbidden: the guest's API server answered 401 or 403.
	Forbidden Reason = "forbidden"
	// NoRelay: the guest's API server answered 404, because the pod does not exist.
	NoRelay Reason = "no_relay"
	// Unavailable: another status. The API server could not connect to the relay, or the relay rejected the request.
	Unavailable Reason = "unavailable"
	// Unproven: the handshake with the relay failed.
	Unproven Reason = "unproven"
	// Ended: an open tunnel ended.
	Ended Reason = "ended"
	// Silent: an open tunnel ended because nothing arrived.
	Silent Reason = "silent"
	// Abused: the sidecar ended a tunnel whose relay exceeded a limit.
	Abused Reason = "abused"
	// Aged: a tunnel is replaced because of its age.
	Aged Reason = "aged"
)

// reasons returns all reasons, in the order of the metrics.
func reasons() []Reason {
	return []Reason{Unconfigured, NoIstiod, Unreachable, Forbidden, NoRelay, Unavailable, Unproven, Ended, Silent, Abused, Aged}
}

// dialError is a failed attempt to open a tunnel.
type dialError struct {
	reason Reason
	error
}

// Unwrap returns the cause.
func (e dialError) Unwrap() error { return e.error }

// DialReason returns the reason of a failed Caller.Dial, and whether err is one.
func DialReason(err error) (Reason, bool) {
	failed, is := errors.AsType[dialError](err)
	return failed.reason, is
}

// reasonOf returns the reason of an attempt's failure, or of the end of a tunnel.
func reasonOf(err error) Reason {
	if failed, is := errors.AsType[dialError](err); is {
		return failed.reason
	}
	switch {
	case errors.Is(err, errRefused):
		return NoIstiod
	case errors.Is(err, errSilent):
		return Silent
	case errors.Is(err, errTooMany), errors.Is(err, errRejected), errors.Is(err, errPace),
		errors.Is(err, errPings), errors.Is(err, errUnread), errors.Is(err, errReused):
		return Abused
	default:
		return Ended
	}
}

// ofStatus returns the reason for an API server's answer.
func ofStatus(status int) Reason {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return Forbidden
	case http.StatusNotFound:
		return NoRelay
	default:
		return Unavailable
	}
}

// dial opens a tunnel to a relay, if istiod answers. It fails after limits.dial.
//
// A relay opens a stream on the tunnel with the fewest. With a tunnel to an istiod that does not answer, all gateways
// would try that one again and again, and none would reach the other istiod. istiod is not asked while the API server
// accepts no connection: each check costs istiod a handshake.
func (s *Sidecar) dial(ctx context.Context, to *link) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.dial)
	defer cancel()
	api, err := s.Credential.read()
	if err != nil {
		return nil, dialError{Unconfigured, err}
	}
	identity, err := s.Identity.Read()
	if err != nil {
		return nil, dialError{Unconfigured, err}
	}
	raw, err := apiBuffers().dialer(0).DialContext(ctx, "tcp", api.address)
	if err != nil {
		return nil, dialError{Unreachable, fmt.Errorf("connecting to the guest's API server: %w", err)}
	}
	if err := s.check(ctx); err != nil {
		_ = raw.Close()
		return nil, dialError{NoIstiod, err}
	}
	one, err := s.upgrade(ctx, raw, to, api, identity)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return one, nil
}

// upgrade opens a tunnel on a TCP connection to the API server.
func (s *Sidecar) upgrade(ctx context.Context, raw net.Conn, to *link, api access, identity *tls.Certificate) (*session, error) {
	inner, err := prove(ctx, raw, proxyPath(api.base, s.Namespace, to.relay), api, identity, alpn(s.versions))
	if err != nil {
		return nil, err
	}
	version, err := agreed(s.versions, inner.ConnectionState().NegotiatedProtocol)
	if err != nil {
		return nil, dialError{Unproven, err}
	}
	return newSession(newWire(inner, raw, s.limits, to.inbound, newInbox(&to.unread)), version, s.limits, accepts)
}

// prove opens a connection with a relay on a TCP connection to the API server, and proves to the relay that this end
// has the identity. The end of the context interrupts it.
func prove(
	ctx context.Context, raw net.Conn, path string, api access, identity *tls.Certificate, protocols []string,
) (*proven, error) {
	interrupt := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer interrupt()
	outer := &gatherer{Conn: raw}
	conn := tls.Client(outer, api.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, dialError{Unreachable, fmt.Errorf("the TLS handshake with the guest's API server: %w", err)}
	}
	if _, err := conn.Write(upgradeRequest(path, api.token)); err != nil {
		return nil, dialError{Unreachable, fmt.Errorf("sending the upgrade request: %w", err)}
	}
	from, err := readAnswer(conn)
	if answered, is := errors.AsType[statusError](err); is {
		return nil, dialError{ofStatus(answered.status), err}
	}
	if err != nil {
		return nil, dialError{Unavailable, err}
	}
	between := &gatherer{Conn: behind{conn, from}}
	inner := tls.Server(between, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*identity},
		NextProtos: protocols, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	})
	if err := inner.HandshakeContext(ctx); err != nil {
		return nil, dialError{Unproven, fmt.Errorf("the TLS handshake with the relay: %w", err)}
	}
	if !interrupt() {
		return nil, dialError{Unproven, context.Cause(ctx)}
	}
	return &proven{inner, layers{between, outer}}, nil
}
