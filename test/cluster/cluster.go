package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/proc"
)

// ErrNeedsRoot is the error of Start for a user other than root.
var ErrNeedsRoot = errors.New("real clusters need root (a kubelet and containerd with cgroups and user ids); " +
	"run as root, or use test/cluster/planes for API servers without pods")

const (
	// GuestServerInPods is the guest API server's URL for pods in the namespace of the hosted control plane.
	GuestServerInPods = "https://kube-apiserver:6443"
	// DefaultHCPNamespace is the default namespace of the hosted control plane.
	DefaultHCPNamespace = "clusters-guest1"

	// startTimeout is several times as long as a cold start on two busy cores.
	startTimeout = 6 * time.Minute
)

// Options configure a cluster. Only Name is required.
type Options struct {
	// Name has up to 12 characters of [a-z0-9-]. It is part of the names of cgroups, links and folders. Concurrent
	// runs need different names.
	Name string
	// Guest also starts a hosted guest cluster. Without it there is only the management cluster (the standalone
	// topology).
	Guest bool
	// HCPNamespace is the management namespace of the guest's control plane. Empty means DefaultHCPNamespace.
	HCPNamespace string
	// MoreGuests are the management namespaces of further hosted guests, which are like the first one. See
	// Cluster.More.
	MoreGuests []string
	// Images are additional images for the node, besides that of istiod (IstiodImage).
	Images []Image
	// Archives are existing image files in the format of package oci, by full image reference.
	Archives map[string]string
	// IstiodImages are additional references for istiod's image on the node, as if it had other versions.
	IstiodImages []string
	// StandIns are references for an image that only answers 200 on port 15021, which is the readiness probe of an
	// Envoy gateway. They are for gateways on real nodes, those of the management cluster (the standalone
	// topology) and of the guest.
	StandIns []string
	// GuestNodes is the number of real nodes of the guest, at most 8. Without them, the guest's pods do not run.
	GuestNodes int
	// Konnectivity makes the guest's API server reach the guest's nodes, pods and Services only through konnectivity,
	// as in HyperShift. Without it, the API server reaches them directly. It needs GuestNodes, and is for the first
	// guest.
	Konnectivity bool
	// HostNames are names that resolve to this machine on the guest's nodes, as a published address would.
	HostNames []string
	// GuestImages are the images on the guest's nodes. GuestArchives are existing files, as Archives.
	GuestImages   []Image
	GuestArchives map[string]string
	// Dir is the folder for keys, kubeconfigs, logs and audit logs. Stop does not remove it. Empty means a temporary
	// folder, which Stop removes.
	Dir string
	// Progress gets one line per step. It can be nil.
	Progress io.Writer
	// Detach lets the clusters outlive this process. Down ends them.
	Detach bool
}

// Cluster is a running management cluster and, if requested, its guest. This machine has a route to all pod and
// Service addresses of the management cluster. So a test can dial a ClusterIP or a pod directly. With a ClusterIP,
// the server sees the node as the client.
type Cluster struct {
	Name, Dir, HCPNamespace string
	// Mgmt and Guest are the cluster administrators' credentials, usable on this machine. Guest is nil without a
	// guest.
	Mgmt, Guest *rest.Config
	// The same credentials as files.
	MgmtKubeconfig, GuestKubeconfig string
	// Audit logs with one JSON event per request (level Metadata). They are readable on this machine during the
	// cluster's life and after it.
	MgmtAuditLog, GuestAuditLog string
	// More are the guests of Options.MoreGuests. Each is this cluster with another guest and its own Dir. Stopping
	// one stops all.
	More []*Cluster
	// GuestNodes are the nodes of Options.GuestNodes.
	GuestNodes []*GuestNode

	guestKeys *plane.PKI
	// konnectivityKeys are nil without Options.Konnectivity.
	konnectivityKeys *plane.PKI
	run              run
	node             *proc.Process
	progress         func(format string, args ...any)
	ownDir           bool
}

// Start starts the clusters. It returns when all images are on the node, the node is ready, and the guest's API
// server answers, if there is a guest.
//
// On error, nothing keeps running. Start first removes leftovers of a crashed run with the same name. It fails if a
// run with that name is still alive.
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
	if err := addKonnectivity(ctx, options, binaries); err != nil {
		return nil, err
	}
	tars, err := images(ctx, binaries, options)
	if err != nil {
		return nil, err
	}
	tars = append(tars, archived(options.Archives)...)
	onGuest, err := guestImages(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := removeLeftovers(ctx, options.Name); err != nil {
		return nil, err
	}
	c, err := newCluster(options, binaries, tars)
	if err != nil {
		return nil, err
	}
	err = c.start(ctx)
	if err == nil {
		err = c.startGuestNodes(ctx, options, onGuest)
	}
	if err != nil {
		err = fmt.Errorf("starting cluster %s: %w", c.Name, c.explainNode(err))
		return nil, errors.Join(err, c.Stop()) //nolint:contextcheck // see Stop
	}
	return c, nil
}

// explainNode adds the node's end to an error that may be a result of it. A connection breaks before the node's exit
// is visible.
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

// Servers returns the server binaries that a cluster needs. If one is missing, the error names the command that
// builds it.
func Servers(ctx context.Context) (servers.Binaries, error) {
	names := []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "pilot-discovery",
	}
	of := make([]string, 0, 2*len(names))
	for _, name := range names {
		of = append(of, name, servers.OfGuest(name))
	}
	return servers.Find(ctx, of...)
}

// Stop ends the clusters and removes everything outside the node's namespaces. It also removes the state folder if
// Start created it.
func (c *Cluster) Stop() error {
	// The caller's context does not fit: a test's context is cancelled before its clean-up runs.
	err := teardown(context.Background(), c.Name)
	if c.node != nil {
		<-c.node.Done()
	}
	for _, node := range c.GuestNodes {
		<-node.process.Done()
	}
	if c.ownDir {
		err = errors.Join(err, os.RemoveAll(c.Dir))
	}
	return err
}

// complete checks the options and sets defaults.
func (o *Options) complete() error {
	if os.Geteuid() != 0 {
		return ErrNeedsRoot
	}
	if os.Getenv(roleEnv) != "" {
		// Without this check, a forgotten MaybeRunNode would run the tests again inside the node, recursively.
		return errors.New("the node ran the program's main part: call cluster.MaybeRunNode first thing in main or TestMain")
	}
	if !regexp.MustCompile(`^[a-z0-9-]{1,12}$`).MatchString(o.Name) {
		return fmt.Errorf("cluster name %q: use 1 to 12 of a-z, 0-9 and -, because links are named after it", o.Name)
	}
	if o.GuestNodes < 0 || o.GuestNodes > maxGuestNodes || o.GuestNodes > 0 && !o.Guest {
		return fmt.Errorf("%d nodes of the guest: use 0 to %d, and a guest", o.GuestNodes, maxGuestNodes)
	}
	if o.Konnectivity && o.GuestNodes == 0 {
		return errors.New("konnectivity leads to nodes of the guest: use GuestNodes, too")
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
		dir = filepath.Join(os.TempDir(), "hypergate-"+o.Name) // a fixed name lets the next run remove the leftovers of a crash
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
		Name: o.Name, Dir: dir, Cgroup: cgroupOf(o.Name), NodeName: "node1", HCPNamespace: o.HCPNamespace, Guest: o.Guest,
		MoreGuests: o.MoreGuests, GuestNodes: o.GuestNodes, Konnectivity: o.Konnectivity, Role: managementNode,
		Keys: filepath.Join(dir, "pki/mgmt"), PauseImage: pauseImage, KubeImage: kubeImage, ExemptClass: exemptClass,
		Binaries: binaries, Images: tars, Detach: o.Detach,
	})
	c.ownDir = ownDir
	c.progress = func(format string, args ...any) {
		_, _ = fmt.Fprintf(o.Progress, "%5.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	return c, nil
}

// describe returns a Cluster with the file names of a run.
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

// Attach returns the clusters whose state is in dir and which another process started with Detach. Stop ends them as
// Down does. If the folder does not contain the record of a cluster, the error is fs.ErrNotExist.
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
	// From here on, all waits end if the node ends.
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
	if err := c.waitMgmtNode(ctx); err != nil {
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
