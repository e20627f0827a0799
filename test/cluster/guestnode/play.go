package guestnode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// leaseNamespace and leaseSeconds have the kubelet's values. The kubelet renews its lease at a quarter of the
	// duration.
	leaseNamespace = "kube-node-lease"
	leaseSeconds   = 40
)

// Options configure Play. The zero value means one node.
type Options struct {
	// Nodes are the names of the nodes. Pods are bound to them in turn. Default: guest-node-1.
	Nodes []string
	// OnlyLoadBalancers simulates no nodes. It is for a cluster with real nodes but without a cloud.
	OnlyLoadBalancers bool
	// PodAddresses and LoadBalancerAddresses are the ranges of the addresses. Defaults: 10.132.0.0/16 and
	// 198.51.100.0/24 (documentation).
	PodAddresses, LoadBalancerAddresses netip.Prefix
}

// Play simulates nodes and load balancers until ctx ends. It changes the cluster as the package comment describes.
// When Play returns, its Nodes stay and become NotReady, like machines that are switched off. An error names what
// Play could not set up. The result is nil when ctx ends.
func Play(ctx context.Context, config *rest.Config, options Options) error {
	if len(options.Nodes) == 0 {
		options.Nodes = []string{"guest-node-1"}
	}
	if !options.PodAddresses.IsValid() {
		options.PodAddresses = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 132, 0, 0}), 16)
	}
	if !options.LoadBalancerAddresses.IsValid() {
		options.LoadBalancerAddresses = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, 0}), 24)
	}
	mgr, err := newManager(config)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for the guest's nodes: %w", err)
	}
	services := &servicePlayer{client: mgr.GetClient(), addresses: newPool(options.LoadBalancerAddresses)}
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(reconcile.AsReconciler(mgr.GetClient(), services))
	if err == nil && !options.OnlyLoadBalancers {
		err = addNodes(mgr, client, options)
	}
	if err != nil {
		return fmt.Errorf("setting up the guest's nodes: %w", err)
	}
	return mgr.Start(ctx)
}

func addNodes(mgr manager.Manager, client kubernetes.Interface, options Options) error {
	for i, name := range options.Nodes {
		if err := mgr.Add(manager.RunnableFunc((&node{client: client, name: name, number: i}).run)); err != nil {
			return err
		}
	}
	pods := &podPlayer{client: mgr.GetClient(), nodes: options.Nodes, addresses: newPool(options.PodAddresses)}
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.AsReconciler(mgr.GetClient(), pods))
}

func newManager(guest *rest.Config) (manager.Manager, error) {
	skip := true
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("setting up the guest's nodes: %w", err)
	}
	mgr, err := manager.New(guest, manager.Options{
		Scheme:  scheme,
		Logger:  logr.Discard(), // errors are visible in the API, or are retries after conflicts
		Metrics: metricsserver.Options{BindAddress: "0"},
		// One test process may run several managers.
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the guest's nodes: %w", err)
	}
	return mgr, nil
}

// node is one simulated node.
type node struct {
	client kubernetes.Interface
	name   string
	number int
}

// run reports the node and renews its lease until ctx ends. The lease shows the node lifecycle controller that the node
// is alive. Errors are ignored, because the next attempt may succeed: the API server may be down for some time, and a
// node survives that.
func (n *node) run(ctx context.Context) error {
	const first, later = 200 * time.Millisecond, leaseSeconds * time.Second / 4
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		_ = wait.PollUntilContextTimeout(ctx, first, later, true, func(ctx context.Context) (bool, error) {
			return errors.Join(n.report(ctx), n.renew(ctx)) == nil, nil
		})
	}, later, 0, true)
	return nil
}

// report creates the Node and sets it ready, unless it is already ready. The controller sets a node to not ready
// after a long silence, as in an outage of the API server.
func (n *node) report(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	current, err := nodes.Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		current, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: n.name, Labels: map[string]string{
				corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux",
				corev1.LabelArchStable: "amd64",
			},
		}}, metav1.CreateOptions{})
	}
	if err != nil || slices.ContainsFunc(current.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	}) {
		return err
	}
	current.Status = n.status()
	_, err = nodes.UpdateStatus(ctx, current, metav1.UpdateOptions{})
	return err
}

func (n *node) status() corev1.NodeStatus {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("1000"),
	}
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Played", Message: "this node exists only as an object",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: hostAddress(n.number)},
			{Type: corev1.NodeHostName, Address: n.name},
		},
	}
}

// hostAddress returns a documentation address, at which nothing listens.
func hostAddress(number int) string {
	return fmt.Sprintf("203.0.113.%d", number+1)
}

func (n *node) renew(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(leaseNamespace)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &n.name, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}
	lease, err := leases.Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// pool allocates the addresses of a range, one after the other.
type pool struct {
	prefix netip.Prefix
	last   netip.Addr
}

func newPool(prefix netip.Prefix) *pool { return &pool{prefix: prefix, last: prefix.Addr()} }

// next returns an address that is not in use.
func (p *pool) next(used map[string]bool) (string, error) {
	for range 1 << (p.prefix.Addr().BitLen() - p.prefix.Bits()) {
		p.last = p.last.Next()
		if !p.prefix.Contains(p.last) {
			p.last = p.prefix.Addr().Next() // the first address is that of the network
		}
		if !used[p.last.String()] {
			return p.last.String(), nil
		}
	}
	return "", fmt.Errorf("no address left in %s", p.prefix)
}
