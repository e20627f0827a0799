package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
)

// faultTimeout is several times as long as any of these operations takes.
const faultTimeout = 3 * time.Minute

// StopMgmtAPI kills the management API server, as a crash would, and returns when it no longer answers. etcd and all
// other servers continue to run.
func (c *Cluster) StopMgmtAPI(ctx context.Context) error {
	if err := c.control(ctx, verbStop+"/kube-apiserver"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	return plane.WaitDown(ctx, c.Mgmt)
}

// StartMgmtAPI starts the management API server again and returns when it is ready, with its data. It also restarts
// the node's other servers. Without a restart, they would wait before they watch again, up to a minute and longer
// after each outage, and every test would wait with them. Pods are not affected, because a new kubelet adopts them.
func (c *Cluster) StartMgmtAPI(ctx context.Context) error {
	if err := c.control(ctx, verbStart+"/kube-apiserver"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	if err := plane.WaitReady(ctx, c.Mgmt); err != nil {
		return err
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "coredns", "kube-proxy", "kubelet"} {
		if err := c.control(ctx, verbRestart+"/"+name); err != nil {
			return err
		}
	}
	return c.waitForKubelet(ctx)
}

// waitForKubelet waits until the kubelet knows all its pods again. A kubelet restarts containers of pods that it knows,
// and it cannot learn of pods during another outage.
func (c *Cluster) waitForKubelet(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Mgmt)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = kubeletKnowsPods(ctx, client, c.run.NodeName)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the kubelet's pods: %w", errors.Join(last, err))
	}
	return nil
}

// kubeletKnowsPods returns an error if the kubelet of a node does not know one of the node's pods.
func kubeletKnowsPods(ctx context.Context, client kubernetes.Interface, node string) error {
	of := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
	planned, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, of)
	if err != nil {
		return fmt.Errorf("listing the pods of %s: %w", node, err)
	}
	known := &corev1.PodList{}
	err = client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy", "pods").Do(ctx).Into(known)
	if err != nil {
		return fmt.Errorf("asking the kubelet of %s for its pods: %w", node, err)
	}
	for _, pod := range planned.Items {
		if !slices.ContainsFunc(known.Items, func(k corev1.Pod) bool { return k.UID == pod.UID }) {
			return fmt.Errorf("the kubelet of %s does not know the pod %s/%s", node, pod.Namespace, pod.Name)
		}
	}
	return nil
}

// guestServers are scaled together. In production, the controller manager exits when it cannot renew its lease. Here
// it has no lease, and would continue with the long waits that StartMgmtAPI describes.
const guestServers = "kube-apiserver,kube-controller-manager"

// StopGuestAPI scales the guest's API server to zero and returns when its pod is gone and the address no longer
// answers. The guest's etcd continues to run.
func (c *Cluster) StopGuestAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	client, err := c.scaleGuest(ctx, 0)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods(c.HCPNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app in (" + guestServers + ")"})
		last = err
		return err == nil && len(pods.Items) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the guest API server's pod to go: %w", errors.Join(last, err))
	}
	return plane.WaitDown(ctx, c.Guest)
}

// StartGuestAPI scales the guest's API server up again and returns when the server is ready, with its data.
func (c *Cluster) StartGuestAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, faultTimeout)
	defer cancel()
	if _, err := c.scaleGuest(ctx, 1); err != nil {
		return err
	}
	return plane.WaitReady(ctx, c.Guest)
}

func (c *Cluster) scaleGuest(ctx context.Context, replicas int32) (kubernetes.Interface, error) {
	if c.Guest == nil {
		return nil, errors.New("this cluster was started without a guest")
	}
	client, err := kubernetes.NewForConfig(c.Mgmt)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for name := range strings.SplitSeq(guestServers, ",") {
		scale := &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.HCPNamespace},
			Spec:       autoscalingv1.ScaleSpec{Replicas: replicas},
		}
		if _, err := client.AppsV1().Deployments(c.HCPNamespace).UpdateScale(ctx, name, scale, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("scaling the guest's %s to %d: %w", name, replicas, err)
		}
	}
	return client, nil
}
