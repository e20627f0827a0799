package mgmt_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// somePasses is the number of passes that a guest causes in these tests.
const somePasses = 200

// reads returns how often an object of a collection was read.
func (f *fixture) reads(in fakeapi.Collection, name string) int {
	n := 0
	for _, r := range f.api.Requests(in) {
		if strings.HasPrefix(r, "GET "+in.Path+"/"+name+"?") {
			n++
		}
	}
	return n
}

// observe runs one observation, whose result does not count.
func (f *fixture) observe() { _, _ = f.mgmt.Observe(f.Context(), &f.secrets) }

// passes calls each once for each of somePasses passes. It returns the duration in seconds, rounded up.
func (f *fixture) passes(each func()) (seconds int) {
	began := time.Now()
	for range somePasses {
		each()
	}
	return int(time.Since(began)/time.Second) + 1
}

// TestReadsOfPassesAreRateLimited checks that failing reads on the management side are rate limited. Without a limit
// the guest would determine their rate, because it determines how often there is a pass.
func TestReadsOfPassesAreRateLimited(t *testing.T) {
	spoiled := caData()
	delete(spoiled, "ca-key.pem")

	t.Run("a CA that is spoiled", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Put(theSecrets, secret(model.CASecretName, nil, spoiled)) })
		f.observed()
		f.passes(func() { f.observe() })
		f.Expect(f.reads(theSecrets, model.CASecretName)).To(gomega.Equal(1))

		t.Log("another version is read, even if it is invalid too")
		f.api.Put(theSecrets, secret(model.CASecretName, map[string]string{"a": "b"}, spoiled))
		f.Eventually(func() int {
			f.observe()
			return f.reads(theSecrets, model.CASecretName)
		}).Should(gomega.Equal(2))
		f.api.Put(theSecrets, secret(model.CASecretName, nil, caData()))
		f.Eventually(func() error { return f.observed().InvalidCA }).Should(gomega.Succeed())
	})
	t.Run("a CA that cannot be used", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Put(theSecrets, secret(model.CASecretName, nil, caData())) })
		f.observed()
		f.passes(func() {
			f.observe()
			f.secrets.RereadCA()
		})
		f.Expect(f.reads(theSecrets, model.CASecretName)).To(gomega.Equal(1))
		another := caData()
		another["root-cert.pem"] = []byte("new")
		f.api.Put(theSecrets, secret(model.CASecretName, nil, another))
		f.Eventually(func() string { return string(f.observed().CA.Root) }).Should(gomega.Equal("new"))
	})
	t.Run("a credential that is not of the installation that was removed", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) {
			api.Put(theSecrets, strings.Replace(credentialSecret(credentialData()), model.OwnerLabel, "example.com/owner", 1))
		})
		f.observed()
		f.passes(func() {
			f.observe()
			f.secrets.Forget()
		})
		f.Expect(f.reads(theSecrets, model.CredentialSecretName)).To(gomega.Equal(2), "once, and once after the removal")

		t.Log("what an installation created is forgotten again")
		f.secrets.SetCA(pki.CA{Root: []byte("new")}, pki.Rotation{})
		f.secrets.Forget()
		f.Expect(f.observed().CA.Exists()).To(gomega.BeFalse())
	})
	t.Run("a credential that is not there, where nothing else is seen", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Fail(theDeployments, forbidden("deployments")) })
		f.Eventually(f.observeError).Should(gomega.MatchError(gomega.ContainSubstring("is forbidden")))
		seconds := f.passes(func() {
			found, err := f.mgmt.FindCredentials(f.Context(), &f.secrets)
			f.Expect(err).NotTo(gomega.HaveOccurred())
			f.Expect(found).To(gomega.BeFalse())
		})
		f.Expect(f.reads(theSecrets, model.CredentialSecretName)).To(gomega.BeNumerically("<=", seconds))
	})
}

// TestReadsOfForeignObjectsAreRateLimited checks the same for objects that others created.
func TestReadsOfForeignObjectsAreRateLimited(t *testing.T) {
	t.Run("a namespace that hypergate is not allowed to read", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) {
			api.Fail(theNamespaces, forbidden("namespaces"))
			api.Put(theControlPlanes, controlPlane("guest1", "", ""))
		})
		f.Eventually(f.observeError).Should(gomega.MatchError(gomega.ContainSubstring("reading namespace")))
		seconds := f.passes(func() { f.observe() })
		f.Expect(f.reads(theNamespaces, "clusters-guest1")).To(gomega.BeNumerically("<=", seconds+1))
	})
	t.Run("TLSRoutes that are not served", func(t *testing.T) {
		f := publishing(t, model.PublishTLSRoute, func(*fakeapi.Server) {})
		f.Eventually(func() string { return f.observed().Endpoints.Problem }).Should(gomega.ContainSubstring("serves no TLSRoutes"))
		seconds := f.passes(func() { f.observe() })
		for _, version := range publish.TLSRouteVersions() {
			path := fakeapi.Collection{Path: "/apis/gateway.networking.k8s.io/" + version + "?"}
			f.Expect(len(f.api.Requests(path))).To(gomega.And(gomega.BeNumerically(">", 0), gomega.BeNumerically("<=", seconds+1)))
		}
	})
	t.Run("the identity of the namespace", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Put(theNamespaces, ofUser) })
		f.passes(func() {
			uid, err := f.mgmt.NamespaceUID(f.Context())
			f.Expect(err).NotTo(gomega.HaveOccurred())
			f.Expect(uid).To(gomega.BeEquivalentTo("5f0b"))
		})
		f.Expect(f.reads(theNamespaces, "clusters-guest1")).To(gomega.Equal(1))
	})
	t.Run("the identity of a namespace that cannot be read", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Fail(theNamespaces, apierrors.NewServiceUnavailable("no")) })
		_, err := f.mgmt.NamespaceUID(f.Context())
		f.Expect(err).To(gomega.HaveOccurred())
		f.api.Fail(theNamespaces, nil)
		f.api.Put(theNamespaces, ofUser)
		f.Expect(f.mgmt.NamespaceUID(f.Context())).To(gomega.BeEquivalentTo("5f0b"), "a failure is not kept")
	})
}

// TestTheHealthCheckAndAPassDoNotRace is for -race: the health server calls Check from another goroutine than the
// worker.
func TestTheHealthCheckAndAPassDoNotRace(t *testing.T) {
	for name, prepare := range map[string]func(*fakeapi.Server){
		"a Cluster": func(api *fakeapi.Server) { api.Put(theClusters("v1beta2"), cluster("guest1", "", isUp2)) },
		"a HostedControlPlane that goes": func(api *fakeapi.Server) {
			api.Put(theNamespaces, ofUser)
			api.Put(theControlPlanes, controlPlane("guest1", "", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFollowing(t, "guest1-kubeconfig", prepare)
			f.observed()
			ended := make(chan struct{})
			var checks sync.WaitGroup
			checks.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						_ = f.mgmt.Check()
					}
				}
			})
			for i := range somePasses {
				switch i {
				case somePasses / 4:
					f.api.Put(theControlPlanes)
				case somePasses / 2:
					f.api.Put(theSecrets, kubeconfigSecret("guest1-kubeconfig", fmt.Sprint("guest", i)))
				}
				_, _ = f.mgmt.Observe(f.Context(), &f.secrets)
			}
			close(ended)
			checks.Wait()
		})
	}
}
