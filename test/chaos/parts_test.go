package chaos_test

import (
	"crypto/x509"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestTheGateKillsAtTheChosenRequest checks that the gate triggers the trap at the chosen request, before
// the server receives it or after the server answered it. In both cases the client gets no answer.
func TestTheGateKillsAtTheChosenRequest(t *testing.T) {
	for name, answered := range map[string]bool{"before the server has it": false, "after it was answered": true} {
		t.Run(name, func(t *testing.T) {
			var served []string
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				served = append(served, r.URL.Path)
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			upstream, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			stile, killed := &turnstile{}, 0
			stile.arm(3, answered, func() { killed++ })
			gate := newGate(t, upstream, roots, server.TLS.Certificates[0], stile)
			var failed []string
			for _, path := range []string{"/1", "/2", "/3", "/4"} {
				// The client never repeats a POST. It could repeat other requests.
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, gate+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(request)
				if err != nil {
					failed = append(failed, path)
					continue
				}
				_ = response.Body.Close()
			}
			want := []string{"/1", "/2", "/4"}
			if answered {
				want = []string{"/1", "/2", "/3", "/4"}
			}
			if diff := cmp.Diff(want, served); diff != "" {
				t.Errorf("what the server had, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"/3"}, failed); diff != "" || killed != 1 {
				t.Errorf("killed %d times; what had no answer, -want +got:\n%s", killed, diff)
			}
			if _, last := stile.passed(); last != "POST /3" {
				t.Errorf("the trap was triggered at %q", last)
			}
		})
	}
}

// TestToxicsHaveTheirEffect checks the effect of each toxic, and that the network is normal again without it.
func TestToxicsHaveTheirEffect(t *testing.T) {
	w := &chaosRun{dir: t.TempDir()}
	w.use(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	x := w.startToxiproxy()
	address := x.between("server", server.Listener.Addr().String())
	ask := func() error {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 4 * time.Second}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		response, err := client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	for name, c := range map[string]struct {
		toxic   toxic
		through bool
	}{
		"resets": {resets, false}, "half-open": {halfOpen, false}, "ends": {ends, false},
		"far": {far, true}, "narrow": {narrow, true}, "sliced": {sliced, true},
	} {
		remove := x.add("server", c.toxic)
		if err := ask(); (err == nil) != c.through {
			t.Errorf("%s: a request gets through: %t, want %t (%v)", name, err == nil, c.through, err)
		}
		remove()
		w.Eventually(ask).Should(gomega.Succeed(), name)
	}
	x.connect("server", false)
	w.Expect(ask()).NotTo(gomega.Succeed())
	x.connect("server", true)
	w.Eventually(ask).Should(gomega.Succeed())
}

// TestASeedRepeatsTheKills checks that a seed always gives the same kills. Each kill is in its own part of the
// installation.
func TestASeedRepeatsTheKills(t *testing.T) {
	names := func(seed uint64) (out []string) {
		for _, f := range killed(rand.New(rand.NewPCG(seed, 0)), 20, 130) {
			out = append(out, f.name)
		}
		return out
	}
	if diff := cmp.Diff(names(7), names(7)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(names(7), names(8)) {
		t.Error("two seeds have the same kills")
	}
	seen := map[string]bool{}
	for _, f := range append(killed(rand.New(rand.NewPCG(1, 0)), 20, 130), faults()...) {
		if seen[f.name] {
			t.Errorf("%s exists twice", f.name)
		}
		seen[f.name] = true
	}
}

// TestNormal checks that a comparison includes what hypergate writes, but not times and values that the API server
// adds.
func TestNormal(t *testing.T) {
	object := func(change func(o map[string]any)) string {
		o := map[string]any{
			"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{
				"name": "a", "uid": "1", "resourceVersion": "5", "annotations": map[string]any{"since": "2026-11-22T01:08:11Z"},
				"managedFields": []any{
					map[string]any{
						"manager": "hypergate", "operation": "Apply", "time": "2026-11-22T01:08:11Z",
						"fieldsV1": map[string]any{"f:spec": map[string]any{}},
					},
					map[string]any{"manager": "another", "operation": "Update", "fieldsV1": map[string]any{"f:status": map[string]any{}}},
				},
			},
			"spec": map[string]any{"clusterIP": "10.0.0.1", "type": "ClusterIP"}, "status": map[string]any{"x": "y"},
		}
		change(o)
		return normal(&unstructured.Unstructured{Object: o})
	}
	set := func(value any, path ...string) func(map[string]any) {
		return func(o map[string]any) {
			if err := unstructured.SetNestedField(o, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	same := object(func(map[string]any) {})
	for name, c := range map[string]struct {
		change func(map[string]any)
		equal  bool
	}{
		"a version":          {set("6", "metadata", "resourceVersion"), true},
		"a UID":              {set("2", "metadata", "uid"), true},
		"a time":             {set("2027-01-02T03:04:05.678901Z", "metadata", "annotations", "since"), true},
		"an address":         {set("10.0.0.2", "spec", "clusterIP"), true},
		"a status":           {set("z", "status", "x"), true},
		"a field":            {set("ExternalName", "spec", "type"), false},
		"a label":            {set("b", "metadata", "labels", "a"), false},
		"who manages what":   {set([]any{}, "metadata", "managedFields"), false},
		"another annotation": {set("never", "metadata", "annotations", "since"), false},
	} {
		if got := object(c.change) == same; got != c.equal {
			t.Errorf("with %s it is the same: %t, want %t", name, got, c.equal)
		}
	}
}
