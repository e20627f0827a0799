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

// TestGoldens checks what is applied on the management side, and in which order, for a HostedControlPlane of each
// platform: the files of testdata/hcp.
//
// Each golden file has the identity, the owner and a hash of all objects, and istiod's Deployment. The arguments,
// environment and similar fields of its containers are in the golden files of package desired. A test of
// cmd/hypergate/app compares the same files, with the hashes of whole objects, with the output of the command render.
func TestGoldens(t *testing.T) {
	folder := filepath.Join("testdata", "golden")
	wanted := map[string]bool{}
	files, err := filepath.Glob(filepath.Join("testdata", "hcp", "*.yaml"))
	if err != nil || len(files) < 11 {
		t.Fatalf("there are %d HostedControlPlanes: %v", len(files), err)
	}
	for _, file := range files {
		path := filepath.Join(folder, filepath.Base(file))
		wanted[path] = true
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			plane, err := readControlPlane(fromyaml.Object(t, data), "istiod-openshift-gateway")
			if err != nil {
				t.Fatal(err)
			}
			if warnings := plane.Warnings(); len(warnings) > 0 {
				t.Errorf("it is not followed in all: %q", warnings)
			}
			golden.Equal(t, path, applied(t, plane))
		})
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
func applied(t *testing.T, plane model.ControlPlane) []byte {
	t.Helper()
	cfg, source, ca, guest := asked(t)
	// istiod is published like the parts of the HostedControlPlane. If that is impossible, an external endpoint is
	// used.
	cfg.Publish = model.Publish{Strategy: model.PublishAuto}
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
	credential := model.Credential{GuestAPI: model.GuestAPI{Server: "https://kube-apiserver:6443", CABundle: []byte("ca")}, Token: "t"}
	secret, err := model.CredentialSecret(cfg, plane, credential)
	if err != nil {
		t.Fatal(err)
	}
	var identities []any
	var deployment map[string]any
	for _, o := range slices.Concat(state.Mgmt, state.Routes, []model.MgmtObject{secret}, state.Workload) {
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		owners := []string{}
		for _, owner := range u.GetOwnerReferences() {
			owners = append(owners, owner.Kind+" "+owner.Name+" "+string(owner.UID))
		}
		identities = append(identities, o.String()+", of "+strings.Join(owners, ", ")+", "+golden.Digest(t, u))
		if u.GetKind() == "Deployment" {
			deployment = u.Object
		}
	}
	containers, _, err := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("istiod has %d containers (%v)", len(containers), err)
	}
	for _, field := range []string{"args", "env", "ports", "readinessProbe", "lifecycle"} {
		delete(containers[0].(map[string]any), field)
	}
	if err := unstructured.SetNestedSlice(deployment, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	data, err := yaml.Marshal(map[string]any{"publication": publication, "objects": identities, "deployment": deployment})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
