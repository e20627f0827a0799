package e2e_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/world"
)

// twoIstiods changes from one istiod to two and back. While two roll, and while both are evicted at once as by drains
// of two nodes, one of them always serves.
func twoIstiods(t *fixture) {
	t.installed()
	budget := func() error {
		_, err := t.MgmtClient.PolicyV1().PodDisruptionBudgets(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
		return err
	}
	t.Expect(apierrors.IsNotFound(budget())).To(gomega.BeTrue(), "one istiod has no budget, which would block drains")
	t.start("--replicas=2")
	t.rolledOutTo(2)
	t.Eventually(budget).Should(gomega.Succeed())

	least := t.watchServing()
	t.Log("a new pod template")
	d, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.step(), "istiod-"+world.Revision, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	before := t.namesOfIstiods()
	d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().UTC().Format(time.RFC3339)
	_, err = t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Update(t.step(), d, metav1.UpdateOptions{FieldManager: "kubectl-rollout"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(func() []string { return same(before, t.namesOfIstiods()) }).Should(gomega.BeEmpty())
	t.rolledOutTo(2)

	t.Log("drains of both nodes at once")
	drained := t.namesOfIstiods()
	refusals := t.evictAll(drained)
	t.Eventually(func() []string { return same(drained, t.namesOfIstiods()) }).Should(gomega.BeEmpty())
	t.rolledOutTo(2)
	t.Expect(refusals).To(gomega.BeNumerically(">", 0), "the second eviction waited for the first")
	t.Expect(least()).To(gomega.BeNumerically(">=", 1), "istiods that served")

	t.Log("one again")
	t.start("--replicas=1")
	t.rolledOutTo(1)
	t.Eventually(func() bool { return apierrors.IsNotFound(budget()) }).Should(gomega.BeTrue())
}

// namesOfIstiods returns the names of istiod's pods.
func (t *fixture) namesOfIstiods() []string {
	t.Helper()
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	out := make([]string, 0, len(pods.Items))
	for i := range pods.Items {
		out = append(out, pods.Items[i].Name)
	}
	return out
}

// same returns the names that are in both lists.
func same(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(before), func(name string) bool { return !slices.Contains(after, name) })
}

// evictAll evicts pods as drains of their nodes do: at once, and again while the budget refuses. It returns how often
// that was.
func (t *fixture) evictAll(pods []string) int {
	t.Helper()
	refused := 0
	left := slices.Clone(pods)
	t.Eventually(func() []string {
		var still, why []string
		for _, pod := range left {
			err := t.MgmtClient.PolicyV1().Evictions(t.MgmtNamespace).
				Evict(t.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: t.MgmtNamespace, Name: pod}})
			switch {
			case err == nil, apierrors.IsNotFound(err):
				continue
			case apierrors.IsTooManyRequests(err):
				refused++
			}
			still, why = append(still, pod), append(why, pod+": "+err.Error())
		}
		left = still
		return why
	}).Should(gomega.BeEmpty())
	return refused
}

// watchServing counts the ready endpoints of istiod's Service until the returned function is called. That returns the
// least number.
func (t *fixture) watchServing() func() int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.ctx)
	changes, err := t.MgmtClient.DiscoveryV1().EndpointSlices(t.MgmtNamespace).
		Watch(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=istiod-" + world.Revision})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	var mu sync.Mutex
	least, ended := 2, make(chan struct{})
	go func() {
		defer close(ended)
		for event := range changes.ResultChan() {
			slice, is := event.Object.(*discoveryv1.EndpointSlice)
			if !is {
				continue
			}
			ready := 0
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
					ready++
				}
			}
			mu.Lock()
			least = min(least, ready)
			mu.Unlock()
		}
	}()
	t.Cleanup(cancel)
	return func() int {
		cancel()
		<-ended
		mu.Lock()
		defer mu.Unlock()
		return least
	}
}
