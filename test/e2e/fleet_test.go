package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/world"
)

// fleet is a set of gateways' proxies. Each works like istio-agent beside Envoy. It has a stream to istiod and opens
// another one when the stream breaks. It renews its certificate after half of its lifetime, and trusts the roots that
// its pod mounts.
type fleet struct {
	agents []*agent
	end    func()
}

// tally holds the results of an agent.
type tally struct {
	streams, breaks, renewals int
	// distrust are failures because one side did not trust the other. failures counts the other ones by code; a later
	// attempt succeeded after them.
	distrust []string
	failures map[string]int
	// longest is the longest time without a stream.
	longest time.Duration
}

// fleet starts n agents and waits until all have a stream. The lifetime of a certificate equals the overlap, as with
// the defaults of Istio and of --ca-overlap. So it is renewed after half of the overlap. A mount is late by up to a
// quarter of the overlap. The delay of a real kubelet is one minute, a thousandth of the default.
func (t *fixture) fleet(n int, overlap time.Duration) *fleet {
	t.Helper()
	pods := t.fleetPods(n)
	ctx, cancel := context.WithCancel(t.ctx)
	roots := &mount{}
	f := &fleet{}
	var working sync.WaitGroup
	working.Go(func() { roots.follow(ctx, t.publishedRoot) })
	tokens := errgroup.Group{}
	tokens.SetLimit(16)
	f.agents = make([]*agent, len(pods))
	for i, pod := range pods {
		tokens.Go(func() error {
			token, err := t.GuestToken(ctx, pod, "istio-ca")
			if err != nil {
				return err
			}
			to, err := t.ProxyOptions(ctx, pod, token)
			f.agents[i] = &agent{
				name: fmt.Sprintf("%s/%d", pod.Name, i), to: to, mount: roots, lag: rand.N(overlap / 4),
				renew: overlap / 2, tally: tally{failures: map[string]int{}},
			}
			return err
		})
	}
	f.end = sync.OnceFunc(func() { cancel(); working.Wait() })
	t.Cleanup(func() {
		f.end()
		if did := f.tally(); t.Failed() {
			t.Logf("the fleet: %s\n%s", did, strings.Join(did.distrust[:min(len(did.distrust), 20)], "\n"))
		}
	})
	t.Expect(tokens.Wait()).To(gomega.Succeed())
	t.Eventually(roots.known).Should(gomega.BeTrue())
	for _, a := range f.agents {
		working.Go(func() { a.run(ctx) })
	}
	t.Eventually(func() []string { return f.without((*agent).isConnected) }).Should(gomega.BeEmpty(), "gateways without a stream")
	return f
}

// fleetPods returns the pods of the agents. In the hosted topology the guest's nodes are simulated, and each agent
// has its own pod. In the standalone topology a real node would have to run the pods, so all agents share one.
func (t *fixture) fleetPods(n int) []*corev1.Pod {
	t.Helper()
	template, err := t.GatewayPod(t.step(), world.GuestNamespace, "gw")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	if t.Topology == model.TopologyStandalone {
		return slices.Repeat([]*corev1.Pod{template}, n)
	}
	const mark = "fleet.example.com/of"
	labels := maps.Clone(template.Labels)
	delete(labels, "pod-template-hash") // without an owner, because a ReplicaSet would delete surplus pods
	labels[mark] = "gw"
	pods := t.GuestClient.CoreV1().Pods(world.GuestNamespace)
	ours := metav1.ListOptions{LabelSelector: mark}
	t.Cleanup(func() { _ = pods.DeleteCollection(context.Background(), metav1.DeleteOptions{}, ours) })
	makers := errgroup.Group{}
	makers.SetLimit(16)
	for i := range n {
		makers.Go(func() error {
			_, err := pods.Create(t.ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fleet-%03d", i), Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: template.Spec.ServiceAccountName,
					Containers:         []corev1.Container{{Name: "istio-proxy", Image: world.ProxyImage}},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}
	t.Expect(makers.Wait()).To(gomega.Succeed())
	var running []*corev1.Pod
	t.Eventually(func() (int, error) {
		list, err := pods.List(t.ctx, ours)
		if err != nil {
			return 0, err
		}
		running = nil
		for i := range list.Items {
			if list.Items[i].Status.PodIP != "" {
				running = append(running, &list.Items[i])
			}
		}
		return len(running), nil
	}).Should(gomega.Equal(n))
	return running
}

// without returns the names of the agents that do not meet a condition.
func (f *fleet) without(fulfils func(*agent) bool) []string {
	var out []string
	for _, a := range f.agents {
		if !fulfils(a) {
			out = append(out, a.name)
		}
	}
	return out
}

// tally returns the combined results of all agents.
func (f *fleet) tally() tally {
	sum := tally{failures: map[string]int{}}
	for _, a := range f.agents {
		a.mu.Lock()
		own := a.tally
		sum.streams, sum.breaks, sum.renewals = sum.streams+own.streams, sum.breaks+own.breaks, sum.renewals+own.renewals
		sum.distrust, sum.longest = append(sum.distrust, own.distrust...), max(sum.longest, own.longest)
		for code, n := range own.failures {
			sum.failures[code] += n
		}
		a.mu.Unlock()
	}
	return sum
}

// String returns the results as text.
func (t tally) String() string {
	return fmt.Sprintf("%d streams opened, %d broken, the longest time without one %s; %d certificates issued; %d failures of "+
		"trust; others, which a later try resolved: %v",
		t.streams, t.breaks, t.longest.Round(time.Millisecond), t.renewals, len(t.distrust), t.failures)
}
