package e2e_test

import (
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

// killedGatewayIsSeen kills the only pod of the gateway under load.
func (t *fixture) killedGatewayIsSeen(edge *edgeOfTheGuest) {
	t.Helper()
	t.Log("control: a gateway that is killed costs requests")
	load := edge.load(t)
	old := t.gatewayPod()
	now := int64(0)
	t.Expect(t.GuestClient.CoreV1().Pods(old.Namespace).Delete(t.ctx, old.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})).
		To(gomega.Succeed())
	t.Eventually(func() types.UID { return t.gatewayPod().UID }).ShouldNot(gomega.Equal(old.UID))
	t.available(world.GuestNamespace, trafficGateway+"-"+class)
	t.more(load, 500)
	t.seen(load, 1000)
	t.served(edge)
}

// changedRevisionIsSeen gives the Gateway the label of another revision, as an upgrade by revision does. The istiod
// that serves the running pods then removes their listeners at once, before another istiod has replaced the pods
// (istio/istio#59959).
func changedRevisionIsSeen(t *fixture, edge *edgeOfTheGuest) {
	relabel := func(value string) {
		_, err := t.Gateways.Gateways(world.GuestNamespace).Patch(t.ctx, trafficGateway, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"istio.io/rev":`+value+`}}}`), metav1.PatchOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
	}
	load, before := edge.load(t), t.gatewayPod()
	relabel(`"canary"`)
	defer func() {
		relabel("null")
		t.served(edge)
	}()
	t.Eventually(load.Failed).Should(gomega.BeNumerically(">", 0))
	t.more(load, 500)
	t.seen(load, 1000)
	t.Expect(t.gatewayPod().UID).To(gomega.Equal(before.UID))
}

// missingDrainIsSeen replaces the gateway's pod, as gatewayReplaced does, but its proxy ignores the order to drain.
func missingDrainIsSeen(t *fixture, edge *edgeOfTheGuest) {
	t.options("off", "without a drain")
	defer func() {
		t.options("on", "with a drain")
		t.served(edge)
	}()
	t.served(edge)
	load := t.loaded(edge.shortStreams())
	t.options("off", "without a drain, again")
	t.more(load, 500)
	t.seen(load, 1000)
}
