package e2e_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/xds"
)

// agent is the proxy of a gateway in a fleet. As in a pod, the roots arrive some time after the change of the
// ConfigMap.
type agent struct {
	name string
	// to are the options for the connection to istiod, without roots and certificate.
	to    xds.Options
	mount *mount
	// lag is the delay until the agent sees a change of its mount. renew is the interval of its certificate renewals.
	lag, renew time.Duration

	// mu protects the fields below.
	mu          sync.Mutex
	certificate *xds.Certificate
	connected   bool
	tally       tally
}

// run runs the agent until ctx ends.
func (a *agent) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	began := time.Now()
	if !a.until(ctx, a.certify) {
		return
	}
	working.Go(func() {
		// The agents of a fleet do not renew at the same time.
		for next := rand.N(a.renew); pause(ctx, next); next = a.renew {
			if !a.until(ctx, a.certify) {
				return
			}
		}
	})
	for {
		var stream *xds.Client
		opened := a.until(ctx, func(ctx context.Context) (err error) {
			stream, err = a.dial(ctx)
			return err
		})
		if !opened {
			return
		}
		a.opened(time.Since(began))
		_, err := stream.WaitFor(ctx, func(*xds.Config) error { return errors.New("it goes on") })
		_ = stream.Close()
		if ctx.Err() != nil {
			return
		}
		began = time.Now()
		a.broke(err)
	}
}

// until retries until a call succeeds, and records each failure. It returns false if ctx ends first.
func (a *agent) until(ctx context.Context, try func(context.Context) error) bool {
	for ctx.Err() == nil {
		err := try(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			a.failed(err)
		}
		pause(ctx, 500*time.Millisecond+rand.N(time.Second)) // like Envoy's first backoffs
	}
	return false
}

// pause waits and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d): // a period, or a wait before the next attempt
		return true
	case <-ctx.Done():
		return false
	}
}

// options returns the options for istiod with the agent's current state. The agent sends its certificate in addition
// to its token. This is more than an agent does by default, so that istiod's trust in issued certificates is also
// tested.
func (a *agent) options() xds.Options {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.to
	out.RootCAs = []byte(a.mount.asOf(time.Now().Add(-a.lag)))
	if a.certificate != nil {
		out.Certificate = &a.certificate.TLS
	}
	return out
}

const answerTimeout = 10 * time.Second

// certify requests a certificate.
func (a *agent) certify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	certificate, err := xds.Certify(ctx, a.options())
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.certificate = certificate
	a.tally.renewals++
	return nil
}

// dial opens a stream. The stream counts as open when it has received configuration.
func (a *agent) dial(ctx context.Context) (*xds.Client, error) {
	stream, err := xds.Dial(ctx, a.options())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := stream.WaitFor(ctx, reaches); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return stream, nil
}

func (a *agent) opened(after time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = true
	a.tally.streams++
	a.tally.longest = max(a.tally.longest, after)
}

// broke records the end of a stream, which is expected when istiod rolls out.
func (a *agent) broke(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = false
	a.tally.breaks++
	if distrusts(err) {
		a.tally.distrust = append(a.tally.distrust, a.said(err))
	}
}

func (a *agent) isConnected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connected
}

// failed records a failed attempt.
func (a *agent) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if distrusts(err) {
		a.tally.distrust = append(a.tally.distrust, a.said(err))
		return
	}
	a.tally.failures[status.Code(err).String()]++
}

func (a *agent) said(err error) string {
	return fmt.Sprintf("%s %s: %v", time.Now().Format(time.TimeOnly), a.name, err)
}

// trusts reports whether the agent has a stream, trusts only this root, and has a certificate from it.
func (a *agent) trusts(root string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.connected || a.mount.asOf(time.Now().Add(-a.lag)) != root {
		return false
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(root))
	between.AppendCertsFromPEM(a.certificate.ChainPEM)
	_, err := a.certificate.TLS.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}

// alert matches the TLS error when the other side refuses a certificate.
var alert = regexp.MustCompile(`tls: .*certificate`)

// distrusts reports whether a failure is one of trust: a side refuses a certificate, or istiod refuses an identity.
func distrusts(err error) bool {
	code := status.Code(err)
	return strings.Contains(err.Error(), "x509") || alert.MatchString(err.Error()) || code == codes.Unauthenticated ||
		code == codes.PermissionDenied
}

// mount is the ConfigMap of the roots with its history.
type mount struct {
	mu       sync.Mutex
	versions []mounted
}

type mounted struct {
	since time.Time
	roots string
}

// follow reads the ConfigMap until ctx ends. If a read fails, the content stays the same, as in a pod.
func (m *mount) follow(ctx context.Context, read func() (string, error)) {
	_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		roots, err := read()
		m.mu.Lock()
		defer m.mu.Unlock()
		if n := len(m.versions); err == nil && (n == 0 || m.versions[n-1].roots != roots) {
			m.versions = append(m.versions, mounted{time.Now(), roots})
		}
		return false, nil
	})
}

func (m *mount) known() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.versions) > 0
}

// asOf returns the content at a given time. For times before the first version, it returns the first version.
func (m *mount) asOf(at time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range slices.Backward(m.versions) {
		if !v.since.After(at) {
			return v.roots
		}
	}
	return m.versions[0].roots
}

// TestFailuresOfTrust checks which errors count as failures of trust.
func TestFailuresOfTrust(t *testing.T) {
	for text, want := range map[string]bool{
		`rpc error: code = Unavailable desc = connection error: desc = "transport: authentication handshake failed: tls: failed ` +
			`to verify certificate: x509: certificate signed by unknown authority"`: true,
		`rpc error: code = Unavailable desc = connection error: desc = "error reading server preface: remote error: tls: bad ` +
			`certificate"`: true,
		`rpc error: code = Unavailable desc = error reading from server: remote error: tls: unknown certificate authority`: true,
		`rpc error: code = Unavailable desc = connection error: desc = "transport: authentication handshake failed: EOF"`:  false,
		`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp ` +
			`10.96.0.1:15012: connect: connection refused"`: false,
		`rpc error: code = Unavailable desc = closing transport due to: connection error: desc = "error reading from server: EOF"`: false,
	} {
		if got := distrusts(errors.New(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	for code, want := range map[codes.Code]bool{codes.Unauthenticated: true, codes.PermissionDenied: true, codes.Unavailable: false} {
		if got := distrusts(fmt.Errorf("istiod ended the stream: %w", status.Error(code, "no"))); got != want {
			t.Errorf("%s: %t", code, got)
		}
	}
}
