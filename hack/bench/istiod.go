package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
)

// most is the target for requests per second that istiod and hypergate together send to the guest at rest.
const most = 0.02

// measureIstiod runs the real istiod according to its Deployment, together with hypergate. It counts the requests that
// both send to the guest at rest: as planned for one pod, and with leader election, as for each of two pods.
func measureIstiod(ctx context.Context, w *environment, r *report) error {
	for _, elects := range []string{"false", "true"} {
		if err := w.measureIstiod(ctx, r, elects); err != nil {
			return err
		}
	}
	return nil
}

func (w *environment) measureIstiod(ctx context.Context, r *report, elects string) (err error) {
	stop, err := w.startIstiod(ctx, elects)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := w.settle(ctx); err != nil && elects == "false" {
		return err // an istiod with leader election never settles
	}
	events, err := w.resting(ctx)
	if err != nil {
		return err
	}
	var asked []event
	watches := 0
	for _, e := range events {
		switch {
		case e.Side != w.guest.name || !e.byController():
		case e.kind() == kindWatch:
			watches++
		default:
			asked = append(asked, e)
		}
	}
	r.addIstiod(w.opts.rest, elects == "true", asked, watches)
	return nil
}

// resting returns the requests of a period in which nothing happens.
func (w *environment) resting(ctx context.Context) ([]event, error) {
	m, err := w.mark()
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(w.opts.rest):
		return w.since(m)
	case <-ctx.Done():
		return nil, fmt.Errorf("resting: %w", ctx.Err())
	}
}

func (r *report) addIstiod(rest time.Duration, elects bool, asked []event, watches int) {
	perSecond, elections := float64(len(asked))/rest.Seconds(), "off"
	one := row{
		Bar:      fmt.Sprintf("<= %.2f/s with one istiod, but watches", most),
		Measured: fmt.Sprintf("%.3f/s; %d watches reopened, %.3f/s", perSecond, watches, float64(watches)/rest.Seconds()),
		Values:   map[string]any{"requests": len(asked), "watches": watches, "seconds": rest.Seconds()},
	}
	if elects {
		elections = "on"
	} else {
		one.Met = new(perSecond <= most)
	}
	one.What = fmt.Sprintf("guest requests of istiod and hypergate at rest, %s, elections %s", rest, elections)
	r.add(one)
	if len(asked) > 0 {
		r.note("Elections %s: %s.", elections, describe(asked))
	}
}

// startIstiod runs istiod in a directory with the files that its pod mounts, and waits until istiod is ready.
func (w *environment) startIstiod(ctx context.Context, elects string) (stop func() error, err error) {
	binaries, err := servers.Find(ctx, "pilot-discovery")
	if err != nil {
		return nil, fmt.Errorf("finding istiod: %w", err)
	}
	u, err := w.mgmt.objects.Resource(deployments()).Namespace(w.cfg.MgmtNamespace).Get(ctx, w.cfg.IstiodName(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading istiod's Deployment: %w", err)
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, deployment); err != nil {
		return nil, fmt.Errorf("reading istiod's Deployment: %w", err)
	}
	pod := deployment.Spec.Template.Spec
	root := filepath.Join(w.dir, "istiod-"+elects)
	if err := w.mountAll(ctx, pod, root); err != nil {
		return nil, err
	}
	ports, err := freeport.Addresses(ctx, 4)
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(pod.Containers[0].Args),
		"--secureGRPCAddr="+ports[0], "--httpAddr="+ports[1], "--httpsAddr="+ports[2], "--monitoringAddr="+ports[3], "--grpcAddr=",
		"--ctrlz_port=0", "--kubeconfig="+filepath.Join(root, "var/run/secrets/remote/config"))
	// The measurement's context does not end istiod. stop ends it.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binaries["pilot-discovery"], args...)
	cmd.Dir = root
	for _, e := range pod.Containers[0].Env {
		if e.ValueFrom == nil && e.Name != "ENABLE_LEADER_ELECTION" {
			cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
		}
	}
	cmd.Env = append(cmd.Env, "POD_NAME=istiod", "POD_NAMESPACE="+w.cfg.MgmtNamespace, "SERVICE_ACCOUNT="+w.cfg.IstiodName(),
		"ENABLE_LEADER_ELECTION="+elects)
	log, err := os.Create(filepath.Join(w.dir, "istiod-"+elects+".log"))
	if err != nil {
		return nil, fmt.Errorf("making istiod's log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting istiod: %w", err), log.Close())
	}
	stop = func() error {
		_ = cmd.Process.Kill() // fails only if the process has ended
		_ = cmd.Wait()         // returns the kill as an error
		return log.Close()
	}
	if err := w.until(ctx, "istiod to be ready", func(ctx context.Context) (bool, error) { return ready(ctx, ports[1]), nil }); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("%w; its log:\n%s", err, tail(said)), stop())
	}
	return stop, nil
}

// ready reports whether istiod is ready.
func ready(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/ready", nil)
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

// mountAll writes the ConfigMaps and Secrets that the first container mounts to files below the directory root.
func (w *environment) mountAll(ctx context.Context, pod corev1.PodSpec, root string) error {
	for _, mount := range pod.Containers[0].VolumeMounts {
		for _, volume := range pod.Volumes {
			var resource, name string
			switch {
			case volume.Name != mount.Name:
				continue
			case volume.ConfigMap != nil:
				resource, name = "configmaps", volume.ConfigMap.Name
			case volume.Secret != nil:
				resource, name = "secrets", volume.Secret.SecretName
			default:
				continue
			}
			client := w.mgmt.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
			u, err := client.Namespace(w.cfg.MgmtNamespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("reading what istiod mounts: %w", err)
			}
			if err := writeData(u, filepath.Join(root, mount.MountPath), w.guest.plane.Config.Host); err != nil {
				return err
			}
		}
	}
	return nil
}

// usualServer is the address of the guest's API server for istiod in a hosted control plane.
const usualServer = "https://kube-apiserver:6443"

// writeData writes the data of a ConfigMap or a Secret as files, with the guest's real server.
func writeData(u *unstructured.Unstructured, folder, server string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("making a folder for %s: %w", u.GetName(), err)
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	for key, value := range data {
		content := []byte(value)
		if u.GetKind() == "Secret" {
			var err error
			if content, err = base64.StdEncoding.DecodeString(value); err != nil {
				return fmt.Errorf("reading %s: %w", u.GetName(), err)
			}
		}
		content = bytes.ReplaceAll(content, []byte(usualServer), []byte(server)) // that name does not resolve here
		if err := os.WriteFile(filepath.Join(folder, key), content, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", u.GetName(), err)
		}
	}
	return nil
}

// tail returns the last 40 lines of istiod's log, without the lines that it is not ready.
func tail(log []byte) string {
	lines := slices.DeleteFunc(strings.Split(string(log), "\n"), func(line string) bool { return strings.HasSuffix(line, "is not ready") })
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
