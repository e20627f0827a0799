package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/proc"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	// controlPort is the port at which the node receives orders (see supervisor), on the link to the machine.
	controlPort = "7070"
	verbStart   = "start"
	verbStop    = "stop"
	verbRestart = "restart"
	// mgmtControllers are the controllers that the management cluster needs. Starting all of them ("*") takes four
	// seconds longer. node-lifecycle removes the not-ready taint. clusterrole-aggregation fills the roles admin, edit
	// and view. Without disruption, no pod that a PodDisruptionBudget selects can be evicted.
	mgmtControllers = "deployment-controller,replicaset-controller,statefulset-controller,endpointslice-controller," +
		"serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,namespace-controller," +
		"node-lifecycle-controller,taint-eviction-controller,garbage-collector-controller,pod-garbage-collector-controller," +
		"clusterrole-aggregation-controller,disruption-controller"
)

// nodeRole is the cluster to which a node belongs.
type nodeRole string

const (
	managementNode nodeRole = "management"
	guestNode      nodeRole = "guest"
)

// nodeServers are the servers of a node by the time of their start: at once, and when the API server answers. The
// kubelet is the last.
type nodeServers struct{ first, then []string }

// servers returns the servers of a node. The control plane of a guest runs in pods of the management cluster, except
// for its scheduler.
func (r run) servers() nodeServers {
	if r.Role == guestNode {
		then := []string{"coredns", "kube-proxy"}
		if r.Konnectivity {
			then = append(then, KonnectivityAgent)
		}
		return nodeServers{first: []string{"containerd"}, then: then}
	}
	return nodeServers{
		first: []string{"etcd", "containerd", "kube-apiserver"},
		then:  []string{"kube-controller-manager", "kube-scheduler", "coredns", "kube-proxy"},
	}
}

// command returns the command line of a server on the node.
func (r run) command(name string) []string {
	pki := r.Keys
	node, etcd := r.Net.Node.String(), "http://127.0.0.1:2379"
	from := r.Binaries[name]
	if r.isOfGuest() {
		from = r.Binaries[servers.OfGuest(name)]
	}
	binary := func(args ...string) []string { return append([]string{from}, args...) }
	file := func(name string) string { return filepath.Join(r.Dir, "node", name) }
	switch name {
	case "etcd":
		return binary(plane.EtcdFlags("mgmt", "/var/lib/etcd", etcd, etcd, "http://127.0.0.1:2380")...)
	case "containerd":
		return []string{"containerd", "--config", file("containerd.toml")}
	case "kube-apiserver":
		return binary(append(plane.APIServerFlags("mgmt", pki, filepath.Join(r.Dir, "audit/mgmt.jsonl")),
			"--etcd-servers="+etcd, "--secure-port=6443", "--service-cluster-ip-range="+r.Net.Services.String(),
			// This is not the loopback address, because pods reach this server through the endpoints of the Service
			// "kubernetes".
			"--bind-address="+node, "--advertise-address="+node,
			"--enable-admission-plugins=NodeRestriction", "--admission-control-config-file="+file(podSecurityFile),
			"--kubelet-client-certificate="+filepath.Join(pki, "kubelet-client.crt"),
			"--kubelet-client-key="+filepath.Join(pki, "kubelet-client.key"),
			// By default, the server would look up the node's name in DNS, and `kubectl logs` would hang for minutes.
			"--kubelet-preferred-address-types=InternalIP")...)
	case "kube-controller-manager":
		return binary(append(plane.ControllerManagerFlags(pki), "--bind-address=127.0.0.1", "--controllers="+mgmtControllers)...)
	case "kube-scheduler":
		return binary("--kubeconfig="+filepath.Join(pki, "scheduler.kubeconfig"), "--bind-address=127.0.0.1", "--leader-elect=false")
	case "coredns":
		return binary("-conf", file("Corefile"))
	case "kube-proxy":
		return binary("--config=" + file("kube-proxy.yaml"))
	case KonnectivityAgent:
		return binary(r.agentFlags()...)
	default: // kubelet
		return binary("--config="+file("kubelet.yaml"), "--kubeconfig="+filepath.Join(pki, "kubelet.kubeconfig"),
			"--hostname-override="+r.NodeName, "--node-ip="+node, "--root-dir=/var/lib/kubelet")
	}
}

// serve starts the servers and executes orders until a server ends without an order.
func (r run) serve(ctx context.Context) error {
	s := &supervisor{
		run: r, running: map[string]*proc.Process{}, ended: make(chan *proc.Process), orders: make(chan order),
		imported: make(chan struct{}), failed: make(chan error),
	}
	for _, name := range r.servers().first {
		if err := s.start(name); err != nil {
			return err
		}
	}
	go s.goThrough(ctx)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(r.Net.Node.String(), controlPort))
	if err != nil {
		return fmt.Errorf("listening for orders: %w", err)
	}
	go func() { s.failed <- http.Serve(listener, s.handler()) }() //nolint:gosec // a test server without timeouts
	return s.obey(ctx)
}

// supervisor owns the node's servers. Only obey changes the running servers. All other goroutines send it orders.
type supervisor struct {
	run      run
	running  map[string]*proc.Process
	ended    chan *proc.Process
	orders   chan order
	imported chan struct{} // closed when all images are imported
	failed   chan error
}

// order is a verb and the name of a server. The answer is nil when the order is done.
type order struct {
	verb, name string
	answer     chan error
}

func (s *supervisor) obey(ctx context.Context) error {
	for {
		select {
		case process := <-s.ended:
			if s.running[process.Name] == process {
				return process.Exit()
			}
		case err := <-s.failed:
			return err
		case order := <-s.orders:
			order.answer <- s.execute(order)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *supervisor) execute(o order) error {
	process := s.running[o.name]
	if o.verb == verbStart {
		if process != nil {
			return fmt.Errorf("%s is running already", o.name)
		}
		return s.start(o.name)
	}
	if process == nil {
		return fmt.Errorf("%s is not running", o.name)
	}
	delete(s.running, o.name) // first, so that obey expects its end
	process.Kill()
	if o.verb == verbRestart {
		return s.start(o.name)
	}
	return nil
}

func (s *supervisor) start(name string) error {
	process, err := proc.Start(name, filepath.Join(s.run.Dir, "logs"), s.run.command(name)...)
	if err != nil {
		return err
	}
	s.running[name] = process
	go func() {
		<-process.Done()
		s.ended <- process
	}()
	return nil
}

func (s *supervisor) order(verb, name string) error {
	o := order{verb: verb, name: name, answer: make(chan error)}
	s.orders <- o
	return <-o.answer
}

// goThrough starts the servers in the order of their dependencies. Most of them need the API server. The kubelet also
// needs the images. Without them it would try to pull, and then wait ten seconds before it retries.
func (s *supervisor) goThrough(ctx context.Context) {
	images := make(chan error, 1)
	go func() { images <- s.importImages(ctx) }()
	err := func() error {
		config, err := plane.RESTConfig(filepath.Join(s.run.Keys, "admin.kubeconfig"))
		if err != nil {
			return err
		}
		if err := plane.WaitReady(ctx, config); err != nil {
			return err
		}
		go func() { s.failed <- s.run.enforcePolicies(ctx) }()
		for _, name := range s.run.servers().then {
			if err := s.order(verbStart, name); err != nil {
				return err
			}
		}
		if err := <-images; err != nil {
			return err
		}
		close(s.imported)
		return s.order(verbStart, "kubelet")
	}()
	if err != nil {
		s.failed <- err
	}
}

// importImages imports the images into containerd, in order. The image of the pod sandbox is the first.
func (s *supervisor) importImages(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", containerdSocket)
		if err != nil {
			return false, nil //nolint:nilerr // containerd is not up yet
		}
		return true, connection.Close()
	})
	if err != nil {
		return fmt.Errorf("waiting for containerd: %w", err)
	}
	for _, image := range s.run.Images {
		out, err := exec.CommandContext(ctx, "ctr", "--namespace=k8s.io", "images", "import", image.Tar).CombinedOutput()
		if err != nil {
			return fmt.Errorf("importing image %s: %w: %s", image.Name, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// handler receives orders over HTTP. GET /images returns when all images are imported. POST /VERB/NAME returns when
// the order is done. HTTP is used because the network is the only thing that the node and all processes on the
// machine share.
func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /images", func(_ http.ResponseWriter, request *http.Request) {
		select {
		case <-s.imported:
		case <-request.Context().Done():
		}
	})
	for _, verb := range []string{verbStart, verbStop, verbRestart} {
		mux.HandleFunc("POST /"+verb+"/{name}", func(response http.ResponseWriter, request *http.Request) {
			if err := s.order(verb, request.PathValue("name")); err != nil {
				http.Error(response, err.Error(), http.StatusConflict)
			}
		})
	}
	return mux
}

// control sends an order to the node.
func (c *Cluster) control(ctx context.Context, order string) error { return c.run.control(ctx, order) }

func (r run) control(ctx context.Context, order string) error {
	method := http.MethodPost
	if order == "images" {
		method = http.MethodGet
	}
	url := "http://" + net.JoinHostPort(r.Net.Node.String(), controlPort) + "/" + order
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the node for %s: %w", order, errors.Join(err, context.Cause(ctx)))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the node for %s: %s", order, response.Status)
	}
	return nil
}

// isOfGuest reports whether GUEST_KUBERNETES selects the servers of the node. A standalone cluster is its own guest.
func (r run) isOfGuest() bool { return r.Role == guestNode || !r.Guest }

// IsOlderGuest reports whether the node has the servers of an older guest.
func (r run) IsOlderGuest() bool { return r.isOfGuest() && servers.HasOlderGuest() }
