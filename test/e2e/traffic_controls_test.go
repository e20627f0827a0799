package e2e_test

import (
	"sync"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// This file has the controls: faults that cost requests. A load that sees no failure here would not see any in the
// other stories.

// seen ends a load, prints its table, and fails the story if no request failed.
func (t *fixture) seen(load *traffic.Load, least int) {
	t.Helper()
	t.Expect(t.ended(load, least).Failed).To(gomega.BeNumerically(">", 0))
}

// otherControls are shown once in each run of the tests, at the first gateway. They take a minute.
var otherControls sync.Once

// controls shows that the load sees failures at this gateway. Each test with requests begins with it.
func (t *fixture) controls(edge *edgeOfTheGuest) {
	t.Helper()
	oneLoad.Lock()
	defer oneLoad.Unlock()
	t.killedGatewayIsSeen(edge)
	otherControls.Do(func() {
		t.Log("control: a gateway that changes its revision costs requests")
		t.withoutOperators(func() { changedRevisionIsSeen(t, edge) })
		t.Log("control: a gateway that does not drain costs requests")
		missingDrainIsSeen(t, edge)
	})
}

// withoutOperators runs something while the guest's own operators are away. Without any, it only runs it.
func (t *fixture) withoutOperators(run func()) {
	if t.stopOperators != nil {
		defer t.stopOperators()()
	}
	run()
}

// killedGatewayIsSeen kills the processes of the gateway's only pod under load, without a drain. The kubelet starts
// the container again. Each stream must count a failure: one that does not see this fault would see no other.
func (t *fixture) killedGatewayIsSeen(edge *edgeOfTheGuest) {
	t.Helper()
	t.Log("control: a gateway that is killed costs requests")
	load, old := edge.load(t), t.gatewayPod()
	// The agent is process 1 of its container. So the kernel kills the proxy with it, with the same signal.
	t.Expect(t.KillIn(t.step(), old.UID, "pilot-agent")).To(gomega.Succeed())
	restarts := func() int32 { return restartsOf(t.gatewayPod())["istio-proxy"] }
	t.Eventually(restarts).Should(gomega.BeNumerically(">", restartsOf(old)["istio-proxy"]))
	t.Expect(t.gatewayPod().UID).To(gomega.Equal(old.UID), "a killed process does not end its pod")
	t.available(world.GuestNamespace, trafficGateway+"-"+class)
	t.more(load, 500)
	report := t.ended(load, 1000)
	for _, row := range report.Rows {
		t.Expect(row.Failed).To(gomega.BeNumerically(">", 0), "stream %q does not see a gateway that is killed", row.Stream)
	}
	t.served(edge)
}

// changedRevisionIsSeen gives the Gateway the label of another revision, as an upgrade by revision does. The istiod
// that serves the running pods then removes their listeners at once, before another istiod has replaced the pods
// (istio/istio#59959).
func changedRevisionIsSeen(t *fixture, edge *edgeOfTheGuest) {
	gateway, err := t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, trafficGateway, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	former := "null"
	if label, labeled := gateway.Labels["istio.io/rev"]; labeled {
		former = `"` + label + `"`
	}
	defer func() {
		t.relabel(former)
		t.served(edge)
	}()
	t.canaryIsSeen(edge)
}

// canaryIsSeen gives the Gateway the label of a revision that no istiod has, under load. Its pod stays.
func (t *fixture) canaryIsSeen(edge *edgeOfTheGuest) {
	t.Helper()
	load, before := edge.load(t), t.gatewayPod()
	t.relabel(`"canary"`)
	t.Eventually(load.Failed).Should(gomega.BeNumerically(">", 0))
	t.more(load, 500)
	t.seen(load, 1000)
	t.Expect(t.gatewayPod().UID).To(gomega.Equal(before.UID))
}

// relabel sets the Gateway's label of a revision. The value is JSON.
func (t *fixture) relabel(value string) {
	t.Helper()
	_, err := t.Gateways.Gateways(world.GuestNamespace).Patch(t.ctx, trafficGateway, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"istio.io/rev":`+value+`}}}`), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// missingDrainIsSeen replaces the gateway's pod, as gatewayReplaced does, but its proxy ignores the order to drain.
func missingDrainIsSeen(t *fixture, edge *edgeOfTheGuest) {
	t.options("off", "without a drain")
	defer func() {
		t.options("on", "with a drain")
		t.served(edge)
	}()
	t.served(edge)
	// The whole pace: without a drain, about one request of 500 fails.
	load, err := traffic.Start(t.ctx, edge.shortStreams()...)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.more(load, 500)
	t.options("off", "without a drain, again")
	t.more(load, 500)
	t.seen(load, 1000)
}
