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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// gatewayServer is a guest's API server that lists and patches Gateways, and refuses everything else.
type gatewayServer struct {
	mu sync.Mutex
	// gateways are by namespace/name. Each has the resourceVersion "1" until it is patched.
	gateways map[string]*unstructured.Unstructured
	// conflicts is how many patches get a conflict. forbidden reports whether all are forbidden.
	conflicts int
	forbidden bool
}

func newGatewayServer(holds map[string]string) *gatewayServer {
	s := &gatewayServer{gateways: map[string]*unstructured.Unstructured{}}
	for key, value := range holds {
		namespace, name, _ := strings.Cut(key, "/")
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
			"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name, "resourceVersion": "1"},
		}}
		if value != "" {
			u.SetAnnotations(map[string]string{model.HoldAnnotation: value})
		}
		s.gateways[key] = u
	}
	return s
}

// kubeconfig starts the server, and returns the path of a kubeconfig for it.
func (s *gatewayServer) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return file(t, "kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %s}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"users": [{"name": "u", "user": {"token": "t"}}]}`, server.URL, quoted(t, ca)))
}

// quoted returns data as a JSON string in base64.
func quoted(t *testing.T, data []byte) []byte {
	t.Helper()
	out, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ServeHTTP answers a list of Gateways, and merge patches of annotations.
func (s *gatewayServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	const group = "/apis/gateway.networking.k8s.io/v1/"
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, group), "/")
	switch {
	case r.Method == http.MethodGet && r.URL.Path == group+"gateways":
		list := &unstructured.UnstructuredList{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayList", "metadata": map[string]any{"resourceVersion": "1"},
		}}
		for _, u := range s.gateways {
			list.Items = append(list.Items, *u)
		}
		answerWith(w, http.StatusOK, list)
	case r.Method == http.MethodPatch && len(parts) == 4 && !s.forbidden:
		s.patch(w, r, parts[1]+"/"+parts[3])
	default:
		failure(w, http.StatusForbidden, "Forbidden")
	}
}

func (s *gatewayServer) patch(w http.ResponseWriter, r *http.Request, key string) {
	var patch struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]*string
		}
	}
	body, err := io.ReadAll(r.Body)
	u := s.gateways[key]
	switch {
	case err != nil, json.Unmarshal(body, &patch) != nil, u == nil, r.Header.Get("Content-Type") != "application/merge-patch+json":
		failure(w, http.StatusBadRequest, "BadRequest")
		return
	case s.conflicts > 0, patch.Metadata.ResourceVersion != u.GetResourceVersion(), patch.Metadata.UID != string(u.GetUID()):
		s.conflicts--
		failure(w, http.StatusConflict, "Conflict")
		return
	}
	annotations := u.GetAnnotations()
	for name, value := range patch.Metadata.Annotations {
		if value == nil {
			delete(annotations, name)
		}
	}
	u.SetAnnotations(annotations)
	u.SetResourceVersion("2")
	answerWith(w, http.StatusOK, u)
}

func answerWith(w http.ResponseWriter, code int, body any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func failure(w http.ResponseWriter, code int, reason string) {
	answerWith(w, code, map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason,
	})
}

// held returns the keys of the Gateways with the annotation, and its values.
func (s *gatewayServer) held() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for key, u := range s.gateways {
		if value, is := u.GetAnnotations()[model.HoldAnnotation]; is {
			out[key] = value
		}
	}
	return out
}

// TestRelease checks which Gateways the command releases, what it prints, and its exit codes.
func TestRelease(t *testing.T) {
	t.Parallel()
	own, other := model.HoldValue("openshift-gateway"), model.HoldValue("another")
	holds := map[string]string{"shop/web": own, "shop/free": "", "shop/istio": "5", "lab/theirs": "1000", "lab/other": other}
	stay := map[string]string{"shop/istio": "5", "lab/theirs": "1000", "lab/other": other}

	s := newGatewayServer(holds)
	config := "--guest-kubeconfig=" + s.kubeconfig(t)
	if r := execute(t, "release", config, "--dry-run"); r != (result{2, "gateway/shop/web is held\n", ""}) {
		t.Errorf("a dry run: %+v", r)
	}
	if len(s.held()) != 4 {
		t.Errorf("a dry run changed something: %v", s.held())
	}
	s.conflicts = 1
	const none = "No Gateway is held for the revision openshift-gateway.\n"
	if r := execute(t, "release", config); r != (result{0, "gateway/shop/web released\n" + none, ""}) {
		t.Errorf("%+v", r)
	}
	if got := s.held(); fmt.Sprint(got) != fmt.Sprint(stay) {
		t.Errorf("held are %v, want %v", got, stay)
	}
	if r := execute(t, "release", config, "--dry-run"); r != (result{0, none, ""}) {
		t.Errorf("a dry run after it: %+v", r)
	}
	if r := execute(t, "release", config, "--revision=another"); r.code != 0 || !strings.Contains(r.out, "gateway/lab/other released") {
		t.Errorf("another revision: %+v", r)
	}
}

// TestReleaseFails checks that an error names the Gateway, and that the exit code is 1.
func TestReleaseFails(t *testing.T) {
	t.Parallel()
	s := newGatewayServer(map[string]string{"shop/web": model.HoldValue("openshift-gateway")})
	s.forbidden = true
	fails(t, []string{"release", "--revision=A_b"}, `--revision: "A_b" is not a valid name`)
	fails(t, []string{"release", "--guest-kubeconfig=" + s.kubeconfig(t)}, "ReleaseGateway Gateway shop/web", "Forbidden")
	s.forbidden, s.conflicts = false, 1000
	fails(t, []string{"release", "--guest-kubeconfig=" + s.kubeconfig(t)}, "run the command again")
	fails(t, []string{"release", "--topology=both"}, "--topology", `"both"`)
	fails(t, []string{"release", "--timeout=0s"}, "--timeout", "greater than 0")
	fails(t, []string{"release"}, "--guest-kubeconfig, --guest-context or --guest-kubeconfig-secret is required")
}

// TestReleaseKeepsFewErrors checks that the error is short, however many Gateways are held.
func TestReleaseKeepsFewErrors(t *testing.T) {
	t.Parallel()
	holds := map[string]string{}
	for i := range 25 {
		holds[fmt.Sprintf("shop/web%d", i)] = model.HoldValue("openshift-gateway")
	}
	s := newGatewayServer(holds)
	s.forbidden = true
	r := execute(t, "release", "--guest-kubeconfig="+s.kubeconfig(t))
	n := strings.Count(r.errOut, "releasing the Gateway")
	if n != 10 || !strings.HasSuffix(r.errOut, "\n  15 more Gateways could not be released\n") {
		t.Errorf("%d errors:\n%s", n, r.errOut)
	}
}
