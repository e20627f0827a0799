package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/deploy"
)

// migrationWorld is a guest with an istiod of its own, and an account with deploy/rbac/migration alone.
type migrationWorld struct {
	*gatewayWorld
	kubeconfig string
}

// newMigrationWorld returns a guest whose istiod the sail library has installed, with two Gateways at that istiod.
func newMigrationWorld(t *testing.T) *migrationWorld {
	t.Helper()
	plain, stop := newGatewayWorld(t, "small", "web")
	stop()
	w := &migrationWorld{plain, filepath.Join(t.TempDir(), "kubeconfig")}
	labels := map[string]string{"app": "istiod", "istio.io/rev": w.cfg.Revision}
	w.createIstiod(labels, "1.28.5")
	w.pointGateway("small", 2)
	w.pointGateway("web", 3)
	_, err := w.guest.CoreV1().ServiceAccounts(w.cfg.GuestNamespace).
		Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: deploy.Account}}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	role := w.migrationRole()
	w.Expect(deploy.Apply(t.Context(), w.pair.Guest.Config, role)).To(gomega.Succeed())
	w.Cleanup(func() { _ = deploy.Delete(context.Background(), w.pair.Guest.Config, role) })
	w.Expect(deploy.Kubeconfig(t.Context(), w.pair.Guest.Config, w.cfg.GuestNamespace, w.kubeconfig, time.Hour)).To(gomega.Succeed())
	return w
}

// migrationRole returns deploy/rbac/migration for the names of this story.
func (w *migrationWorld) migrationRole() []*unstructured.Unstructured {
	w.Helper()
	objects, err := deploy.Render("rbac/migration")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, u := range objects {
		data, err := u.MarshalJSON()
		w.Expect(err).NotTo(gomega.HaveOccurred())
		text := strings.NewReplacer(
			`"openshift-ingress"`, `"`+w.cfg.GuestNamespace+`"`, `openshift-gateway"`, w.cfg.Revision+`"`,
			"hypergate-migration", "hypergate-migration-"+w.cfg.Revision,
		).Replace(string(data))
		w.Expect(u.UnmarshalJSON([]byte(text))).To(gomega.Succeed())
	}
	return objects
}

func (w *migrationWorld) createIstiod(labels map[string]string, version string) {
	w.Helper()
	deployments := w.guest.AppsV1().Deployments(w.cfg.GuestNamespace)
	d, err := deployments.Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.cfg.IstiodName(), Labels: map[string]string{
			"managed-by": "sail-library", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": version,
		}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "discovery", Image: "registry.example.com/pilot@sha256:00"}}},
		}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
	}
	_, err = deployments.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// pointGateway plays the guest's istiod: a Gateway has its addresses, a number of pods, and is programmed.
func (w *migrationWorld) pointGateway(name string, pods int32) {
	w.Helper()
	deployments := w.guest.AppsV1().Deployments(w.namespace)
	d, err := deployments.Get(w.Context(), name+"-demo", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	d.Spec.Replicas = &pods
	d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "CA_ADDR", Value: w.cfg.IstiodName() + "." + w.cfg.GuestNamespace + ".svc:15012"},
	}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "istiod-ca-cert", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "openshift-gw-ca-root-cert"}},
	}}}
	d, err = deployments.Update(w.Context(), d, metav1.UpdateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: pods, UpdatedReplicas: pods, ReadyReplicas: pods, AvailableReplicas: pods,
	}
	_, err = deployments.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.gateway.Gateways(w.namespace).Patch(w.Context(), name, types.MergePatchType, []byte(`{"status": {"conditions": [
		{"type": "Programmed", "status": "True", "reason": "Programmed", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`),
		metav1.PatchOptions{}, "status")
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// plan runs hypergate migrate plan, and returns its exit code and output.
func (w *migrationWorld) plan(args ...string) (code int, output string) {
	w.Helper()
	var out bytes.Buffer
	code = app.Execute(w.Context(), append([]string{
		"migrate", "plan", "--guest-kubeconfig=" + w.kubeconfig, "--guest-namespace=" + w.cfg.GuestNamespace,
		"--revision=" + w.cfg.Revision, "--controller-name=" + w.cfg.ControllerName,
	}, args...), &out, &out)
	return code, out.String()
}

// TestAMigrationIsPlanned runs the command with the permissions of deploy/rbac/migration, against a real API server.
func TestAMigrationIsPlanned(t *testing.T) {
	w := newMigrationWorld(t)
	w.Eventually(func() string { _, out := w.plan(); return out }).ShouldNot(gomega.ContainSubstring("MissingPermissions"))
	code, out := w.plan()
	t.Log("\n" + out)
	w.Expect(code).To(gomega.Equal(0), out)
	w.Expect(out).To(gomega.And(
		gomega.ContainSubstring("Origin  sail library: istiod 1.28.5"), gomega.ContainSubstring("Nothing blocks a migration."),
		gomega.MatchRegexp(`1 +\S+/small +demo +2/2 +0 +origin +moves`), gomega.MatchRegexp(`2 +\S+/web +demo +3/3 +0 +origin +moves`),
	))

	t.Log("an annotation changes the order, and another client's hold blocks")
	annotate := func(name, key, value string) {
		_, err := w.gateway.Gateways(w.namespace).Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`), metav1.PatchOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
	annotate("web", "gateway.hypergate.dev/migration-order", "-1")
	annotate("small", model.HoldAnnotation, "1000")
	code, out = w.plan("-o", "json")
	w.Expect(code).To(gomega.Equal(2), out)
	var report struct {
		Blocked  bool
		Gateways []struct{ Name, Note string }
		Findings []struct {
			Code, Severity string
			Object         struct{ Kind, Namespace, Name string }
		}
	}
	w.Expect(json.Unmarshal([]byte(out), &report)).To(gomega.Succeed())
	w.Expect(report.Blocked).To(gomega.BeTrue())
	w.Expect(report.Gateways[0].Name).To(gomega.Equal("web"))
	w.Expect(report.Findings).To(gomega.HaveLen(1))
	w.Expect(report.Findings[0].Code + " " + report.Findings[0].Object.Name).To(gomega.Equal("ForeignHold small"))

	t.Log("without its role, the command names what it is not allowed to read")
	w.Expect(deploy.Delete(t.Context(), w.pair.Guest.Config, w.migrationRole())).To(gomega.Succeed())
	w.Eventually(func() string { _, out := w.plan(); return out }).Should(gomega.And(
		gomega.ContainSubstring("Blocker MissingPermissions"), gomega.ContainSubstring("list gateways.gateway.networking.k8s.io"),
		gomega.ContainSubstring("apply deploy/rbac/migration")))
}
