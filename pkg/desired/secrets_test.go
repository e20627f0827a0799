package desired_test

import (
	"encoding/base64"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

var issued = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func credential() model.Credential {
	return model.Credential{
		GuestAPI: model.GuestAPI{Server: "https://kube-apiserver:6443", CABundle: []byte("a bundle")}, Token: "a token", Issued: issued,
		Expires: issued.Add(time.Hour),
	}
}

func TestTheCASurvivesItsSecret(t *testing.T) {
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
		mustFail(t, err, model.CASecretName, key, "restore it from a backup")
		if diff := cmp.Diff(pki.CA{}, got); diff != "" {
			t.Errorf("without %s there is a CA all the same: %s", key, diff)
		}
	}
}

// TestARotationSurvivesItsSecret checks that the Secret stores the rotation in each phase, and that the pod mounts only
// the CA that issues.
func TestARotationSurvivesItsSecret(t *testing.T) {
	ca := testCA(t)
	for _, rotation := range []pki.Rotation{
		{Request: "a"},
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
	mustFail(t, err, model.PhaseSinceAnnotation, "when the phase began is not known")
}

// TestACAThatIsSomebodyElsesIsUsedAndNotWritten checks that hypergate uses the CA of another party and does not write
// it.
func TestACAThatIsSomebodyElsesIsUsedAndNotWritten(t *testing.T) {
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

func TestTheCredentialSurvivesItsSecret(t *testing.T) {
	o, err := model.CredentialSecret(config(model.TopologyHosted), model.ControlPlane{}, credential())
	if err != nil {
		t.Fatal(err)
	}
	secret := as[corev1.Secret](t, theOnly(t, []anObject{o}, "Secret"))
	if o.Key().Name != model.CredentialSecretName || o.Key().Namespace != mgmtNamespace {
		t.Errorf("the Secret is %s, want %s/%s", o, mgmtNamespace, model.CredentialSecretName)
	}
	got, err := model.CredentialFromSecret(secret.Annotations, secret.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(credential(), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTheKubeconfigNamesFiles checks that the kubeconfig refers to files. istiod reads a token file again, but never a
// token in the kubeconfig itself.
func TestTheKubeconfigNamesFiles(t *testing.T) {
	o, err := model.CredentialSecret(config(model.TopologyHosted), model.ControlPlane{}, credential())
	if err != nil {
		t.Fatal(err)
	}
	secret := as[corev1.Secret](t, theOnly(t, []anObject{o}, "Secret"))
	kubeconfig, err := clientcmd.Load(secret.Data["config"])
	if err != nil {
		t.Fatal(err)
	}
	context := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if context == nil {
		t.Fatalf("the current context %q is not there: %s", kubeconfig.CurrentContext, secret.Data["config"])
	}
	cluster, user := kubeconfig.Clusters[context.Cluster], kubeconfig.AuthInfos[context.AuthInfo]
	if cluster.Server != "https://kube-apiserver:6443" || cluster.InsecureSkipTLSVerify || user.Token != "" {
		t.Errorf("cluster %+v, user %+v", cluster, user)
	}
	for file, want := range map[string]string{cluster.CertificateAuthority: "a bundle", user.TokenFile: "a token"} {
		if got := string(secret.Data[file]); got != want {
			t.Errorf("the kubeconfig names the file %q, which has %q in it, want %q", file, got, want)
		}
	}
}

func TestAnIncompleteCredentialIsRefused(t *testing.T) {
	cfg := config(model.TopologyHosted)
	for name, change := range map[string]func(*model.Credential){
		"server": func(c *model.Credential) { c.Server = "" },
		"CA":     func(c *model.Credential) { c.CABundle = nil },
		"token":  func(c *model.Credential) { c.Token = "" },
	} {
		c := credential()
		change(&c)
		_, err := model.CredentialSecret(cfg, model.ControlPlane{}, c)
		mustFail(t, err, "istiod's guest kubeconfig", name)
	}
}

// TestASpoiledCredentialIsNotKept checks that an invalid credential is an error, so that hypergate creates a new one.
func TestASpoiledCredentialIsNotKept(t *testing.T) {
	for name, spoil := range map[string]func(*corev1.Secret){
		"no annotations":    func(s *corev1.Secret) { s.Annotations = nil },
		"no expiry":         func(s *corev1.Secret) { delete(s.Annotations, model.ExpiresAnnotation) },
		"an issue in words": func(s *corev1.Secret) { s.Annotations[model.IssuedAnnotation] = "yesterday" },
		"no data":           func(s *corev1.Secret) { s.Data = nil },
		"no kubeconfig":     func(s *corev1.Secret) { delete(s.Data, "config") },
		"not a kubeconfig":  func(s *corev1.Secret) { s.Data["config"] = []byte("{") },
		"two clusters": func(s *corev1.Secret) {
			s.Data["config"] = []byte("clusters: [{cluster: {server: a}}, {cluster: {server: b}}]")
		},
		"a kubeconfig of air": func(s *corev1.Secret) { s.Data["config"] = []byte("clusters: [{}]") },
		"no token":            func(s *corev1.Secret) { delete(s.Data, "token") },
		"an empty token":      func(s *corev1.Secret) { s.Data["token"] = nil },
		"no CA":               func(s *corev1.Secret) { delete(s.Data, "ca.crt") },
	} {
		t.Run(name, func(t *testing.T) {
			o, err := model.CredentialSecret(config(model.TopologyHosted), model.ControlPlane{}, credential())
			if err != nil {
				t.Fatal(err)
			}
			secret := as[corev1.Secret](t, theOnly(t, []anObject{o}, "Secret"))
			spoil(&secret)
			got, err := model.CredentialFromSecret(secret.Annotations, secret.Data)
			mustFail(t, err, model.CredentialSecretName)
			if diff := cmp.Diff(model.Credential{}, got); diff != "" {
				t.Errorf("there is a credential all the same: %s", diff)
			}
		})
	}
}

func TestRenewAt(t *testing.T) {
	if got, want := credential().RenewAt(), issued.Add(48*time.Minute); !got.Equal(want) {
		t.Errorf("a token of an hour is renewed at %s, want %s", got, want)
	}
}

// TestAccount checks that the account of a token is read from the token itself.
func TestAccount(t *testing.T) {
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, tc := range map[string]struct {
		token string
		want  types.UID
	}{
		"bound":             {token(`{"kubernetes.io":{"namespace":"n","serviceaccount":{"name":"istiod","uid":"5f0b"}}}`), "5f0b"},
		"not bound":         {token(`{"sub":"system:serviceaccount:n:istiod"}`), ""},
		"claims are a list": {token(`[]`), ""},
		"not base64":        {"e30.?.c2ln", ""},
		"opaque":            {"a token", ""},
		"none":              {"", ""},
	} {
		if got := (model.Credential{Token: tc.token}).Account(); got != tc.want {
			t.Errorf("%s: got account %q, want %q", name, got, tc.want)
		}
	}
}

// FuzzCredential checks that a Secret with any content is either an error, or a complete credential that results in the
// same Secret.
func FuzzCredential(f *testing.F) {
	f.Add("2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z", []byte("clusters: [{cluster: {server: https://a}}]"), []byte("token"),
		[]byte("ca"))
	f.Add("", "now", []byte("{"), []byte{0xff}, []byte(nil))
	f.Fuzz(func(t *testing.T, from, to string, kubeconfig, token, ca []byte) {
		c, err := model.CredentialFromSecret(map[string]string{model.IssuedAnnotation: from, model.ExpiresAnnotation: to},
			map[string][]byte{"config": kubeconfig, "token": token, "ca.crt": ca})
		if err != nil {
			return
		}
		_ = c.Account() // must not panic for any token
		o, err := model.CredentialSecret(config(model.TopologyHosted), model.ControlPlane{}, c)
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", c, err)
		}
		secret := as[corev1.Secret](t, theOnly(t, []anObject{o}, "Secret"))
		again, err := model.CredentialFromSecret(secret.Annotations, secret.Data)
		if err != nil {
			t.Fatalf("wrote %s, which cannot be read: %v", base64.StdEncoding.EncodeToString(o.JSON()), err)
		}
		sameExpiry := again.Expires.Truncate(time.Second).Equal(c.Expires.Truncate(time.Second))
		if again.Server != c.Server || again.Token != c.Token || !sameExpiry {
			t.Errorf("read %+v and then %+v", c, again)
		}
	})
}
