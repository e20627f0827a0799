package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveHosted starts an API server that has a HostedControlPlane clusters-guest2/guest2 beside Leases. It returns a
// kubeconfig for it.
func serveHosted(t *testing.T, leases ...coordinationv1.Lease) string {
	t.Helper()
	group := metav1.APIGroup{Name: "hypershift.openshift.io", PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1beta1"}}
	clusters := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters-guest2", Name: "guest2"}}},
	}
	mux := http.NewServeMux()
	for path, answer := range map[string]any{
		"/apis/hypershift.openshift.io": group, "/apis/hypershift.openshift.io/v1beta1/hostedcontrolplanes": clusters,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // the client has hung up
		})
	}
	mux.Handle("/", &leasesServer{leases: leases})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return kubeconfigOf(t, server.URL)
}

// TestWhatRunbooksSayOfAClusterThatNeverStarted checks that the runbooks quote what the commands print of a
// HostedControlPlane without a Lease. Such a cluster is not in a list of silent ones.
func TestWhatRunbooksSayOfAClusterThatNeverStarted(t *testing.T) {
	t.Parallel()
	kubeconfig := "--kubeconfig=" + serveHosted(t, leaseWith("clusters-guest1", good(t, "guest1")))
	wide := execute(t, "fleet", "-o", "wide", kubeconfig)
	lines := strings.Split(strings.TrimSpace(wide.out), "\n")
	named := lines[len(lines)-1]
	if wide.code != 0 || named != "without hypergate: HostedControlPlane clusters-guest2/guest2" {
		t.Errorf("code %d, error %q, output:\n%s", wide.code, wide.errOut, wide.out)
	}
	silent := execute(t, "fleet", "--only=degraded,unavailable,silent", kubeconfig)
	if silent.code != 0 || strings.Contains(silent.out, "guest2") || !strings.Contains(silent.out, "1 hosted cluster without hypergate\n") {
		t.Errorf("silent: code %d, error %q, output:\n%s", silent.code, silent.errOut, silent.out)
	}
	printed := map[string][]string{"HypergateAbsent": {named}, "HypergateFleetDegraded": {named}}
	for _, tc := range []struct {
		args     []string
		runbooks []string
	}{
		{[]string{"status", "-n", "clusters-guest2", kubeconfig}, []string{"HypergateAbsent", "HypergateFleetDegraded"}},
		{[]string{"fleet", "-o", "wide", "--kubeconfig=" + serveHosted(t)}, []string{"HypergateFleetDegraded"}},
	} {
		r := execute(t, tc.args...)
		text, _, found := strings.Cut(strings.TrimPrefix(r.errOut, "hypergate: "), ": ")
		if r.code != 1 || !found || r.out != "" {
			t.Errorf("%q: code %d, error %q, output %q", tc.args, r.code, r.errOut, r.out)
		}
		for _, runbook := range tc.runbooks {
			printed[runbook] = append(printed[runbook], text)
		}
	}
	placeholders := strings.NewReplacer("clusters-guest2", "<namespace>", "guest2", "<name>")
	for runbook, texts := range printed {
		page, err := os.ReadFile(fmt.Sprintf("../../../docs/runbooks/%s.md", runbook))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if want := "`" + placeholders.Replace(text) + "`"; !strings.Contains(string(page), want) {
				t.Errorf("%s does not say %s", runbook, want)
			}
		}
	}
}
