package xds_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/xds"
)

// guest is a cluster with the objects of testdata/guest.yaml, and an istiod that serves it.
type guest struct {
	client  client.Client
	clients kubernetes.Interface
	address string // istiod's secure xDS port
	roots   []byte
	ca      pki.CA
	pod     *corev1.Pod // the gateway's pod
}

// pilot is the name of the server that is istiod of the embedded version.
const pilot = "pilot-discovery"

func startGuest(ctx context.Context, t *testing.T, server string) *guest {
	t.Helper()
	log.SetLogger(logr.Discard()) // otherwise controller-runtime warns on stderr
	plane, err := planes.StartPlane(ctx, "guest", filepath.Join(t.TempDir(), "guest"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	crds := envtest.CRDInstallOptions{Paths: []string{gatewayCRDs(ctx, t)}, ErrorIfPathMissing: true}
	if _, err := envtest.InstallCRDs(plane.Config, crds); err != nil {
		t.Fatal(err)
	}
	g := &guest{}
	if g.client, err = client.New(plane.Config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	if g.clients, err = kubernetes.NewForConfig(plane.Config); err != nil {
		t.Fatal(err)
	}
	g.createObjects(ctx, t)
	if g.pod, err = g.clients.CoreV1().Pods("ingress").Get(ctx, "gw-test-0", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	g.address = startIstiod(ctx, t, server, plane.Kubeconfig)
	ca, err := g.clients.CoreV1().Secrets("istio-system").Get(ctx, "istio-ca-secret", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("istiod is ready, but its self-made CA: %v", err)
	}
	g.roots = ca.Data["ca-cert.pem"]
	g.ca = pki.CA{Cert: g.roots, Key: ca.Data["ca-key.pem"], Chain: g.roots, Root: g.roots}
	return g
}

// gatewayCRDs returns the folder of the Gateway API's CRDs in the module of go.mod.
func gatewayCRDs(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir, err := servers.ModuleDir(ctx, ".", "sigs.k8s.io/gateway-api")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "config/crd/standard")
}

func (g *guest) createObjects(ctx context.Context, t *testing.T) {
	t.Helper()
	file, err := os.ReadFile("testdata/guest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range fromyaml.Objects(t, file) {
		status := object.Object["status"]
		if err := g.client.Create(ctx, object); err != nil {
			t.Fatalf("creating %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if status != nil {
			object.Object["status"] = status
			if err := g.client.Status().Update(ctx, object); err != nil {
				t.Fatalf("setting the status of %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
	cert, key := selfSigned(t, "*.example.com")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "gw-cert", Namespace: "ingress"},
		Type:       corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	}
	if err := g.client.Create(ctx, secret); err != nil {
		t.Fatal(err)
	}
}

// istiodPod is the name of the pod in the environment of istiod.
const istiodPod = "istiod-0"

// startIstiod runs istiod with a minimal environment on loopback ports, waits until it is ready, and returns its
// secure xDS address.
func startIstiod(ctx context.Context, t *testing.T, server, kubeconfig string) string {
	t.Helper()
	binaries, err := servers.Find(ctx, server)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freeport.Addresses(ctx, 4)
	if err != nil {
		t.Fatal(err)
	}
	output := &bytes.Buffer{}
	cmd := exec.CommandContext(ctx, binaries[server], "discovery", "--kubeconfig="+kubeconfig,
		"--secureGRPCAddr="+ports[0], "--httpAddr="+ports[1], "--httpsAddr="+ports[2], "--monitoringAddr="+ports[3],
		"--grpcAddr=", "--ctrlz_port=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), output, output
	cmd.Env = []string{
		"POD_NAMESPACE=istio-system", "PILOT_CERT_PROVIDER=istiod", "ENABLE_DEBUG_ON_HTTP=false", "INJECTION_WEBHOOK_CONFIG_NAME=",
		"VALIDATION_WEBHOOK_CONFIG_NAME=", "POD_NAME=" + istiodPod,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only if the process has already ended
		_ = cmd.Wait()         // the error is that it was killed
		if t.Failed() {
			t.Logf("istiod's log:\n%s", output)
		}
	})
	hang.Gomega(t).Eventually(func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ports[1]+"/ready", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("istiod's /ready: %s", response.Status)
		}
		return nil
	}).WithPolling(50 * time.Millisecond).Should(gomega.Succeed())
	return ports[0]
}

func selfSigned(t *testing.T, host string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// token returns a token of the gateway's service account, bound to its Pod, like the token that the kubelet projects.
func (g *guest) token(ctx context.Context, t *testing.T, audience string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: g.pod.Name, UID: g.pod.UID},
	}}
	response, err := g.clients.CoreV1().ServiceAccounts(g.pod.Namespace).
		CreateToken(ctx, g.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return response.Status.Token
}

// options returns the options of the real gateway.
func (g *guest) options(ctx context.Context, t *testing.T) xds.Options {
	t.Helper()
	return xds.Options{
		Address: g.address, ServerName: "istiod.istio-system.svc", RootCAs: g.roots,
		Token: g.token(ctx, t, "istio-ca"), Node: xds.NodeOf(g.pod),
	}
}
