package app_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hypergate/hypergate/pkg/migration"
)

// leaseServer is a management API server with one Lease, which merge patches change.
type leaseServer struct {
	mu          sync.Mutex
	annotations map[string]string
	version     int
	// beforePatch is called once before a patch is applied: another client writes the Lease.
	beforePatch func(*leaseServer)
}

func (s *leaseServer) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return file(t, "kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %s}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "clusters-guest1"}}],
		"users": [{"name": "u", "user": {"token": "t"}}]}`, server.URL, quoted(t, ca)))
}

// ServeHTTP answers a get and a merge patch of the Lease.
func (s *leaseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "/namespaces/clusters-guest1/leases/hypergate-migration-openshift-gateway") {
		failure(w, http.StatusForbidden, "Forbidden")
		return
	}
	if r.Method == http.MethodPatch {
		var patch struct {
			Metadata struct {
				UID, ResourceVersion string
				Annotations          map[string]*string
			}
		}
		body, err := io.ReadAll(r.Body)
		if edit := s.beforePatch; edit != nil {
			s.beforePatch = nil
			edit(s)
		}
		switch {
		case err != nil, json.Unmarshal(body, &patch) != nil:
			failure(w, http.StatusBadRequest, "BadRequest")
			return
		case patch.Metadata.ResourceVersion != fmt.Sprint(s.version), patch.Metadata.UID != "uid":
			failure(w, http.StatusConflict, "Conflict")
			return
		}
		s.version++
		for key, value := range patch.Metadata.Annotations {
			if delete(s.annotations, key); value != nil {
				s.annotations[key] = *value
			}
		}
	}
	answerWith(w, http.StatusOK, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{
			"namespace": "clusters-guest1", "name": "hypergate-migration-openshift-gateway", "uid": "uid",
			"resourceVersion": fmt.Sprint(s.version), "annotations": s.annotations,
		},
	})
}

// TestARequestIsJudgedAgainAfterAConflict lets another client write the Lease between the read and the write of a
// request. What it has written stays, and the request is judged by it.
func TestARequestIsJudgedAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	s := &leaseServer{annotations: map[string]string{migration.GoalAnnotation: "start"}, version: 1}
	config := "--kubeconfig=" + s.kubeconfig(t)
	write := func(key, value string) func(*leaseServer) {
		return func(s *leaseServer) {
			s.version++
			s.annotations[key] = value
		}
	}
	s.beforePatch = write(migration.MemoAnnotation, `{"schema":1}`)
	if r := execute(t, "migrate", "pause", config); r.code != 0 || !strings.Contains(r.out, "pause requested at") {
		t.Errorf("%+v", r)
	}
	if s.annotations[migration.MemoAnnotation] == "" || s.annotations[migration.PausedAnnotation] != "true" {
		t.Errorf("something was lost: %v", s.annotations)
	}
	s.beforePatch = write(migration.GoalAnnotation, "rollback")
	before := s.annotations[migration.RequestedAtAnnotation]
	fails(t, []string{"migrate", "retire", config}, "migrate retire: the migration is paused")
	delete(s.annotations, migration.PausedAnnotation)
	s.annotations[migration.GoalAnnotation] = "start"
	fails(t, []string{"migrate", "retire", config}, "retire is possible only after start")
	if got := s.annotations; got[migration.GoalAnnotation] != "rollback" || got[migration.RequestedAtAnnotation] != before {
		t.Errorf("a request that is refused changed something: %v", got)
	}
}

// TestResumeAcceptsFindings checks that a finding that stopped a migration is accepted with a flag, besides those that
// were accepted before. Other requests do not change what is accepted.
func TestResumeAcceptsFindings(t *testing.T) {
	t.Parallel()
	s := &leaseServer{annotations: map[string]string{
		migration.GoalAnnotation: "start", migration.PausedAnnotation: "true", migration.AcceptedAnnotation: "OriginUntested",
	}, version: 1}
	config := "--kubeconfig=" + s.kubeconfig(t)
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"resume"}, "OriginUntested"},
		{[]string{"pause"}, "OriginUntested"},
		{[]string{"resume", "--allow-ignored-resources"}, "OriginUntested,IgnoredResources"},
		{[]string{"rollback"}, "OriginUntested,IgnoredResources"},
	} {
		if r := execute(t, append([]string{"migrate", config}, step.args...)...); r.code != 0 {
			t.Errorf("%s: %+v", step.args, r)
		}
		if got := s.annotations[migration.AcceptedAnnotation]; got != step.want {
			t.Errorf("%s: %q is accepted, want %q", step.args, got, step.want)
		}
	}
	fails(t, []string{"migrate", "pause", config, "--allow-untested"}, "unknown flag: --allow-untested")
}

// TestMigrateRefusesFlags checks that each error names its flag, before a request is sent.
func TestMigrateRefusesFlags(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"start", "pause", "resume", "rollback", "retire", "status"} {
		fails(t, []string{"migrate", verb, "-o", "wide"}, `--output: unsupported value "wide": supported values are table, json, yaml`)
		fails(t, []string{"migrate", verb, "--revision=A_b"}, `--revision: "A_b"`)
		fails(t, []string{"migrate", verb, "guest1"}, "guest1")
		fails(t, []string{"migrate", verb, "--kubeconfig=/does/not/exist"}, "/does/not/exist")
		help := execute(t, "migrate", verb, "--help").out
		if !strings.Contains(help, "Examples:") || !strings.Contains(help, "Exit codes:") {
			t.Errorf("%s --help:\n%s", verb, help)
		}
		if strings.Contains(help, "kubectl create") || strings.Contains(help, "create -f") {
			t.Errorf("%s --help: resourceNames forbid a POST, which has no name:\n%s", verb, help)
		}
	}
	config := "--kubeconfig=" + kubeconfigOf(t, "http://127.0.0.1:1")
	fails(t, []string{"migrate", "pause", config, "-n", "a/b"}, `--namespace: "a/b" is not a valid name`)
	fails(t, []string{"migrate", "start", config}, "--guest-kubeconfig, --guest-context or --guest-kubeconfig-secret is required")
	fails(t, []string{"migrate", "start", config, "--topology=standalone", "--guest-context=g"}, "--guest-context", "standalone")
	fails(t, []string{"migrate", "start", config, "--timeout=0s"}, "--timeout")
	fails(t, []string{"migrate", "status", config, "--watch", "-o", "json"}, "--watch prints lines of a table")
	fails(t, []string{"migrate", "finish"}, `unknown command "finish"`)
	s := newGatewayServer(nil)
	fails(t, []string{"migrate", "pause", "--kubeconfig=" + s.kubeconfig(t)}, "Forbidden", "deploy/migration-operator")
}
