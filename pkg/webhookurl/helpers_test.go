package webhookurl_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/webhookurl"
	"github.com/hypergate/hypergate/test/fromyaml"
)

const base = "https://istiod-openshift-gateway:443"

var service = types.NamespacedName{Namespace: "openshift-ingress", Name: "istiod-openshift-gateway"}

// caPEM returns a CA certificate that never changes, as in the golden files.
func caPEM(tb testing.TB) []byte {
	tb.Helper()
	data, err := os.ReadFile("testdata/ca.pem")
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func caBase64(tb testing.TB) string {
	tb.Helper()
	return base64.StdEncoding.EncodeToString(caPEM(tb))
}

// newEndpoint returns an endpoint that accepts the service ports 443 and 8443.
func newEndpoint(tb testing.TB, base string) webhookurl.Endpoint {
	tb.Helper()
	endpoint, err := webhookurl.NewEndpoint(service, base, caPEM(tb), 443, 8443)
	if err != nil {
		tb.Fatal(err)
	}
	return endpoint
}

// newCertificate returns a new self-signed certificate and its key, both as PEM.
func newCertificate(tb testing.TB, isCA bool) (certificate, key []byte) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: isCA, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{
		Type: "EC PRIVATE KEY", Bytes: keyDER,
	})
}

// validating returns a ValidatingWebhookConfiguration "config" with one webhook "first". clientConfig is YAML.
func validating(tb testing.TB, clientConfig string) *unstructured.Unstructured {
	tb.Helper()
	return fromyaml.Object(tb, `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
  metadata: {name: config}, webhooks: [{name: first, clientConfig: `+clientConfig+`}]}`)
}

// wantRefused checks that err is a RefusedError about this object, and returns its problems.
func wantRefused(tb testing.TB, err error, kind, name string) []webhookurl.Problem {
	tb.Helper()
	refused, isRefused := errors.AsType[*webhookurl.RefusedError](err)
	if !isRefused {
		tb.Fatalf("got error %v, want a RefusedError", err)
	}
	if refused.Kind != kind || refused.Name != name || len(refused.Problems) == 0 {
		tb.Fatalf("got %#v, want problems of %s %q", refused, kind, name)
	}
	return refused.Problems
}
