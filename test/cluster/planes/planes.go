package planes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/proc"
)

// guest is the name of the plane whose servers GUEST_KUBERNETES can replace.
const guest = "guest"

// startTimeout only ends a start that hangs. A start takes seconds on two idle cores, and minutes if the servers of
// several packages start at once.
const startTimeout = 10 * time.Minute

// Options configure the planes.
type Options struct {
	// Dir is the folder for keys, data, logs and audit logs. Empty means a new temporary folder, which Stop removes.
	Dir string
	// GuestControllers starts a kube-controller-manager for the guest.
	GuestControllers bool
}

// Pair is a management and a guest control plane that are independent of each other.
type Pair struct {
	Mgmt, Guest *Plane

	ownDir string // removed by Stop; empty if the caller provided the folder
}

// Plane is one running control plane.
type Plane struct {
	// Config is the configuration of the cluster administrator, without client-side rate limits.
	Config *rest.Config
	// Kubeconfig is a file with the same credentials.
	Kubeconfig string
	// AuditLog is a file with one JSON event per request (plane.AuditPolicy).
	AuditLog string
	// EtcdURL is the address of the plane's etcd, which needs no credentials.
	EtcdURL string

	name, dir string
	pki       *plane.PKI
	binaries  servers.Binaries
	args      map[string][]string
	running   map[string]*proc.Process
}

// Start starts both planes in parallel and returns when both answer /readyz. On error, nothing keeps running.
func Start(ctx context.Context, options Options) (*Pair, error) {
	pair := &Pair{}
	if options.Dir == "" {
		dir, err := os.MkdirTemp("", "hypergate-planes-")
		if err != nil {
			return nil, fmt.Errorf("making a folder for the control planes: %w", err)
		}
		options.Dir, pair.ownDir = dir, dir
	}
	var group errgroup.Group
	group.Go(func() (err error) {
		pair.Mgmt, err = StartPlane(ctx, "mgmt", filepath.Join(options.Dir, "mgmt"), false)
		return err
	})
	group.Go(func() (err error) {
		pair.Guest, err = StartPlane(ctx, guest, filepath.Join(options.Dir, guest), options.GuestControllers)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, pair.Stop())
	}
	return pair, nil
}

// Stop ends all processes and removes the directory, if Start created it.
func (p *Pair) Stop() error {
	for _, plane := range []*Plane{p.Mgmt, p.Guest} {
		if plane != nil {
			plane.Stop()
		}
	}
	if p.ownDir == "" {
		return nil
	}
	return os.RemoveAll(p.ownDir)
}

// StartPlane starts one control plane with its files in dir, with a kube-controller-manager if controllers is true.
// The service account issuer contains the name, so the tokens of two planes have different issuers.
func StartPlane(ctx context.Context, name, dir string, controllers bool) (*Plane, error) {
	binaries, err := binariesOf(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &Plane{
		AuditLog: filepath.Join(dir, "audit.jsonl"), name: name, dir: dir, binaries: binaries, running: map[string]*proc.Process{},
	}
	if err := p.prepare(ctx, controllers); err != nil {
		return nil, fmt.Errorf("preparing the %s control plane: %w", name, err)
	}
	if err := p.start("etcd"); err != nil {
		return nil, err
	}
	// The API server retries until etcd listens, so this does not wait for etcd.
	if err := p.StartAPI(ctx); err != nil {
		p.Stop()
		return nil, err
	}
	if controllers {
		if err := p.start("kube-controller-manager"); err != nil {
			p.Stop()
			return nil, err
		}
	}
	return p, nil
}

// binariesOf returns the binaries of a plane, under the names that its servers have.
func binariesOf(ctx context.Context, plane string) (servers.Binaries, error) {
	out := servers.Binaries{}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		server := name
		if plane == guest {
			server = servers.OfGuest(name)
		}
		found, err := servers.Find(ctx, server)
		if err != nil {
			return nil, err
		}
		out[name] = found[server]
	}
	return out, nil
}

// ClientCertificate returns a configuration with its own certificate, signed by the API server's client CA and valid
// until the given time.
func (p *Plane) ClientCertificate(user, group string, until time.Time) (*rest.Config, error) {
	certificate, key, err := p.pki.Client(user, group, until)
	if err != nil {
		return nil, fmt.Errorf("making a client of the %s control plane: %w", p.name, err)
	}
	config := rest.AnonymousClientConfig(p.Config)
	config.CertData, config.KeyData = certificate, key
	return config, nil
}

// StopAPI kills the API server, as a crash would, and returns when it has ended. etcd keeps the data.
func (p *Plane) StopAPI() {
	if api := p.running["kube-apiserver"]; api != nil {
		api.Kill()
		delete(p.running, "kube-apiserver")
	}
}

// StartAPI starts the API server, at its old address if it ran before, and returns when it answers /readyz.
func (p *Plane) StartAPI(ctx context.Context) error {
	if err := p.start("kube-apiserver"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, process := range p.running { // without its etcd, the API server waits for ever
		var release context.CancelFunc
		ctx, release = process.Guard(ctx)
		defer release()
	}
	return plane.WaitReady(ctx, p.Config)
}

// Stop ends the plane's processes.
func (p *Plane) Stop() {
	for name, process := range p.running {
		process.Kill()
		delete(p.running, name)
	}
}

func (p *Plane) start(name string) error {
	process, err := proc.Start(name, p.dir, append([]string{p.binaries[name]}, p.args[name]...)...)
	if err != nil {
		return err
	}
	p.running[name] = process
	return nil
}

// prepare chooses ports, writes the keys and sets the command lines.
func (p *Plane) prepare(ctx context.Context, controllers bool) error {
	ports, err := freeport.Ports(ctx, 4)
	if err != nil {
		return err
	}
	url := func(scheme string, i int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, ports[i]) }
	pki, err := plane.NewPKI(p.name, "127.0.0.1", "localhost", "kubernetes.default.svc", "10.0.0.1")
	if err != nil {
		return err
	}
	server := url("https", 0)
	p.EtcdURL = url("http", 1)
	if err := errors.Join(
		pki.AddKubeconfig("admin", server, "admin", "system:masters"),
		pki.AddKubeconfig("kcm", server, "system:kube-controller-manager", ""),
	); err != nil {
		return err
	}
	pki.Files[plane.AuditPolicyFile] = []byte(plane.AuditPolicy)
	dir := filepath.Join(p.dir, "pki")
	p.Kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	p.args = map[string][]string{
		"etcd": plane.EtcdFlags(p.name, p.etcdDir(), url("http", 1), url("http", 1), url("http", 2)),
		"kube-apiserver": append(plane.APIServerFlags(p.name, dir, p.AuditLog),
			"--etcd-servers="+url("http", 1),
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]),
			"--endpoint-reconciler-type=none",         // a loopback address is refused as an endpoint, and no test needs it
			"--service-cluster-ip-range=10.0.0.0/16"), // for a hundred hosted clusters with three Services each
		"kube-controller-manager": append(plane.ControllerManagerFlags(dir), "--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", ports[3])),
	}
	if !controllers {
		// Without a controller manager, service accounts do not exist, and this plug-in would refuse every pod.
		p.args["kube-apiserver"] = append(p.args["kube-apiserver"], "--disable-admission-plugins=ServiceAccount")
	}
	p.pki = pki
	if err := pki.Write(dir); err != nil {
		return err
	}
	p.Config, err = plane.RESTConfig(p.Kubeconfig)
	return err
}
