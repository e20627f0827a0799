package integration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
)

// TestTheGuestsEtcdIsRestoredInPlace restores a backup from before the installation while hypergate runs. After that,
// hypergate's watches have versions from the future. The API server accepts a watch from such a version, and sends
// nothing.
func TestTheGuestsEtcdIsRestoredInPlace(t *testing.T) {
	w := newHarness(t)
	w.haveCRDs()
	w.createClass("demo")
	backup := w.backUp(w.pair.Guest)
	w.run()
	w.playIstiod(corev1.ConditionTrue)
	w.install("later")
	before := w.oursInGuest()
	w.Expect(before).To(gomega.ContainElement(gomega.ContainSubstring("ConfigMap")))
	token := string(w.credential()["token"])
	w.passVersions(w.guest, 300)
	w.settle()

	w.restore(w.pair.Guest, backup)
	answers := time.Now()
	w.createClass("later") // it is not in the backup
	w.Eventually(w.oursInGuest).Should(gomega.Equal(before), "all of hypergate's objects are written again")
	w.Logf("written again %s after the API server answered", time.Since(answers).Round(time.Millisecond))
	w.Eventually(func() string { return string(w.credential()["token"]) }).ShouldNot(gomega.Equal(token), "istiod has a new account")
	for _, class := range []string{"demo", "later"} {
		w.Eventually(func() *metav1.Condition {
			return w.condition(class, "ControllerInstalled")
		}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	}
	w.settle()

	t.Log("new changes are observed long before the versions have caught up")
	w.createClass("new")
	w.Eventually(func() *metav1.Condition {
		return w.condition("new", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.repairsDrift()
}

// oursInGuest returns the names of hypergate's objects in the guest.
func (w *harness) oursInGuest() []string {
	w.Helper()
	var out []string
	for _, kind := range model.GuestKinds() {
		for _, o := range w.ours(w.guest, model.SideGuest, kind) {
			out = append(out, fmt.Sprint(kind.GVK.Kind, " ", o.Namespace, "/", o.Name))
		}
	}
	slices.Sort(out)
	return out
}

// backUp takes a backup of a plane's etcd. The plane is down during the backup.
func (w *harness) backUp(plane *planes.Plane) string {
	w.Helper()
	plane.StopAPI()
	plane.StopEtcd()
	backup, err := plane.SaveEtcd()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.startEtcd(plane)
	return backup
}

// restore replaces etcd's data with a backup. It returns when the API server answers.
func (w *harness) restore(plane *planes.Plane, backup string) {
	w.Helper()
	plane.StopAPI()
	plane.StopEtcd()
	w.Expect(plane.RestoreEtcd(backup)).To(gomega.Succeed())
	w.startEtcd(plane)
}

func (w *harness) startEtcd(plane *planes.Plane) {
	w.Helper()
	w.Expect(plane.StartEtcd()).To(gomega.Succeed())
	w.Expect(plane.StartAPI(w.Context())).To(gomega.Succeed())
}

// passVersions increments the version by n, as n writes of others would.
func (w *harness) passVersions(client kubernetes.Interface, n int) {
	w.Helper()
	others := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range n {
		name := fmt.Sprintf("%s-version-%d", w.cfg.Revision, i)
		_, err := others.Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
}
