package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/hack/image/hypergate"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/proc"
)

const (
	// HypergateImage is the name of hypergate's image in deploy/. It is on the management node, and on real nodes of
	// the guest.
	HypergateImage = "registry.example.com/hypergate:dev"
	// mountedKubeconfig is the Secret that deploy/hosted/example mounts.
	mountedKubeconfig = "hypergate-service-account-kubeconfig"
	healthPort        = "8081"
	// podTimeout is several times as long as a pod needs to start or to end.
	podTimeout = 3 * time.Minute
)

// makeImage builds hypergate's image for the node, as `make image` does. It returns the archive's file name, by image
// name.
func makeImage(binary, dir string) (map[string]string, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	made, _, err := hypergate.Image(binary, filepath.Join(root, "NOTICE"), HypergateImage, "e2e")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "hypergate-image.tar")
	if _, err := made.Write(file); err != nil {
		return nil, fmt.Errorf("writing hypergate's image: %w", err)
	}
	return map[string]string{HypergateImage: file}, nil
}

// admitHost lets this machine reach hypergate's health checks, which the policy of deploy/ permits to the kubelet
// alone.
func (w *World) admitHost(ctx context.Context) error {
	health := intstr.FromString("health")
	_, err := w.MgmtClient.NetworkingV1().NetworkPolicies(w.MgmtNamespace).Create(ctx, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "checks-from-this-machine"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": deploy.Account}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{{Port: &health}},
				From: []networkingv1.NetworkPolicyPeer{
					{IPBlock: &networkingv1.IPBlock{CIDR: w.HostAddress().String() + "/32"}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("admitting this machine to hypergate's health checks: %w", err)
	}
	return nil
}

// deployment returns the Deployment of deploy/ with additional arguments and this world's names. It also returns all
// arguments of the container.
func (w *World) deployment(more []string) (*unstructured.Unstructured, []string, error) {
	objects, err := deploy.RenderFor(w.options.Folder, w.GuestName)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })
	if i < 0 {
		return nil, nil, fmt.Errorf("deploy/%s has no Deployment", w.options.Folder)
	}
	field := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(objects[i].Object, field...)
	if err != nil || len(containers) != 1 {
		return nil, nil, fmt.Errorf("deploy/%s has no Deployment of one container: %w", w.options.Folder, err)
	}
	container, _ := containers[0].(map[string]any)
	args, _, err := unstructured.NestedStringSlice(container, "args")
	if err != nil {
		return nil, nil, fmt.Errorf("deploy/%s: %w", w.options.Folder, err)
	}
	args = slices.Concat(args, []string{"--v=1"}, w.peers(), more)
	values := map[string]string{"PILOT_IMAGE": cluster.IstiodImage, "PROXY_IMAGE": ProxyImage, "XDS_ADDRESS": w.XDS().String()}
	env, _, _ := unstructured.NestedSlice(container, "env")
	for _, e := range env {
		if variable, ok := e.(map[string]any); ok {
			name, _ := variable["name"].(string)
			if value, set := values[name]; set {
				variable["value"] = value
			}
		}
	}
	container["env"], container["image"] = env, HypergateImage
	return objects[i], args, errors.Join(unstructured.SetNestedStringSlice(container, args, "args"),
		unstructured.SetNestedSlice(objects[i].Object, containers, field...))
}

// startContainer applies the Deployment and waits for the process.
func (w *World) startContainer(ctx context.Context, more []string) (*container, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	d, args, err := w.deployment(more)
	if err != nil {
		return nil, err
	}
	if err := deploy.Apply(ctx, w.Mgmt, []*unstructured.Unstructured{d}); err != nil {
		return nil, fmt.Errorf("applying the Deployment of deploy/%s: %w", w.options.Folder, err)
	}
	var pod *corev1.Pod
	err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := w.hypergatePods(ctx)
		for i := range pods {
			if p := &pods[i]; p.DeletionTimestamp == nil && slices.Equal(p.Spec.Containers[0].Args, args) {
				pod = p
			}
		}
		return pod != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the Deployment's pod: %w", err)
	}
	return w.follow(ctx, pod)
}

func (w *World) hypergatePods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := w.MgmtClient.CoreV1().Pods(w.MgmtNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + deploy.Account})
	if err != nil {
		return nil, fmt.Errorf("finding hypergate's pod: %w", err)
	}
	return pods.Items, nil
}

// Restarted waits until the kubelet restarts an ended container in its pod. It sends no request to an API server,
// because the server may be down.
func (w *World) Restarted(ctx context.Context, h *Hypergate) (*Hypergate, error) {
	before, ok := h.instance.(*container)
	if !ok {
		return nil, errors.New("hypergate runs as a process, which is not restarted")
	}
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	c, err := w.follow(ctx, before.pod)
	if err != nil {
		return nil, err
	}
	return &Hypergate{c}, nil
}

// follow waits for the process of a pod. If an earlier process of the pod has ended, it waits for the next one.
func (w *World) follow(ctx context.Context, pod *corev1.Pod) (*container, error) {
	before := w.current
	if before != nil && before.pod.UID == pod.UID && !before.ended() {
		return before, nil
	}
	c := &container{w: w, pod: pod, done: make(chan struct{})}
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		c.pid, c.started = processOf(pod.UID)
		return c.pid != 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the container of pod %s, which is %s: %w\nthe end of its log:\n%s", pod.Name,
			w.stateOf(context.WithoutCancel(ctx), pod), err, proc.Tail(c.newestLog(), 15))
	}
	c.log = c.newestLog()
	if before != nil && before.pod.UID == pod.UID {
		c.address = before.address
	}
	w.current = c
	go c.watch()
	return c, nil
}

// stateOf returns the state of a pod for error messages.
func (w *World) stateOf(ctx context.Context, pod *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	now, err := w.MgmtClient.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if len(now.Status.ContainerStatuses) == 0 {
		return fmt.Sprintf("%s, %v", now.Status.Phase, now.Status.Conditions)
	}
	return now.Status.ContainerStatuses[0].State.String()
}

// processOf returns the PID and start time of hypergate's process in a pod, or 0 if there is none. Processes on the
// node are visible on this machine.
func processOf(pod types.UID) (pid int, started string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, ""
	}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if name, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm")); err != nil || string(name) != "hypergate\n" {
			continue
		}
		if group, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup")); err != nil ||
			!strings.Contains(string(group), string(pod)) {
			continue
		}
		if at, running := proc.StartTime(id); running {
			return id, at
		}
	}
	return 0, ""
}

// container is hypergate's container in a pod, until it ends.
type container struct {
	w            *World
	pod          *corev1.Pod
	pid          int
	started, log string
	// address is the address of the pod's health checks, once it is known.
	address string
	done    chan struct{}
}

// watch closes done when the process has ended.
func (c *container) watch() {
	for range time.Tick(20 * time.Millisecond) {
		if at, running := proc.StartTime(c.pid); !running || at != c.started {
			close(c.done)
			return
		}
	}
}

func (c *container) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// newestLog returns the log file of the pod's newest container.
func (c *container) newestLog() string {
	dir := filepath.Join(c.w.PodLogs(), c.pod.Namespace+"_"+c.pod.Name+"_"+string(c.pod.UID), "hypergate")
	newest := 0
	entries, _ := os.ReadDir(dir) // if the folder does not exist, opening the log fails later
	for _, e := range entries {
		if n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".log")); err == nil {
			newest = max(newest, n)
		}
	}
	return filepath.Join(dir, strconv.Itoa(newest)+".log")
}

// PID returns the process ID on this machine.
func (c *container) PID() int { return c.pid }

// Done returns a channel that is closed when the process has ended.
func (c *container) Done() <-chan struct{} { return c.done }

// Log returns the container's log file.
func (c *container) Log() string { return c.log }

// Exit returns an error with the end of the container's log.
func (c *container) Exit() error {
	return fmt.Errorf("hypergate's container in pod %s ended; the end of %s:\n%s", c.pod.Name, c.log, proc.Tail(c.log, 15))
}

// ExitCode returns the exit code of the pod's last ended container, as the kubelet reports it. It returns -1 if there
// is no report or a signal ended the container.
func (c *container) ExitCode() int {
	code := -1
	_ = wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			pod, err := c.w.MgmtClient.CoreV1().Pods(c.pod.Namespace).Get(ctx, c.pod.Name, metav1.GetOptions{})
			if err != nil || len(pod.Status.ContainerStatuses) == 0 {
				return apierrors.IsNotFound(err), nil
			}
			s := pod.Status.ContainerStatuses[0]
			for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
				if t != nil && t.ExitCode < 128 {
					code = int(t.ExitCode)
				}
				if t != nil {
					return true, nil
				}
			}
			return false, nil
		})
	return code
}

// Kill kills the process. The kubelet then starts another one.
func (c *container) Kill() {
	if c.ended() {
		return
	}
	c.w.kills[c.pod.UID]++
	_ = syscall.Kill(c.pid, syscall.SIGKILL) // fails only if the process has just ended
	<-c.done
}

// Terminate deletes the Deployment, unless a newer container uses it.
func (c *container) Terminate() {
	if c.w.current != c {
		return
	}
	if err := c.w.undeploy(); err != nil && c.w.options.Progress != nil {
		fmt.Fprintf(c.w.options.Progress, "stopping hypergate's pod: %v\n", err)
	}
	c.w.current = nil
}

// Release does nothing: the next StartHypergate uses the pod.
func (c *container) Release() {}

func (c *container) healthAddress(ctx context.Context) (string, error) {
	if c.address == "" {
		pod, err := c.w.MgmtClient.CoreV1().Pods(c.pod.Namespace).Get(ctx, c.pod.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if pod.Status.PodIP == "" {
			return "", fmt.Errorf("pod %s has no address yet", c.pod.Name)
		}
		c.address = net.JoinHostPort(pod.Status.PodIP, healthPort)
	}
	return c.address, nil
}

// undeploy deletes the Deployment and returns when it and its pods are gone.
func (w *World) undeploy() error {
	ctx, cancel := context.WithTimeout(context.Background(), podTimeout) // the context of a story may have ended
	defer cancel()
	deployments, foreground := w.MgmtClient.AppsV1().Deployments(w.MgmtNamespace), metav1.DeletePropagationForeground
	err := deployments.Delete(ctx, deploy.Account, metav1.DeleteOptions{PropagationPolicy: &foreground})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting hypergate's Deployment: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, listErr := w.hypergatePods(ctx)
		_, err := deployments.Get(ctx, deploy.Account, metav1.GetOptions{})
		return apierrors.IsNotFound(err) && len(pods) == 0, listErr
	})
	if err != nil {
		return fmt.Errorf("waiting until hypergate's Deployment is gone: %w", err)
	}
	return nil
}

// Kills returns the number of times that Kill killed a pod's container.
func (w *World) Kills(pod types.UID) int { return w.kills[pod] }

// HypergateLog returns the log of the last started hypergate: that of its container, or that of all processes.
func (w *World) HypergateLog() string {
	if w.current != nil {
		return w.current.newestLog()
	}
	return filepath.Join(w.Dir, "hypergate.log")
}
