package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// fieldManager is the field manager of the guest's manifests.
const fieldManager = "hypergate-test-cluster"

// guestFile is the input of the template files/guest.yaml. Commands and the files of Secrets are JSON, which is also
// valid YAML.
type guestFile struct {
	run
	GuestAuditDir, PKI, EtcdCommand, APIServerCommand, ControllerManagerCommand, SchedulerCommand string
	// These are for Options.Konnectivity.
	KonnectivityFiles, KonnectivityCommand string
	KonnectivityAddress                    netip.Addr
}

// applyGuest creates the guest's keys and applies its control plane.
func (c *Cluster) applyGuest(ctx context.Context) error {
	if err := c.makeAuditFolder(); err != nil {
		return err
	}
	pki, err := c.guestPKI()
	if err != nil {
		return err
	}
	if c.run.Konnectivity {
		if c.konnectivityKeys, err = c.newKonnectivityKeys(); err != nil {
			return err
		}
	}
	manifests, err := c.guestManifests(pki)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.Mgmt)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, object := range manifests {
		if err := apply(ctx, client, object); err != nil {
			return err
		}
	}
	return nil
}

// guestPKI creates the guest's keys. The administrator on this machine uses the ClusterIP, and pods use the Service's
// name.
func (c *Cluster) guestPKI() (*plane.PKI, error) {
	service := "kube-apiserver." + c.HCPNamespace
	pki, err := plane.NewPKI("guest", append(apiServerNames(guestServices), c.run.Net.GuestAPI.String(), "kube-apiserver", service,
		service+".svc", service+".svc.cluster.local", "localhost", "127.0.0.1")...)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		pki.AddKubeconfig("admin", "https://"+c.run.Net.GuestAPI.String()+":6443", "admin", "system:masters"),
		pki.AddKubeconfig("kcm", GuestServerInPods, "system:kube-controller-manager", ""),
		pki.AddClient("kubelet-client", "apiserver-kubelet", "system:masters"),
		pki.AddKubeconfig("scheduler", GuestServerInPods, "system:kube-scheduler", ""),
	); err != nil {
		return nil, err
	}
	pki.Files[plane.AuditPolicyFile] = []byte(plane.AuditPolicy)
	if err := pki.Write(filepath.Join(c.Dir, "pki/guest")); err != nil {
		return nil, err
	}
	c.guestKeys = pki
	c.Guest, err = plane.RESTConfig(c.GuestKubeconfig)
	return pki, err
}

func (c *Cluster) guestManifests(pki *plane.PKI) ([]*unstructured.Unstructured, error) {
	var failures []error
	encode := func(value any) string {
		text, err := json.Marshal(value)
		failures = append(failures, err)
		return string(text)
	}
	command := func(name string, flags ...string) string {
		return encode(append([]string{"/usr/local/bin/" + name}, flags...))
	}
	data := guestFile{
		run: c.run, GuestAuditDir: filepath.Dir(c.GuestAuditLog), PKI: encode(pki.Files),
		EtcdCommand: command("etcd",
			plane.EtcdFlags("guest", "/data/etcd", "http://0.0.0.0:2379", "http://etcd-client:2379", "http://127.0.0.1:2380")...),
		APIServerCommand: command("kube-apiserver", c.guestAPIServerFlags()...),
		SchedulerCommand: command("kube-scheduler", "--kubeconfig=/pki/scheduler.kubeconfig", "--leader-elect=false"),
		// The guest has no metrics of pods. Within 15 s, its autoscaler would give each gateway a second pod and
		// report that it cannot work.
		ControllerManagerCommand: command("kube-controller-manager",
			append(plane.ControllerManagerFlags("/pki"), "--controllers=*,-horizontal-pod-autoscaler-controller")...),
	}
	if c.run.Konnectivity {
		data.KonnectivityFiles, data.KonnectivityAddress = encode(c.konnectivityKeys.Files), c.run.Net.konnectivity()
		data.KonnectivityCommand = command(konnectivityServer, konnectivityServerFlags()...)
	}
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	text, err := render("guest.yaml", data)
	if err != nil {
		return nil, err
	}
	objects, err := fromyaml.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading guest.yaml: %w", err)
	}
	return objects, nil
}

// guestAPIServerFlags returns the flags of the guest's API server.
func (c *Cluster) guestAPIServerFlags() []string {
	flags := append(plane.APIServerFlags("guest", "/pki", "/audit/"+filepath.Base(c.GuestAuditLog)),
		"--etcd-servers=http://etcd-client:2379", "--secure-port=6443",
		"--service-cluster-ip-range="+guestServices.String(),
		"--endpoint-reconciler-type=none", // its pod's address is not reachable in the guest
		"--kubelet-client-certificate=/pki/kubelet-client.crt", "--kubelet-client-key=/pki/kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP")
	if c.run.Konnectivity {
		flags = append(flags, "--egress-selector-config-file="+konnectivityDir+"/"+egressSelectorFile)
	}
	return flags
}

// resources maps the kinds in guest.yaml to resources. A discovery client would be more code.
var resources = map[string]schema.GroupVersionResource{ //nolint:gochecknoglobals // a constant table
	"Namespace":   {Version: "v1", Resource: "namespaces"},
	"Secret":      {Version: "v1", Resource: "secrets"},
	"Service":     {Version: "v1", Resource: "services"},
	"Deployment":  {Group: "apps", Version: "v1", Resource: "deployments"},
	"StatefulSet": {Group: "apps", Version: "v1", Resource: "statefulsets"},

	"RuntimeClass": {Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"},
}

func apply(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	resource, known := resources[object.GetKind()]
	if !known {
		return fmt.Errorf("guest.yaml has a %s, whose resource is not in the table", object.GetKind())
	}
	_, err := client.Resource(resource).Namespace(object.GetNamespace()).
		Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// waitMgmtNode waits for the node of the management cluster.
func (c *Cluster) waitMgmtNode(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Mgmt)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return waitNode(ctx, client, c.run.NodeName)
}

// waitNode returns when a node is ready and has no taints. Then a new pod is scheduled at once.
func waitNode(ctx context.Context, client kubernetes.Interface, name string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		last = err
		return err == nil && len(node.Spec.Taints) == 0 && nodeReady(node), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for node %s to be ready: %w", name, errors.Join(last, context.Cause(ctx)))
	}
	return nil
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// explainGuest adds the state of the guest's pods to an error.
func (c *Cluster) explainGuest(err error) error {
	// The caller's context has ended, so this function uses its own.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client, clientErr := kubernetes.NewForConfig(c.Mgmt)
	if clientErr != nil {
		return errors.Join(err, clientErr)
	}
	pods, listErr := client.CoreV1().Pods(c.HCPNamespace).List(ctx, metav1.ListOptions{})
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	var states strings.Builder
	for _, pod := range pods.Items {
		fmt.Fprintf(&states, "\npod %s: %s", pod.Name, pod.Status.Phase)
		for _, status := range pod.Status.ContainerStatuses {
			if waiting := status.State.Waiting; waiting != nil {
				fmt.Fprintf(&states, ", %s: %s", waiting.Reason, waiting.Message)
			}
		}
	}
	return fmt.Errorf("%w%s\ntheir logs are in %s", err, &states, c.PodLogs())
}
