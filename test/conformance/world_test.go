package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/world"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/test/conformance"
)

const (
	// guestNodes is two, so that requests also go from one node to another.
	guestNodes = 2
	// stepTimeout ends a step that hangs. Nothing is measured by it.
	stepTimeout = 5 * time.Minute
)

// start starts clusters in which Gateways are served by the side and with the settings of the run.
func (r *run) start(t *testing.T) *world.World {
	t.Helper()
	binary := buildHypergate(t)
	if r.side == conformance.InGuest {
		return r.startInGuest(t, binary)
	}
	w := startWorld(t, world.Options{Name: "conf-split", Binary: binary, AsPod: true})
	h, err := w.StartHypergate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx := step(t)
	must(t, w.Apply(ctx, "class.yaml", map[string]string{"name": *class}))
	must(t, h.Ready(ctx, "readyz"))
	must(t, w.ClassCondition(ctx, *class, "ControllerInstalled", metav1.ConditionTrue))
	rolledOut(t, w.MgmtClient, w.MgmtNamespace)
	if r.set == conformance.TLS {
		serveTLSRoutes(t, w, h)
	}
	return w
}

// serveTLSRoutes makes hypergate's istiod serve TLSRoutes. hypergate would revert that, so it ends.
func serveTLSRoutes(t *testing.T, w *world.World, h *world.Hypergate) {
	t.Helper()
	ctx := step(t)
	must(t, w.ServeTLSRoutes(ctx))
	const name = "istiod-tlsroutes"
	_, err := w.GuestClient.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"tlsroutes/status"}, Verbs: []string{"update"},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.GuestClient.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: world.GuestIstiod, Namespace: world.GuestNamespace}},
	}, metav1.CreateOptions{})
	must(t, err)
	h.Terminate()
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"discovery","env":[{"name":"` + alphaVariable + `","value":"true"}]}]}}}}`
	_, err = w.MgmtClient.AppsV1().Deployments(w.MgmtNamespace).
		Patch(ctx, "istiod-"+world.Revision, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	rolledOut(t, w.MgmtClient, w.MgmtNamespace)
}

// startWorld starts the clusters. CONFORMANCE_ARTIFACTS can name a folder for the logs, which is kept.
func startWorld(t *testing.T, options world.Options) *world.World {
	t.Helper()
	options.Topology, options.GuestNodes, options.Conformance = model.TopologyHosted, guestNodes, true
	options.Progress, options.Dir = t.Output(), t.TempDir()
	if dir := os.Getenv("CONFORMANCE_ARTIFACTS"); dir != "" {
		options.Dir = filepath.Join(dir, options.Name)
	}
	w, err := world.Start(t.Context(), options)
	must(t, err)
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// rolledOut waits until istiod's Deployment is rolled out.
func rolledOut(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	err := wait.PollUntilContextCancel(step(t), 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, "istiod-"+world.Revision, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // it is not there yet
		}
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
		s := d.Status
		return err == nil && len(pods.Items) == 1 && s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 1 &&
			s.AvailableReplicas == 1, nil
	})
	if err != nil {
		t.Fatalf("waiting for istiod's Deployment: %v", err)
	}
}

// buildHypergate builds hypergate's binaries, and returns the file of the controller.
func buildHypergate(t *testing.T) string {
	t.Helper()
	root, err := servers.ModuleRoot()
	must(t, err)
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", dir+"/", "./cmd/...")
	command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building hypergate: %v\n%s", err, out)
	}
	return filepath.Join(dir, "hypergate")
}

// step returns a context for one wait.
func step(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
