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

// agent is a gateway's proxy of a fleet. As in a pod, the roots come later than the ConfigMap changes.
type agent struct {
	name string
	// to is how it reaches istiod, without roots and certificate.
	to    xds.Options
	mount *mount
	// lag is how much later it sees a change of its mount, renew how often it renews its certificate.
	lag, renew time.Duration

	// mu guards what follows.
	mu          sync.Mutex
	certificate *xds.Certificate
	connected   bool
	tally       tally
}

// run works until ctx ends.
func (a *agent) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	began := time.Now()
	if !a.until(ctx, a.certify) {
		return
	}
	working.Go(func() {
		// A fleet does not renew all at once.
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

// until tries until something succeeds, and notes each failure; false when ctx ended first.
func (a *agent) until(ctx context.Context, try func(context.Context) error) bool {
	for ctx.Err() == nil {
		err := try(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			a.failed(err)
		}
		pause(ctx, 500*time.Millisecond+rand.N(time.Second)) // as Envoy's first waits
	}
	return false
}

// pause says whether ctx went on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d): // a period, or a wait before the next try
		return true
	case <-ctx.Done():
		return false
	}
}

// options are how it reaches istiod with what it has now. It shows its certificate besides its token, which is more than an agent does by default:
// so istiod's trust in what was issued is tried, too.
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

// certify gets a certificate.
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

// dial opens a stream. It is open when it brought configuration.
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

// broke notes the end of a stream, which is to be expected when istiod rolls.
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

// failed notes an attempt that failed.
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

// trusts says whether it has a stream, trusts this root and no other, and holds a certificate of it.
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

// alert is what TLS says of the other side's refusal of a certificate.
var alert = regexp.MustCompile(`tls: .*certificate`)

// distrusts says whether a failure is one of trust: a certificate that one side does not accept, or an identity that istiod does not.
func distrusts(err error) bool {
	code := status.Code(err)
	return strings.Contains(err.Error(), "x509") || alert.MatchString(err.Error()) || code == codes.Unauthenticated || code == codes.PermissionDenied
}

// mount is the ConfigMap of the roots, and when it changed.
type mount struct {
	mu       sync.Mutex
	versions []mounted
}

type mounted struct {
	since time.Time
	roots string
}

// follow looks at it until ctx ends. What cannot be read stays as it was, as in a pod.
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

// asOf is what it held at a time, and the first that it held for times before.
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

// TestFailuresOfTrust: what counts as one, and what does not.
func TestFailuresOfTrust(t *testing.T) {
	for text, want := range map[string]bool{
		`rpc error: code = Unavailable desc = connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"`: true,
		`rpc error: code = Unavailable desc = connection error: desc = "error reading server preface: remote error: tls: bad certificate"`:                                                             true,
		`rpc error: code = Unavailable desc = error reading from server: remote error: tls: unknown certificate authority`:                                                                             true,
		`rpc error: code = Unavailable desc = connection error: desc = "transport: authentication handshake failed: EOF"`:                                                                              false,
		`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 10.96.0.1:15012: connect: connection refused"`:                                        false,
		`rpc error: code = Unavailable desc = closing transport due to: connection error: desc = "error reading from server: EOF"`:                                                                     false,
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
