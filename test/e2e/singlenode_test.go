package e2e_test

import (
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/ocpcrds"
	"github.com/hypergate/hypergate/test/world"
)

// TestSingleNode drains the only node of a guest. OpenShift's Infrastructure object says that there is one.
func TestSingleNode(t *testing.T) {
	t.Parallel()
	fixture := alone(t, world.Options{Name: "e2e-single", GuestNodes: 1})
	fixture.singleNode()
	fixture.runAll(fixture.trafficGateway(), []trafficStory{
		{"the only node is drained, and the default disruption budget does not block it", onlyNodeDrained},
		{"when the node is back, the gateway serves, and no request fails", onlyNodeBack},
	})
}

// singleNode creates the Infrastructure object of an OpenShift cluster with one node.
func (t *fixture) singleNode() {
	t.Helper()
	t.Expect(t.ServeOpenShift(t.step(), ocpcrds.Infrastructures)).To(gomega.Succeed())
	t.Expect(t.ApplyWithStatus(t.step(), fromyaml.Object(t.T, `{apiVersion: config.openshift.io/v1, kind: Infrastructure,
		metadata: {name: cluster}, spec: {}, status: {infrastructureTopology: SingleReplica}}`))).To(gomega.Succeed())
}

// onlyNodeDrained evicts all pods of the only node. Requests fail from then on, because no other node can have the
// pods. The disruption budget of the backends is the test's own, and is deleted first.
func onlyNodeDrained(t *fixture, edge *edgeOfTheGuest) {
	t.Eventually(func(g gomega.Gomega) {
		budgets, err := t.GuestClient.PolicyV1().PodDisruptionBudgets(world.GuestNamespace).
			List(t.ctx, metav1.ListOptions{LabelSelector: "gateway.networking.k8s.io/gateway-name=" + trafficGateway})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(budgets.Items).To(gomega.HaveLen(1), "the gateway has a budget")
		g.Expect(budgets.Items[0].Status.DisruptionsAllowed).To(gomega.BeEquivalentTo(1), "which admits the drain of its only pod")
	}).Should(gomega.Succeed())
	t.Expect(t.GuestClient.PolicyV1().PodDisruptionBudgets(backends).Delete(t.ctx, "backend", metav1.DeleteOptions{})).To(gomega.Succeed())
	load, old := t.loaded(edge.shortStreams()), t.gatewayPod()
	t.drain(old.Spec.NodeName)
	t.Eventually(load.Failed).Should(gomega.BeNumerically(">", 0))
	t.seen(load, 500)
}

// onlyNodeBack runs when the node accepts pods again.
func onlyNodeBack(t *fixture, edge *edgeOfTheGuest) {
	t.onePod("")
	t.available(backends, "backend")
	t.served(edge)
	load := edge.load(t)
	t.reconfigured(edge)
	t.more(load, 500)
	t.judge(load, 1000)
}
