package mgmt_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

var (
	theDeployments = fakeapi.Collection{
		Path: "/apis/apps/v1/namespaces/clusters-guest1/deployments", APIVersion: "apps/v1", Kind: "Deployment",
	}
	theSecrets    = fakeapi.Collection{Path: "/api/v1/namespaces/clusters-guest1/secrets", APIVersion: "v1", Kind: "Secret"}
	theNamespaces = fakeapi.Collection{Path: "/api/v1/namespaces", APIVersion: "v1", Kind: "Namespace"}
)

func config() model.Config {
	return model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress",
		Revision: "openshift-gateway", IstioResources: model.LayeredProductResources(),
	}
}

// fixture is a management cluster that is served by a fake API server.
type fixture struct {
	*testing.T
	gomega.Gomega
	api  *fakeapi.Server
	mgmt *mgmt.Cluster
	// secrets is what observed keeps between calls.
	secrets mgmt.Secrets
}

// start starts the watches of a management cluster that has the objects from prepare. The fake API server does not
// serve the kinds that only package apply watches.
func start(t *testing.T, prepare func(*fakeapi.Server)) *fixture {
	t.Helper()
	return startWith(t, config(), prepare)
}

func startWith(t *testing.T, cfg model.Config, prepare func(*fakeapi.Server)) *fixture {
	t.Helper()
	f := &fixture{T: t, Gomega: hang.Gomega(t), api: fakeapi.New(t)}
	f.api.Put(theDeployments)
	f.api.Put(theSecrets)
	prepare(f.api)
	var err error
	f.mgmt, err = mgmt.New(f.api.Config(), cfg)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(f.mgmt.Start(klog.NewContext(t.Context(), logr.Discard()), func() {})).To(gomega.Succeed())
	return f
}

// observed waits until the watches have synced, and returns the observation.
func (f *fixture) observed() model.ManagementObservation {
	f.Helper()
	var hosted model.ManagementObservation
	f.Eventually(func() (err error) {
		hosted, err = f.mgmt.Observe(f.Context(), &f.secrets)
		return err
	}).Should(gomega.Succeed())
	return hosted
}

func forbidden(resource string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
}

const istiod = "istiod-openshift-gateway"

func TestAvailability(t *testing.T) {
	const (
		available   = "{type: Available, status: 'True', lastTransitionTime: 2026-11-21T10:00:00Z}"
		rolledOut   = "{type: Progressing, status: 'True', reason: NewReplicaSetAvailable, lastUpdateTime: 2026-11-21T11:00:00Z}"
		rolledFirst = "{type: Progressing, status: 'True', reason: NewReplicaSetAvailable, lastUpdateTime: 2026-11-21T09:00:00Z}"
		stuck       = "{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, lastUpdateTime: 2026-11-21T12:00:00Z}"
		rolling     = "{type: Progressing, status: 'True', reason: ReplicaSetUpdated, lastUpdateTime: 2026-11-21T12:00:00Z}"
	)
	deployment := func(name, meta string, observed, ready int, conditions ...string) string {
		return fmt.Sprintf("{metadata: {name: %s, namespace: clusters-guest1, uid: u, generation: 2%s}, status: "+
			"{observedGeneration: %d, replicas: 1, updatedReplicas: 1, readyReplicas: %d, conditions: [%s]}}",
			name, meta, observed, ready, strings.Join(conditions, ", "))
	}
	at := func(hour int) time.Time { return time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC) }
	for name, tc := range map[string]struct {
		deployments []string
		want        model.Availability
		since       time.Time
		rollout     model.Rollout
	}{
		"no Deployment": {nil, model.Absent, time.Time{}, model.RolledOut},
		"another's Deployment": {
			[]string{deployment("kube-apiserver", "", 2, 1, available)},
			model.Absent,
			time.Time{},
			model.RolledOut,
		},
		"just created":         {[]string{deployment(istiod, "", 0, 0)}, model.Unavailable, time.Time{}, model.Rolling},
		"not ready":            {[]string{deployment(istiod, "", 2, 0, available)}, model.Unavailable, time.Time{}, model.Rolling},
		"changed a moment ago": {[]string{deployment(istiod, "", 1, 1, available)}, model.Available, at(10), model.Rolling},
		"ready and not available": {
			[]string{deployment(istiod, "", 2, 1, "{type: Available, status: 'False'}")},
			model.Unavailable,
			time.Time{},
			model.RolledOut,
		},
		"available": {
			[]string{deployment(istiod, "", 2, 1, available, rolledFirst)},
			model.Available, at(10),
			model.RolledOut,
		},
		"available, rolled since": {
			[]string{deployment(istiod, "", 2, 1, available, rolledOut)},
			model.Available, at(11),
			model.RolledOut,
		},
		"available, still rolling": {
			[]string{strings.Replace(deployment(istiod, "", 2, 1, available, rolling), "replicas: 1", "replicas: 2", 1)},
			model.Available, at(10), model.Rolling,
		},
		"available, gave up": {[]string{deployment(istiod, "", 2, 1, available, stuck)}, model.Available, at(10), model.Stuck},
		"no pods may be made": {
			[]string{deployment(istiod, "", 2, 0, "{type: ReplicaFailure, status: 'True', reason: FailedCreate}")},
			model.Unavailable,
			time.Time{},
			model.Stuck,
		},
		"going": {
			[]string{deployment(istiod, ", deletionTimestamp: 2026-11-21T12:00:00Z, finalizers: [foregroundDeletion]", 2, 1, available)},
			model.Absent,
			time.Time{},
			model.RolledOut,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) { api.Put(theDeployments, tc.deployments...) })
			got := f.observed()
			if got.Istiod != tc.want {
				t.Errorf("availability %d, want %d", got.Istiod, tc.want)
			}
			if got.Rollout != tc.rollout {
				t.Errorf("rollout %d, want %d", got.Rollout, tc.rollout)
			}
			if tc.want == model.Available && !got.IstiodSince.Equal(tc.since) {
				t.Errorf("since %s, want %s", got.IstiodSince, tc.since)
			}
		})
	}
}

// TestPodsOfIstiod checks how many pods are reported as ready and as wanted.
func TestPodsOfIstiod(t *testing.T) {
	for name, tc := range map[string]struct {
		spec        string
		ready       int
		want, total int32
	}{
		"one of two":            {"replicas: 2", 1, 1, 2},
		"the API's default":     {"", 1, 1, 1},
		"more during a rollout": {"replicas: 2", 3, 2, 2},
		"scaled to none":        {"replicas: 0", 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) {
				api.Put(theDeployments, fmt.Sprintf("{metadata: {name: %s, namespace: clusters-guest1, uid: u}, "+
					"spec: {%s}, status: {readyReplicas: %d}}", istiod, tc.spec, tc.ready))
			})
			if got := f.observed(); got.IstiodReady != tc.want || got.IstiodWanted != tc.total {
				t.Errorf("%d of %d pods, want %d of %d", got.IstiodReady, got.IstiodWanted, tc.want, tc.total)
			}
		})
	}
	f := start(t, func(*fakeapi.Server) {})
	if got := f.observed(); got.IstiodReady != 0 || got.IstiodWanted != 0 {
		t.Errorf("%d of %d pods without a Deployment", got.IstiodReady, got.IstiodWanted)
	}
}

// secret returns the YAML of a Secret without apiVersion and kind.
func secret(name string, annotations map[string]string, data map[string][]byte) string {
	quote := func(m map[string]string) string {
		var out []string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			out = append(out, fmt.Sprintf("%q: %q", k, m[k]))
		}
		return "{" + strings.Join(out, ", ") + "}"
	}
	encoded := map[string]string{}
	for k, v := range data {
		encoded[k] = base64.StdEncoding.EncodeToString(v)
	}
	return fmt.Sprintf("{metadata: {name: %s, namespace: clusters-guest1, labels: {%s: %s}, annotations: %s}, data: %s}",
		name, model.OwnerLabel, config().OwnerValue(model.SideMgmt), quote(annotations), quote(encoded))
}

func caData() map[string][]byte {
	return map[string][]byte{
		"ca-cert.pem": []byte("cert"), "ca-key.pem": []byte("key"), "cert-chain.pem": []byte("chain"),
		"root-cert.pem": []byte("root"),
	}
}

func ca() pki.CA {
	return pki.CA{Cert: []byte("cert"), Key: []byte("key"), Chain: []byte("chain"), Root: []byte("root")}
}

var issued = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func credentialSecret(data map[string][]byte) string {
	return secret(model.CredentialSecretName, map[string]string{
		model.IssuedAnnotation: issued.Format(time.RFC3339), model.ExpiresAnnotation: issued.Add(time.Hour).Format(time.RFC3339),
	}, data)
}

func credentialData() map[string][]byte {
	return map[string][]byte{
		"config": []byte("clusters: [{cluster: {server: https://guest:6443}}]"), "token": []byte("t"),
		"ca.crt": []byte("c"),
	}
}

// TestSecretsAreReadOncePerLead checks that the Secrets are read only when a process starts to lead. Afterwards the
// process knows what it wrote.
func TestSecretsAreReadOncePerLead(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theSecrets, secret(model.CASecretName, nil, caData()), credentialSecret(credentialData()))
	})
	want := model.Credential{
		GuestAPI: model.GuestAPI{Server: "https://guest:6443", CABundle: []byte("c")}, Token: "t", Issued: issued,
		Expires: issued.Add(time.Hour),
	}
	for range 3 {
		if diff := cmp.Diff(ca(), f.observed().CA); diff != "" {
			t.Fatalf("CA, -want +got:\n%s", diff)
		}
		if diff := cmp.Diff(want, f.secrets.Credential(model.IstiodBearer)); diff != "" {
			t.Fatalf("credential, -want +got:\n%s", diff)
		}
	}
	for _, name := range []string{model.CASecretName, model.CredentialSecretName} {
		reads := slices.DeleteFunc(
			f.api.Requests(theSecrets),
			func(r string) bool { return !strings.HasPrefix(r, "GET "+theSecrets.Path+"/"+name+"?") },
		)
		f.Expect(reads).To(gomega.HaveLen(1), name)
	}

	t.Log("new values are kept; after an uninstallation the Secrets are read again")
	f.secrets.SetCA(pki.CA{Root: []byte("new")}, pki.Rotation{})
	f.secrets.SetCredential(model.IstiodBearer, model.Credential{Token: "new"})
	f.Expect(string(f.observed().CA.Root)).To(gomega.Equal("new"))
	f.Expect(f.secrets.Credential(model.IstiodBearer).Token).To(gomega.Equal("new"))
	f.secrets.Forget()
	f.Expect(string(f.observed().CA.Root)).To(gomega.Equal("root"))
	f.Expect(f.secrets.Credential(model.IstiodBearer).Token).To(gomega.Equal("t"))
}

func TestWithoutSecretsThereIsNoCA(t *testing.T) {
	f := start(t, func(*fakeapi.Server) {})
	f.Expect(f.observed().CA.Exists()).To(gomega.BeFalse())
	f.Expect(f.secrets.Credential(model.IstiodBearer)).To(gomega.BeZero())
}

// TestAnUnreadableCredentialIsDiscarded checks that an unreadable credential is discarded. A new one costs nothing.
func TestAnUnreadableCredentialIsDiscarded(t *testing.T) {
	data := credentialData()
	delete(data, "ca.crt")
	f := start(t, func(api *fakeapi.Server) { api.Put(theSecrets, credentialSecret(data)) })
	f.observed()
	f.Expect(f.secrets.Credential(model.IstiodBearer)).To(gomega.BeZero())
}

// TestAnUnreadableCAIsNotMissing checks that an unreadable CA does not count as missing. A new CA would break the trust
// of running gateways.
func TestAnUnreadableCAIsNotMissing(t *testing.T) {
	data := caData()
	delete(data, "ca-key.pem")
	f := start(t, func(api *fakeapi.Server) { api.Put(theSecrets, secret(model.CASecretName, nil, data)) })
	f.Expect(f.observed().InvalidCA).To(gomega.MatchError(gomega.ContainSubstring("ca-key.pem")))
	f.api.Put(theSecrets, secret(model.CASecretName, nil, caData()))
	f.Eventually(func() error { return f.observed().InvalidCA }).Should(gomega.Succeed(), "it is looked at again")
	f.Expect(f.observed().CA.Exists()).To(gomega.BeTrue())
}

func (f *fixture) observeError() error {
	_, err := f.mgmt.Observe(f.Context(), &f.secrets)
	return err
}

// TestAFailedReadIsNotAbsence checks that a failed read of the CA or of istiod does not count as absence.
func TestAFailedReadIsNotAbsence(t *testing.T) {
	t.Run("the CA", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Fail(theSecrets, forbidden("secrets")) })
		f.Eventually(f.observeError).Should(gomega.MatchError(gomega.And(
			gomega.ContainSubstring("not been observed completely yet"), gomega.ContainSubstring("is forbidden"),
		)))
		_, unknown := errors.AsType[mgmt.NotSyncedError](f.observeError())
		f.Expect(unknown).To(gomega.BeTrue())
	})
	t.Run("istiod", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Fail(theDeployments, forbidden("deployments")) })
		f.Eventually(f.observeError).Should(gomega.MatchError(gomega.And(
			gomega.ContainSubstring("not been observed completely yet"), gomega.ContainSubstring("is forbidden"),
		)))
		_, unknown := errors.AsType[mgmt.NotSyncedError](f.observeError())
		f.Expect(unknown).To(gomega.BeTrue())
		f.Expect(f.mgmt.Check()).To(gomega.MatchError(gomega.ContainSubstring("is forbidden")))

		f.api.Fail(theDeployments, nil)
		f.observed()
		f.Eventually(f.mgmt.Check).Should(gomega.Succeed())
	})
}

// TestEveryRequestIsForOneNamespace checks that a namespaced Role is enough. The only cluster-scoped request reads
// the namespace by its name.
func TestEveryRequestIsForOneNamespace(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}", "{metadata: {name: clusters-guest2, uid: 77aa}}")
	})
	f.observed()
	uid, err := f.mgmt.NamespaceUID(t.Context())
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(string(uid)).To(gomega.Equal("5f0b"))
	all := f.api.Requests(fakeapi.Collection{})
	f.Expect(len(all)).To(gomega.BeNumerically(">", 5))
	for _, r := range all {
		if !strings.Contains(r, "/namespaces/clusters-guest1/") && !strings.Contains(r, "/namespaces/clusters-guest1?") {
			t.Errorf("%s is not for the namespace", r)
		}
	}
}

func TestAMissingNamespace(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) { api.Put(theNamespaces) })
	_, err := f.mgmt.NamespaceUID(t.Context())
	f.Expect(err).To(gomega.MatchError(mgmt.ErrNoNamespace))
	f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(`"clusters-guest1": create it, or name another with --namespace`)))
	f.api.Fail(theNamespaces, forbidden("namespaces"))
	_, err = f.mgmt.NamespaceUID(t.Context())
	f.Expect(err).NotTo(gomega.MatchError(mgmt.ErrNoNamespace))
	f.Expect(err).To(gomega.HaveOccurred())
}

// TestAUserSuppliedCA checks that a CA from a user is used unchanged, and is dropped after its Secret is deleted.
func TestAUserSuppliedCA(t *testing.T) {
	theirs := strings.Replace(secret(model.CASecretName, nil, caData()), model.OwnerLabel, "example.com/owner", 1)
	f := start(t, func(api *fakeapi.Server) { api.Put(theSecrets, theirs) })
	got := f.observed()
	f.Expect(got.CAOwner).To(gomega.Equal(model.Theirs))
	if diff := cmp.Diff(ca(), got.CA); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.api.Put(theSecrets)
	f.Eventually(func() bool { return f.observed().CA.Exists() }).Should(gomega.BeFalse())
	f.Expect(f.observed().CAOwner).To(gomega.Equal(model.Ours))
}

func TestRotationRequest(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theSecrets, secret(model.CASecretName, map[string]string{model.RotateAnnotation: "now"}, caData()))
	})
	f.Expect(f.observed().RotationRequest).To(gomega.Equal("now"))
}
