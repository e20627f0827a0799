package tunnel_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/tunnel"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/proc"
)

const (
	namespace  = "istio-system"
	istiodName = "istiod.istio-system.svc"
	tunnelName = "tunnel.istiod.istio-system.svc"
	health     = ":15444"
)

// harness is a guest's API server, the mesh CA, and the files of a relay and a sidecar.
type harness struct {
	t      testing.TB
	g      *gomega.WithT
	dir    string
	binary string
	ca     pki.CA
	plane  *planes.Plane
	guest  kubernetes.Interface
	token  string
	// gateways is how many connections of gateways were opened.
	gateways atomic.Uint32
}

func newHarness(tb testing.TB) *harness {
	tb.Helper()
	w := &harness{t: tb, g: hang.Gomega(tb), dir: tb.TempDir()}
	var err error
	w.ca, err = pki.New(time.Now())
	w.must(err)
	w.plane, err = planes.StartPlane(tb.Context(), "guest", filepath.Join(w.dir, "guest"), false)
	w.must(err)
	tb.Cleanup(w.plane.Stop)
	w.guest, err = kubernetes.NewForConfig(w.plane.Config)
	w.must(err)
	w.build()
	w.write("mesh/root-cert.pem", w.ca.Root)
	w.identity(w.ca, tunnelName)
	w.permit()
	w.write("guest/server", []byte(w.plane.Config.Host+"\n"))
	w.write("guest/ca.crt", w.plane.Config.CAData)
	w.write("guest/token", []byte(w.token+"\n"))
	w.istiod()
	return w
}

func (w *harness) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// build builds hypergate-tunnel as `make build` does.
func (w *harness) build() {
	w.t.Helper()
	root, err := servers.ModuleRoot()
	w.must(err)
	w.binary = filepath.Join(w.dir, "hypergate-tunnel")
	command := exec.CommandContext(w.t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", w.binary,
		"./cmd/hypergate-tunnel")
	command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
}

// write replaces a file at once, as the kubelet does for mounted volumes.
func (w *harness) write(name string, data []byte) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.must(os.WriteFile(path+".new", data, 0o600))
	w.must(os.Rename(path+".new", path))
	return path
}

// identity gives the sidecar a certificate.
func (w *harness) identity(ca pki.CA, name string) {
	w.t.Helper()
	serving, err := ca.Serving(time.Now(), name)
	w.must(err)
	w.write("tunnel/tls.crt", serving.Cert)
	w.write("tunnel/tls.key", serving.Key)
}

// permit creates what the plan would create in the guest, except the relays: the sidecar's account and its Role.
func (w *harness) permit() {
	w.t.Helper()
	ctx, create := w.t.Context(), metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: "istiod-tunnel", Namespace: namespace}
	_, err := w.guest.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, create)
	w.must(err)
	_, err = w.guest.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, create)
	w.must(err)
	_, err = w.guest.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods/proxy"}, Verbs: []string{"get"},
		ResourceNames: []string{tunnel.ProxyResource("istiod-relay-0"), tunnel.ProxyResource("istiod-relay-1")},
	}}}, create)
	w.must(err)
	w.bind()
	token, err := w.guest.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, create)
	w.must(err)
	w.token = token.Status.Token
}

// bind gives the sidecar's account its Role.
func (w *harness) bind() {
	w.t.Helper()
	_, err := w.guest.RbacV1().RoleBindings(namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "istiod-tunnel"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "istiod-tunnel"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "istiod-tunnel", Namespace: namespace}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// pod creates a pod with an address. Nothing runs it: the test starts its process.
func (w *harness) pod(name, ip string) {
	w.t.Helper()
	pods := w.guest.CoreV1().Pods(namespace)
	pod, err := pods.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "relay", Image: "registry.example.com/hypergate:dev"}}},
	}, metav1.CreateOptions{})
	w.must(err)
	pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	_, err = pods.UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{})
	w.must(err)
}

// start starts a process of hypergate-tunnel, which ends with the test.
func (w *harness) start(name string, env []string, args ...string) *proc.Process {
	w.t.Helper()
	process, err := proc.Spec{
		Name: name, LogDir: w.dir, Argv: append([]string{w.binary}, args...), Env: env,
	}.Start()
	w.must(err)
	w.t.Cleanup(func() {
		process.Kill()
		if w.t.Failed() {
			w.t.Logf("the end of the log of %s:\n%s", name, proc.Tail(filepath.Join(w.dir, name+".log"), 20))
		}
	})
	return process
}

func (w *harness) relay(name, ip string) *proc.Process {
	w.t.Helper()
	env := []string{"GOGC=" + model.TunnelGC, "GOMEMLIMIT=" + model.RelaySoftLimit, "GOMAXPROCS=" + model.TunnelProcs}
	return w.start(name, env, "relay",
		"--mesh-root="+filepath.Join(w.dir, "mesh/root-cert.pem"), "--tunnel-name="+tunnelName,
		"--gateways-address="+ip+":15012", "--tunnels-address="+ip+":15443", "--health-address="+ip+health)
}

func (w *harness) sidecar(flags ...string) *proc.Process {
	w.t.Helper()
	args := []string{
		"sidecar", "--credential=" + filepath.Join(w.dir, "guest"), "--relay-namespace=" + namespace,
		"--certificate=" + filepath.Join(w.dir, "tunnel/tls.crt"), "--key=" + filepath.Join(w.dir, "tunnel/tls.key"),
		"--pod-ip=" + istiodIP, "--health-address=" + istiodIP + health,
	}
	return w.start("sidecar", sidecarEnv(), append(args, flags...)...)
}

// istiod serves TLS at istiod's port. It returns what it receives, or as many bytes as asked for by more. What gateways
// and istiod say does not matter to the tunnel.
func (w *harness) istiod() {
	w.t.Helper()
	serving, err := w.ca.Serving(time.Now(), istiodName)
	w.must(err)
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	w.must(err)
	listener, err := tls.Listen("tcp", istiodIP+":15012", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
	w.must(err)
	w.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				answer(conn)
			}()
		}
	}()
}

// more is a request for a number of bytes. It is the first and only one on its connection. No other text begins so.
const more = "more: %d\n"

// answer returns what arrives on a connection, or what more asks for.
func answer(conn net.Conn) {
	from := bufio.NewReader(conn)
	if begin, _ := from.Peek(1); string(begin) != more[:1] {
		_, _ = io.Copy(conn, from) // until the client ends it
		return
	}
	var size int64
	if _, err := fmt.Fscanf(from, more, &size); err != nil {
		return
	}
	block := make([]byte, 32<<10)
	for ; size > 0; size -= int64(len(block)) {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

// gateway is a connection of a gateway, with the TLS of the mesh. The gateways take turns with 250 addresses.
func (w *harness) gateway(ip string) (*tls.Conn, error) {
	source := net.IPv4(10, 204, 0, byte(1+w.gateways.Add(1)%250))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ca.Root)
	conn, err := (&tls.Dialer{
		NetDialer: &net.Dialer{Timeout: hang.Deadline, LocalAddr: &net.TCPAddr{IP: source}},
		Config:    &tls.Config{RootCAs: roots, ServerName: istiodName, MinVersion: tls.VersionTLS13},
	}).DialContext(w.t.Context(), "tcp", ip+":15012")
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn.(*tls.Conn), nil
}

// talk sends a text and expects it back.
func talk(conn net.Conn, text string) error {
	if err := conn.SetDeadline(time.Now().Add(hang.Deadline)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, text)
		sent <- err
	}()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if string(got) != text {
		return fmt.Errorf("%d bytes came back changed", len(text))
	}
	return <-sent
}

// work sends a request to the API server. It is the work of a round of hang.Within.
func (w *harness) work() {
	_, _ = w.guest.CoreV1().Namespaces().Get(w.t.Context(), namespace, metav1.GetOptions{}) // the answer does not matter
}

// talks expects that a new connection of a gateway reaches istiod, and returns the connection.
func (w *harness) talks(ip string) *tls.Conn {
	w.t.Helper()
	var conn *tls.Conn
	w.g.Eventually(func() (err error) {
		if conn, err = w.gateway(ip); err != nil {
			return err
		}
		return talk(conn, "hello")
	}).Should(gomega.Succeed())
	return conn
}

// metric returns a value of a process's metrics, or an error.
func metric(ip, name string) (float64, error) {
	response, err := http.Get("http://" + ip + health + "/metrics") //nolint:noctx // a test
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, is := strings.CutPrefix(lines.Text(), name+" "); is {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// becomes waits until a metric has a value.
func (w *harness) becomes(ip, name string, want any) {
	w.t.Helper()
	w.g.Eventually(func() (float64, error) { return metric(ip, name) }).Should(gomega.BeNumerically("==", want), name)
}

// grows waits until a metric is larger than a value.
func (w *harness) grows(ip, name string, beyond float64) {
	w.t.Helper()
	w.g.Eventually(func() (float64, error) { return metric(ip, name) }).Should(gomega.BeNumerically(">", beyond), name)
}

// resident returns the anonymous memory and the whole memory of a process, in MiB.
func (w *harness) resident(p *proc.Process) (anonymous, all float64) {
	w.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	w.must(err)
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseFloat(fields[1], 64) // other lines are not numbers
		switch fields[0] {
		case "RssAnon:":
			anonymous = n / 1024
		case "VmRSS:":
			all = n / 1024
		}
	}
	return anonymous, all
}

func sidecarEnv() []string {
	return []string{"GOGC=" + model.TunnelGC, "GOMEMLIMIT=" + model.SidecarSoftLimit, "GOMAXPROCS=" + model.TunnelProcs}
}
