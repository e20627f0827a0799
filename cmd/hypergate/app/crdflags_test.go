package app_test

import (
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hypergate/hypergate/test/hang"
)

// TestCRDFlags checks that the guest's part of the plan follows the CRD flags.
func TestCRDFlags(t *testing.T) {
	const policy, crd = "kind: ValidatingAdmissionPolicy\n", "kind: CustomResourceDefinition\n"
	for name, tc := range map[string]struct {
		flags       []string
		has, hasNot []string
	}{
		"as it is": {nil, []string{policy, crd, "kind: ValidatingAdmissionPolicyBinding"}, []string{"argocd"}},
		"open":     {[]string{"--protect-crds=false"}, []string{crd}, []string{"ValidatingAdmissionPolicy"}},
		"a writer": {
			[]string{"--crd-writers=system:serviceaccount:argocd:sync"},
			[]string{policy, "system:serviceaccount:argocd:sync"},
			nil,
		},
		"unmanaged":  {[]string{"--crd-management=Unmanaged"}, nil, []string{policy, crd, "kind: ClusterRole"}},
		"adopted":    {[]string{"--adopt-crds"}, []string{policy, crd}, nil},
		"without":    {[]string{"--crds=false"}, []string{"kind: ClusterRole"}, []string{policy, crd}},
		"standalone": {[]string{"--topology=standalone", "--namespace=", "--xds-address="}, []string{policy, crd}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, append([]string{"render", "--side=guest"}, flags(tc.flags...)...)...)
			if r.code != 0 {
				t.Fatal(r.errOut)
			}
			for _, w := range tc.has {
				if !strings.Contains(r.out, w) {
					t.Errorf("there is no %q", w)
				}
			}
			for _, w := range tc.hasNot {
				if strings.Contains(r.out, w) {
					t.Errorf("there is %q", w)
				}
			}
		})
	}
}

func TestBadFlagsOfCRDs(t *testing.T) {
	t.Setenv("KUBECONFIG", kubeconfigOf(t, "https://192.0.2.1:6443"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	good := "--guest-kubeconfig=" + goodKubeconfig(t)
	for name, tc := range map[string]struct {
		flags []string
		want  []string
	}{
		"an argument": {[]string{good, "httproutes"}, []string{`unknown command "httproutes"`}},
		"output":      {[]string{good, "-o", "wide"}, []string{"--output", `"wide"`, "table, json, yaml"}},
		"dry run":     {[]string{good, "--dry-run=client"}, []string{"--dry-run", `"client"`, "supported values are adopt"}},
		"no guest, although there is a context": {
			nil, []string{"--guest-kubeconfig, --guest-context or --guest-kubeconfig-secret is required"},
		},
		"no such context": {
			[]string{"--guest-context=other"}, []string{`finding the guest: context "other" does not exist`},
		},
		"a context of another file": {
			[]string{good, "--guest-context=guest1"},
			[]string{`finding the guest: context "guest1" does not exist`},
		},
		"a context and a Secret": {
			[]string{"--guest-context=guest1", "--guest-kubeconfig-secret=guest1-kubeconfig", "--namespace=clusters"},
			[]string{"mutually exclusive"},
		},
		"a context for naught": {
			[]string{good, "--context=guest1"}, []string{"--context require --guest-kubeconfig-secret"},
		},
		"no such management": {
			[]string{"--guest-kubeconfig-secret=guest1-kubeconfig", "--namespace=clusters", "--context=other"},
			[]string{`finding the management cluster: context "other" does not exist`},
		},
		"guest not there": {
			[]string{"--guest-kubeconfig=" + filepath.Join(t.TempDir(), "guest")},
			[]string{"--guest-kubeconfig", "does not exist"},
		},
		"two ways to the guest": {
			[]string{good, "--guest-kubeconfig-secret=guest1-kubeconfig", "--namespace=clusters"},
			[]string{"--guest-kubeconfig and --guest-kubeconfig-secret", "mutually exclusive", "remove one of the two"},
		},
		"a Secret of nowhere": {
			[]string{"--guest-kubeconfig-secret=guest1-kubeconfig"},
			[]string{"--namespace is required with --guest-kubeconfig-secret"},
		},
		"no Secret's name": {
			[]string{"--guest-kubeconfig-secret=Guest_1", "--namespace=clusters"},
			[]string{"--guest-kubeconfig-secret", `"Guest_1" is not a valid name of a Secret`},
		},
		"a Secret, standalone": {
			[]string{"--topology=standalone", "--guest-kubeconfig-secret=guest1-kubeconfig"},
			[]string{"--guest-kubeconfig-secret", "omit the flag"},
		},
		"a namespace for naught": {
			[]string{good, "--namespace=clusters"},
			[]string{"--namespace", "--guest-kubeconfig-secret", "or omit them"},
		},
		"management not there": {
			[]string{"--guest-kubeconfig-secret=g", "--namespace=c", "--kubeconfig=" + filepath.Join(t.TempDir(), "mgmt")},
			[]string{"finding the management cluster", "no such file"},
		},
		"unknown Istio resource": {[]string{good, "--istio-resources=dragons"}, []string{"--istio-resources", `"dragons"`}},
		"bad revision":           {[]string{good, "--revision=default"}, []string{"--revision", `"default"`}},
		"unknown management":     {[]string{good, "--crd-management=no"}, []string{"--crd-management", `"no"`}},
		"a flag of run":          {[]string{good, "--pilot-image=x"}, []string{"unknown flag: --pilot-image"}},
	} {
		t.Run(name, func(t *testing.T) { fails(t, append([]string{"crds"}, tc.flags...), tc.want...) })
	}
	t.Setenv("KUBECONFIG", "")
	fails(t, []string{"crds", "--topology=standalone"}, "finding the management cluster: no kubeconfig was found: set --kubeconfig")
	fails(t, []string{"crds", "--guest-kubeconfig-secret=guest1-kubeconfig", "--namespace=clusters"},
		"finding the management cluster: no kubeconfig was found: set --kubeconfig")
	fails(t, []string{"rotate-ca"}, "finding the management cluster: no kubeconfig was found: set --kubeconfig")
	fails(t, []string{"rotate-ca", "--wait=-1s"}, "--wait: -1s must not be negative")
}

// TestCRDsOfAContext checks that a context of KUBECONFIG selects the guest, and that on a standalone cluster the
// current one does.
func TestCRDsOfAContext(t *testing.T) {
	closed := strings.Replace(kubeconfig, ", certificate-authority: ca.crt", "", 1)
	t.Setenv("KUBECONFIG", file(t, "closed", strings.Replace(closed, "current-context: c", "current-context: other", 1)))
	fails(t, []string{"crds", "--guest-context=c", "--timeout=300ms"}, "reading the guest: Get \"https://127.0.0.1:1/version\": ")
	t.Setenv("KUBECONFIG", file(t, "closed", closed))
	fails(t, []string{"crds", "--topology=standalone", "--timeout=300ms"}, "reading the guest: Get \"https://127.0.0.1:1/version\": ")
}

// TestCRDsOfASilentGuest checks that the command ends after its timeout, and that the error names what it waited for.
func TestCRDsOfASilentGuest(t *testing.T) {
	stalled := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			<-r.Context().Done()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(stalled.Close)
	fails(t, []string{"crds", "--guest-kubeconfig=" + kubeconfigOf(t, "https://"+silentServer(t)), "--timeout=300ms"},
		"reading the guest", "context deadline exceeded: check that the cluster is running")

	// On a busy machine, the guest's version needs more time. So the timeout is doubled until it is enough.
	flag, timeout := "--guest-kubeconfig="+trusting(t, stalled), 300*time.Millisecond
	r := execute(t, "crds", flag, "--timeout="+timeout.String())
	for !strings.Contains(r.errOut, "waiting for customresourcedefinitions") && timeout < hang.Deadline {
		timeout *= 2
		r = execute(t, "crds", flag, "--timeout="+timeout.String())
	}
	want := "hypergate: timed out reading the guest after " + timeout.String()
	if r.code != 1 || r.out != "" || !strings.HasPrefix(r.errOut, want) {
		t.Errorf("code %d, output %q, error %q; want code 1 and %q alone", r.code, r.out, r.errOut, want)
	}
}

// TestCRDsLimitsTheFirstAnswer checks that the guest's admin cannot fill the memory with the answer about the version,
// and that the command does not follow a redirect of it.
func TestCRDsLimitsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	var followed, sent atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(other.Close)
	redirect := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			http.Redirect(w, r, other.URL+"/version", http.StatusFound)
			return
		}
		failure(w, http.StatusForbidden, "Forbidden")
	}))
	t.Cleanup(redirect.Close)
	block := []byte(strings.Repeat(" ", 64<<10))
	endless := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for sent.Load() < 64<<20 {
			n, err := w.Write(block)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	fails(t, []string{"crds", "--guest-kubeconfig=" + trusting(t, redirect), "--timeout=300ms"}, "reading the guest")
	if n := followed.Load(); n != 0 {
		t.Errorf("%d requests to the target of a redirect", n)
	}
	fails(t, []string{"crds", "--guest-kubeconfig=" + trusting(t, endless), "--timeout=1m"},
		"reading the guest", "answers GET /version with more than 8192 KiB, the most that hypergate reads")
	if n := sent.Load(); n > 32<<20 {
		t.Errorf("%d MiB were sent", n>>20)
	}
}

// trusting writes a kubeconfig for a TLS server of a test.
func trusting(t *testing.T, server *httptest.Server) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return file(t, "trusting", strings.NewReplacer(
		"https://127.0.0.1:1", server.URL,
		"certificate-authority: ca.crt", "certificate-authority-data: "+base64.StdEncoding.EncodeToString(ca),
	).Replace(kubeconfig))
}
