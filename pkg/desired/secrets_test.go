package desired_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/mustfail"
)

var issued = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func TestTheCARoundTripsThroughItsSecret(t *testing.T) {
	plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withForeignCRDs(withClasses("a")))
	secret := as[corev1.Secret](t, theOnly(t, mgmtObjects(plan), "Secret"))
	if secret.Name != model.CASecretName {
		t.Errorf("the Secret is %s, and is looked for as %s", secret.Name, model.CASecretName)
	}
	got, rotation, err := model.CAFromSecret(secret.Annotations, secret.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testCA(t), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(pki.Rotation{}, rotation); diff != "" {
		t.Errorf("rotation, -want +got:\n%s", diff)
	}
	for _, key := range []string{"ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"} {
		broken := maps.Clone(secret.Data)
		delete(broken, key)
		got, _, err := model.CAFromSecret(secret.Annotations, broken)
		mustfail.With(t, err, model.CASecretName, key, "restore it from a backup")
		if diff := cmp.Diff(pki.CA{}, got); diff != "" {
			t.Errorf("without %s there is a CA all the same: %s", key, diff)
		}
	}
}

// TestARotationRoundTripsThroughItsSecret checks that the Secret stores the rotation in each phase, and that the pod
// mounts only the CA that issues.
func TestARotationRoundTripsThroughItsSecret(t *testing.T) {
	ca := testCA(t)
	for _, rotation := range []pki.Rotation{
		{Request: "a"},
		{Request: "a", LeaseRequest: "b"},
		{
			Phase: pki.Spreading, Since: issued, Next: pki.CA{Cert: []byte("c"), Key: []byte("k"), Chain: []byte("h"), Root: []byte("r")},
			Request: "a",
		},
		{Phase: pki.Settling, Since: issued, Effective: issued.Add(time.Minute), Next: pki.CA{Root: []byte("r")}, Request: "a"},
	} {
		mgmt := installed(t)
		mgmt.Rotation = rotation
		plan := compute(t, config(model.TopologyHosted), embedded(t), mgmt, withForeignCRDs(withClasses("a")))
		secret := as[corev1.Secret](t, theOnly(t, mgmtObjects(plan), "Secret"))
		gotCA, got, err := model.CAFromSecret(secret.Annotations, secret.Data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ca, gotCA) + cmp.Diff(rotation, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", rotation.Phase, diff)
		}
		var mounted []string
		for _, v := range as[appsv1.Deployment](t, theOnly(t, mgmtObjects(plan), "Deployment")).Spec.Template.Spec.Volumes {
			if v.Name == "cacerts" {
				for _, item := range v.Secret.Items {
					mounted = append(mounted, item.Path)
				}
			}
		}
		if diff := cmp.Diff([]string{"ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"}, mounted); diff != "" {
			t.Errorf("mounted, -want +got:\n%s", diff)
		}
	}
	_, _, err := model.CAFromSecret(map[string]string{model.PhaseAnnotation: "spreading"}, map[string][]byte{
		"ca-cert.pem": ca.Cert, "ca-key.pem": ca.Key, "cert-chain.pem": ca.Chain, "root-cert.pem": ca.Root,
	})
	mustfail.With(t, err, model.PhaseSinceAnnotation, "the start of the phase is unknown")
}

// TestAThirdPartyCAIsUsedAndNotWritten checks that hypergate uses the CA of another party and does not write
// it.
func TestAThirdPartyCAIsUsedAndNotWritten(t *testing.T) {
	mgmt := installed(t)
	mgmt.CAOwner = model.Theirs
	plan := compute(t, config(model.TopologyHosted), embedded(t), mgmt, withForeignCRDs(withClasses("a")))
	for _, o := range mgmtObjects(plan) {
		if o.GVK().Kind == "Secret" {
			t.Errorf("%s is planned", o)
		}
	}
	webhook := as[admissionregistrationv1.ValidatingWebhookConfiguration](t,
		theOnly(t, guestObjects(plan), "ValidatingWebhookConfiguration"))
	if diff := cmp.Diff(testCA(t).Root, webhook.Webhooks[0].ClientConfig.CABundle); diff != "" {
		t.Errorf("the webhook's caBundle, -want +got:\n%s", diff)
	}
}
