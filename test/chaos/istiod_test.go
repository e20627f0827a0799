package chaos_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/proc"
)

// kubelet simulates the Deployment controller and the kubelet for istiod's Deployment. It runs the real istiod as a
// process with the pod's mounted files, restarts it when it ends, and reports its availability.
type kubelet struct {
	mgmt            kubernetes.Interface
	namespace, name string
	binary, dir     string
	// Addresses at which istiod serves xDS, HTTP, the webhook and metrics.
	xds, http, https, metrics string

	mu      sync.Mutex
	process *proc.Process
	// runs identifies the pod template of the process. starts counts processes.
	runs   string
	starts int
}

func newKubelet(t *testing.T, w *chaosRun) *kubelet {
	t.Helper()
	binaries, err := servers.Find(t.Context(), w.istio.server)
	if err != nil {
		t.Fatal(err)
	}
	return &kubelet{
		mgmt: w.mgmt.clients, namespace: w.cfg.MgmtNamespace, name: w.cfg.IstiodName(), binary: binaries[w.istio.server], dir: w.dir,
		xds: freeport.Address(t), http: freeport.Address(t), https: w.cfg.WebhookHost + ":443", metrics: freeport.Address(t),
	}
}

// every is the interval between two looks at the Deployment.
const every = 200 * time.Millisecond

// run plays the kubelet until ctx ends. Then it kills istiod.
func (k *kubelet) run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	defer k.kill()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = k.look(ctx) // the API server may be down, and the next look follows soon
		}
	}
}

// look compares the Deployment with the process once.
func (k *kubelet) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	deployments := k.mgmt.AppsV1().Deployments(k.namespace)
	d, err := deployments.Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		k.kill()
		return nil
	case err != nil:
		return err
	case d.DeletionTimestamp != nil:
		k.kill()
		_, err := deployments.Patch(ctx, d.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	}
	if err := k.ensure(ctx, d); err != nil {
		return err
	}
	return k.report(ctx, d, k.ready(ctx))
}

// ensure starts istiod if it does not run, or runs with another template.
func (k *kubelet) ensure(ctx context.Context, d *appsv1.Deployment) error {
	want := string(d.UID) + "/" + d.Spec.Template.String()
	k.mu.Lock()
	process, runs := k.process, k.runs
	k.mu.Unlock()
	if process != nil && runs == want && !closed(process.Done()) {
		return nil
	}
	k.kill()
	root := filepath.Join(k.dir, "istiod")
	if err := k.mountAll(ctx, d.Spec.Template.Spec, root); err != nil {
		return err
	}
	container := d.Spec.Template.Spec.Containers[0]
	// istiod's paths are relative to its working directory. In the image they are relative to /.
	argv := append([]string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, root, k.binary}, container.Args...)
	argv = append(argv, "--secureGRPCAddr="+k.xds, "--httpAddr="+k.http, "--httpsAddr="+k.https, "--monitoringAddr="+k.metrics,
		"--grpcAddr=", "--ctrlz_port=0", "--kubeconfig="+filepath.Join(root, "var/run/secrets/remote/config"))
	env := []string{"POD_NAME=istiod", "POD_NAMESPACE=" + k.namespace, "SERVICE_ACCOUNT=" + k.name}
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	process, err := proc.Spec{Name: "istiod", LogDir: k.dir, Argv: argv, Env: env}.Start()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.process, k.runs = process, want
	k.starts++
	return nil
}

// mountAll writes the ConfigMaps and Secrets that the container mounts, under root.
func (k *kubelet) mountAll(ctx context.Context, pod corev1.PodSpec, root string) error {
	for _, mount := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			continue
		}
		data, err := k.dataOf(ctx, pod.Volumes[i])
		if err != nil {
			return err
		}
		folder := filepath.Join(root, mount.MountPath)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		for key, value := range data {
			if err := os.WriteFile(filepath.Join(folder, key), value, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *kubelet) dataOf(ctx context.Context, volume corev1.Volume) (map[string][]byte, error) {
	switch {
	case volume.ConfigMap != nil:
		got, err := k.mgmt.CoreV1().ConfigMaps(k.namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("mounting: %w", err)
		}
		data := map[string][]byte{}
		for key, value := range got.Data {
			data[key] = []byte(value)
		}
		return data, nil
	case volume.Secret != nil:
		got, err := k.mgmt.CoreV1().Secrets(k.namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("mounting: %w", err)
		}
		data := map[string][]byte{}
		for key, value := range got.Data {
			shown := func(i corev1.KeyToPath) bool { return i.Key == key && i.Path == key }
			if len(volume.Secret.Items) == 0 || slices.ContainsFunc(volume.Secret.Items, shown) {
				data[key] = value
			}
		}
		return data, nil
	default:
		return map[string][]byte{}, nil
	}
}

func (k *kubelet) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+k.http+"/ready", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// report writes the Deployment's status if it has changed.
func (k *kubelet) report(ctx context.Context, d *appsv1.Deployment, ready bool) error {
	status, replicas := corev1.ConditionFalse, int32(0)
	if ready {
		status, replicas = corev1.ConditionTrue, 1
	}
	if len(d.Status.Conditions) == 1 && d.Status.Conditions[0].Status == status && d.Status.ObservedGeneration == d.Generation {
		return nil
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status, LastTransitionTime: metav1.Now()}},
	}
	_, err := k.mgmt.AppsV1().Deployments(k.namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

// kill ends istiod with SIGKILL.
func (k *kubelet) kill() {
	k.mu.Lock()
	process := k.process
	k.process = nil
	k.mu.Unlock()
	if process != nil {
		process.Kill()
	}
}

// started returns the number of istiod processes so far.
func (k *kubelet) started() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
