package xds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/istiodversion"
	"github.com/hypergate/hypergate/test/golden"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/xds"
)

// TestGatewayIsServed follows one gateway's proxy. It gets its certificate, its listeners, routes, endpoints and TLS
// key, and all changes.
func TestGatewayIsServed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcd, kube-apiserver and istiod")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*hang.Deadline)
	t.Cleanup(cancel)
	g := startGuest(ctx, t, pilot)
	proxy := dial(ctx, t, g.options(ctx, t))

	var certificate *xds.Certificate
	t.Run("certificate", func(t *testing.T) {
		var err error
		if certificate, err = proxy.CSR(ctx); err != nil {
			t.Fatal(err)
		}
		if want := "spiffe://cluster.local/ns/ingress/sa/gw-test"; certificate.ID != want {
			t.Errorf("ID = %s, want %s", certificate.ID, want)
		}
		if life := time.Until(certificate.Expiry); life < 23*time.Hour || life > 25*time.Hour {
			t.Errorf("the certificate lives another %s, want a day", life)
		}
	})
	t.Run("listener, route, endpoints", func(t *testing.T) {
		config := waitFor(ctx, t, proxy, func(c *xds.Config) error {
			return errors.Join(reaches(c, 80, "10.128.0.7:8080"), reaches(c, 443, "10.128.0.7:8080"))
		})
		golden.Equal(t, "testdata/config.txt", config.String())
		if cluster := "outbound|8080||echo.demo.svc.cluster.local"; !slices.Contains(config.Clusters, cluster) {
			t.Errorf("clusters = %q, want %q among them", config.Clusters, cluster)
		}
	})
	t.Run("a new endpoint is pushed", func(t *testing.T) {
		slice := &discoveryv1.EndpointSlice{}
		if err := g.client.Get(ctx, client.ObjectKey{Namespace: "demo", Name: "echo-1"}, slice); err != nil {
			t.Fatal(err)
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.128.0.8"}})
		if err := g.client.Update(ctx, slice); err != nil {
			t.Fatal(err)
		}
		waitFor(ctx, t, proxy, func(c *xds.Config) error { return reaches(c, 80, "10.128.0.7:8080", "10.128.0.8:8080") })
	})
	t.Run("the certificate alone is enough", func(t *testing.T) {
		options := g.options(ctx, t)
		options.Token, options.Certificate = "", &certificate.TLS
		waitFor(ctx, t, dial(ctx, t, options), func(c *xds.Config) error { return reaches(c, 443, "10.128.0.7:8080", "10.128.0.8:8080") })
	})
	t.Run("istiod says which version it has", func(t *testing.T) {
		version, err := g.askVersion(ctx, t, istiodversion.Identity())
		if version != charts.EmbeddedVersion || err != nil {
			t.Errorf("%q, %v", version, err)
		}
		_, err = g.askVersion(ctx, t, &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/another/sa/version"})
		if refused, is := errors.AsType[istiodversion.RefusedError](err); !is || refused.Code != int(codes.PermissionDenied) {
			t.Errorf("with an identity of another namespace: %v", err)
		}
	})
	t.Run("at rest nothing is pushed, and waiting ends in time", func(t *testing.T) {
		// If istiod does not recognise an acknowledgement, it sends another push, without end.
		hang.Gomega(t).Eventually(func() int {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			configs := 0
			_, err := proxy.WaitFor(ctx, func(c *xds.Config) error { configs++; return reaches(c, 81) })
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no listener on port 81") {
				t.Errorf("error = %v, want that time ran out and what was lacking", err)
			}
			return configs
		}).Should(gomega.Equal(1))
	})
	for name, test := range refusals(t) {
		t.Run(name, func(t *testing.T) { test.run(ctx, t, g) })
	}
}

// refusal is a connection that must fail. The refusals show that the client and istiod verify each other.
type refusal struct {
	change     func(*xds.Options)
	audience   string // of the token; empty means istiod's own audience
	code       codes.Code
	message    string
	atDialling bool
}

func refusals(t *testing.T) map[string]refusal {
	t.Helper()
	otherRoots, _ := selfSigned(t, "other")
	return map[string]refusal{
		"token for another audience": {
			audience: "other", change: func(*xds.Options) {},
			code: codes.Unauthenticated, message: "authentication failure",
		},
		"no token": {
			change: func(o *xds.Options) { o.Token = "" },
			code:   codes.Unauthenticated, message: "authentication failure",
		},
		"another namespace's node": {
			change: func(o *xds.Options) { o.Node.Namespace = "demo" },
			code:   codes.PermissionDenied, message: "demo",
		},
		"name not in the certificate": {
			change: func(o *xds.Options) { o.ServerName = "istiod.example.com" },
			code:   codes.Unavailable, message: "x509: certificate is valid for", atDialling: true,
		},
		"other roots": {
			change: func(o *xds.Options) { o.RootCAs = otherRoots },
			code:   codes.Unavailable, message: "x509: certificate signed by unknown authority", atDialling: true,
		},
	}
}

func (r refusal) run(ctx context.Context, t *testing.T, g *guest) {
	t.Helper()
	options := g.options(ctx, t)
	if r.audience != "" {
		options.Token = g.token(ctx, t, r.audience)
	}
	r.change(&options)
	proxy, err := xds.Dial(ctx, options)
	if r.atDialling != (err != nil) {
		t.Fatalf("Dial: %v", err)
	}
	if err == nil {
		t.Cleanup(func() { _ = proxy.Close() })
		ctx, cancel := context.WithTimeout(ctx, hang.Deadline)
		defer cancel()
		_, err = proxy.WaitFor(ctx, func(*xds.Config) error { return errors.New("refused, and so never served") })
		if r.code == codes.Unauthenticated {
			if _, err := proxy.CSR(ctx); status.Code(err) != r.code {
				t.Errorf("CSR: %v, want code %s", err, r.code)
			}
		}
	}
	if status.Code(err) != r.code || !strings.Contains(err.Error(), r.message) {
		t.Errorf("error = %v, want code %s and %q in it", err, r.code, r.message)
	}
}

func dial(ctx context.Context, t *testing.T, options xds.Options) *xds.Client {
	t.Helper()
	proxy, err := xds.Dial(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

func waitFor(ctx context.Context, t *testing.T, proxy *xds.Client, holds func(*xds.Config) error) *xds.Config {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, hang.Deadline)
	defer cancel()
	config, err := proxy.WaitFor(ctx, holds)
	if err != nil {
		t.Fatalf("%v\nlast:\n%s", err, proxy.Snapshot())
	}
	return config
}

func reaches(c *xds.Config, port uint32, want ...string) error {
	got, err := c.Reach(port, "echo.example.com", "/api/v1")
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("port %d leads to %v, want %v", port, got, want)
	}
	return err
}

// askVersion asks istiod for its version, with a certificate of the mesh CA for an identity.
func (g *guest) askVersion(ctx context.Context, t *testing.T, identity *url.URL) (string, error) {
	t.Helper()
	certificate, err := g.ca.Client(time.Now(), identity)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.roots)
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: "istiod.istio-system.svc", RootCAs: roots, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{certificate},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	return istiodversion.Ask(ctx, conn.(*tls.Conn), charts.EmbeddedVersion)
}
