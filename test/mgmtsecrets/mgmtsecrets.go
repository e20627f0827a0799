// Package mgmtsecrets makes a management side with each kind of secret that a guest must not read.
package mgmtsecrets

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// Namespace is the name of the management namespace. It does not occur in the charts.
const Namespace = "clusters-guest1"

// Rotating returns a management side during a rotation of the CA, with valid keys.
func Rotating(tb testing.TB) model.ManagementObservation {
	tb.Helper()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(now)
	if err != nil {
		tb.Fatal(err)
	}
	ca, rotation, err := pki.Rotation{}.Step(ca, now, pki.RotationOptions{Overlap: time.Hour, Request: "a"})
	if err != nil {
		tb.Fatal(err)
	}
	other, err := pki.New(now)
	if err != nil {
		tb.Fatal(err)
	}
	return model.ManagementObservation{
		CA: ca, Rotation: rotation, Istiod: model.Available,
		API: model.MgmtAPI{Server: "https://api.mgmt.example.com:6443", CABundle: other.Root},
	}
}

// Of returns one secret of each kind. The key is the description that the error must contain.
func Of(mgmt model.ManagementObservation) map[string]string {
	return map[string]string{
		"the private key of the mesh CA":                      string(mgmt.CA.Key),
		"the private key of the mesh CA that will issue next": string(mgmt.Rotation.Next.Key),
		"a certificate of the mesh CA that is not a root":     string(mgmt.CA.Cert),
		"the CA of the management API":                        string(mgmt.API.CABundle),
		"the name of the management namespace":                "in " + Namespace + ".",
		"the address of the management API":                   mgmt.API.Server,
	}
}

// InData returns a function that adds an entry to the data of a ConfigMap, for example one with a secret.
func InData(key, value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		data, _ := u.Object["data"].(map[string]any)
		data[key] = value
	}
}

// MustNotReveal checks that an error does not contain a secret, because errors are logged and can be copied from there.
func MustNotReveal(tb testing.TB, err error, mgmt model.ManagementObservation) {
	tb.Helper()
	for _, secret := range Of(mgmt) {
		for line := range strings.Lines(secret) {
			if line = strings.TrimSpace(line); len(line) > 8 && strings.Contains(err.Error(), line) {
				tb.Errorf("the error contains the secret: %v", err)
			}
		}
	}
	if strings.Contains(err.Error(), Namespace) {
		tb.Errorf("the error names the management namespace: %v", err)
	}
}
