package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Caller connects to istiod through a relay, as a gateway does, from outside of the guest. It proves to the relay that
// it has the sidecar's identity, because the network policy of the relays does not restrict this way.
type Caller struct {
	// Server is the URL of the guest's API server, CA verifies it, in PEM, and Token is for it.
	Server, Token string
	CA            []byte
	// Cert and Key are the key pair of the sidecar, in PEM.
	Cert, Key []byte
	// Namespace has the relay pods.
	Namespace string
}

// Dial returns a connection to istiod through a relay pod. It fails when the context ends, and after dialTime. An error
// contains neither the token nor the address.
func (c Caller) Dial(ctx context.Context, relay string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CA) {
		return nil, dialError{Unconfigured, errors.New("the CA of the guest's API server has no certificate in PEM")}
	}
	api, err := newAccess(c.Server, c.Token, roots)
	if err != nil {
		return nil, dialError{Unconfigured, err}
	}
	identity, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, dialError{Unconfigured, fmt.Errorf("the key pair for the relays: %w", err)}
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", api.address)
	if err != nil {
		return nil, dialError{Unreachable, fmt.Errorf("connecting to the guest's API server: %w", err)}
	}
	inner, err := prove(ctx, raw, proxyPath(api.base, c.Namespace, relay), api, &identity, []string{gatewayProtocol})
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	if got := inner.ConnectionState().NegotiatedProtocol; got != gatewayProtocol {
		_ = raw.Close()
		return nil, dialError{Unproven, errors.New("the relay does not support connections of hypergate: its version is older")}
	}
	return inner, nil
}

// DialAny returns a connection to istiod, whose TLS handshake is complete, through the first relay by which istiod
// answers. It begins with any of them, and with the next one after nextRelayTime, or when an attempt fails. So a relay
// hides no other one, whether it does not answer, or has no tunnel, or its istiod hangs.
//
// An error has those of the attempts that came furthest, in the order of the relays, so that it does not change with
// the first one. An attempt that reached a relay shows more than one that did not.
func (c Caller) DialAny(ctx context.Context, relays []string, istiod *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the attempts that are left; a connection does not depend on it
	all := &attempts{caller: c, istiod: istiod, relays: relays, results: make(chan attempt, len(relays))}
	order, failed := rand.Perm(len(relays)), make([]error, len(relays)) //nolint:gosec // It only spreads load.
	for len(order) > 0 || all.running > 0 {
		if len(order) > 0 {
			all.begin(ctx, order[0])
			order = order[1:]
		}
		one, ended := all.next(len(order) > 0)
		switch {
		case !ended:
		case one.err == nil:
			all.abandon()
			return one.conn, nil
		default:
			failed[one.relay] = fmt.Errorf("through %s: %w", relays[one.relay], one.err)
		}
	}
	return nil, errors.Join(furthest(failed)...)
}

// furthest returns the errors of the attempts that reached a relay, or else all of them.
func furthest(failed []error) []error {
	reached := slices.DeleteFunc(slices.Clone(failed), func(err error) bool {
		_, is := DialReason(err)
		return is
	})
	if len(reached) > 0 {
		return reached
	}
	return failed
}

// dialIstiod is Dial with the TLS handshake with istiod, all within dialTime.
func (c Caller) dialIstiod(ctx context.Context, relay string, istiod *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return OverTLS(ctx, func(ctx context.Context) (net.Conn, error) { return c.Dial(ctx, relay) }, istiod)
}

// OverTLS returns a connection to istiod whose TLS handshake is complete, over the connection of dial. If the handshake
// fails, it closes that connection.
func OverTLS(ctx context.Context, dial func(context.Context) (net.Conn, error), istiod *tls.Config) (*tls.Conn, error) {
	plain, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, istiod)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, fmt.Errorf("the TLS handshake with istiod: %w", err)
	}
	return conn, nil
}

// attempts are the attempts of a call of DialAny.
type attempts struct {
	caller  Caller
	istiod  *tls.Config
	relays  []string
	results chan attempt // has room for all
	running int
}

// attempt is the result for one relay.
type attempt struct {
	relay int
	conn  *tls.Conn
	err   error
}

func (a *attempts) begin(ctx context.Context, relay int) {
	a.running++
	go func() {
		conn, err := a.caller.dialIstiod(ctx, a.relays[relay], a.istiod)
		a.results <- attempt{relay, conn, err}
	}()
}

// next waits for a result, and not longer than nextRelayTime if there are more relays. It reports whether there is one.
func (a *attempts) next(more bool) (attempt, bool) {
	var over <-chan time.Time
	if more {
		over = time.After(nextRelayTime)
	}
	select {
	case one := <-a.results:
		a.running--
		return one, true
	case <-over:
		return attempt{}, false
	}
}

// abandon closes the connections of the attempts that are left, when they end.
func (a *attempts) abandon() {
	for range a.running {
		go func() {
			if one := <-a.results; one.err == nil {
				_ = one.conn.Close()
			}
		}()
	}
}
