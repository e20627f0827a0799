package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/pki"
)

func TestNewCAIsConsistent(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	ca, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}
	if !ca.Exists() {
		t.Error("a new CA says that it does not exist")
	}
	if err := ca.Check(now); err != nil {
		t.Errorf("a new CA does not pass its check: %v", err)
	}
	for name, data := range map[string][]byte{"Root": ca.Root, "Cert": ca.Cert} {
		block, rest := pem.Decode(data)
		if block == nil || len(rest) > 0 {
			t.Fatalf("%s is not exactly one PEM block", name)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
			t.Errorf("%s cannot sign certificates", name)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	ca, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ca  pki.CA
		now time.Time
	}{
		"another root":              {pki.CA{Cert: ca.Cert, Key: ca.Key, Chain: ca.Chain, Root: other.Root}, now},
		"another key":               {pki.CA{Cert: ca.Cert, Key: other.Key, Chain: ca.Chain, Root: ca.Root}, now},
		"no key":                    {pki.CA{Cert: ca.Cert, Chain: ca.Chain, Root: ca.Root}, now},
		"a key for the certificate": {pki.CA{Cert: ca.Key, Key: ca.Key, Chain: ca.Chain, Root: ca.Root}, now},
		"no root":                   {pki.CA{Cert: ca.Cert, Key: ca.Key, Chain: ca.Chain}, now},
		"after its life":            {ca, now.AddDate(6, 0, 0)},
		"before its life":           {ca, now.AddDate(0, 0, -1)},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.ca.Check(tc.now); err == nil {
				t.Error("passes the check")
			}
		})
	}
}
