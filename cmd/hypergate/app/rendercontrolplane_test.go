package app_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/golden"
)

// Folders with HostedControlPlanes, with what is applied for them (pkg/mgmt, TestGoldens), and with their mesh CA.
const (
	planes  = "../../../pkg/mgmt/testdata/hcp"
	applied = "../../../pkg/mgmt/testdata/golden"
	meshCA  = "../../../pkg/desired/testdata/ca/root-cert.pem"
)

// appliedFor is a golden file of pkg/mgmt.
type appliedFor struct {
	// Publication is the address of istiod, as {host:port}, or why --publish=auto has none.
	Publication string                    `json:"publication"`
	Objects     []string                  `json:"objects"`
	Guest       []string                  `json:"guest"`
	Deployment  unstructured.Unstructured `json:"deployment"`
}

func readGolden(t *testing.T, name string) appliedFor {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(applied, name))
	if err != nil {
		t.Fatal(err)
	}
	var out appliedFor
	if err := yaml.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// renderFor returns the flags to render a file of planes on the management side, without those that publish istiod.
func renderFor(name string, more ...string) []string {
	return append([]string{
		"render", "-f", filepath.Join(planes, name), "--side=management", "--ca-bundle=" + meshCA,
	}, append(flags()[2:], more...)...)
}

// TestRenderIsWhatRunApplies compares the output of render for each HostedControlPlane with what run applies: the
// objects of both sides in their order, their owners, istiod's Deployment, and a hash of each whole object.
func TestRenderIsWhatRunApplies(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(applied, "*.yaml"))
	if err != nil || len(files) < 13 {
		t.Fatalf("there are %d files: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name+".yaml")
			plane, byTunnel := strings.CutSuffix(name, "-tunnel")
			args := renderFor(plane + ".yaml")
			switch {
			case byTunnel:
				args = append(args, "--publish=tunnel", "--relay-image=registry.example.com/hypergate:1")
			case !strings.HasPrefix(want.Publication, "{"):
				fails(t, args, strings.TrimPrefix(want.Publication, "publishing istiod: "))
				args = append(args, "--xds-address=istiod.apps.example.com:443")
			case strings.HasSuffix(want.Publication, ":31512}"):
				args = append(args, "--published-host=:31512")
			case strings.HasPrefix(want.Publication, "{192.0.2.44:"):
				args = append(args, "--published-host=192.0.2.44")
			}
			got := appliedFor{Publication: want.Publication}
			got.Objects, got.Deployment = summarize(t, render(t, args[1:]...))
			got.Guest, _ = summarize(t, render(t, append(args[1:], "--side=guest", "--crds=false")...))
			if diff := cmp.Diff(normalized(t, want), normalized(t, got)); diff != "" {
				t.Errorf("-applied +rendered:\n%s", diff)
			}
		})
	}
}

// summarize returns objects in the form of a golden file, and the Deployment among them.
func summarize(t *testing.T, objects []map[string]any) (identities []string, deployment unstructured.Unstructured) {
	t.Helper()
	for i, name := range describe(objects) {
		u := unstructured.Unstructured{Object: objects[i]}
		owners := ""
		for _, owner := range u.GetOwnerReferences() {
			owners += "of " + owner.Kind + " " + owner.Name + " " + string(owner.UID) + ", "
		}
		identities = append(identities, name+", "+owners+golden.Digest(t, &u))
		if u.GetKind() == "Deployment" {
			deployment = u
		}
	}
	return identities, deployment
}

// normalized removes from the Deployment what the golden files do not have, and the hash of the address of the guest's
// API server, for which render has a placeholder.
func normalized(t *testing.T, of appliedFor) appliedFor {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(of.Deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		t.Fatalf("%d containers: %v", len(containers), err)
	}
	for _, container := range containers {
		for _, field := range []string{"args", "env", "ports", "readinessProbe", "lifecycle"} {
			delete(container.(map[string]any), field)
		}
	}
	if err := unstructured.SetNestedSlice(of.Deployment.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	const hash = "gateway.hypergate.dev/guest-api-hash"
	unstructured.RemoveNestedField(of.Deployment.Object, "spec", "template", "metadata", "annotations", hash)
	return of
}

// withPlane writes a file with a HostedControlPlane, changed by edit, and further documents.
func withPlane(t *testing.T, name string, edit func(*unstructured.Unstructured), documents ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(planes, name))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	edit(u)
	if data, err = yaml.Marshal(u.Object); err != nil {
		t.Fatal(err)
	}
	return file(t, "plane.yaml", strings.Join(append([]string{string(data)}, documents...), "---\n"))
}

// TestRenderPublishes checks each strategy with what the management cluster would hand out.
func TestRenderPublishes(t *testing.T) {
	const relay = "--relay-image=registry.example.com/hypergate:1"
	const xds, tunnel = " clusters-guest1/xds-openshift-gateway", " clusters-guest1/istiod-tunnel"
	atGateway := []string{"--publish=tlsroute", "--publish-gateway=ns/gw", "--publish-host=a.example.com"}
	for name, tc := range map[string]struct {
		plane     string
		flags     []string
		address   string
		published string // an object that publishes istiod
	}{
		"the operator's Route": {"aws.yaml", []string{"--published-host=istiod.example.com"}, "istiod.example.com:443", ""},
		"a Route":              {"aws-public.yaml", nil, "istiod-guest1-x7k2p.guest1.example.com:443", "Route" + xds},
		"the tunnel":           {"aws.yaml", []string{relay}, "istiod-relay.openshift-ingress.svc:15012", "Secret" + tunnel},
		"a load balancer":      {"azure.yaml", []string{"--published-host=192.0.2.9"}, "192.0.2.9:15012", "Service" + xds},
		"a node port":          {"agent.yaml", []string{"--published-host=:31000"}, "192.0.2.7:31000", "Service" + xds},
		"a TLSRoute":           {"agent.yaml", atGateway, "a.example.com:443", "TLSRoute" + xds},
	} {
		t.Run(name, func(t *testing.T) {
			all := render(t, renderFor(tc.plane, tc.flags...)[1:]...)
			if names := describe(all); tc.published != "" && !slices.Contains(names, tc.published) {
				t.Errorf("there is no %s in %q", tc.published, names)
			}
			if out := execute(t, renderFor(tc.plane, tc.flags...)...).out; !strings.Contains(out, "discoveryAddress: "+tc.address) {
				t.Errorf("the address is not %s:\n%s", tc.address, out)
			}
		})
	}
}

// TestRenderAFileThatIsOnHold checks that render prints nothing where run applies nothing, and says why.
func TestRenderAFileThatIsOnHold(t *testing.T) {
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		edit func(*unstructured.Unstructured)
		why  string
	}{
		"without Ingress": {set([]any{"Ingress"}, "spec", "capabilities", "disabled"), "the capability Ingress is disabled"},
		"paused":          {set("true", "spec", "pausedUntil"), "it is paused"},
		"deleted":         {set("2026-11-21T10:00:00Z", "metadata", "deletionTimestamp"), "it is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			path := withPlane(t, "aws-public.yaml", tc.edit)
			r := execute(t, append([]string{"render", "-f", path}, flags()[2:]...)...)
			if r.code != 0 || strings.TrimSpace(r.out) != "" || !strings.Contains(r.errOut, tc.why) {
				t.Errorf("code %d, output %q, error %q", r.code, r.out, r.errOut)
			}
		})
	}
}

// TestRenderReadsTheNamespace checks that the annotation of the Namespace counts, that a List works, and that a missing
// UID is replaced and reported.
func TestRenderReadsTheNamespace(t *testing.T) {
	const namespace = `{apiVersion: v1, kind: Namespace, metadata: {name: clusters-guest1, annotations: {` +
		`hypershift.openshift.io/default-security-context-uid: "1005"}}}` + "\n"
	path := withPlane(t, "aws-public.yaml", func(u *unstructured.Unstructured) { u.SetUID("") }, namespace)
	r := execute(t, append([]string{"render", "-f", path, "--side=management"}, flags()[2:]...)...)
	if r.code != 0 || !strings.Contains(r.out, "runAsUser: 1005") || !strings.Contains(r.errOut, "has no UID") ||
		!strings.Contains(r.out, "uid: 00000000-0000-4000-8000-000000000000") {
		t.Errorf("code %d, error %q, output:\n%s", r.code, r.errOut, r.out)
	}
	data, err := os.ReadFile(filepath.Join(planes, "aws-public.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n  ") + "\n"
	args := append([]string{"--side=management", "-f"}, flags()[2:]...)
	args = slices.Insert(args, 2, file(t, "list.yaml", list))
	if got := render(t, args...); len(got) < 8 {
		t.Errorf("of a List there are %q", describe(got))
	}
}

// TestRenderRefusesFiles checks the errors of files and of --published-host.
func TestRenderRefusesFiles(t *testing.T) {
	same := func(*unstructured.Unstructured) {}
	two, err := os.ReadFile(filepath.Join(planes, "gcp.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	other := func(u *unstructured.Unstructured) { u.SetKind("HostedCluster") }
	azure, agent := filepath.Join(planes, "azure.yaml"), filepath.Join(planes, "agent.yaml")
	for name, tc := range map[string]struct {
		path  string
		flags []string
		want  string
	}{
		"missing":            {"missing.yaml", nil, "--filename"},
		"empty":              {file(t, "empty.yaml", "\n"), nil, "contains no HostedControlPlane"},
		"not YAML":           {file(t, "bad.yaml", "a: [\n"), nil, "--filename"},
		"another kind":       {withPlane(t, "agent.yaml", other), nil, "HostedCluster guest1 is not a HostedControlPlane"},
		"two":                {withPlane(t, "agent.yaml", same, string(two)), nil, "a second HostedControlPlane"},
		"too large":          {file(t, "large.yaml", strings.Repeat("#", 8<<20+1)), nil, "has more than 8388608 bytes"},
		"no address yet":     {azure, nil, "set --published-host"},
		"not a port":         {agent, []string{"--published-host=:0"}, "with a port between 1 and 65535"},
		"not a host":         {azure, []string{"--published-host=a b"}, "is neither a host name"},
		"a host and a port":  {azure, []string{"--published-host=a.example.com:1"}, "is neither a host name"},
		"not handed out":     {azure, []string{"--xds-address=a:1", "--published-host=b"}, "is published at --xds-address"},
		"it shows the space": {azure, []string{"--published-host=x.clusters-guest1.example.com"}, "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			fails(t, append([]string{"render", "-f", tc.path}, append(flags()[2:], tc.flags...)...), tc.want)
		})
	}
}
