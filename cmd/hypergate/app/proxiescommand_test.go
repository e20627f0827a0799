package app_test

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// twoClusters is a server that is the API servers of both clusters, and the address at which istiod is published.
type twoClusters struct {
	t *testing.T
	// istiods answer the connections in turn. An empty name refuses. Each has one proxy.
	istiods []string
	asked   atomic.Int32
	// pods are istiod's pods: whether each is ready. Nil means that the list is forbidden.
	pods  map[string]bool
	roots []byte
	// token is what the guest answers. Empty: a token of hypergate's account.
	token string
}

// issuedToken returns a token of a service account, which is valid for an hour.
func issuedToken(account string) string {
	claims := `{"iat":1700000000,"exp":1700003600,"kubernetes.io":{"namespace":"openshift-ingress","serviceaccount":{"name":"` +
		account + `"}}}`
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func (c *twoClusters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/StreamAggregatedResources"):
		c.answer(w, c.istiods[int(c.asked.Add(1))%len(c.istiods)])
		return
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts/hypergate/token"):
		w.Header().Set("Content-Type", "application/json")
		answerWith(w, http.StatusCreated, authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			Status:   authenticationv1.TokenRequestStatus{Token: cmp.Or(c.token, issuedToken("hypergate"))},
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/configmaps/openshift-gateway-ca-cert"):
		answerWith(w, http.StatusOK, corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"root-cert.pem": string(c.roots)},
		})
	case r.URL.Path == "/api/v1/namespaces/ns/pods" && c.pods != nil &&
		r.URL.Query().Get("labelSelector") == "app=istiod,istio.io/rev=openshift-gateway":
		answerWith(w, http.StatusOK, c.list())
	default:
		failure(w, http.StatusForbidden, "Forbidden")
	}
}

func (c *twoClusters) list() corev1.PodList {
	out := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for name, isReady := range c.pods {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if isReady {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		out.Items = append(out.Items, pod)
	}
	return out
}

// answer is what an istiod answers.
func (c *twoClusters) answer(w http.ResponseWriter, istiod string) {
	if istiod == "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	proxy, err := anypb.New(&statusv3.ClientConfig{
		Node: &corev3.Node{Id: "router~10.0.0.1~gw-of-" + istiod + ".demo~d", Metadata: &structpb.Struct{
			Fields: map[string]*structpb.Value{"NAMESPACE": structpb.NewStringValue("demo")},
		}},
		GenericXdsConfigs: []*statusv3.ClientConfig_GenericXdsConfig{{TypeUrl: "a.Cluster", ConfigStatus: statusv3.ConfigStatus_SYNCED}},
	})
	if err != nil {
		c.t.Error(err)
		return
	}
	message, err := proto.Marshal(&discoveryv3.DiscoveryResponse{
		ControlPlane: &corev3.ControlPlane{Identifier: `{"Component":"istiod","ID":"` + istiod + `"}`}, Resources: []*anypb.Any{proxy},
	})
	if err != nil {
		c.t.Error(err)
		return
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	_, _ = w.Write(append(frame, message...))
}

// TestProxiesOfTwoIstiods checks that the command shows the proxies of all istiods behind one address, names those that
// do not answer, and says so if it cannot know that.
func TestProxiesOfTwoIstiods(t *testing.T) {
	two := map[string]bool{"istiod-a": true, "istiod-b": true}
	for name, tc := range map[string]struct {
		istiods       []string
		pods          map[string]bool
		code          int
		out, notOut   string
		errOut        []string
		withoutErrOut bool
	}{
		"both answer": {istiods: []string{"istiod-a", "istiod-b"}, pods: two, out: "gw-of-istiod-b.demo", withoutErrOut: true},
		"one alone": {
			istiods: []string{"istiod-a"}, pods: map[string]bool{"istiod-a": true}, out: "gw-of-istiod-a.demo", withoutErrOut: true,
		},
		"one is not reached": {
			istiods: []string{"istiod-a"}, pods: two, code: 3, out: "gw-of-istiod-a.demo", notOut: "istiod-b",
			errOut: []string{"istiod istiod-b did not answer", "its pod is ready"},
		},
		"one refuses": {
			istiods: []string{"istiod-a", ""}, pods: two, code: 3, out: "gw-of-istiod-a.demo",
			errOut: []string{"istiod istiod-b did not answer", "HTTP status 503"},
		},
		"one is not ready": {
			istiods: []string{"istiod-a"}, pods: map[string]bool{"istiod-a": true, "istiod-b": false}, code: 3, out: "gw-of-istiod-a.demo",
			errOut: []string{"istiod istiod-b did not answer", "its pod is not ready"},
		},
		"the pods are forbidden": {
			istiods: []string{"istiod-a", "istiod-b"}, out: "gw-of-istiod-b.demo",
			errOut: []string{"not known whether each istiod has answered", "permission to list pods"},
		},
		"none answers": {istiods: []string{""}, pods: two, code: 1, errOut: []string{"HTTP status 503", "hypergate status"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &twoClusters{t: t, istiods: tc.istiods, pods: tc.pods}
			r := execute(t, c.commandLine(t)...)
			if r.code != tc.code || !strings.Contains(r.out, tc.out) || tc.notOut != "" && strings.Contains(r.out, tc.notOut) ||
				tc.withoutErrOut && r.errOut != "" {
				t.Errorf("%+v", r)
			}
			for _, want := range tc.errOut {
				if !strings.Contains(r.errOut, want) {
					t.Errorf("there is no %q:\n%s", want, r.errOut)
				}
			}
		})
	}
}

// commandLine starts the server, and returns the command line that asks it.
func (c *twoClusters) commandLine(t *testing.T) []string {
	t.Helper()
	server := httptest.NewUnstartedServer(c)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c.roots = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := file(t, "kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %s}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"users": [{"name": "u", "user": {"token": "t"}}]}`, server.URL, quoted(t, c.roots)))
	return []string{
		"proxies", "--kubeconfig=" + kubeconfig, "--guest-kubeconfig=" + kubeconfig, "-n=ns", "--address=example.com:443",
		"--connect-to=" + server.Listener.Addr().String(),
	}
}

// TestTokensOfCommandsAreChecked checks that no command prints, stores or sends a token that the guest has changed.
func TestTokensOfCommandsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct{ token, want string }{
		"another account": {issuedToken("admin"), "a token of another account than service account openshift-ingress/hypergate"},
		"too long":        {issuedToken("hypergate") + strings.Repeat("a", 64<<10), "openshift-ingress/hypergate has more than 64 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &twoClusters{t: t, istiods: []string{"istiod-a"}, pods: map[string]bool{"istiod-a": true}, token: tc.token}
			args := c.commandLine(t)
			fails(t, args, "requesting a token", tc.want)
			if asked := c.asked.Load(); asked != 0 {
				t.Error("istiod got the token")
			}
			fails(t, []string{"guest-kubeconfig", args[2]}, "requesting a token", tc.want)
		})
	}
}
