package webhookurl_test

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserverwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/hypergate/hypergate/pkg/webhookurl"
)

func TestNewEndpointRefuses(t *testing.T) {
	ca := caPEM(t)
	for name, test := range map[string]struct {
		service types.NamespacedName
		base    string
		ports   []int32
		want    error
		text    string
	}{
		"no service":         {types.NamespacedName{}, base, []int32{443}, webhookurl.ErrEndpoint, "service is not"},
		"no namespace":       {types.NamespacedName{Name: "a"}, base, []int32{443}, webhookurl.ErrEndpoint, "service is not"},
		"name with a dot":    {types.NamespacedName{Namespace: "n", Name: "a.b"}, base, []int32{443}, webhookurl.ErrEndpoint, `"n/a.b"`},
		"no port":            {service, base, nil, webhookurl.ErrEndpoint, "at least one"},
		"port 0":             {service, base, []int32{443, 0}, webhookurl.ErrEndpoint, "[443 0]"},
		"port too large":     {service, base, []int32{65536}, webhookurl.ErrEndpoint, "65536"},
		"negative port":      {service, base, []int32{-1}, webhookurl.ErrEndpoint, "-1"},
		"base empty":         {service, "", []int32{443}, webhookurl.ErrInvalidURL, `scheme is ""`},
		"base not https":     {service, "http://a", []int32{443}, webhookurl.ErrInvalidURL, "use https"},
		"base with path":     {service, base + "/validate", []int32{443}, webhookurl.ErrInvalidURL, `"/validate"`},
		"base with slash":    {service, base + "/", []int32{443}, webhookurl.ErrInvalidURL, `path "/"`},
		"base with bad path": {service, base + "/../", []int32{443}, webhookurl.ErrInvalidURL, "segment"},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, err := webhookurl.NewEndpoint(test.service, test.base, ca, test.ports...)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			if endpoint.Base() != "" {
				t.Errorf("got a usable endpoint %q together with the error", endpoint.Base())
			}
		})
	}
}

func TestNewEndpointReportsAllProblems(t *testing.T) {
	_, err := webhookurl.NewEndpoint(types.NamespacedName{}, "http://a", nil)
	for _, want := range []error{webhookurl.ErrEndpoint, webhookurl.ErrInvalidURL, webhookurl.ErrCABundle} {
		if !errors.Is(err, want) {
			t.Errorf("got %v, want it to wrap %v too", err, want)
		}
	}
}

func TestNewEndpointKeepsNoReferenceToItsArguments(t *testing.T) {
	ca, ports := caPEM(t), []int32{443}
	endpoint, err := webhookurl.NewEndpoint(service, base, ca, ports...)
	if err != nil {
		t.Fatal(err)
	}
	ports[0], ca[100] = 1, 0
	out, err := webhookurl.Rewrite(validating(t, `{service: {namespace: openshift-ingress, name: istiod-openshift-gateway}}`), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(validating(t, `{url: "`+base+`/", caBundle: `+caBase64(t)+`}`), out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCABundle checks what an endpoint publishes of each bundle.
func TestCABundle(t *testing.T) {
	first := caPEM(t)
	second, key := newCertificate(t, true)
	leaf, _ := newCertificate(t, false)
	damagedKey := bytes.Replace(key, []byte("-----END"), []byte("--END"), 1)
	broken := bytes.Replace(second, []byte("-----\n"), []byte("-----\n***"), 1)
	withHeader := pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Headers: map[string]string{"Note": "secret"}, Bytes: mustDecode(t, first),
	})

	for name, test := range map[string]struct {
		bundle []byte
		want   []byte
		err    error
		text   string
	}{
		"one":               {bundle: first, want: first},
		"two, order kept":   {bundle: slices.Concat(second, first), want: slices.Concat(second, first)},
		"twice the same":    {bundle: slices.Concat(first, first), want: slices.Concat(first, first)},
		"text goes away":    {bundle: slices.Concat([]byte("# subject=CN: a, password: b\n"), first, []byte("\r\n  ")), want: first},
		"headers go away":   {bundle: withHeader, want: first},
		"windows line ends": {bundle: bytes.ReplaceAll(first, []byte("\n"), []byte("\r\n")), want: first},
		"nil":               {err: webhookurl.ErrCABundle, text: "0 of 0"},
		"no PEM":            {bundle: []byte("hello"), err: webhookurl.ErrCABundle, text: "0 of 0"},
		"DER":               {bundle: mustDecode(t, first), err: webhookurl.ErrCABundle, text: "0 of 0"},
		"base64 twice":      {bundle: []byte(base64.StdEncoding.EncodeToString(first)), err: webhookurl.ErrCABundle, text: "0 of 0"},
		"cut off":           {bundle: first[:len(first)/2], err: webhookurl.ErrCABundle, text: "0 of 1"},
		"second cut off":    {bundle: slices.Concat(first, second[:len(second)-10]), err: webhookurl.ErrCABundle, text: "1 of 2"},
		"second broken":     {bundle: slices.Concat(first, broken), err: webhookurl.ErrCABundle, text: "1 of 2"},
		"first broken":      {bundle: slices.Concat(broken, first), err: webhookurl.ErrCABundle, text: "1 of 2"},
		"no certificate inside": {
			bundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
			err:    webhookurl.ErrCABundle, text: "block 1",
		},
		"two in one block": {
			bundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: slices.Concat(mustDecode(t, first), mustDecode(t, second))}),
			err:    webhookurl.ErrCABundle, text: "block 1",
		},
		"leaf":        {bundle: slices.Concat(first, leaf), err: webhookurl.ErrCABundle, text: "certificate 2"},
		"key after":   {bundle: slices.Concat(first, key), err: webhookurl.ErrSecretMaterial, text: "private key"},
		"key before":  {bundle: slices.Concat(key, first), err: webhookurl.ErrSecretMaterial, text: "private key"},
		"key alone":   {bundle: key, err: webhookurl.ErrSecretMaterial, text: "private key"},
		"damaged key": {bundle: slices.Concat(first, damagedKey), err: webhookurl.ErrSecretMaterial, text: "private key"},
		"other block": {
			bundle: slices.Concat(first, pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte("x")})),
			err:    webhookurl.ErrSecretMaterial, text: `"EC PARAMETERS"`,
		},
		"trusted by type": {
			bundle: bytes.ReplaceAll(first, []byte("CERTIFICATE"), []byte("TRUSTED CERTIFICATE")),
			err:    webhookurl.ErrSecretMaterial, text: `"TRUSTED CERTIFICATE"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, err := webhookurl.NewEndpoint(service, base, test.bundle, 443)
			if test.err != nil {
				if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.text) {
					t.Fatalf("got %v, want %v with %q", err, test.err, test.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			out, err := webhookurl.Rewrite(validating(t, `{url: "`+base+`/x"}`), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			want := validating(t, `{url: "`+base+`/x", caBundle: `+base64.StdEncoding.EncodeToString(test.want)+`}`)
			if diff := cmp.Diff(want, out); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if errs := apiserverwebhook.ValidateCABundle(field.NewPath("caBundle"), test.want); len(errs) > 0 {
				t.Errorf("kube-apiserver refuses the bundle: %v", errs)
			}
		})
	}
}

func mustDecode(t *testing.T, bundle []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(bundle)
	if block == nil {
		t.Fatal("no PEM block")
	}
	return block.Bytes
}
