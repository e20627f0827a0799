package app_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/charts"
)

// result is the result of a command line.
type result struct {
	code   int
	out    string
	errOut string
}

func execute(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := app.Execute(t.Context(), args, &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// executeTo runs a command line, and returns its exit code.
func executeTo(t *testing.T, out, errOut io.Writer, args ...string) int {
	t.Helper()
	return app.Execute(t.Context(), args, out, errOut)
}

// fails checks that a command line ends with code 1, prints only one error, and that the error contains all texts in
// want.
func fails(t *testing.T, args []string, want ...string) {
	t.Helper()
	r := execute(t, args...)
	if r.code != 1 || r.out != "" || !strings.HasPrefix(r.errOut, "hypergate: ") {
		t.Errorf("%q: code %d, output %q, error %q; want code 1 and an error alone", args, r.code, r.out, r.errOut)
	}
	for _, w := range want {
		if !strings.Contains(r.errOut, w) {
			t.Errorf("%q: the error does not say %q:\n%s", args, w, r.errOut)
		}
	}
}

// flags returns the required flags, followed by other flags, which take precedence. A required flag without a value
// counts as not set.
func flags(others ...string) []string {
	return append([]string{
		"--namespace=clusters-guest1", "--xds-address=istiod.apps.example.com:443",
		"--pilot-image=registry.example.com/pilot:" + charts.EmbeddedVersion,
		"--proxy-image=registry.example.com/proxyv2:" + charts.EmbeddedVersion,
	}, others...)
}

// file writes a file and returns its path.
func file(t *testing.T, name, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// badFlagCase is a list of flags, and texts in the error.
type badFlagCase struct {
	flags []string
	want  []string
}

func TestBadFlags(t *testing.T) {
	checkBadFlags(t, map[string]badFlagCase{
		"unknown flag":        {flags("--frobnicate"), []string{"unknown flag: --frobnicate"}},
		"an argument":         {flags("guest1"), []string{`unknown command "guest1"`}},
		"unknown topology":    {flags("--topology=both"), []string{"--topology", `"both"`, "hosted, standalone"}},
		"no namespace":        {flags("--namespace="), []string{"--namespace is required", "for example clusters-guest1"}},
		"bad namespace":       {flags("--namespace=Clusters_1"), []string{"--namespace", `"Clusters_1"`}},
		"bad guest namespace": {flags("--guest-namespace=a.b"), []string{"--guest-namespace", `"a.b"`}},
		"no images": {
			flags("--pilot-image=", "--proxy-image="),
			[]string{"--pilot-image is required, for example", "--proxy-image is required, for example"},
		},
		"bad image":      {flags("--pilot-image=pilot"), []string{"--pilot-image", `"pilot"`, "registry"}},
		"no values file": {flags("--values=/does/not/exist.yaml"), []string{"--values", "/does/not/exist.yaml", "no such file"}},
		"a value not ours": {
			flags("--values=" + file(t, "v.yaml", "meshConfig:\n  rootNamespace: x\n")),
			[]string{"--values", "v.yaml:2:3: meshConfig.rootNamespace is not a supported value"},
		},
	})
}

func TestBadPublishFlags(t *testing.T) {
	checkBadFlags(t, map[string]badFlagCase{
		"two publishers": {flags("--publish=route"), []string{"--xds-address and --publish=route are mutually exclusive"}},
		"no strategy": {
			flags("--xds-address=", "--publish="),
			[]string{"--publish", "auto, route, tlsroute, loadbalancer, nodeport, tunnel"},
		},
		"unknown strategy": {flags("--xds-address=", "--publish=ingress"), []string{"--publish", `"ingress"`, "route"}},
		"strategy standalone": {
			flags("--xds-address=", "--topology=standalone", "--namespace=", "--publish=route"),
			[]string{"--publish", "standalone"},
		},
		"bad publish host": {flags("--xds-address=", "--publish=route", "--publish-host=a b"), []string{"--publish-host", `"a b"`}},
		"address for a Route": {
			flags("--xds-address=", "--publish=route", "--publish-host=192.0.2.1"),
			[]string{"--publish-host", "192.0.2.1", "name"},
		},
		"host with namespace": {
			flags("--xds-address=", "--publish=route", "--publish-host=istiod-clusters-guest1.example.com"),
			[]string{"--publish-host", "management namespace"},
		},
		"port for a Route": {
			flags("--xds-address=", "--publish=route", "--publish-node-port=30000"),
			[]string{"--publish-node-port", "nodeport"},
		},
		"TLSRoute without host": {
			flags("--xds-address=", "--publish=tlsroute", "--publish-gateway=infra/edge"),
			[]string{"--publish-host", "TLSRoute"},
		},
		"TLSRoute, no Gateway": {
			flags("--xds-address=", "--publish=tlsroute", "--publish-host=a.example.com"),
			[]string{"--publish-gateway", "<namespace>/<name>"},
		},
		"Gateway for a Route": {
			flags("--xds-address=", "--publish=route", "--publish-gateway=infra/edge"),
			[]string{"--publish-gateway", "tlsroute"},
		},
	})
}

func TestBadGuestFlags(t *testing.T) {
	checkBadFlags(t, map[string]badFlagCase{
		"xds without a port": {
			flags("--xds-address=istiod.example.com"),
			[]string{"--xds-address", `"istiod.example.com"`, "not host:port"},
		},
		"xds with a bad port": {flags("--xds-address=istiod.example.com:https"), []string{"--xds-address", "port between 1 and 65535"}},
		"xds with port 0":     {flags("--xds-address=istiod.example.com:0"), []string{"--xds-address", "port between 1 and 65535"}},
		"xds with a big port": {flags("--xds-address=istiod.example.com:65536"), []string{"--xds-address", "port between 1 and 65535"}},
		"xds with a scheme":   {flags("--xds-address=https://istiod.example.com:443"), []string{"--xds-address"}},
		"bad webhook host":    {flags("--webhook-host=istiod:443"), []string{"--webhook-host", `"istiod:443"`}},
		"bad controller name": {flags("--controller-name=openshift"), []string{"--controller-name", `"openshift"`, "such as"}},
		"bad revision":        {flags("--revision=default"), []string{"--revision", `"default"`}},
		"unknown Istio resource": {
			flags("--istio-resources=destinationrules,dragons"),
			[]string{"--istio-resources", `"dragons"`, "supported values are wasmplugins, destinationrules"},
		},
		"several": {
			flags("--xds-address=a", "--istio-resources=b", "--pilot-image="),
			[]string{"--xds-address", "--istio-resources", "--pilot-image"},
		},
		"charts dir not there": {
			flags("--charts-dir=" + filepath.Join(t.TempDir(), "charts")),
			[]string{"--charts-dir", "charts", "no such file or directory"},
		},
		"charts dir is a file": {flags("--charts-dir=" + file(t, "charts", "")), []string{"--charts-dir", "is not a directory"}},
		"charts dir is empty": {
			flags("--charts-dir=" + t.TempDir()),
			[]string{
				"--charts-dir", "does not contain the chart istiod", "istio-control/istio-discovery/Chart.yaml",
				"pass Istio's manifests/charts",
			},
		},
		"unknown management":    {flags("--crd-management=managed"), []string{"--crd-management", `"managed"`, "Managed", "Unmanaged"}},
		"writer without a name": {flags("--crd-writers= me"), []string{"--crd-writers", `" me"`, "such as system:serviceaccount:"}},
		"an empty writer":       {flags("--crd-writers="), []string{"--crd-writers", `"" is not a valid user name`}},
		"writers of no policy": {
			flags("--crd-writers=me", "--protect-crds=false"),
			[]string{"--crd-writers", "--protect-crds=false", "remove one of the two"},
		},
	})
}

func checkBadFlags(t *testing.T, cases map[string]badFlagCase) {
	t.Helper()
	for name, tc := range cases {
		for _, verb := range []string{"run", "render"} {
			t.Run(verb+"/"+name, func(t *testing.T) { fails(t, append([]string{verb}, tc.flags...), tc.want...) })
		}
	}
}

func TestBadFlagsOfRender(t *testing.T) {
	key := "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n"
	for name, tc := range map[string]struct {
		flags []string
		want  []string
	}{
		"side":       {flags("--side=left"), []string{"--side", `"left"`, "management, guest, dropped, all"}},
		"output":     {flags("-o", "xml"), []string{"--output", `"xml"`, "yaml, json"}},
		"no address": {flags("--xds-address="), []string{"--publish=auto requires a HostedControlPlane", "set --xds-address"}},
		"no address yet": {
			flags("--xds-address=", "--publish=loadbalancer"),
			[]string{"depends on the management cluster", "use --xds-address"},
		},
		"no CA bundle": {
			flags("--ca-bundle=/does/not/exist"),
			[]string{"--ca-bundle", "/does/not/exist", "no such file or directory"},
		},
		"empty CA bundle": {
			flags("--ca-bundle=" + file(t, "ca", "")),
			[]string{"--ca-bundle", "contains no certificate", "use a PEM file with the mesh root"},
		},
		"a key for a bundle": {flags("--ca-bundle=" + file(t, "ca", key)), []string{"--ca-bundle", "EC PRIVATE KEY", "only certificates"}},
		"standalone, a key": {
			flags("--topology=standalone", "--namespace=", "--ca-bundle="+file(t, "ca", key)),
			[]string{"--ca-bundle", "EC PRIVATE KEY"},
		},
		"a certificate of no": {
			flags("--ca-bundle=" + file(t, "ca", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")),
			[]string{"--ca-bundle", "invalid certificate"},
		},
	} {
		t.Run(name, func(t *testing.T) { fails(t, append([]string{"render"}, tc.flags...), tc.want...) })
	}
}

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c,
	clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: ca.crt}}],
	contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}`

func TestBadKubeconfigs(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"empty":          {"", []string{"is empty", "key of the mounted Secret"}},
		"blank":          {"\n \n", []string{"is empty", "key of the mounted Secret"}},
		"not YAML":       {"{", []string{"is not a kubeconfig"}},
		"another object": {"apiVersion: v1\nkind: Secret\ndata: {}\n", []string{"is not a kubeconfig"}},
		"base64":         {"YXBpVmVyc2lvbjogdjEK", []string{"is not a kubeconfig"}},
		"no context":     {"apiVersion: v1\nkind: Config\n", []string{"cannot be used", `current-context is ""`}},
		"context not there": {
			strings.Replace(kubeconfig, "current-context: c", "current-context: d", 1),
			[]string{"cannot be used", `current-context is "d"`},
		},
		"no server": {
			strings.Replace(kubeconfig, "https://127.0.0.1:1", "", 1),
			[]string{"cannot be used", `cluster "c" has no server`},
		},
		"cluster not there": {
			strings.Replace(kubeconfig, "clusters: [{name: c,", "clusters: [{name: d,", 1),
			[]string{"cannot be used", `cluster "c"`},
		},
		"user not there": {
			strings.Replace(kubeconfig, "users: [{name: u,", "users: [{name: v,", 1),
			[]string{"cannot be used", `user "u"`},
		},
		"a CA that is a file": {kubeconfig, []string{"cannot be used", "ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, "kubeconfig", tc.text)
			management := flags("--kubeconfig=" + path)
			fails(t, append([]string{"run"}, management...), append(tc.want, "--kubeconfig", path)...)
			guest := flags("--kubeconfig="+goodKubeconfig(t), "--guest-kubeconfig="+path)
			fails(t, append([]string{"run"}, guest...), append(tc.want, "--guest-kubeconfig", path)...)
		})
	}
}

// goodKubeconfig returns the path of a valid kubeconfig. The kubeconfig names a file in the same directory.
func goodKubeconfig(t *testing.T) string {
	t.Helper()
	path := file(t, "kubeconfig", kubeconfig)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "ca.crt"), []byte("a CA"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadFlagsOfRun(t *testing.T) {
	good := goodKubeconfig(t)
	t.Setenv("KUBECONFIG", good) // a controller ignores it: another context later must not become one of its sides
	for name, tc := range map[string]struct {
		flags []string
		want  []string
	}{
		"not in a pod": {flags(), []string{"finding the management cluster", "outside a pod, set --kubeconfig"}},
		"no guest": {
			flags("--kubeconfig=" + good),
			[]string{"--guest-kubeconfig or --guest-kubeconfig-secret is required"},
		},
		"management not there": {
			flags("--kubeconfig=/does/not/exist"),
			[]string{"--kubeconfig", "file /does/not/exist does not exist", "volume"},
		},
		"guest not there": {
			flags("--kubeconfig="+good, "--guest-kubeconfig=/does/not/exist"),
			[]string{"--guest-kubeconfig", "file /does/not/exist does not exist", "volume"},
		},
		"guest is a folder": {
			flags("--kubeconfig="+good, "--guest-kubeconfig="+t.TempDir()),
			[]string{"--guest-kubeconfig", "none of the files kubeconfig, value", "check the keys of the Secret"},
		},
		"guest of a standalone": {
			flags("--topology=standalone", "--namespace=", "--kubeconfig="+good, "--guest-kubeconfig="+good),
			[]string{"--guest-kubeconfig", "standalone", "--topology hosted"},
		},
		"two guests": {
			flags("--kubeconfig="+good, "--guest-kubeconfig="+good, "--guest-kubeconfig-secret=guest1-kubeconfig"),
			[]string{"--guest-kubeconfig and --guest-kubeconfig-secret", "mutually exclusive", "remove one of the two"},
		},
		"a Secret that is none": {
			flags("--guest-kubeconfig-secret=Guest_1"),
			[]string{"--guest-kubeconfig-secret", `"Guest_1" is not a valid name of a Secret`},
		},
		"a Secret, standalone": {
			flags("--topology=standalone", "--namespace=", "--guest-kubeconfig-secret=guest1-kubeconfig"),
			[]string{"--guest-kubeconfig-secret", "standalone", "--topology hosted"},
		},
		"another rollout":    {flags("--gateway-rollout=Slowly"), []string{"--gateway-rollout", `"Slowly"`, "OneByOne", "AllAtOnce"}},
		"a token too short":  {flags("--token-lifetime=9m"), []string{"--token-lifetime", "9m", "10m"}},
		"a token of no time": {flags("--token-lifetime=day"), []string{"--token-lifetime", `"day"`}},
		"an invalid server URL": {
			flags("--istiod-guest-server=kube-apiserver:6443"),
			[]string{"--istiod-guest-server", `"kube-apiserver:6443"`, "https://kube-apiserver:6443"},
		},
		"a server by http": {
			flags("--istiod-guest-server=http://kube-apiserver:6443"),
			[]string{"--istiod-guest-server", "https://"},
		},
		"a server with a password": {
			flags("--istiod-guest-server=https://me:secret@kube-apiserver:6443"),
			[]string{"--istiod-guest-server"},
		},
	} {
		t.Run(name, func(t *testing.T) { fails(t, append([]string{"run"}, tc.flags...), tc.want...) })
	}
}

func TestHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"nothing": {nil, []string{"Usage:", "run ", "render ", "version "}},
		"root":    {[]string{"--help"}, []string{"istiod", "management cluster", "guest", "run ", "render ", "version "}},
		"run": {
			[]string{"run", "--help"},
			[]string{
				"Examples:", "hypergate run --namespace", "--guest-kubeconfig", "--topology standalone",
				"default \"openshift.io/gateway-controller/v1\"",
			},
		},
		"render": {[]string{"render", "--help"}, []string{"Examples:", "hypergate render --side management", "--side dropped"}},
		"crds": {
			[]string{"crds", "--help"},
			[]string{"Examples:", "hypergate crds --guest-kubeconfig", "--dry-run adopt", "Exit codes:", "2  An action is required"},
		},
		"release": {
			[]string{"release", "--help"},
			[]string{"Examples:", "hypergate release --guest-kubeconfig", "--dry-run", "Exit codes:", "2  With --dry-run"},
		},
		"version": {[]string{"version"}, []string{"hypergate ", "(Istio " + charts.EmbeddedVersion + ")"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, tc.args...)
			if r.code != 0 || r.errOut != "" {
				t.Errorf("code %d, error %q", r.code, r.errOut)
			}
			for _, w := range tc.want {
				if !strings.Contains(r.out, w) {
					t.Errorf("the output does not have %q:\n%s", w, r.out)
				}
			}
		})
	}
	fails(t, []string{"install"}, `unknown command "install"`)
}

// TestEveryFlagIsExplained checks that each flag has a usage text.
func TestEveryFlagIsExplained(t *testing.T) {
	for _, verb := range []string{"run", "render", "crds"} {
		for line := range strings.Lines(execute(t, verb, "--help").out) {
			words := strings.Fields(line)
			if strings.HasPrefix(line, "      --") && len(words) < 4 {
				t.Errorf("%s: %s", verb, line)
			}
		}
	}
}
