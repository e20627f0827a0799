package mgmt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/golden"
)

// suffixTunnel ends the name of a golden file whose istiod is published by the tunnel.
const suffixTunnel = "-tunnel.yaml"

// TestGoldens checks what is applied on both sides, and in which order, for a HostedControlPlane of each platform: the
// files of testdata/hcp. Two of them are also published by the tunnel, one with a single istiod and one with two.
//
// Each golden file has the identity, the owner and a hash of all objects except CRDs and their policy, and istiod's
// Deployment. The arguments, environment and similar fields of its containers are in the golden files of package
// desired. A test of cmd/hypergate/app compares the same files, with the hashes of whole objects, with the output of
// the command render.
func TestGoldens(t *testing.T) {
	folder := filepath.Join("testdata", "golden")
	wanted := map[string]bool{}
	files, err := filepath.Glob(filepath.Join("testdata", "hcp", "*.yaml"))
	if err != nil || len(files) < 11 {
		t.Fatalf("there are %d HostedControlPlanes: %v", len(files), err)
	}
	check := func(name string, plane model.ControlPlane, by model.Publish) {
		path := filepath.Join(folder, name)
		wanted[path] = true
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) { golden.Equal(t, path, applied(t, plane, by)) })
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		plane, err := readControlPlane(fromyaml.Object(t, data), "istiod-openshift-gateway")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if warnings := plane.Warnings(); len(warnings) > 0 {
			t.Errorf("%s is not followed in all: %q", name, warnings)
		}
		check(name, plane, model.Publish{Strategy: model.PublishAuto})
		if name == "aws.yaml" || name == "agent.yaml" {
			const image = "registry.example.com/hypergate:1"
			check(strings.TrimSuffix(name, ".yaml")+suffixTunnel, plane,
				model.Publish{Strategy: model.PublishTunnel, RelayImage: image, SidecarImage: image})
		}
	}
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if !wanted[path] {
			t.Errorf("%s is stale: no test has it; remove it", path)
		}
	}
}

// asked returns the inputs of Compute other than the HostedControlPlane, for a guest that needs istiod.
func asked(t *testing.T) (model.Config, *charts.Source, pki.CA, model.GuestObservation) {
	t.Helper()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("..", "desired", "testdata", "ca", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress",
		Revision:       "openshift-gateway",
		ControllerName: "openshift.io/gateway-controller/v1",
		PilotImage:     "registry.example.com/pilot:" + charts.EmbeddedVersion,
		ProxyImage:     "registry.example.com/proxyv2:" + charts.EmbeddedVersion,
		XDS:            model.HostPort{Host: "istiod.apps.example.com", Port: 443},
		WebhookHost:    "gw-webhook-openshift-gateway", NetworkPolicies: model.HyperShiftPeers(),
		IstioResources: model.LayeredProductResources(), // the default of the flag
	}
	guest := model.GuestObservation{Classes: []model.GatewayClass{{Name: "openshift-default"}}, CRDs: map[string]crds.Fact{}}
	for _, name := range crds.GatewayAPI().Names() {
		// Third-party CRDs, because hypergate's own are slow to compute and irrelevant here.
		guest.CRDs[name] = crds.Fact{Owner: crds.Owner{Kind: crds.ThirdParty}}
	}
	ca := pki.CA{Cert: read("ca-cert.pem"), Key: read("ca-key.pem"), Chain: read("cert-chain.pem"), Root: read("root-cert.pem")}
	return cfg, source, ca, guest
}

// applied returns the content of a golden file.
func applied(t *testing.T, plane model.ControlPlane, by model.Publish) []byte {
	t.Helper()
	cfg, source, ca, guest := asked(t)
	// With auto, istiod is published like the parts of the HostedControlPlane. If that is impossible, an external
	// endpoint is used.
	cfg.Publish = by
	hosted := model.ManagementObservation{
		CA: ca, ControlPlane: plane,
		Endpoints: model.ObservedEndpoints{NodePort: 31512, LoadBalancer: "192.0.2.44"},
	}
	state, err := desired.Compute(cfg, source, hosted, guest)
	publication := fmt.Sprint(state.Endpoint)
	if err != nil {
		publication = err.Error()
		cfg.Publish = model.Publish{}
		state, err = desired.Compute(cfg, source, hosted, guest)
	}
	if err != nil {
		t.Fatal(err)
	}
	onMgmt, deployment := summary(t, slices.Concat(state.Mgmt, state.Routes, credentials(t, cfg, plane), state.Workload))
	inGuest, _ := summary(t, slices.Concat(state.Guest, state.Admission))
	containers, _, err := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		t.Fatalf("istiod has %d containers (%v)", len(containers), err)
	}
	for _, container := range containers {
		for _, field := range []string{"args", "env", "ports", "readinessProbe", "lifecycle"} {
			delete(container.(map[string]any), field)
		}
	}
	if err := unstructured.SetNestedSlice(deployment, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	data, err := yaml.Marshal(map[string]any{"publication": publication, "objects": onMgmt, "guest": inGuest, "deployment": deployment})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// credentials returns the Secrets that package controller adds to a plan.
func credentials(t *testing.T, cfg model.Config, plane model.ControlPlane) []model.MgmtObject {
	t.Helper()
	credential := model.Credential{GuestAPI: model.GuestAPI{Server: "https://kube-apiserver:6443", CABundle: []byte("ca")}, Token: "t"}
	istiod, err := model.CredentialSecret(cfg, plane, credential)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Publish.Strategy != model.PublishTunnel {
		return []model.MgmtObject{istiod}
	}
	sidecar, err := model.TunnelSecret(cfg, plane, credential, pki.Serving{Cert: []byte("cert"), Key: []byte("key")})
	if err != nil {
		t.Fatal(err)
	}
	return []model.MgmtObject{istiod, sidecar}
}

// summary returns the identity, the owner and a hash of each object, and the Deployment among them.
func summary[T interface {
	fmt.Stringer
	Unstructured() (*unstructured.Unstructured, error)
}](t *testing.T, objects []T) (identities []any, deployment map[string]any) {
	t.Helper()
	for _, o := range objects {
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		owners := ""
		for _, owner := range u.GetOwnerReferences() {
			owners += "of " + owner.Kind + " " + owner.Name + " " + string(owner.UID) + ", "
		}
		identities = append(identities, o.String()+", "+owners+golden.Digest(t, u))
		if u.GetKind() == "Deployment" {
			deployment = u.Object
		}
	}
	return identities, deployment
}
