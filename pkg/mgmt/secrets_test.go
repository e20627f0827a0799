package mgmt_test

import (
	"errors"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

// TestACredentialIsFoundWithoutIstiod checks that the credential is found even if istiod cannot be
// observed. That istiod still needs its credential.
func TestACredentialIsFoundWithoutIstiod(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Fail(theDeployments, forbidden("deployments"))
		api.Put(theSecrets)
	})
	f.Eventually(f.observeError).Should(gomega.MatchError(gomega.ContainSubstring("is forbidden")))
	found, err := f.mgmt.FindCredentials(t.Context(), &f.secrets)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(found).To(gomega.BeFalse(), "there is none")

	f.api.Fail(theSecrets, forbidden("secrets"))
	t.Log("the Secret is read at most once in a second")
	find := func() (bool, error) { return f.mgmt.FindCredentials(t.Context(), &f.secrets) }
	f.Eventually(func() error {
		_, err := find()
		return err
	}).Should(gomega.MatchError(gomega.ContainSubstring("is forbidden")))

	f.api.Fail(theSecrets, nil)
	f.api.Put(theSecrets, credentialSecret(credentialData()))
	f.Eventually(find).Should(gomega.BeTrue())
	f.Expect(f.secrets.Credential(model.IstiodBearer).Token).To(gomega.Equal("t"))

	t.Log("a credential that was renewed since is not replaced by a read")
	f.secrets.SetCredential(model.IstiodBearer, model.Credential{Token: "new"})
	found, err = f.mgmt.FindCredentials(t.Context(), &f.secrets)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(found).To(gomega.BeTrue())
	f.Expect(f.secrets.Credential(model.IstiodBearer).Token).To(gomega.Equal("new"))
}

// TestEachReadHasADeadline checks that each read has a deadline. A single worker does everything, and a management API
// server that hangs must not block it.
func TestEachReadHasADeadline(t *testing.T) {
	g := hang.Gomega(t)
	api := fakeapi.New(t)
	api.Put(theDeployments)
	api.Put(theSecrets)
	api.Put(theNamespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}")
	var mu sync.Mutex
	ends, endless := sets.New[string](), sets.New[string]()
	config, cfg := api.Config(), config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if _, bounded := r.Context().Deadline(); bounded {
				ends.Insert(r.URL.Path)
			} else {
				endless.Insert(r.URL.Path)
			}
			return next.RoundTrip(r)
		})
	})
	cluster, err := mgmt.New(config, cfg)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = cluster.NamespaceUID(t.Context())
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(cluster.Start(klog.NewContext(t.Context(), logr.Discard()), func() {})).To(gomega.Succeed())
	g.Eventually(func() error {
		_, err := cluster.Observe(t.Context(), &mgmt.Secrets{})
		return err
	}).Should(gomega.Succeed())

	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{
		theNamespaces.Path + "/clusters-guest1", theSecrets.Path + "/" + model.CASecretName,
		theSecrets.Path + "/" + model.CredentialSecretName,
	} {
		if !ends.Has(path) || endless.Has(path) {
			t.Errorf("%s is read without a deadline", path)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestARefusedCredentialIsNotUsed checks that the previous credential is used again if the management side refuses
// the content of a new one, so that another one is requested. A credential that could not be written for another
// reason stays.
func TestARefusedCredentialIsNotUsed(t *testing.T) {
	secret, secrets := schema.GroupKind{Kind: "Secret"}, schema.GroupResource{Resource: "secrets"}
	for name, tc := range map[string]struct {
		err  *apierrors.StatusError
		want string
	}{
		"too large":  {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), "t"},
		"invalid":    {apierrors.NewInvalid(secret, model.CredentialSecretName, nil), "t"},
		"denied":     {apierrors.NewForbidden(secrets, "", errors.New("no")), "t"},
		"no right":   {apierrors.NewForbidden(secrets, "", errors.New(`User "x" cannot patch resource "secrets" in API group ""`)), "new"},
		"no answer":  {apierrors.NewServiceUnavailable("starting"), "new"},
		"many tries": {apierrors.NewTooManyRequests("slowly", 1), "new"},
	} {
		f := start(t, func(api *fakeapi.Server) { api.Put(theSecrets, credentialSecret(credentialData())) })
		found, err := f.mgmt.FindCredentials(t.Context(), &f.secrets)
		f.Expect(err).NotTo(gomega.HaveOccurred())
		f.Expect(found).To(gomega.BeTrue())
		fresh := f.secrets.Credential(model.IstiodBearer)
		fresh.Token = "new"
		object, err := model.CredentialSecret(config(), model.ControlPlane{}, fresh)
		f.Expect(err).NotTo(gomega.HaveOccurred())
		f.secrets.SetCredential(model.IstiodBearer, fresh)
		f.api.Fail(theSecrets, tc.err)
		report := f.mgmt.Apply(t.Context(), []model.MgmtObject{object})
		f.secrets.Applied(report)
		f.Expect(report.Failures()).To(gomega.HaveLen(1), name)
		f.Expect(f.secrets.Credential(model.IstiodBearer).Token).To(gomega.Equal(tc.want), "%s: %v", name, report.Err())
	}
}

// TestTheSidecarsSecretIsRead checks that the Secret of the tunnel's sidecar is read with istiod's, if there can be a
// tunnel. A Secret without a token gives no credential, but its key pair is kept.
func TestTheSidecarsSecretIsRead(t *testing.T) {
	files := map[string][]byte{
		"server": []byte("https://guest:6443"), "ca.crt": []byte("c"), "token": []byte("s"),
		"tls.crt": []byte("cert"), "tls.key": []byte("key"),
	}
	times := map[string]string{
		model.IssuedAnnotation: issued.Format(time.RFC3339), model.ExpiresAnnotation: issued.Add(time.Hour).Format(time.RFC3339),
	}
	incomplete := maps.Clone(files)
	delete(incomplete, "token")
	tunnel := config()
	tunnel.Publish = model.Publish{Strategy: model.PublishTunnel, RelayImage: "registry.example.com/hypergate:1"}
	for name, tc := range map[string]struct {
		cfg   model.Config
		files map[string][]byte
		token string
		pair  pki.Serving
	}{
		"whole":         {tunnel, files, "s", pki.Serving{Cert: []byte("cert"), Key: []byte("key")}},
		"without token": {tunnel, incomplete, "", pki.Serving{Cert: []byte("cert"), Key: []byte("key")}},
		"no tunnel":     {config(), files, "", pki.Serving{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, tc.cfg, func(api *fakeapi.Server) {
				api.Put(theSecrets, credentialSecret(credentialData()), secret(model.TunnelSecretName, times, tc.files))
			})
			f.observed()
			f.Expect(f.secrets.Credential(model.IstiodBearer).Token).To(gomega.Equal("t"))
			f.Expect(f.secrets.Credential(model.SidecarBearer).Token).To(gomega.Equal(tc.token))
			f.Expect(f.secrets.Serving()).To(gomega.Equal(tc.pair))
		})
	}
}
