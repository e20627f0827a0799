package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/guestnode"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/proc"
)

// Settings of hypergate that are the same in every world.
const (
	GuestNamespace = deploy.GuestNamespace
	ControllerName = "openshift.io/gateway-controller/v1"
	Revision       = "openshift-gateway"
	ProxyImage     = "registry.example.com/proxyv2:" + charts.EmbeddedVersion
	// GuestIstiod is the name of istiod's service account in the guest, and of its roles and bindings there.
	GuestIstiod = "hypergate-istiod-" + Revision
	// Validator is the name of the guest's ValidatingWebhookConfiguration for istiod.
	Validator = "hypergate-validator-" + Revision
)

// Folders of deploy/ for the management side of a hosted cluster, and for a standalone cluster.
const (
	HyperShift = "hosted/example"
	ClusterAPI = "cluster-api/example"
	Standalone = "standalone"
	// StandaloneOwnNamespace has hypergate and its istiod in a namespace of their own, ownNamespace.
	StandaloneOwnNamespace = "standalone-own-namespace"
	ownNamespace           = "hypergate-system"
)

// Options configure a world.
type Options struct {
	Name     string
	Topology model.Topology
	// Binary is the file of hypergate's binary. For AsPod, hypergate-tunnel is beside it.
	Binary string
	// AsPod makes StartHypergate run the Deployment of deploy/, with an image built from Binary, instead of a process
	// on this machine.
	AsPod bool
	// Bare means that the clusters have no object of deploy/: no account, no role, no kubeconfig. The caller applies
	// what it tests.
	Bare bool
	// Folder is the folder with hypergate's Deployment. Empty means HyperShift, or Standalone in that topology.
	Folder string
	// MoreGuests are the names of further hosted clusters on the management cluster. See World.More. The first guest
	// is deploy.Guest.
	MoreGuests []string
	// GuestNodes is the number of real nodes of the first guest. Its gateways then are real pods with pilot-agent, and
	// test/envoy in Envoy's place. The guest's API server reaches them through konnectivity. With 0, nodes and pods of
	// the guest are simulated.
	GuestNodes int
	// RealGateways makes gateways of the standalone topology real pods, as GuestNodes does for a guest.
	RealGateways bool
	// Conformance adds the images of Gateway API's conformance suite to the guest's nodes.
	Conformance bool
	// GuestImages are additional images on the guest's nodes, or on the node of a standalone cluster.
	GuestImages []cluster.Image
	// IstiodImages are additional names for istiod's image on the node.
	IstiodImages []string
	// Versions are further versions of Istio. Their istiod is on the management node, their gateways on real nodes of
	// the guest.
	Versions []IstioVersion
	// Dir is the folder for all files of this world. Empty means a temporary folder.
	Dir string
	// Detach lets the world outlive this process.
	Detach   bool
	Progress io.Writer
}

// World is two clusters (one in the standalone topology) and the functions that run hypergate on them.
type World struct {
	*cluster.Cluster
	Topology model.Topology
	// GuestName is the name of the hosted cluster.
	GuestName string
	// More are the worlds of Options.MoreGuests, on the same management cluster. Stop of the first world ends all of
	// them.
	More []*World
	// MgmtNamespace is the namespace in which istiod runs.
	MgmtNamespace string
	// Clients with the permissions of the cluster administrators.
	MgmtClient, GuestClient   kubernetes.Interface
	MgmtDynamic, GuestDynamic dynamic.Interface
	Gateways                  gatewayclient.GatewayV1Interface
	guestMapper               meta.RESTMapper
	// GuestConfig is the guest administrator's configuration. In the standalone topology it is the management
	// cluster's.
	GuestConfig *rest.Config

	// number is the index of the guest. The first guest has 0.
	number     int
	options    Options
	stopPlayer context.CancelFunc
	player     chan error
	// current is hypergate's container if AsPod is set. kills counts the calls of Kill by pod.
	current *container
	kills   map[types.UID]int
	// router is between the guest's gateways and istiod. It is nil in the standalone topology, and in a detached
	// world, whose caller manages it.
	router *proc.Process
}

// Start starts the clusters and the simulation of the guest's nodes, and applies the accounts and roles of deploy/.
// It does not start hypergate. On error, it removes everything.
func Start(ctx context.Context, options Options) (*World, error) {
	options.Folder = cmp.Or(options.Folder, folderOf(options.Topology))
	c, err := startClusters(ctx, options)
	if err != nil {
		return nil, err
	}
	w, err := openAll(c, options)
	if err == nil {
		err = w.createPriorityClass(ctx)
	}
	if err == nil {
		var group errgroup.Group
		for _, one := range w.all() {
			group.Go(func() error { return one.prepare(ctx) })
		}
		err = group.Wait()
	}
	if err != nil {
		return nil, errors.Join(err, w.Stop()) //nolint:contextcheck // Stop must work when ctx has ended
	}
	return w, nil
}

// startClusters makes the images and starts the clusters.
func startClusters(ctx context.Context, options Options) (*cluster.Cluster, error) {
	work, err := os.MkdirTemp("", "hypergate-image-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for images: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // the images are on the nodes by then
	archives := map[string]string{}
	if options.AsPod {
		if archives, err = makeImage(options.Binary, work); err != nil {
			return nil, err
		}
	}
	var onGuest []cluster.Image
	if options.GuestNodes > 0 || options.RealGateways {
		if onGuest, err = gatewayImages(ctx, work, options.Versions); err != nil {
			return nil, err
		}
		onGuest = append(onGuest, options.GuestImages...)
	}
	onMgmt, err := istiodImages(ctx, options.Versions)
	if err != nil {
		return nil, err
	}
	var suite suiteImages
	if options.Conformance {
		if suite, err = conformanceImages(ctx, work); err != nil {
			return nil, err
		}
		onGuest = append(onGuest, suite.images...)
	}
	if options.Topology == model.TopologyStandalone {
		onMgmt, onGuest = append(onMgmt, onGuest...), nil
	}
	return cluster.Start(ctx, cluster.Options{
		Name: options.Name, Guest: options.Topology == model.TopologyHosted, Dir: options.Dir, Detach: options.Detach,
		Progress: options.Progress, Images: onMgmt,
		StandIns: append(standIns(options), suite.standIns...), Archives: archives, IstiodImages: options.IstiodImages,
		MoreGuests: namespacesOf(options.MoreGuests),
		GuestNodes: options.GuestNodes, Konnectivity: options.GuestNodes > 0, GuestImages: onGuest, GuestArchives: archives,
		HostNames: []string{routedHost(deploy.Guest)},
	})
}

// standIns returns the images of gateways that a real kubelet runs, and that carry no requests.
func standIns(options Options) []string {
	if options.Topology == model.TopologyStandalone && !options.RealGateways {
		return []string{ProxyImage}
	}
	return nil
}

// namespacesOf returns the management namespaces of hosted clusters, as the manifests name them.
func namespacesOf(guests []string) []string {
	out := make([]string, len(guests))
	for i, guest := range guests {
		out[i] = strings.ReplaceAll(deploy.MgmtNamespace, deploy.Guest, guest)
	}
	return out
}

// openAll returns the world of the first guest, with the worlds of the others in More.
func openAll(c *cluster.Cluster, options Options) (*World, error) {
	w, err := open(c, options, deploy.Guest)
	for i, guest := range options.MoreGuests {
		more, openErr := open(c.More[i], options, guest)
		more.number, err = i+1, errors.Join(err, openErr)
		w.More = append(w.More, more)
	}
	return w, err
}

// all returns the worlds of all guests.
func (w *World) all() []*World { return append([]*World{w}, w.More...) }

// open returns a world with clients of a running cluster.
func open(c *cluster.Cluster, options Options, guest string) (*World, error) {
	w := &World{
		Cluster: c, Topology: options.Topology, GuestName: guest, MgmtNamespace: c.HCPNamespace, GuestConfig: c.Guest,
		options: options, kills: map[types.UID]int{},
	}
	if options.Topology == model.TopologyStandalone {
		w.MgmtNamespace, w.GuestConfig = GuestNamespace, c.Mgmt
		if options.Folder == StandaloneOwnNamespace {
			w.MgmtNamespace = ownNamespace
		}
	}
	var errs [6]error
	w.MgmtClient, errs[0] = kubernetes.NewForConfig(c.Mgmt)
	w.GuestClient, errs[1] = kubernetes.NewForConfig(w.GuestConfig)
	w.GuestDynamic, errs[2] = dynamic.NewForConfig(w.GuestConfig)
	w.MgmtDynamic, errs[4] = dynamic.NewForConfig(c.Mgmt)
	w.guestMapper, errs[5] = newMapper(w.GuestConfig)
	w.Gateways, errs[3] = gatewayclient.NewForConfig(w.GuestConfig)
	return w, errors.Join(errs[:]...)
}

// newMapper returns a mapper from kinds to resources. It also finds CRDs that are installed later.
func newMapper(config *rest.Config) (meta.RESTMapper, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return apiutil.NewDynamicRESTMapper(config, client)
}

func (w *World) prepare(ctx context.Context) error {
	if !w.options.Bare {
		if err := w.deployIdentities(ctx); err != nil {
			return fmt.Errorf("preparing hypergate's identities: %w", err)
		}
	}
	if w.options.AsPod && !w.options.Bare {
		if err := w.admitHost(ctx); err != nil {
			return err
		}
	}
	if w.options.Detach {
		return nil // the caller plays the nodes in a separate process
	}
	if w.Topology == model.TopologyHosted {
		router, err := w.StartRouter(ctx)
		if err != nil {
			return err
		}
		w.router = router
	}
	playCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ended by Stop
	w.stopPlayer, w.player = cancel, make(chan error, 1)
	go func() { w.player <- w.PlayNodes(playCtx) }()
	return nil
}

// PlayNodes simulates the guest's nodes and its cloud until ctx ends.
func (w *World) PlayNodes(ctx context.Context) error {
	options := guestnode.Options{OnlyLoadBalancers: w.Topology == model.TopologyStandalone}
	if w.HasGuestNodes() || w.options.RealGateways {
		options = guestnode.Options{OnlyLoadBalancers: true, LoadBalancerAddresses: w.GuestLoadBalancers()}
	}
	return guestnode.Play(ctx, w.GuestConfig, options)
}

// Stop ends everything.
func (w *World) Stop() error {
	var playerErrs []error
	for _, one := range w.all() {
		if one.router != nil {
			one.router.Kill()
		}
		if one.stopPlayer != nil {
			one.stopPlayer()
			playerErrs = append(playerErrs, <-one.player)
		}
	}
	return errors.Join(errors.Join(playerErrs...), w.Cluster.Stop())
}

// Binary returns the file of hypergate's binary.
func (w *World) Binary() string { return w.options.Binary }

// XDS returns the istiod address that gateways get. In the hosted topology, only the DNS servers of real guest nodes
// know it. A test dials the router with this server name.
func (w *World) XDS() model.HostPort {
	if w.Topology == model.TopologyStandalone {
		return model.HostPort{Host: "istiod-" + Revision + "." + w.MgmtNamespace + ".svc", Port: 15012}
	}
	return model.HostPort{Host: routedHost(w.GuestName), Port: 443}
}

// routedHost returns the host name of a guest's istiod at the router of the management cluster.
func routedHost(guest string) string { return "istiod-" + guest + ".apps.mgmt.example.com" }

// Args returns the arguments of a hypergate that runs as a process on this machine. They include kubeconfigs of its
// own accounts, but not the address of its health checks.
func (w *World) Args() []string {
	args := make([]string, 0, 32)
	args = append(args,
		"run", "--topology", string(w.Topology), "--kubeconfig", filepath.Join(w.Dir, mgmtKubeconfig),
		"--pilot-image", cluster.IstiodImage, "--proxy-image", ProxyImage, "--metrics-address", "0", "--v", "1",
	)
	if w.Topology == model.TopologyStandalone {
		return args
	}
	return append(append(args, "--namespace", w.MgmtNamespace, "--guest-kubeconfig", w.HypergateGuestKubeconfig(),
		"--istiod-guest-server", cluster.GuestServerInPods, "--xds-address", w.XDS().String()), w.peers()...)
}

// peers returns the flags for istiod's allowed peers and for the endpoint probe. In the hosted topology, this
// machine's router publishes istiod, and the node's DNS server is not a pod.
func (w *World) peers() []string {
	if w.Topology == model.TopologyStandalone {
		return nil
	}
	return []string{
		"--xds-peers=" + w.HostAddress().String() + "/32", "--dns-peers=" + w.DNSAddress().String() + "/32",
		"--publish-probe=" + w.RouterAddress(),
	}
}

// ByTunnel returns the flags with which hypergate publishes istiod by the tunnel, and not at the router. The relays
// need real nodes of the guest.
func ByTunnel() []string {
	return []string{"--xds-address=", "--publish=tunnel", "--relay-image=" + HypergateImage, "--publish-probe="}
}

// Attach opens a world that another process started in dir with Detach. The error is fs.ErrNotExist if there is none.
func Attach(dir string) (*World, error) {
	c, err := cluster.Attach(dir)
	if err != nil {
		return nil, err
	}
	topology := model.TopologyHosted
	if c.Guest == nil {
		topology = model.TopologyStandalone
	}
	return open(c, Options{Topology: topology, Dir: dir, Folder: folderOf(topology)}, deploy.Guest)
}

// folderOf returns the default of Options.Folder.
func folderOf(topology model.Topology) string {
	if topology == model.TopologyStandalone {
		return Standalone
	}
	return HyperShift
}

// istiodAddress returns the address that a gateway dials to reach istiod. It is the router, or istiod's Service in
// the standalone topology.
func (w *World) istiodAddress(ctx context.Context) (string, error) {
	if w.Topology == model.TopologyHosted {
		return w.RouterAddress(), nil
	}
	service, err := w.MgmtClient.CoreV1().Services(w.MgmtNamespace).Get(ctx, "istiod-"+Revision, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("finding istiod's Service: %w", err)
	}
	return net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(15012)), nil
}
