package guest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

// collection returns the collection of a kind. namespace can be empty.
func collection(group, version, namespace, resource, kind string) fakeapi.Collection {
	path, apiVersion := "/apis/"+group+"/"+version, group+"/"+version
	if group == "" {
		path, apiVersion = "/api/"+version, version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return fakeapi.Collection{Path: path + "/" + resource, APIVersion: apiVersion, Kind: kind}
}

// inventoried is a guest whose inventory is read.
type inventoried struct {
	gomega.Gomega
	t   *testing.T
	api *fakeapi.Server
	cfg model.Config
}

func newInventoried(t *testing.T) *inventoried {
	t.Helper()
	w := &inventoried{Gomega: hang.Gomega(t), t: t, api: fakeapi.New(t), cfg: config()}
	w.api.Put(theClasses, class("ours", w.cfg.ControllerName, `, finalizers: ["`+model.IngressOperatorFinalizer+`"]`),
		class("theirs", "example.com/other", ""))
	w.api.Put(collection("", "v1", w.cfg.GuestNamespace, "pods", "Pod"),
		fmt.Sprintf("{metadata: {namespace: %s, name: istiod-1, labels: {app: istiod, istio.io/rev: %s}}}",
			w.cfg.GuestNamespace, w.cfg.Revision),
		fmt.Sprintf("{metadata: {namespace: %s, name: other, labels: {app: other}}}", w.cfg.GuestNamespace))
	w.putIstiod("managed-by: sail-library, app.kubernetes.io/managed-by: Helm, app.kubernetes.io/version: 1.28.5", "")
	return w
}

// putIstiod stores the Deployment of the guest's istiod, with labels and an environment.
func (w *inventoried) putIstiod(labels, env string) {
	w.t.Helper()
	w.api.Put(collection("apps", "v1", w.cfg.GuestNamespace, "deployments", "Deployment"), fmt.Sprintf(
		`{metadata: {namespace: %s, name: %s, generation: 2, labels: {%s}},
		spec: {replicas: 2, template: {spec: {containers: [{name: discovery,
		image: "registry.example.com:5000/istio/pilot:1.27.3", env: [%s]}]}}},
		status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, availableReplicas: 2, readyReplicas: 2}}`,
		w.cfg.GuestNamespace, w.cfg.IstiodName(), labels, env))
}

// putGateways stores Gateways of the namespace shop, and Deployments for some of them.
func (w *inventoried) putGateways(gateways, deployments []string) {
	w.t.Helper()
	w.api.Put(collection("gateway.networking.k8s.io", "v1", "", "gateways", "Gateway"), gateways...)
	w.api.Put(collection("apps", "v1", "", "deployments", "Deployment"), deployments...)
}

func (w *inventoried) gateway(name, class, annotations, listener string) string {
	return fmt.Sprintf(`{metadata: {namespace: shop, name: %[1]s, uid: u-%[1]s, annotations: {%[3]s}},
		spec: {gatewayClassName: %[2]s, listeners: [{name: l, port: 443, protocol: %[4]s}]},
		status: {conditions: [{type: Programmed, status: "True"}],
		listeners: [{name: l, attachedRoutes: 3}, {name: m, attachedRoutes: 2}]}}`,
		name, class, annotations, listener)
}

func (w *inventoried) deployment(gateway, address string) string {
	return fmt.Sprintf(`{metadata: {namespace: shop, name: %[1]s-ours, uid: d-%[1]s, generation: 1,
		labels: {gateway.networking.k8s.io/gateway-name: %[1]s},
		ownerReferences: [{kind: Gateway, name: %[1]s, uid: u-%[1]s}]},
		spec: {replicas: 2, template: {spec: {containers: [{name: istio-proxy, env: [{name: CA_ADDR, value: "%[2]s"}]}],
		volumes: [{name: istiod-ca-cert, configMap: {name: openshift-gw-ca-root-cert}}]}}},
		status: {observedGeneration: 1, replicas: 2, updatedReplicas: 2, availableReplicas: 2}}`, gateway, address)
}

func (w *inventoried) read() migration.Inventory {
	w.t.Helper()
	found, err := w.tryRead()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return found
}

func (w *inventoried) tryRead() (migration.Inventory, error) {
	w.t.Helper()
	return w.cluster().Inventory(w.t.Context(), migration.Version{Major: 1, Minor: 29})
}

func (w *inventoried) cluster() *guest.Cluster {
	w.t.Helper()
	conn, err := guestconn.Fixed(w.api.Config())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	cluster, err := guest.New(conn, w.cfg, nil)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return cluster
}

// TestInventoryOfTheOrigin reads what shows how the guest's istiod was installed.
func TestInventoryOfTheOrigin(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	want := migration.OriginFacts{Finalized: []string{"ours"}, Deployment: &migration.OriginDeployment{
		Labels:  map[string]string{migration.ManagedByLabel: "sail-library", migration.HelmLabel: "Helm"},
		Version: migration.Version{Major: 1, Minor: 28, Patch: 5}, Wanted: 2, Ready: 2, Existing: 1,
	}}
	if diff := cmp.Diff(want, w.read().Origin); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	t.Log("the Sail operator and OLM, and a version that only the image has")
	w.putIstiod("managed-by: sail-operator", "{name: PILOT_CA_CERT_CONFIGMAP, value: own-roots}")
	w.api.Put(theClasses, class("ours", w.cfg.ControllerName, ""))
	w.api.Put(collection("sailoperator.io", "v1", "", "istios", "Istio"),
		"{metadata: {name: "+w.cfg.Revision+"}}", "{metadata: {name: mesh}}")
	w.api.Put(collection("sailoperator.io", "v1", "", "istiorevisions", "IstioRevision"), "{metadata: {name: "+w.cfg.Revision+"}}")
	w.api.Put(collection("operators.coreos.com", "v1alpha1", "openshift-operators", "subscriptions", "Subscription"),
		"{metadata: {namespace: openshift-operators, name: servicemeshoperator3}}")
	got := w.read().Origin
	w.Expect(got.Kind()).To(gomega.Equal(migration.OLM))
	w.Expect([]string{got.Istio, got.IstioRevision, got.Subscription}).To(gomega.Equal(
		[]string{w.cfg.Revision, w.cfg.Revision, "servicemeshoperator3"}))
	w.Expect(got.Deployment.Version.String()).To(gomega.Equal("1.27.3"))
	w.Expect(got.Deployment.Root).To(gomega.Equal("own-roots"))
	t.Log("no class of hypergate's controller")
	w.Expect(w.read().ClassMissing).To(gomega.BeEmpty())
	w.api.Put(theClasses, class("theirs", "example.com/other", ""))
	w.Expect(w.read().ClassMissing).To(gomega.Equal(w.cfg.ControllerName))
	w.api.Fail(theClasses, forbidden("gatewayclasses.gateway.networking.k8s.io"))
	w.Expect(w.read().ClassMissing).To(gomega.BeEmpty(), "it is not known")
	t.Log("an istiod of hypergate's own is not an origin")
	w.putIstiod(model.OwnerLabel+": r.management", "")
	w.Expect(w.read().Origin.Deployment).To(gomega.BeNil())
}

// TestInventoryOfGateways reads Gateways of hypergate's classes, with their addresses.
func TestInventoryOfGateways(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	w.cfg.XDS = model.HostPort{Host: "istiod.apps.example.com", Port: 443}
	held := model.HoldAnnotation + `: "` + model.HoldValue(w.cfg.Revision) + `"`
	w.putGateways([]string{
		w.gateway("web", "ours", migration.OrderAnnotation+`: "7"`, "HTTP"), w.gateway("moved", "ours", held, "HTTP"),
		w.gateway("none", "ours", migration.SkipAnnotation+`: "true"`, "HTTP"),
		w.gateway("mesh", "ours", model.HoldAnnotation+`: "9"`, "HTTP"),
		w.gateway("theirs", "theirs", "", "HTTP"), w.gateway("former", "gone", held, "HTTP"),
		w.gateway("unclear", "ours", migration.SkipAnnotation+`: "True"`, "HTTP"),
	}, []string{
		w.deployment("web", migration.OriginAddress(w.cfg)), w.deployment("moved", w.cfg.XDS.String()),
		w.deployment("mesh", "istiod.mesh.svc:15012"), w.deployment("theirs", "istiod.mesh.svc:15012"),
		// istiod leaves the Deployment of an earlier class.
		strings.Replace(w.deployment("moved", migration.OriginAddress(w.cfg)), "moved-ours", "moved-second", 1),
		strings.Replace(w.deployment("web", w.cfg.XDS.String()), "web-ours", "web-first", 1),
	})
	got, second := map[string]string{}, map[string][]string{}
	for _, g := range w.read().Gateways {
		if len(g.Second) > 0 {
			second[g.Key.Name] = g.Second
		}
		got[g.Key.String()] = fmt.Sprintf("%s %s hold %d, %d of %d, routes %d, order %d, skip %t, %s%s", g.Class, g.Of, g.Hold,
			g.Deployment.Ready, g.Deployment.Wanted, g.Routes, g.Order, g.Skip, g.Root, g.Invalid)
	}
	if diff := cmp.Diff(map[string]string{
		"shop/web":     "ours origin hold 0, 2 of 2, routes 5, order 7, skip false, openshift-gw-ca-root-cert",
		"shop/moved":   "ours hosted hold 1, 2 of 2, routes 5, order 0, skip false, openshift-gw-ca-root-cert",
		"shop/none":    "ours  hold 0, 0 of 0, routes 5, order 0, skip true, ",
		"shop/mesh":    "ours other hold 2, 2 of 2, routes 5, order 0, skip false, openshift-gw-ca-root-cert",
		"shop/unclear": "ours  hold 0, 0 of 0, routes 5, order 0, skip false, " + migration.SkipAnnotation + "=True",
		"shop/former":  "gone  hold 1, 0 of 0, routes 5, order 0, skip false, ",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.Expect(second).To(gomega.Equal(map[string][]string{"moved": {"moved-second"}, "web": {"web-first"}}))
}

// TestInventoryOfAProxy checks for which environments of a pod an inventory has a proxy.
func TestInventoryOfAProxy(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]bool{
		`{name: CA_ADDR, value: "`: false,
		`{name: PROXY_CONFIG, value: '{"proxyMetadata": {"HTTPS_PROXY": "http://proxy:3128"}}'}, {name: CA_ADDR, value: "`: true,
		`{name: PROXY_CONFIG, value: '{"proxyMetadata": {"HTTP_PROXY": "http://proxy:3128"}}'}, {name: CA_ADDR, value: "`:  true,
		`{name: PROXY_CONFIG, value: '{"proxyMetadata": {"NO_PROXY": "a"}}'}, {name: CA_ADDR, value: "`:                    false,
		`{name: PROXY_CONFIG, value: "{"}, {name: CA_ADDR, value: "`:                                                       false,
		`{name: HTTPS_PROXY, value: "http://own:3128"}, {name: CA_ADDR, value: "`:                                          false,
	} {
		w := newInventoried(t)
		deployment := w.deployment("web", migration.OriginAddress(w.cfg))
		w.putGateways([]string{w.gateway("web", "ours", "", "HTTP")},
			[]string{strings.Replace(deployment, `{name: CA_ADDR, value: "`, env, 1)})
		if g := w.read().Gateways[0]; g.Proxied != want || g.Address != migration.OriginAddress(w.cfg) {
			t.Errorf("%s: proxied %t, address %q", env, g.Proxied, g.Address)
		}
	}
}

// TestASecondDeploymentBlocks checks that the check names a Deployment that istiod has left, in each order of the list.
func TestASecondDeploymentBlocks(t *testing.T) {
	t.Parallel()
	for name, blocks := range map[string]bool{"web-a": true, "web-z": true, "web-none": false} {
		w := newInventoried(t)
		origin := w.deployment("web", migration.OriginAddress(w.cfg))
		second := strings.Replace(origin, "name: web-ours", "name: "+name, 1)
		if !blocks {
			second = strings.Replace(second, "replicas: 2", "replicas: 0", 1)
		}
		all := []string{origin, second}
		if name == "web-a" {
			slices.Reverse(all)
		}
		w.putGateways([]string{w.gateway("web", "ours", "", "HTTPS")}, all)
		var found []string
		for _, f := range migration.Run(w.read(), migration.Waivers{}) {
			if f.Code == migration.SecondDeployment {
				found = append(found, f.Object.String())
			}
		}
		want := []string{"Deployment shop/" + name}
		if !blocks {
			want = nil
		}
		w.Expect(found).To(gomega.Equal(want))
	}
}

// TestAnInventoryKeepsNoLongIdentity replaces an API server of the guest by one that returns objects with identities
// that kube-apiserver does not permit.
func TestAnInventoryKeepsNoLongIdentity(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		gateway, istiod string
		want            string
	}{
		"a name":        {"name: " + long, "", "list gateways.gateway.networking.k8s.io: .* name has 1048576 bytes, more than 253"},
		"a namespace":   {"name: g, namespace: " + long, "", "namespace has 1048576 bytes, more than 63"},
		"a UID":         {"name: g, uid: " + long[:65], "", "UID has 65 bytes, more than 64"},
		"of the istiod": {"", "uid: " + long, "get deployments.apps: .* UID has 1048576 bytes, more than 64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newInventoried(t)
			if test.istiod != "" {
				w.api.Put(collection("apps", "v1", w.cfg.GuestNamespace, "deployments", "Deployment"),
					fmt.Sprintf("{metadata: {namespace: %s, name: %s, %s}}", w.cfg.GuestNamespace, w.cfg.IstiodName(), test.istiod))
			}
			if test.gateway != "" {
				w.putGateways([]string{"{metadata: {" + test.gateway + "}, spec: {gatewayClassName: ours}}"}, nil)
			}
			_, err := w.tryRead()
			w.Expect(err).To(gomega.MatchError(gomega.MatchRegexp(test.want)))
			w.Expect(len(err.Error())).To(gomega.BeNumerically("<", 1000))
		})
	}
}

// TestInventoryOfBlockers reads the objects that block a migration, and only those that the origin serves.
func TestInventoryOfBlockers(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	w.putGateways([]string{w.gateway("db", "ours", "", "TLS")}, nil)
	policies := collection("security.istio.io", "v1", "", "authorizationpolicies", "AuthorizationPolicy")
	w.api.Put(policies, "{metadata: {namespace: shop, name: deny}}",
		"{metadata: {namespace: shop, name: mesh, labels: {istio.io/rev: mesh}}}")
	w.api.Put(collection("networking.istio.io", "v1", "", "destinationrules", "DestinationRule"),
		"{metadata: {namespace: shop, name: served}}")
	w.api.Put(collection("gateway.networking.k8s.io", "v1alpha2", "", "tlsroutes", "TLSRoute"), "{metadata: {namespace: shop, name: db}}")
	w.api.Put(theNamespaces, "{metadata: {name: meshed, labels: {istio.io/rev: "+w.cfg.Revision+"}}}", "{metadata: {name: plain}}")
	got := w.read()
	w.Expect(got.Foreign).To(gomega.Equal([]migration.Object{{Kind: "AuthorizationPolicy", Namespace: "shop", Name: "deny"}}))
	w.Expect(got.Alpha).To(gomega.Equal([]migration.Object{
		{Kind: "Gateway", Namespace: "shop", Name: "db"}, {Kind: "TLSRoute", Namespace: "shop", Name: "db"},
	}))
	w.Expect(got.Sidecars).To(gomega.Equal([]migration.Object{{Kind: "Namespace", Name: "meshed"}}))
	w.Expect(got.Unread).To(gomega.BeEmpty())

	t.Log("an origin that ignores Istio's kinds")
	w.putIstiod("managed-by: sail-library", `{name: PILOT_IGNORE_RESOURCES, value: "*.istio.io,tlsroutes.gateway.networking.k8s.io"}`)
	got = w.read()
	w.Expect(got.Foreign).To(gomega.BeEmpty())
	w.Expect(got.Alpha).To(gomega.HaveLen(1))
	w.putIstiod("managed-by: sail-library", `{name: PILOT_IGNORE_RESOURCES, value: "*.istio.io"},
		{name: PILOT_INCLUDE_RESOURCES, value: "authorizationpolicies.security.istio.io"}`)
	w.Expect(w.read().Foreign).To(gomega.HaveLen(1))

	t.Log("what cannot be read is named, once")
	w.api.Fail(policies, forbidden("authorizationpolicies.security.istio.io"))
	w.Expect(w.read().Unread).To(gomega.Equal([]string{"list authorizationpolicies.security.istio.io"}))
	for _, request := range w.api.Requests(fakeapi.Collection{}) {
		if strings.Contains(request, "secrets") || !strings.HasPrefix(request, "GET ") {
			t.Errorf("an inventory sends %s", request)
		}
	}
}

// TestPodsThatHaveEndedAreNotTheOrigins checks that pods which nodes have evicted neither keep an origin from being
// parked, nor hide the pod that leads: there can be more of them than hypergate names.
func TestPodsThatHaveEndedAreNotTheOrigins(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	pod := func(name, phase string) string {
		return fmt.Sprintf("{metadata: {namespace: %s, name: %s, labels: {app: istiod, istio.io/rev: %s}}, status: {phase: %s}}",
			w.cfg.GuestNamespace, name, w.cfg.Revision, phase)
	}
	pods := []string{pod("istiod-z", "Running"), pod("istiod-y", "Pending"), pod("completed", "Succeeded")}
	for i := range 110 {
		pods = append(pods, pod(fmt.Sprintf("evicted-%d", i), "Failed"))
	}
	w.api.Put(collection("", "v1", w.cfg.GuestNamespace, "pods", "Pod"), pods...)
	facts, err := w.cluster().Migration(t.Context(), guest.MigrationQuestion{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(facts.Pods).To(gomega.ConsistOf("istiod-z", "istiod-y"))
	w.Expect(facts.Inventory.Origin.Deployment.Existing).To(gomega.BeEquivalentTo(2))
}

// TestAMigrationReadsTheOriginFirst checks that the state of the origin and the lock are known if later reads fail. An
// origin without pods must be able to start again. What the guest does not permit to read is not known.
func TestAMigrationReadsTheOriginFirst(t *testing.T) {
	t.Parallel()
	deployments := collection("apps", "v1", config().GuestNamespace, "deployments", "Deployment")
	leases := collection("coordination.k8s.io", "v1", config().GuestNamespace, "leases", "Lease")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for _, c := range []struct {
		name      string
		failing   fakeapi.Collection
		err       *apierrors.StatusError
		essential bool
	}{
		{"classes", theClasses, apierrors.NewInternalError(errors.New("no")), true},
		{"the origin", deployments, apierrors.NewInternalError(errors.New("no")), false},
		{"the lock", leases, forbidden, false},
	} {
		w := newInventoried(t)
		w.api.Fail(c.failing, c.err)
		facts, err := w.cluster().Migration(t.Context(), guest.MigrationQuestion{})
		w.Expect(err != nil).To(gomega.Equal(!apierrors.IsForbidden(c.err)), c.name)
		w.Expect(facts.Essential).To(gomega.Equal(c.essential), c.name)
		if c.essential {
			w.Expect(facts.Inventory.Origin.Deployment.Wanted).To(gomega.BeEquivalentTo(2))
			w.Expect(facts.Origin.Key.Name).To(gomega.Equal(w.cfg.IstiodName()))
			w.Expect(facts.Pods).To(gomega.Equal([]string{"istiod-1"}))
		}
	}
}
