package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/previous"
	"github.com/hypergate/hypergate/test/proc"
)

// TestBackToThePreviousHypergate goes from a previous hypergate with Istio 1.28.2 to this one and back: after the
// upgrade has finished, and while istiod's new pods are not ready. Back means that the previous hypergate has what it
// had at first, that no CRD went back, and that it reports the later CRDs of Istio as blocked. On the management side,
// hypergate sees only objects whose names it knows, so ConfigMaps with names of this hypergate stay.
func TestBackToThePreviousHypergate(t *testing.T) {
	needsServers(t)
	t.Parallel()
	dir, err := previous.Build(t.Context(), previous.OwnNames)
	if err != nil {
		t.Fatal(err)
	}
	own, err := planes.Start(t.Context(), planes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	prepare(t, own)
	mgmtDirs, guestDirs := []string{"hosted/example"}, []string{"hosted/guest"}
	b := back{newDeployedFrom(t, dir, model.TopologyHosted, own.Mgmt, own.Guest, mgmtDirs, guestDirs)}
	b.serveHyperShift()
	b.createControlPlane("guest1", "")
	older := b.start(b.olderCharts())
	b.createClass("demo")
	b.serves(old)
	guest, mgmt := b.content(model.SideGuest), b.content(model.SideMgmt)
	b.end(older)
	marked := b.alwaysMarked()

	t.Log("the manifests and the process are replaced")
	newDeployed(t, model.TopologyHosted, own.Mgmt, own.Guest, mgmtDirs, guestDirs)
	newer := b.upgraded()
	b.serves(charts.EmbeddedVersion)
	crds := b.crds()
	b.end(newer)
	marked()

	t.Log("back from the finished upgrade")
	b.returned(dir, guest, mgmt, crds)

	t.Log("back from the half-done upgrade: istiod's new pods are not ready")
	marked = b.alwaysMarked()
	newer = b.upgraded()
	b.Eventually(b.istiodsVersion).Should(gomega.Equal(charts.EmbeddedVersion))
	b.Eventually(b.findMarker).Should(gomega.Succeed(), "the guest is written after the management side")
	b.end(newer)
	marked()
	b.returned(dir, guest, mgmt, crds)

	t.Log("this hypergate, back from Istio's embedded version to the older one")
	marked = b.alwaysMarked()
	newer = b.upgraded()
	b.serves(charts.EmbeddedVersion)
	b.end(newer)
	newer = b.start(b.olderCharts())
	b.serves(old)
	b.Consistently(func() error {
		if c := b.condition("demo", "CRDsReady"); c == nil || c.Status != metav1.ConditionTrue || c.Reason != status.ReasonManaged {
			return fmt.Errorf("CRDsReady = %v", c)
		}
		for _, c := range b.conditionsOf("guest1") {
			if c.Type == status.ControlPlaneDegraded && c.Status != metav1.ConditionFalse {
				return fmt.Errorf("Degraded = %v", c)
			}
		}
		return nil
	}, "5s").Should(gomega.Succeed())
	b.Expect(b.crds()).To(gomega.Equal(crds), "no CRD goes back")
	b.end(newer)
	marked()
}

// old is the version of the chart of Istio 1.28.2.
const old = "1.28"

// olderCharts returns the flag of the previous hypergate for the older Istio.
func (b back) olderCharts() []string { return []string{"--charts-dir=" + testcharts.Dir1282(b.T)} }

// back is an installation that goes to this hypergate and back.
type back struct{ *deployed }

// upgraded starts this hypergate.
func (b back) upgraded() *proc.Process {
	b.Helper()
	b.previous = ""
	return b.start(nil)
}

// returned starts the previous hypergate, which is in a folder, and waits until it has all objects as at first.
func (b back) returned(dir string, guest, mgmt things, crds map[string]int64) {
	b.Helper()
	b.previous = dir
	older := b.start(b.olderCharts())
	b.rollsOut(old)
	// That version does not know the later CRDs of Istio as its own. It leaves them, and says so.
	b.Eventually(func() []metav1.Condition { return b.conditionsOf("guest1") }).Should(gomega.ContainElement(gomega.And(
		gomega.HaveField("Type", status.ControlPlaneDegraded), haveStatus(metav1.ConditionTrue, "TakeoverBlocked"),
		gomega.HaveField("Message", gomega.ContainSubstring("which is newer than hypergate's 1.28")))))
	b.Expect(diffOf(comparableGuest(guest), comparableGuest(b.content(model.SideGuest)))).To(gomega.BeEmpty(), "the objects in the guest")
	after := b.content(model.SideMgmt)
	for _, name := range []string{"istio-" + b.cfg.Revision + "-a", "istio-sidecar-injector-" + b.cfg.Revision + "-a"} {
		b.Expect(after).To(gomega.HaveKey("configmaps/" + name))
		delete(after, "configmaps/"+name)
	}
	b.Expect(diffOf(withoutUIDs(mgmt), withoutUIDs(after))).To(gomega.BeEmpty(), "the objects on the management side")
	b.Expect(b.crds()).To(gomega.Equal(crds), "no CRD goes back")
	b.end(older)
}

// comparableGuest removes what can differ in the guest. The policy of the previous hypergate for CRDs leaves out those
// of a later version, which it does not own. The marker of the default revision is made again under its former name.
func comparableGuest(all things) things {
	for name, o := range all {
		switch {
		case strings.HasPrefix(name, "validatingadmissionpolicies/"):
			o.data = ""
		case name == "services/istiod-revision-tag-default":
			o.uid = ""
		}
		all[name] = o
	}
	return all
}

// withoutUIDs removes the UIDs, because this hypergate deletes ConfigMaps of the previous one, which creates them
// again.
func withoutUIDs(all things) things {
	for name, o := range all {
		o.uid = ""
		all[name] = o
	}
	return all
}

// serves waits until a version of istiod is rolled out, and nothing is wrong.
func (b back) serves(version string) {
	b.Helper()
	b.rollsOut(version)
	b.isWell("guest1")
}

// rollsOut waits until a version of istiod is rolled out.
func (b back) rollsOut(version string) {
	b.Helper()
	b.Eventually(b.istiodsVersion).Should(gomega.Equal(version))
	b.playIstiod(corev1.ConditionTrue)
	b.Eventually(func() *metav1.Condition { return b.condition("demo", "ControllerInstalled") }).
		Should(gomega.And(haveStatus(metav1.ConditionTrue, "Installed"),
			gomega.HaveField("Message", gomega.ContainSubstring(version))))
}

// istiodsVersion returns the version of the chart of istiod's Deployment.
func (b back) istiodsVersion() (string, error) {
	d, err := b.mgmt.AppsV1().Deployments(b.cfg.MgmtNamespace).Get(b.Context(), b.cfg.IstiodName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(d.Labels["helm.sh/chart"], "istiod-"), nil
}

// findMarker returns an error if the guest has no marker of the default revision with the name of this hypergate. The
// previous one removes it.
func (b back) findMarker() error {
	_, err := b.guest.CoreV1().Services(b.cfg.GuestNamespace).Get(b.Context(), model.DefaultRevisionMarker, metav1.GetOptions{})
	return err
}

// crds returns the generations of the CRDs in the guest.
func (b back) crds() map[string]int64 {
	b.Helper()
	out := map[string]int64{}
	for name, o := range b.content(model.SideGuest) {
		if strings.HasPrefix(name, "customresourcedefinitions/") {
			out[name] = o.generation
		}
	}
	b.Expect(out).NotTo(gomega.BeEmpty())
	return out
}
