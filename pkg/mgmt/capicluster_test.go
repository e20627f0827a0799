package mgmt_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

// theClusters returns the collection of Cluster API's Clusters in the given version.
func theClusters(version string) fakeapi.Collection {
	return fakeapi.Collection{
		Path:       "/apis/cluster.x-k8s.io/" + version + "/namespaces/clusters-guest1/clusters",
		APIVersion: "cluster.x-k8s.io/" + version, Kind: "Cluster",
	}
}

// cluster returns the YAML of a Cluster. metadata and rest are appended to the metadata and to the object (spec and
// status).
func cluster(name, metadata, rest string) string {
	return "{metadata: {namespace: clusters-guest1, name: " + name + ", uid: uid-" + name + metadata + "}" + rest + "}"
}

const (
	isUp1  = ", status: {controlPlaneReady: true}"
	isUp2  = ", status: {initialization: {controlPlaneInitialized: true}}"
	paused = ", spec: {paused: true}"
	going  = ", deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [cluster.cluster.x-k8s.io]"
)

// kubeconfigSecret returns the YAML of a Secret as the Cluster API contract defines it: the kubeconfig is in key
// value. If of is not empty, the Secret has the label with the name of its Cluster.
func kubeconfigSecret(name, of string) string {
	labels := "{}"
	if of != "" {
		labels = "{cluster.x-k8s.io/cluster-name: " + of + "}"
	}
	return "{metadata: {namespace: clusters-guest1, name: " + name + ", labels: " + labels +
		"}, type: cluster.x-k8s.io/secret, data: {value: " + encodedKubeconfig() + "}}"
}

// startFollowing is like start, for a hypergate that is configured with a Secret for the guest's kubeconfig.
func startFollowing(t *testing.T, name string, prepare func(*fakeapi.Server)) *fixture {
	t.Helper()
	cfg := config()
	cfg.GuestKubeconfigSecret = name
	return startWith(t, cfg, func(api *fakeapi.Server) {
		api.Put(theSecrets, kubeconfigSecret(name, ""))
		prepare(api)
	})
}

func TestClusterIsObserved(t *testing.T) {
	condition := func(status string) string {
		return ", status: {conditions: [{type: Ready, status: 'True'}, {type: ControlPlaneInitialized, status: '" + status + "'}]}"
	}
	with := func(edit func(*model.ControlPlane)) model.ControlPlane {
		c := model.ControlPlane{ReportedBy: model.ClusterAPI, Name: "guest1", UID: "uid-guest1"}
		edit(&c)
		return c
	}
	up := with(func(*model.ControlPlane) {})
	notYet := with(func(c *model.ControlPlane) { c.Stage = model.Uninitialized })
	pausedNow := with(func(c *model.ControlPlane) { c.Stage, c.PausedUntil = model.Uninitialized, "true" })
	for name, tc := range map[string]struct {
		cluster string
		want    model.ControlPlane
	}{
		"just made":      {cluster("guest1", "", ""), notYet},
		"v1beta1: ready": {cluster("guest1", "", isUp1), up},
		"v1beta1: not ready": {
			cluster("guest1", "", ", status: {controlPlaneReady: false, infrastructureReady: true}"), notYet,
		},
		"v1beta2: initialized": {cluster("guest1", "", isUp2), up},
		"v1beta2: not initialized": {
			cluster("guest1", "", ", status: {initialization: {infrastructureProvisioned: true}}"), notYet,
		},
		"by the condition":                 {cluster("guest1", "", condition("True")), up},
		"by the condition, not yet":        {cluster("guest1", "", condition("False")), notYet},
		"by the condition, unknown":        {cluster("guest1", "", condition("Unknown")), notYet},
		"paused":                           {cluster("guest1", "", paused), pausedNow},
		"paused by the annotation":         {cluster("guest1", ", annotations: {cluster.x-k8s.io/paused: 'true'}", ""), pausedNow},
		"paused by it, whatever its value": {cluster("guest1", ", annotations: {cluster.x-k8s.io/paused: ''}", ""), pausedNow},
		"not paused":                       {cluster("guest1", ", annotations: {other/paused: 'true'}", ", spec: {paused: false}"), notYet},
		"going":                            {cluster("guest1", going, isUp2), with(func(c *model.ControlPlane) { c.Deleting = true })},
		"with unknown fields": {
			cluster(
				"guest1", "",
				", spec: {topology: {a: [1]}, clusterNetwork: 7}, status: {phase: {}, initialization: {controlPlaneInitialized: true}}",
			),
			up,
		},
	} {
		for _, version := range []string{"v1beta1", "v1beta2"} {
			t.Run(name+", served as "+version, func(t *testing.T) {
				f := startFollowing(
					t, "guest1-kubeconfig",
					func(api *fakeapi.Server) { api.Put(theClusters(version), tc.cluster, cluster("other", "", paused)) },
				)
				want := tc.want
				want.APIVersion = "cluster.x-k8s.io/" + version
				if diff := cmp.Diff(want, f.observed().ControlPlane); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				for _, r := range f.api.Requests(theClusters(version)) {
					f.Expect(r).To(
						gomega.ContainSubstring("fieldSelector=metadata.name%3Dguest1&"),
						"RBAC can allow that without allowing others",
					)
				}
			})
		}
	}
}

// TestTheNewestServedVersionIsListed checks that hypergate lists the newest served version, and does not list the older
// one.
func TestTheNewestServedVersionIsListed(t *testing.T) {
	f := startFollowing(t, "guest1-kubeconfig", func(api *fakeapi.Server) {
		api.Put(theClusters("v1beta1"), cluster("guest1", "", isUp1))
		api.Put(theClusters("v1beta2"), cluster("guest1", "", isUp2))
	})
	f.Expect(f.observed().ControlPlane.APIVersion).To(gomega.Equal("cluster.x-k8s.io/v1beta2"))
	f.Expect(f.api.Requests(theClusters("v1beta1"))).To(gomega.BeEmpty())
}

// TestClusterIsSelectedByItsSecret checks that the Secret's label selects the Cluster, and the Secret's name does so if
// there is no label.
func TestClusterIsSelectedByItsSecret(t *testing.T) {
	both := func(api *fakeapi.Server) {
		api.Put(theClusters("v1beta2"), cluster("guest1", "", isUp2), cluster("guest2", "", isUp2), cluster("hypergate", "", isUp2))
	}
	for name, tc := range map[string]struct{ secret, label, want string }{
		"its name":                            {"guest1-kubeconfig", "", "guest1"},
		"its label":                           {"anything", "guest2", "guest2"},
		"its label overrides its name":        {"guest1-kubeconfig", "guest2", "guest2"},
		"a name of no form, without a label":  {"hypergate", "", ""},
		"of a Cluster that is not there":      {"guest3-kubeconfig", "", ""},
		"its label, of one that is not there": {"guest1-kubeconfig", "guest3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFollowing(t, tc.secret, func(api *fakeapi.Server) {
				both(api)
				api.Put(theSecrets, kubeconfigSecret(tc.secret, tc.label))
			})
			f.Expect(f.observed().ControlPlane.Name).To(gomega.Equal(tc.want))
		})
	}
	t.Run("its label changes", func(t *testing.T) {
		f := startFollowing(t, "guest1-kubeconfig", both)
		f.Expect(f.observed().ControlPlane.Name).To(gomega.Equal("guest1"))
		f.api.Put(theSecrets, kubeconfigSecret("guest1-kubeconfig", "guest2"))
		f.Eventually(func() model.ControlPlane { return f.observed().ControlPlane }).Should(gomega.And(
			gomega.HaveField("Name", "guest2"), gomega.HaveField("Deleting", false)))
		f.api.Put(theSecrets)
		f.Eventually(func() error { _, err := f.mgmt.GuestKubeconfig(); return err }).Should(gomega.HaveOccurred())
		f.Expect(f.observed().ControlPlane.Name).To(gomega.Equal("guest2"), "without the Secret it is the one before")
		f.api.Put(theSecrets, kubeconfigSecret("guest1-kubeconfig", "guest3"))
		f.Eventually(func() model.ControlPlane {
			return f.observed().ControlPlane
		}).Should(gomega.BeZero(), "one that was never there was not deleted")
	})
}

// TestTheLifeOfACluster checks that a Cluster that was observed and is gone counts as deleted. A Cluster of the same
// name with another UID is a new Cluster.
func TestTheLifeOfACluster(t *testing.T) {
	f := startFollowing(t, "guest1-kubeconfig", func(api *fakeapi.Server) { api.Put(theClusters("v1beta2"), cluster("guest1", "", isUp2)) })
	f.Expect(f.observed().ControlPlane.Deleting).To(gomega.BeFalse())
	f.api.Put(theClusters("v1beta2"))
	f.Eventually(func() model.ControlPlane { return f.observed().ControlPlane }).Should(gomega.And(
		gomega.HaveField("Deleting", true), gomega.HaveField("Name", "guest1"),
	))
	f.api.Put(theClusters("v1beta2"), strings.Replace(cluster("guest1", "", isUp2), "uid-guest1", "uid-again", 1))
	f.Eventually(func() model.ControlPlane { return f.observed().ControlPlane }).Should(gomega.And(
		gomega.HaveField("Deleting", false), gomega.HaveField("UID", gomega.BeEquivalentTo("uid-again"))))
	f.Expect(f.api.Requests(theNamespaces)).NotTo(
		gomega.ContainElement(gomega.HavePrefix("GET /api/v1/namespaces/clusters-guest1?")),
		"the namespace says nothing to it",
	)

	t.Log("a Cluster that cannot be read is neither treated as absent nor guessed")
	f.api.Put(theClusters("v1beta2"), cluster("guest1", "", ", spec: {paused: {since: 2027}}"))
	f.Eventually(func() error { return f.observed().ControlPlaneProblem }).Should(gomega.MatchError(
		gomega.ContainSubstring("reading Cluster guest1 (cluster.x-k8s.io/v1beta2)"),
	))
}

// TestTheHostedControlPlaneHasPrecedence checks that the HostedControlPlane takes precedence over the Cluster,
// also after its deletion. HyperShift creates both, with different names.
func TestTheHostedControlPlaneHasPrecedence(t *testing.T) {
	f := startFollowing(t, "infra1-kubeconfig", func(api *fakeapi.Server) {
		api.Put(theNamespaces, ofUser)
		api.Put(theControlPlanes, controlPlane("guest1", "", ""))
		api.Put(theClusters("v1beta1"), cluster("infra1", "", paused))
	})
	f.Expect(f.observed().ControlPlane).To(gomega.And(
		gomega.HaveField("Name", "guest1"), gomega.HaveField("ReportedBy", model.HyperShift),
		gomega.HaveField("PausedUntil", ""),
	))
	f.api.Put(theControlPlanes)
	f.Eventually(func() bool { return f.observed().ControlPlane.Deleting }).Should(gomega.BeTrue())
	f.Expect(f.observed().ControlPlane.Name).To(gomega.Equal("guest1"))
}

// TestALaterHostedControlPlaneHasPrecedence checks that a HostedControlPlane that is created later takes precedence
// over the Cluster.
func TestALaterHostedControlPlaneHasPrecedence(t *testing.T) {
	f := startFollowing(t, "infra1-kubeconfig", func(api *fakeapi.Server) {
		api.Put(theNamespaces, ofUser)
		api.Put(theControlPlanes)
		api.Put(theClusters("v1beta1"), cluster("infra1", "", isUp1))
	})
	f.Expect(f.observed().ControlPlane.Name).To(gomega.Equal("infra1"))
	f.api.Put(theControlPlanes, controlPlane("guest1", "", ""))
	f.Eventually(func() string { return f.observed().ControlPlane.Name }).Should(gomega.Equal("guest1"))
}

// mayNotListClusters returns the error of an API server whose RBAC rules forbid listing Clusters.
func mayNotListClusters() *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "clusters"}, "guest1",
		errors.New(`User "hypergate" cannot list resource "clusters" in API group "cluster.x-k8s.io" in the namespace "clusters-guest1"`))
}

func TestWithoutClusterAPI(t *testing.T) {
	requests := func(f *fixture) int {
		return len(f.api.Requests(theClusters("v1beta1"))) + len(f.api.Requests(theClusters("v1beta2")))
	}
	t.Run("it is not served", func(t *testing.T) {
		f := startFollowing(t, "guest1-kubeconfig", func(*fakeapi.Server) {})
		f.Expect(f.observed().ControlPlane).To(gomega.BeZero())
		f.Expect(f.mgmt.WatchProblems()).NotTo(gomega.ContainElement(gomega.HaveField("GVK.Kind", "Cluster")))
		f.inRounds(func() { f.Expect(requests(f)).To(gomega.BeNumerically("<=", 2), "each version once") })
	})
	t.Run("reads are forbidden", func(t *testing.T) {
		f := startFollowing(t, "guest1-kubeconfig", func(api *fakeapi.Server) { api.Fail(theClusters("v1beta2"), mayNotListClusters()) })
		f.Eventually(f.mgmt.Check).Should(gomega.MatchError(gomega.ContainSubstring("clusters")))
		f.Expect(f.observeError()).To(gomega.HaveOccurred(), "it may be paused")
		f.Eventually(f.mgmt.WatchProblems).Should(gomega.ContainElement(gomega.And(
			gomega.HaveField("GVK.Kind", "Cluster"),
			gomega.HaveField("Cause", gomega.WithTransform(
				apply.Cause.String, gomega.Equal("not allowed to list clusters.cluster.x-k8s.io (RBAC)"),
			)),
		)))
	})
	t.Run("reads are forbidden, and a HostedControlPlane decides", func(t *testing.T) {
		f := startFollowing(t, "guest1-kubeconfig", func(api *fakeapi.Server) {
			api.Put(theNamespaces, ofUser)
			api.Put(theControlPlanes, controlPlane("guest1", "", ""))
			api.Fail(theClusters("v1beta2"), mayNotListClusters())
		})
		f.Expect(f.observed().ControlPlane.ReportedBy).To(gomega.Equal(model.HyperShift))
		f.Expect(f.mgmt.WatchProblems()).NotTo(gomega.ContainElement(gomega.HaveField("GVK.Kind", "Cluster")))
	})
	t.Run("no Secret is named", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Put(theClusters("v1beta2"), cluster("guest1", "", paused)) })
		f.Expect(f.observed().ControlPlane).To(gomega.BeZero())
		f.Expect(requests(f)).To(gomega.BeZero())
	})
}

func TestKubeconfigFromASecret(t *testing.T) {
	for name, tc := range map[string]struct {
		secrets []string
		want    []string // substrings of the error
	}{
		"Cluster API's": {[]string{withData("value: " + encodedKubeconfig())}, nil},
		"HyperShift's":  {[]string{withData("kubeconfig: " + encodedKubeconfig())}, nil},
		"both":          {[]string{withData("kubeconfig: '', value: " + encodedKubeconfig())}, nil},
		"not one":       {[]string{withData("value: a3ViZWNvbmZpZw==")}, []string{", key value: it is not a kubeconfig"}},
		"another key": {
			[]string{withData("admin.conf: a3ViZWNvbmZpZw==, ca.crt: ''")},
			[]string{
				": it has neither the key value", "nor kubeconfig", "but admin.conf, ca.crt", "put the guest's kubeconfig under value",
			},
		},
		"empty":  {[]string{withData("value: IAo=")}, []string{": its key value is empty", "put the guest's kubeconfig there"}},
		"no key": {[]string{withData("")}, []string{"but none at all"}},
		"none": {
			nil,
			[]string{": it does not exist in namespace clusters-guest1", "set --guest-kubeconfig-secret", "hypergate waits for it"},
		},
		"another's Secret": {[]string{kubeconfigSecret("guest2-kubeconfig", "guest1")}, []string{": it does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFollowing(t, "guest1-kubeconfig", func(api *fakeapi.Server) { api.Put(theSecrets, tc.secrets...) })
			f.observed()
			config, err := f.mgmt.GuestKubeconfig()
			if (err != nil) != (tc.want != nil) || err == nil && config.Host != "https://guest1.example.com:6443" {
				t.Fatal(config, err)
			}
			for _, w := range tc.want {
				f.Expect(err).To(gomega.MatchError(gomega.And(gomega.HavePrefix("Secret guest1-kubeconfig"), gomega.ContainSubstring(w))))
			}
		})
	}
	t.Run("a read is forbidden", func(t *testing.T) {
		f := startFollowing(t, "guest1-kubeconfig", func(api *fakeapi.Server) { api.Fail(theSecrets, forbidden("secrets")) })
		f.Eventually(func() error { _, err := f.mgmt.GuestKubeconfig(); return err }).Should(gomega.MatchError(gomega.And(
			gomega.ContainSubstring("Secret guest1-kubeconfig"), gomega.ContainSubstring("deploy/rbac/cluster-api"),
			gomega.ContainSubstring("forbidden"))))
		_, err := f.mgmt.GuestKubeconfig()
		denied, _ := errors.AsType[mgmt.ForbiddenSecretError](err)
		f.Expect(denied.Key).To(gomega.Equal(types.NamespacedName{Namespace: "clusters-guest1", Name: "guest1-kubeconfig"}))
	})
}

// encodedKubeconfig is a kubeconfig as a Secret has it.
func encodedKubeconfig() string {
	return base64.StdEncoding.EncodeToString([]byte(`
clusters: [{name: a, cluster: {server: "https://guest1.example.com:6443", certificate-authority-data: YQ==}}]
users: [{name: a, user: {token: a}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`))
}

// withData returns the Secret with the guest's kubeconfig.
func withData(data string) string {
	return "{metadata: {namespace: clusters-guest1, name: guest1-kubeconfig}, data: {" + data + "}}"
}

// TestTheKubeconfigIsReadOnce checks ReadGuestKubeconfig, which is for commands that do not wait. It needs only the
// permission that a watch of the Secret needs.
func TestTheKubeconfigIsReadOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		secrets []string
		want    string // substring of the error
	}{
		"Cluster API's":    {[]string{withData("value: " + encodedKubeconfig())}, ""},
		"HyperShift's":     {[]string{withData("kubeconfig: " + encodedKubeconfig())}, ""},
		"another key":      {[]string{withData("admin.conf: a3ViZWNvbmZpZw==")}, "neither the key value"},
		"none":             {nil, "it does not exist in namespace clusters-guest1"},
		"another's Secret": {[]string{kubeconfigSecret("guest2-kubeconfig", "guest1")}, "it does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			api := fakeapi.New(t)
			api.Put(theSecrets, tc.secrets...)
			config, err := readOnce(t, api)
			if err == nil && config.Host != "https://guest1.example.com:6443" {
				t.Errorf("it leads to %s", config.Host)
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("the error is %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "waits") {
				t.Errorf("it is read once, and the error is %v", err)
			}
			for _, request := range api.Requests(theSecrets) {
				if !strings.Contains(request, "metadata.name") {
					t.Errorf("%s asks for more than one Secret", request)
				}
			}
		})
	}
	api := fakeapi.New(t)
	api.Fail(theSecrets, forbidden("secrets"))
	if _, err := readOnce(t, api); err == nil || !strings.Contains(err.Error(), "deploy/rbac/cluster-api") {
		t.Errorf("the error is %v", err)
	}
}

func readOnce(t *testing.T, api *fakeapi.Server) (*rest.Config, error) {
	t.Helper()
	return mgmt.ReadGuestKubeconfig(
		t.Context(), coreclient.NewForConfigOrDie(api.Config()),
		types.NamespacedName{Namespace: "clusters-guest1", Name: "guest1-kubeconfig"},
	)
}

// TestASecretIsWatchedByItsName checks that the watch selects the Secret by name, and that changes of the Secret are
// reported.
func TestASecretIsWatchedByItsName(t *testing.T) {
	api := fakeapi.New(t)
	api.Put(theDeployments)
	api.Put(theSecrets)
	cfg := config()
	cfg.GuestKubeconfigSecret = "guest1-kubeconfig"
	c, err := mgmt.New(api.Config(), cfg)
	g := hang.Gomega(t)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	changed := make(chan struct{}, 100)
	c.OnGuestKubeconfig(func() { changed <- struct{}{} })
	g.Expect(c.Start(klog.NewContext(t.Context(), logr.Discard()), func() {})).To(gomega.Succeed())
	g.Eventually(func() error { _, err := c.GuestKubeconfig(); return err }).Should(gomega.MatchError(
		gomega.ContainSubstring("it does not exist"),
	))
	for len(changed) > 0 {
		<-changed
	}
	api.Put(theSecrets, kubeconfigSecret("guest1-kubeconfig", ""))
	g.Eventually(changed).Should(gomega.Receive())
	g.Eventually(func() error { _, err := c.GuestKubeconfig(); return err }).Should(gomega.Succeed())
	asked := 0
	for _, r := range api.Requests(theSecrets) {
		if strings.Contains(r, "fieldSelector=metadata.name%3Dguest1-kubeconfig") {
			asked++
		} else if !strings.Contains(r, "fieldSelector=metadata.name%3D") && !strings.HasPrefix(r, "GET "+theSecrets.Path+"/") {
			t.Errorf("all Secrets are asked for: %s", r)
		}
	}
	g.Expect(asked).NotTo(gomega.BeZero())
}
