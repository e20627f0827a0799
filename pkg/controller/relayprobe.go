package controller

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/pkg/tunnel"
)

// relayProbe is whether a relay of the tunnel can take gateways: it is ready while it holds a tunnel. Then a handshake
// with istiod through the relay shows whether gateways reach istiod.
type relayProbe struct {
	unready throttle.Debounce
	// wasReady is whether a relay was ready, and no time without one has been reported since.
	wasReady bool
}

// observe returns what the relays show, and when to ask again. Zero: when woken. Without istiod, no relay can be ready.
// A result "reached" with a time means that no relay is ready since a moment, and that the last handshake still counts.
func (r *relayProbe) observe(
	probe Probe, istiod model.Availability, ready int, now time.Time,
) (status.EndpointProbe, time.Duration) {
	missing := istiod == model.Available && ready == 0 && !probe.Off
	wait := r.unready.WaitFor(missing, now, relayPatience)
	r.wasReady = ready > 0 || r.wasReady && (!missing || wait > 0)
	switch {
	case !missing:
		return status.EndpointReached(), 0
	case wait == 0:
		return status.EndpointWithoutRelays(), 0
	case r.wasReady:
		return status.EndpointReached(), wait
	default:
		return status.EndpointProbing(), wait
	}
}

// dialer returns how hypergate connects to istiod, by the strategy that publishes it now: through a relay of the
// tunnel, or by TCP to its published address. Everything that asks istiod something uses it.
func (r *Reconciler) dialer(plane model.ControlPlane, published model.HostPort) dialer {
	address, is := r.address(plane, published)
	if !is {
		return r.throughRelay()
	}
	return byTCP(address)
}

// address returns the address to which hypergate connects by TCP, or false if it connects through a relay.
func (r *Reconciler) address(plane model.ControlPlane, published model.HostPort) (string, bool) {
	if publish.UsesTunnel(r.config, plane) {
		return "", false
	}
	return r.memory.endpointProbe.probe.target(published), true
}

// throughRelay returns how hypergate connects to istiod as gateways do: through the guest's API server and a relay,
// with what istiod's sidecar has. The first relay by which istiod answers is used.
func (r *Reconciler) throughRelay() dialer {
	api, token := r.guest.OwnAPI(), r.memory.secrets.Credential(model.SidecarBearer).Token
	pair := r.memory.secrets.Serving()
	caller := tunnel.Caller{
		Server: api.Server, CA: api.CABundle, Token: token, Cert: pair.Cert, Key: pair.Key, Namespace: r.config.GuestNamespace,
	}
	return byRelay(caller)
}

// byRelay returns how to connect to istiod through the relays of a caller.
func byRelay(caller tunnel.Caller) dialer {
	return func(ctx context.Context, istiod *tls.Config) (*tls.Conn, error) {
		conn, err := caller.DialAny(ctx, model.RelayPodNames(), istiod)
		if _, ofDial := tunnel.DialReason(err); err != nil && !ofDial {
			return nil, behindRelayError{err}
		}
		return conn, err
	}
}

// behindRelayError is a failure after a relay, or a pod in its place, accepted the connection. hypergate proves its
// identity to a relay, and a relay proves none. So the guest can cause this failure, as well as istiod.
type behindRelayError struct{ error }

// Unwrap returns the cause.
func (e behindRelayError) Unwrap() error { return e.error }
