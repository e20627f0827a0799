package controller

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// TestAPreviewRenewsNoCredential checks that a preview with --renew-guest-kubeconfig leaves the renewal out. A preview
// reaches the guest with the credential of its caller. Its renewal would fail, and Degraded would have that.
func TestAPreviewRenewsNoCredential(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, authenticate := range map[string]func(*rest.Config){
		"an old client certificate": func(c *rest.Config) {
			c.CertData, c.KeyData = clientCertificate(t, time.Now().Add(-16*day), time.Now().Add(300*day))
		},
		"a token after half of its life": func(c *rest.Config) {
			c.BearerToken = accountToken(time.Now().Add(-50*time.Minute), time.Now().Add(10*time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := previewOptions(t, "platform: {type: None}")
			o.Config.RenewGuestKubeconfig, o.Reporting = "service-network-admin-kubeconfig", ReportToControlPlane
			authenticate(o.GuestConfig)
			// What is logged about a renewal is also its problem in Degraded.
			log := funcr.New(func(_, text string) {
				if strings.Contains(text, "own guest kubeconfig") {
					t.Error(text)
				}
			}, funcr.Options{})
			found, err := Preview(klog.NewContext(t.Context(), log), o)
			if err != nil || found.OnHold {
				t.Fatalf("%+v, %v", found, err)
			}
			for _, w := range found.Writes {
				if w.Resource == "serviceaccounts/token" || w.Resource == "secrets" && w.Name == o.Config.RenewGuestKubeconfig {
					t.Errorf("a renewal: %+v", w)
				}
			}
		})
	}
}

// clientCertificate returns a client certificate and its key.
func clientCertificate(t *testing.T, from, until time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	raw, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// accountToken returns a token of a service account. Its signature is not valid.
func accountToken(from, until time.Time) string {
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"namespace":"openshift-ingress","serviceaccount":{"name":"hypergate"}}}`,
		from.Unix(), until.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
}
