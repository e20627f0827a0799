package desired_test

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// TestAnotherGuestAPIRollsIstiod checks that another server or other certificates change the pod template. Another
// order, another line length, comments and a repeated certificate do not.
func TestAnotherGuestAPIRollsIstiod(t *testing.T) {
	root := func() []byte {
		ca, err := pki.New(time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		return ca.Root
	}
	a, b, c := root(), root(), root()
	bundle := func(all ...[]byte) []byte { return bytes.Join(all, nil) }
	hash := func(api model.GuestAPI) string {
		guest := withForeignCRDs(withClasses("openshift-default"))
		guest.API = api
		plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), guest)
		return as[appsv1.Deployment](t,
			theOnly(t, mgmtObjects(plan), "Deployment")).Spec.Template.Annotations["gateway.hypergate.dev/guest-api-hash"]
	}
	const server = "https://kube-apiserver:6443"
	before := hash(model.GuestAPI{Server: server, CABundle: bundle(a, b)})
	for name, tc := range map[string]struct {
		api  model.GuestAPI
		same bool
	}{
		"another order": {model.GuestAPI{Server: server, CABundle: bundle(b, a)}, true},
		"other wrapping": {
			model.GuestAPI{Server: server, CABundle: bundle(rewrapped(t, a), []byte("\n\n"), bytes.TrimSpace(b))}, true,
		},
		"with words around":       {model.GuestAPI{Server: server, CABundle: bundle([]byte("# one\n"), a, []byte("# two\n"), b)}, true},
		"one of them twice":       {model.GuestAPI{Server: server, CABundle: bundle(a, b, a)}, true},
		"another server":          {model.GuestAPI{Server: "https://elsewhere:6443", CABundle: bundle(a, b)}, false},
		"one more":                {model.GuestAPI{Server: server, CABundle: bundle(a, b, c)}, false},
		"one less":                {model.GuestAPI{Server: server, CABundle: a}, false},
		"another in the place":    {model.GuestAPI{Server: server, CABundle: bundle(a, c)}, false},
		"none":                    {model.GuestAPI{Server: server}, false},
		"something else entirely": {model.GuestAPI{Server: server, CABundle: []byte("no certificate")}, false},
	} {
		if got := hash(tc.api); (got == before) != tc.same || got == "" {
			t.Errorf("%s: hash %q, was %q; it stays the same: %t, want %t", name, got, before, got == before, tc.same)
		}
	}
}

// rewrapped returns the certificate with its base64 in one line.
func rewrapped(t *testing.T, certificate []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(certificate)
	if block == nil {
		t.Fatal("no certificate")
	}
	return []byte("-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(block.Bytes) + "\n-----END CERTIFICATE-----\n")
}
