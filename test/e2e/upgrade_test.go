package e2e_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/previous"
	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// TestUpgrade changes the version of Istio under load: istiod, and the pods of three Gateways. It begins with the
// release before the embedded one. hypergate is a process on this machine, because it reads the charts of other
// versions from a folder.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, version := range []previous.Version{previous.OwnNames, previous.Rollouts} { // no build goes on under load
		if _, err := previous.Build(t.Context(), version); err != nil {
			t.Fatal(err)
		}
	}
	version := world.IstioVersion{
		Tag: "1.28.2", Discovery: "pilot-discovery-1.28", Agent: "pilot-agent-1.28", Module: "hack/servers/istiod-1.28",
	}
	other := release{version.PilotImage(), version.ProxyImage(), []string{"--charts-dir", testcharts.Dir1282(t)}}
	fixture := started(t, world.Options{Name: "e2e-upgrade", GuestNodes: 2, Versions: []world.IstioVersion{version}})
	u := upgrades(fixture, other, embeddedRelease())
	u.run(fixture)
	u.replaced(fixture)
	u.withTwo(fixture)
}

// TestUpgradeToTheNextIstio is TestUpgrade from the embedded Istio to a development snapshot, which stands for the next
// minor. The guest's administrator has the Gateway API of that Istio from the start. `make next` runs it.
func TestUpgradeToTheNextIstio(t *testing.T) {
	t.Parallel()
	version := world.IstioVersion{
		Tag: "1.31-snapshot", Discovery: "pilot-discovery-next", Agent: "pilot-agent-next", Module: "hack/servers/istiod-next",
	}
	next := release{version.PilotImage(), version.ProxyImage(), []string{"--charts-dir", testcharts.DirNext(t)}}
	fixture := started(t, world.Options{Name: "e2e-next", GuestNodes: 2, Versions: []world.IstioVersion{version}})
	fixture.createCRDs(testcharts.GatewayCRDsNext(t))
	upgrades(fixture, embeddedRelease(), next).run(fixture)
}

// createCRDs creates the CRDs of a directory in the guest.
func (t *fixture) createCRDs(dir string) {
	t.Helper()
	for _, crd := range testcharts.CRDs(t.T, dir) {
		t.Expect(t.ApplyObject(t.step(), crd)).To(gomega.Succeed())
	}
}

// release is a version of Istio as hypergate installs it.
type release struct {
	pilot, proxy string
	// charts are the flags for the charts.
	charts []string
}

func embeddedRelease() release { return release{pilot: cluster.IstiodImage, proxy: world.ProxyImage} }

// flags returns the flags of hypergate.
func (r release) flags() []string {
	return slices.Concat([]string{"--pilot-image", r.pilot, "--proxy-image", r.proxy}, r.charts)
}

// withoutImage returns a release whose gateways have an image that no node has.
func (r release) withoutImage() release {
	r.proxy = "registry.example.com/proxyv2:missing"
	return r
}

// upgrade is what the stories of an upgrade share.
type upgrade struct {
	older, newer release
	edge         *edgeOfTheGuest
	// gateways are the names of all Gateways.
	gateways []string
	// small are the addresses of the Gateways with one pod and few requests, by name.
	small map[string]string
	// istiods is the number of istiod's pods after a change.
	istiods int
}

// upgrades installs the older release with three Gateways. The one with two pods rolls last.
func upgrades(t *fixture, older, newer release) *upgrade {
	t.Helper()
	t.settings = older.flags()
	h := t.installed()
	u := &upgrade{
		older: older, newer: newer, edge: t.edge(), gateways: []string{trafficGateway}, small: map[string]string{}, istiods: 1,
	}
	t.scale(world.GuestNamespace, trafficGateway+"-"+class, 2)
	for _, name := range []string{"small-a", "small-b"} {
		u.gateways, u.small[name] = append(u.gateways, name), t.smallGateway(name, "24h")
	}
	t.answered(u.streams())
	h.Terminate()
	t.settings = nil
	return u
}

// streams returns the load of all Gateways. Here, both clusters share the CPUs of one machine, which is busy while pods
// start. So requests have a minute: what is counted is whether they are lost.
func (u *upgrade) streams() []traffic.Stream {
	all := u.edge.shortStreams()
	for _, name := range u.gateways {
		if address, is := u.small[name]; is {
			all = append(all, smallStreams(name, address)...)
		}
	}
	return patient(all)
}

// run runs the stories in their order. Each begins where the one before ended.
func (u *upgrade) run(t *fixture) {
	t.runAll(u.edge, []trafficStory{
		{"Istio is upgraded, the gateways roll one by one, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.changes(t, u.newer, 0)
		}},
		{"back from the finished upgrade, and no request fails", func(t *fixture, _ *edgeOfTheGuest) { u.changes(t, u.older, 0) }},
		{"a Gateway whose new pods do not become ready stops the rest, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.stops(t)
		}},
		{"back from the half-done upgrade, and no request fails", func(t *fixture, _ *edgeOfTheGuest) { u.changes(t, u.older, 1) }},
		{"hypergate release ends a rollout that stopped, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.released(t)
		}},
		{"the upgrade is finished after that, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.changes(t, u.newer, len(u.gateways))
		}},
	})
}

// changes changes Istio to a release under load. In the end each Gateway has the release, and serves a new route, which
// only the istiod of the release can bring. broken is the number of Gateways whose pods are not all ready before.
func (u *upgrade) changes(t *fixture, to release, broken int) {
	u.changesWith(t, to, broken, func() *world.Hypergate { return t.start(to.flags()...) })
}

// changesWith is changes with another hypergate.
func (u *upgrade) changesWith(t *fixture, to release, broken int, start func() *world.Hypergate) {
	had := u.withProxy(t, to.proxy)
	load, begin := t.loaded(u.streams()), time.Now()
	h := start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.oneByOne(u.gateways, broken+1, func(d *appsv1.Deployment) bool {
		if proxyImageOf(d) != to.proxy {
			return false
		}
		if slices.Contains(had, strings.TrimSuffix(d.Name, "-"+class)) {
			return true
		}
		// Only the new istiod deploys the new gateways. Of two, an old one can still end.
		for _, pod := range t.istiodPods() {
			if u.istiods == 1 || pod.DeletionTimestamp == nil {
				t.Expect(pod.Spec.Containers[0].Image).To(gomega.Equal(to.pilot), "%s has rolled while %s runs", d.Name, pod.Name)
			}
		}
		return true
	})
	t.rolledOutTo(u.istiods)
	for _, pod := range t.istiodPods() {
		t.Expect(pod.Spec.Containers[0].Image).To(gomega.Equal(to.pilot))
	}
	t.Eventually(t.heldGateways).Should(gomega.BeEmpty())
	t.Logf("all gateways have rolled after %s", time.Since(begin).Round(100*time.Millisecond))
	t.Eventually(t.installedMessage).ShouldNot(gomega.ContainSubstring("rolling gateways"))
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.reconfigured(u.edge)
	t.more(load, 500)
	t.judge(load, 3000)
	u.onlyPodsOf(t, to)
}

// stops begins an upgrade to gateways that cannot start. One Gateway has new pods, which do not become ready. The
// others are held, and a condition names the one.
func (u *upgrade) stops(t *fixture) {
	load := t.loaded(u.streams())
	u.stuck(t)
	held := t.heldGateways()
	t.Expect(held).To(gomega.HaveLen(len(u.gateways) - 1))
	t.Expect(held).To(gomega.ContainElement(trafficGateway), "the larger Gateway comes last")
	t.Expect(u.withProxy(t, u.newer.withoutImage().proxy)).To(gomega.HaveLen(1))
	t.more(load, 2000)
	t.judge(load, 3000)
}

// stuck begins an upgrade to gateways that cannot start, and waits for the condition. hypergate runs afterwards.
func (u *upgrade) stuck(t *fixture) {
	t.Helper()
	t.start(u.newer.withoutImage().flags()...)
	t.Eventually(t.installedMessage).Should(gomega.And(
		gomega.ContainSubstring("the new pods of Gateway "+world.GuestNamespace+"/small-"),
		gomega.ContainSubstring("are not becoming ready")))
}

// released begins an upgrade to gateways that cannot start, and runs `hypergate release`. All Gateways roll, and keep
// their old pods, because the new ones do not become ready.
func (u *upgrade) released(t *fixture) {
	load := t.loaded(u.streams())
	u.stuck(t)
	command := func(more ...string) (string, error) {
		out, err := exec.CommandContext(t.step(), t.Binary(), append([]string{
			"release", "--guest-kubeconfig", t.HypergateGuestKubeconfig(),
		}, more...)...).CombinedOutput()
		return string(out), err
	}
	out, err := command("--dry-run")
	exit, is := errors.AsType[*exec.ExitError](err)
	t.Expect(is).To(gomega.BeTrue(), "%v: %s", err, out)
	t.Expect(exit.ExitCode()).To(gomega.Equal(2), "held Gateways are exit code 2: %s", out)
	t.Expect(out).To(gomega.ContainSubstring("gateway/" + world.GuestNamespace + "/" + trafficGateway + " is held"))
	out, err = command()
	t.Expect(err).NotTo(gomega.HaveOccurred(), out)
	t.Log(out)
	t.Expect(t.heldGateways()).To(gomega.BeEmpty())
	t.Eventually(func() []string { return u.withProxy(t, u.newer.withoutImage().proxy) }).Should(gomega.ConsistOf(u.gateways))
	t.more(load, 3000)
	t.Expect(t.heldGateways()).To(gomega.BeEmpty())
	t.judge(load, 3000)
}

// replaced runs a previous hypergate with the same version of Istio, and then this one again: an upgrade of hypergate,
// and the way back. A later one goes back from the middle of a rollout, and releases the Gateways that are held.
func (u *upgrade) replaced(t *fixture) {
	t.runAll(u.edge, []trafficStory{
		{"a previous hypergate takes over, istiod is replaced, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.takesOver(t, len(u.gateways), func() *world.Hypergate { return t.startPrevious(previous.OwnNames, u.newer.flags()...) })
		}},
		{"hypergate is upgraded, istiod is replaced, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.takesOver(t, 1, func() *world.Hypergate { return t.start(u.newer.flags()...) })
		}},
		{"a Gateway of the next upgrade does not become ready, and no request fails", func(t *fixture, _ *edgeOfTheGuest) { u.stops(t) }},
		{"a previous hypergate goes back from that half-done upgrade, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			t.Expect(t.heldGateways()).To(gomega.HaveLen(len(u.gateways) - 1))
			u.changesWith(t, u.older, 1, func() *world.Hypergate { return t.startPrevious(previous.Rollouts, u.older.flags()...) })
		}},
		{"with --gateway-rollout=AllAtOnce no Gateway is held, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.allAtOnce(t)
		}},
	})
}

// startPrevious runs a previous hypergate until the end of the story.
func (t *fixture) startPrevious(version previous.Version, args ...string) *world.Hypergate {
	t.Helper()
	h, err := t.StartPrevious(t.ctx, version, args...)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(h.Release)
	return h
}

// allAtOnce changes Istio to the newer release under load, without a rollout of one Gateway after another. hypergate
// holds no Gateway, and the new istiod deploys all of them.
func (u *upgrade) allAtOnce(t *fixture) {
	load := t.loaded(u.streams())
	h := t.start(append(u.newer.flags(), "--gateway-rollout=AllAtOnce")...)
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.oneByOne(u.gateways, len(u.gateways), func(d *appsv1.Deployment) bool {
		t.Expect(t.heldGateways()).To(gomega.BeEmpty())
		return proxyImageOf(d) == u.newer.proxy
	})
	t.rolledOut()
	t.Expect(t.heldGateways()).To(gomega.BeEmpty())
	t.reconfigured(u.edge)
	t.more(load, 500)
	t.judge(load, 3000)
	u.onlyPodsOf(t, u.newer)
}

// takesOver starts another hypergate under load. It changes istiod's Deployment. At most that many Gateways roll at
// once, if any do. In the end, its istiod serves a new route.
func (u *upgrade) takesOver(t *fixture, most int, start func() *world.Hypergate) {
	istiods := t.namesOfIstiods()
	load := t.loaded(u.streams())
	h := start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.Eventually(func() []string { return same(istiods, t.namesOfIstiods()) }).Should(gomega.BeEmpty())
	t.rolledOut()
	t.oneByOne(u.gateways, most, func(*appsv1.Deployment) bool { return true })
	t.Eventually(t.heldGateways).Should(gomega.BeEmpty())
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.Log(t.installedMessage())
	t.reconfigured(u.edge)
	t.more(load, 500)
	t.judge(load, 3000)
}

// withTwo changes Istio with two istiods, of which one is elected and deploys the gateways.
func (u *upgrade) withTwo(t *fixture) {
	u.istiods = 2
	changes := func(t *fixture, to release) {
		u.changesWith(t, to, 0, func() *world.Hypergate { return t.start(append(to.flags(), "--replicas=2")...) })
	}
	t.runAll(u.edge, []trafficStory{
		{"istiod gets a second pod, and no request fails", func(t *fixture, _ *edgeOfTheGuest) { changes(t, u.newer) }},
		{"back from an upgrade with two istiods, and no request fails", func(t *fixture, _ *edgeOfTheGuest) { changes(t, u.older) }},
		{"upgraded with two istiods while backends are replaced, and no request fails", func(t *fixture, edge *edgeOfTheGuest) {
			backends := t.replacesBackends(edge)
			changes(t, u.newer)
			backends.end(t, 10)
		}},
		{"one istiod again, and no request fails", func(t *fixture, _ *edgeOfTheGuest) {
			u.istiods = 1
			u.changes(t, u.newer, 0)
		}},
	})
}

func proxyImageOf(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// withProxy returns the Gateways whose Deployment has an image.
func (u *upgrade) withProxy(t *fixture, image string) []string {
	t.Helper()
	var out []string
	for _, name := range u.gateways {
		d, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, name+"-"+class, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		if proxyImageOf(d) == image {
			out = append(out, name)
		}
	}
	return out
}

// onlyPodsOf waits until all pods of the gateways are of a release.
func (u *upgrade) onlyPodsOf(t *fixture, r release) {
	t.Helper()
	for _, name := range u.gateways {
		t.Eventually(func() []string {
			var images []string
			for _, pod := range t.podsOf(world.GuestNamespace, "gateway.networking.k8s.io/gateway-name="+name) {
				images = append(images, pod.Spec.Containers[0].Image)
			}
			slices.Sort(images)
			return slices.Compact(images)
		}).Should(gomega.Equal([]string{r.proxy}), name)
	}
}

func (t *fixture) istiodPods() []corev1.Pod {
	t.Helper()
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return pods.Items
}

// heldGateways returns the Gateways that hypergate holds.
func (t *fixture) heldGateways() []string {
	t.Helper()
	list, err := t.Gateways.Gateways(world.GuestNamespace).List(t.ctx, metav1.ListOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	var out []string
	for _, g := range list.Items {
		if g.Annotations[model.HoldAnnotation] == model.HoldValue(world.Revision) {
			out = append(out, g.Name)
		}
	}
	return out
}
