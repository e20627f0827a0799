package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/pki"
)

func TestServing(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	ca, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.Serving(now, "tunnel.istio-system.svc")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Root)
	between.AppendCertsFromPEM(ca.Chain)
	for name, tc := range map[string]struct {
		dns     string
		at      time.Time
		usage   x509.ExtKeyUsage
		accepts bool
	}{
		"as it is":       {"tunnel.istio-system.svc", now, x509.ExtKeyUsageServerAuth, true},
		"a slow clock":   {"tunnel.istio-system.svc", now.Add(-4 * time.Minute), x509.ExtKeyUsageServerAuth, true},
		"another name":   {"istiod.istio-system.svc", now, x509.ExtKeyUsageServerAuth, false},
		"as a client":    {"tunnel.istio-system.svc", now, x509.ExtKeyUsageClientAuth, false},
		"after its life": {"tunnel.istio-system.svc", now.AddDate(0, 2, 0), x509.ExtKeyUsageServerAuth, false},
	} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{
			DNSName: tc.dns, CurrentTime: tc.at, Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{tc.usage},
		})
		if (err == nil) != tc.accepts {
			t.Errorf("%s: %v", name, err)
		}
	}
	if pair.Leaf.IsCA || len(pair.Leaf.URIs) > 0 {
		t.Errorf("it is a CA, or has a SPIFFE identity: %v", pair.Leaf.URIs)
	}
	// Near the end of the issuing CA the certificate ends with it.
	late, err := ca.Serving(now.AddDate(5, 0, -7), "tunnel.istio-system.svc")
	if err != nil {
		t.Fatal(err)
	}
	pair, err = tls.X509KeyPair(late.Cert, late.Key)
	if err != nil {
		t.Fatal(err)
	}
	if end := now.Add(5 * 365 * 24 * time.Hour); pair.Leaf.NotAfter.After(end) {
		t.Errorf("it ends at %s, after the issuing CA at %s", pair.Leaf.NotAfter, end)
	}
	if _, err := (pki.CA{Cert: ca.Cert, Key: ca.Cert}).Serving(now, "x"); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("a CA without a key: %v", err)
	}
}

// TestServingRenewal checks when a serving certificate is replaced: in time before its end, and at once if it is not of
// the issuing CA, for another name, or of another key.
func TestServingRenewal(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	const name = "tunnel.istio-system.svc"
	ca, other := newCA(t, now), newCA(t, now)
	serving, err := ca.Serving(now, name)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ca.Serving(now, name)
	if err != nil {
		t.Fatal(err)
	}
	stranger := pki.CA{Cert: other.Cert, Key: other.Key, Chain: ca.Chain, Root: ca.Root}
	longer := ca
	longer.Chain = slices.Concat(ca.Chain, other.Root)
	for what, tc := range map[string]struct {
		serving pki.Serving
		ca      pki.CA
		name    string
		keeps   bool
	}{
		"as it is":          {serving, ca, name, true},
		"another CA":        {serving, other, name, false},
		"another issuer":    {serving, stranger, name, false},
		"another chain":     {serving, longer, name, false},
		"another name":      {serving, ca, "x", false},
		"another key":       {pki.Serving{Cert: serving.Cert, Key: again.Key}, ca, name, false},
		"no key":            {pki.Serving{Cert: serving.Cert}, ca, name, false},
		"none":              {pki.Serving{}, ca, name, false},
		"no CA":             {serving, pki.CA{}, name, false},
		"the CA's own":      {pki.Serving{Cert: ca.Chain, Key: ca.Key}, ca, name, false},
		"no PEM":            {pki.Serving{Cert: []byte("x"), Key: []byte("x")}, ca, name, false},
		"the same, renewed": {again, ca, name, true},
	} {
		at := tc.serving.RenewAt(now, tc.ca, tc.name)
		if !tc.keeps {
			if !at.IsZero() {
				t.Errorf("%s: it is kept until %s", what, at)
			}
			continue
		}
		if days := at.Sub(now).Hours() / 24; days < 19 || days > 21 {
			t.Errorf("%s: it is replaced after %.1f days, and lives for 30", what, days)
		}
	}
}

func newCA(t *testing.T, now time.Time) pki.CA {
	t.Helper()
	ca, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// TestClient checks that a client certificate has one identity, is accepted as istiod accepts those of gateways, and
// is not a certificate of a server's name.
func TestClient(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	ca, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client(now, &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/a/sa/b"})
	if err != nil {
		t.Fatal(err)
	}
	leaf := pair.Leaf
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://cluster.local/ns/a/sa/b" || len(leaf.DNSNames) > 0 || leaf.IsCA {
		t.Errorf("its names are %v and %v", pair.Leaf.URIs, pair.Leaf.DNSNames)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Root)
	between.AppendCertsFromPEM(ca.Chain)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		for at, accepts := range map[time.Time]bool{now: true, now.Add(9 * time.Minute): true, now.Add(11 * time.Minute): false} {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{
				CurrentTime: at, Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage},
			})
			if (err == nil) != accepts {
				t.Errorf("usage %d at %s: %v", usage, at, err)
			}
		}
	}
	if _, err := (pki.CA{}).Client(now, &url.URL{}); err == nil {
		t.Error("no CA issues a certificate")
	}
}
