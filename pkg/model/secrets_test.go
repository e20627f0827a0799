package model_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/modeltest"
	"github.com/hypergate/hypergate/test/mustfail"
)

// secretOf returns an object that must be a Secret.
func secretOf(t *testing.T, o model.MgmtObject) (secret corev1.Secret) {
	t.Helper()
	if err := json.Unmarshal(o.JSON(), &secret); err != nil || secret.Kind != "Secret" {
		t.Fatalf("%s is not a Secret: %v", o, err)
	}
	return secret
}

func TestTheCredentialRoundTripsThroughItsSecret(t *testing.T) {
	o, err := model.CredentialSecret(config(), model.ControlPlane{}, modeltest.Credential())
	if err != nil {
		t.Fatal(err)
	}
	secret := secretOf(t, o)
	if o.Key().Name != model.CredentialSecretName || o.Key().Namespace != config().MgmtNamespace {
		t.Errorf("the Secret is %s, want %s/%s", o, config().MgmtNamespace, model.CredentialSecretName)
	}
	got, err := model.CredentialFromSecret(secret.Annotations, secret.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(modeltest.Credential(), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTheKubeconfigNamesFiles checks that the kubeconfig refers to files. istiod reads a token file again, but never a
// token in the kubeconfig itself.
func TestTheKubeconfigNamesFiles(t *testing.T) {
	o, err := model.CredentialSecret(config(), model.ControlPlane{}, modeltest.Credential())
	if err != nil {
		t.Fatal(err)
	}
	secret := secretOf(t, o)
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
	cfg := config()
	for name, change := range map[string]func(*model.Credential){
		"server": func(c *model.Credential) { c.Server = "" },
		"CA":     func(c *model.Credential) { c.CABundle = nil },
		"token":  func(c *model.Credential) { c.Token = "" },
	} {
		c := modeltest.Credential()
		change(&c)
		_, err := model.CredentialSecret(cfg, model.ControlPlane{}, c)
		mustfail.With(t, err, "istiod's guest kubeconfig", name)
	}
}

// TestAnInvalidCredentialIsAnError checks that an invalid credential is an error, so that hypergate creates a new one.
func TestAnInvalidCredentialIsAnError(t *testing.T) {
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
			o, err := model.CredentialSecret(config(), model.ControlPlane{}, modeltest.Credential())
			if err != nil {
				t.Fatal(err)
			}
			secret := secretOf(t, o)
			spoil(&secret)
			got, err := model.CredentialFromSecret(secret.Annotations, secret.Data)
			mustfail.With(t, err, model.CredentialSecretName)
			if diff := cmp.Diff(model.Credential{}, got); diff != "" {
				t.Errorf("there is a credential all the same: %s", diff)
			}
		})
	}
}

func TestRenewAt(t *testing.T) {
	c := modeltest.Credential()
	if got, want := c.RenewAt(), c.Issued.Add(48*time.Minute); !got.Equal(want) {
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
		o, err := model.CredentialSecret(config(), model.ControlPlane{}, c)
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", c, err)
		}
		secret := secretOf(t, o)
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
