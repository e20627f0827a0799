package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/proc"
)

// ErrNeedsRoot is what Start returns to a user that is not root.
var ErrNeedsRoot = errors.New("real clusters need root (a kubelet and containerd with cgroups and user ids); " +
	"run as root, or use test/cluster/planes for API servers without pods")

const (
	// GuestServerInPods is the guest API server's URL for pods in the namespace of the hosted control plane.
	GuestServerInPods = "https://kube-apiserver:6443"
	// DefaultHCPNamespace is the namespace of the hosted control plane unless Options say otherwise.
	DefaultHCPNamespace = "clusters-guest1"

	// startTimeout is several times what a cold start takes on two busy cores.
	startTimeout = 6 * time.Minute
)

// Options say what to start. Only Name is needed.
type Options struct {
	// Name, up to 12 of [a-z0-9-], goes into the names of cgroups, links and folders. Two runs at once need different names.
	Name string
	// Guest also starts a hosted guest cluster; without it the management cluster is all (the standalone topology).
	Guest bool
	// HCPNamespace is the management namespace of the guest's control plane; empty means DefaultHCPNamespace.
	HCPNamespace string
	// MoreGuests are the management namespaces of further hosted guests, each like the first; see Cluster.More.
	MoreGuests []string
	// Images are put on the node in addition to istiod's (IstiodImage).
	Images []Image
	// Archives are images that are made already, by their full references: files as package oci writes them.
	Archives map[string]string
	// IstiodImages are more references under which the node gets istiod's image, as if they were of other versions.
	IstiodImages []string
	// StandIns are references under which the node gets an image that does nothing but answer 200 on port 15021, an Envoy gateway's
	// readiness probe: for gateways on the management cluster, where a real kubelet runs their pods (the standalone topology).
	StandIns []string
	// Dir holds keys, kubeconfigs, logs and audit logs; it survives Stop. Empty: a temporary one, which Stop removes.
	Dir string
	// Progress gets a line per step. May be nil.
	Progress io.Writer
	// Detach lets the clusters outlive this process; Down ends them.
	Detach bool
}

// Cluster is a running management cluster and, if asked for, its guest. This machine has a route to all of the management cluster's pod
// and Service addresses, so a test can dial a ClusterIP or a pod directly; the far end sees the node as the client of a ClusterIP.
type Cluster struct {
	Name, Dir, HCPNamespace string
	// Mgmt and Guest are the cluster admins' credentials, reachable from this machine. Guest is nil without a guest.
	Mgmt, Guest *rest.Config
	// The same as files.
	MgmtKubeconfig, GuestKubeconfig string
	// Files with one JSON event per request (level Metadata), readable on this machine while the cluster runs and after.
	MgmtAuditLog, GuestAuditLog string
	// More are the guests of Options.MoreGuests: each is this cluster with that guest in place of the first, and with a Dir of its own.
	// To stop one stops all.
	More []*Cluster

	run      run
	node     *proc.Process
	progress func(format string, args ...any)
	ownDir   bool
}

// Start starts the clusters and returns when all images are on the node, the node is ready, and the API server of the guest (if any)
// answers. On error nothing is left running. Leftovers of a crashed run of the same name are removed first; a live one is an error.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no success within %s", startTimeout))
	defer cancel()
	binaries, err := Servers(ctx)
	if err != nil {
		return nil, err
	}
	tars, err := images(ctx, binaries, options)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(options.Archives)) {
		tars = append(tars, importable{Name: name, Tar: options.Archives[name]})
	}
	if err := removeLeftovers(ctx, options.Name); err != nil {
		return nil, err
	}
	c, err := newCluster(options, binaries, tars)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting cluster %s: %w", c.Name, c.explainNode(err)), c.Stop()) //nolint:contextcheck // see Stop
	}
	return c, nil
}

// explainNode puts the node's death before an error that may be a consequence of it: a connection breaks before the exit is seen.
func (c *Cluster) explainNode(err error) error {
	if c.node == nil {
		return err
	}
	select {
	case <-c.node.Done():
		return fmt.Errorf("%w\n%w", c.node.Exit(), err)
	case <-time.After(200 * time.Millisecond):
		return err
	}
}

// Servers finds the server binaries that a cluster needs; the error names the command that builds a missing one.
func Servers(ctx context.Context) (servers.Binaries, error) {
	return servers.Find(ctx, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns",
		"pilot-discovery")
}

// Stop ends the clusters and removes all that is outside the node's namespaces; the state folder too, if Start made it.
func (c *Cluster) Stop() error {
	// Not the caller's context: a test's is already cancelled when its clean-up runs.
	err := teardown(context.Background(), c.Name)
	if c.node != nil {
		<-c.node.Done()
	}
	if c.ownDir {
		err = errors.Join(err, os.RemoveAll(c.Dir))
	}
	return err
}

// complete checks the options and fills in defaults.
func (o *Options) complete() error {
	if os.Geteuid() != 0 {
		return ErrNeedsRoot
	}
	if os.Getenv(roleEnv) != "" {
		// Without this a forgotten MaybeRunNode would run the tests again inside the node, and so on without end.
		return errors.New("the node ran the program's main part: call cluster.MaybeRunNode first thing in main or TestMain")
	}
	if !regexp.MustCompile(`^[a-z0-9-]{1,12}$`).MatchString(o.Name) {
		return fmt.Errorf("cluster name %q: use 1 to 12 of a-z, 0-9 and -, because links are named after it", o.Name)
	}
	if o.HCPNamespace == "" {
		o.HCPNamespace = DefaultHCPNamespace
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return nil
}

func newCluster(o Options, binaries servers.Binaries, tars []importable) (*Cluster, error) {
	dir, ownDir := o.Dir, o.Dir == ""
	if ownDir {
		dir = filepath.Join(os.TempDir(), "hypergate-"+o.Name) // fixed, so that the next run removes what a crashed one left
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the state folder: %w", err)
	}
	for _, path := range append([]string{dir}, pathsOf(binaries, tars)...) {
		for _, hidden := range privateDirs {
			if strings.HasPrefix(path, hidden+"/") {
				return nil, fmt.Errorf("%s is not visible in the node, which has a %s of its own; choose another place", path, hidden)
			}
		}
	}
	begin := time.Now()
	c := describe(run{
		Name: o.Name, Dir: dir, Cgroup: cgroupOf(o.Name), NodeName: "node1", HCPNamespace: o.HCPNamespace, Guest: o.Guest, MoreGuests: o.MoreGuests,
		PauseImage: pauseImage, KubeImage: kubeImage, ExemptClass: exemptClass, Binaries: binaries, Images: tars, Detach: o.Detach,
	})
	c.ownDir = ownDir
	c.progress = func(format string, args ...any) {
		_, _ = fmt.Fprintf(o.Progress, "%5.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	return c, nil
}

// describe says where the files of a run are.
func describe(r run) *Cluster {
	c := &Cluster{
		Name: r.Name, Dir: r.Dir, HCPNamespace: r.HCPNamespace, run: r,
		MgmtKubeconfig: filepath.Join(r.Dir, "pki/mgmt/admin.kubeconfig"),
		MgmtAuditLog:   filepath.Join(r.Dir, "audit/mgmt.jsonl"),
	}
	if r.Guest {
		c.describeGuest()
	}
	return c
}

// Attach returns the clusters whose state is in dir, which another process started (Detach). Stop ends them like Down. If the folder
// holds no cluster's record the error is fs.ErrNotExist.
func Attach(dir string) (*Cluster, error) {
	r, err := readRun(dir)
	if err != nil {
		return nil, err
	}
	c := describe(r)
	if c.Mgmt, err = plane.RESTConfig(c.MgmtKubeconfig); err != nil {
		return nil, err
	}
	if r.Guest {
		c.Guest, err = plane.RESTConfig(c.GuestKubeconfig)
	}
	return c, err
}

func pathsOf(binaries servers.Binaries, tars []importable) []string {
	paths := make([]string, 0, len(binaries)+len(tars))
	for _, path := range binaries {
		paths = append(paths, path)
	}
	for _, tar := range tars {
		paths = append(paths, tar.Tar)
	}
	return paths
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.boot(ctx); err != nil {
		return err
	}
	// From here on nothing is worth waiting for if the node dies.
	ctx, release := c.node.Guard(ctx)
	defer release()
	c.progress("node started, network %s", c.run.Net.Block)
	if err := plane.WaitReady(ctx, c.Mgmt); err != nil {
		return err
	}
	c.progress("management API server ready: %s", c.Mgmt.Host)
	guests := c.guests()
	for _, guest := range guests {
		if err := guest.applyGuest(ctx); err != nil {
			return fmt.Errorf("applying the guest's control plane: %w", err)
		}
		c.progress("guest control plane applied in namespace %s", guest.HCPNamespace)
	}
	if err := c.control(ctx, "images"); err != nil {
		return err
	}
	c.progress("%d images on the node", len(c.run.Images))
	if err := c.waitNode(ctx); err != nil {
		return err
	}
	c.progress("node ready")
	for _, guest := range guests {
		if err := plane.WaitReady(ctx, guest.Guest); err != nil {
			return guest.explainGuest(err) //nolint:contextcheck // see there
		}
		c.progress("guest API server ready: %s", guest.Guest.Host)
	}
	return nil
}
