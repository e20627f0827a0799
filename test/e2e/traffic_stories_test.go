package e2e_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// shortStreams returns streams for stories that replace gateways. A download that begins when a gateway begins to drain
// must end, and the next one on its connection, too, before the gateway ends.
func (e *edgeOfTheGuest) shortStreams() []traffic.Stream {
	return e.streams(4*time.Second, 4*time.Second)
}

// applyOptions applies the options of the gateway's pods. drain is on or off.
func (t *fixture) applyOptions(drain, restarted string) {
	t.Helper()
	t.Expect(t.Apply(t.step(), "gatewayoptions.yaml", map[string]string{
		"gateway": trafficGateway, "gatewayNamespace": world.GuestNamespace, "drain": drain, "restarted": restarted,
	})).To(gomega.Succeed())
}

// options changes the options of the gateway's pod. istiod then replaces the pod, in the way of `kubectl rollout
// restart`. It returns when the old pod has gone.
func (t *fixture) options(drain, restarted string) {
	t.Helper()
	old := t.gatewayPod().UID
	t.applyOptions(drain, restarted)
	t.onePod(old)
}

// onePod waits until the gateway has exactly one pod, which is not an old one, and which is ready.
func (t *fixture) onePod(old types.UID) {
	t.Helper()
	t.Eventually(func(g gomega.Gomega) {
		pods := t.podsOf(world.GuestNamespace, "gateway.networking.k8s.io/gateway-name="+trafficGateway)
		g.Expect(pods).To(gomega.HaveLen(1))
		g.Expect(pods[0].UID).NotTo(gomega.Equal(old))
	}).Should(gomega.Succeed())
	t.available(world.GuestNamespace, trafficGateway+"-"+class)
}

func (t *fixture) podsOf(namespace, labels string) []corev1.Pod {
	t.Helper()
	pods, err := t.GuestClient.CoreV1().Pods(namespace).List(t.ctx, metav1.ListOptions{LabelSelector: labels})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return pods.Items
}

// scale sets the replicas of a Deployment of the guest, and waits for its pods.
func (t *fixture) scale(namespace, name string, replicas int32) {
	t.Helper()
	_, err := t.GuestClient.AppsV1().Deployments(namespace).UpdateScale(t.ctx, name, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	}, metav1.UpdateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.available(namespace, name)
}

func gatewayReplaced(t *fixture, edge *edgeOfTheGuest) {
	load := t.loaded(edge.shortStreams())
	t.options("on", "under load")
	t.more(load, 500)
	t.judge(load, 1000)
}

// backendsReplaced replaces a backend every two seconds. See replacesBackends.
func backendsReplaced(t *fixture, edge *edgeOfTheGuest) {
	const least = 10
	backends := t.replacesBackends(edge)
	t.undisturbedUnder(edge, t.loaded(edge.streams(8*time.Second, 5*time.Second)), func() {
		t.Eventually(backends.replaced.Load).Should(gomega.BeNumerically(">=", least))
	})
	backends.end(t, least)
}

// replacedBackends are backends of which one is replaced every two seconds.
type replacedBackends struct {
	replaced atomic.Int64
	cancel   context.CancelFunc
	ended    chan error
}

// replacesBackends scales the backends to four, and deletes the oldest one every two seconds. A backend serves for five
// seconds after the order to end (preStop), until all gateways know its end. Then it ends each connection with its last
// request. No backend is deleted while another one still starts.
func (t *fixture) replacesBackends(edge *edgeOfTheGuest) *replacedBackends {
	t.Helper()
	const replicas = 4
	t.scale(backends, "backend", replicas)
	t.served(edge)
	ctx, cancel := context.WithCancel(t.ctx)
	b := &replacedBackends{cancel: cancel, ended: make(chan error, 1)}
	go func() {
		pace := time.NewTicker(2 * time.Second)
		defer pace.Stop()
		var errs []error
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-pace.C:
				deleted, err := t.replaceOldestBackend(ctx, replicas)
				if err != nil && ctx.Err() == nil {
					errs = append(errs, err)
				}
				if deleted {
					b.replaced.Add(1)
				}
			}
		}
		b.ended <- errors.Join(errs...)
	}()
	t.Cleanup(cancel)
	return b
}

// end ends the replacements, and fails the story if there were fewer than the least number.
func (b *replacedBackends) end(t *fixture, least int64) {
	t.Helper()
	b.cancel()
	t.Expect(<-b.ended).To(gomega.Succeed())
	t.Logf("%d backends were replaced", b.replaced.Load())
	t.Expect(b.replaced.Load()).To(gomega.BeNumerically(">=", least))
	t.scale(backends, "backend", 2)
}

// replaceOldestBackend deletes the oldest backend, if all but one of the others are ready.
func (t *fixture) replaceOldestBackend(ctx context.Context, replicas int) (bool, error) {
	pods, err := t.GuestClient.CoreV1().Pods(backends).List(ctx, metav1.ListOptions{LabelSelector: "app=backend"})
	if err != nil {
		return false, err
	}
	ready := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !servesRequests(&p) })
	if len(ready) < replicas-1 {
		return false, nil
	}
	oldest := slices.MinFunc(ready, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	err = t.GuestClient.CoreV1().Pods(backends).Delete(ctx, oldest.Name, metav1.DeleteOptions{})
	return err == nil, err
}

// servesRequests reports whether a pod is ready and was not asked to end.
func servesRequests(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// guestNodeDrained drains the node of a gateway, as `kubectl drain` does. The guest has no autoscaler, so the story
// gives the gateway the two pods that it has by default.
func guestNodeDrained(t *fixture, edge *edgeOfTheGuest) { t.drainGatewaysNode(edge) }

// drainGatewaysNode drains the node of a gateway under load. The node gets pods again when the story ends, or when
// restore is called.
func (t *fixture) drainGatewaysNode(edge *edgeOfTheGuest) (restore func()) {
	t.Helper()
	gateway := trafficGateway + "-" + class
	t.scale(world.GuestNamespace, gateway, 2)
	defer func() {
		t.scale(world.GuestNamespace, gateway, 1)
		t.onePod("")
		t.served(edge)
	}()
	t.served(edge)
	load, node := t.loaded(edge.shortStreams()), t.gatewayPod().Spec.NodeName
	restore = t.drain(node)
	t.more(load, 1000)
	t.judge(load, 1500)
	return restore
}

// drain marks a node of the guest, evicts its pods, and waits until they are gone. The node gets pods again when the
// story ends, or when restore is called.
func (t *fixture) drain(node string) (restore func()) {
	t.Helper()
	mark := func(unschedulable string) error {
		_, err := t.GuestClient.CoreV1().Nodes().Patch(t.ctx, node, types.MergePatchType,
			[]byte(`{"spec":{"unschedulable":`+unschedulable+`}}`), metav1.PatchOptions{})
		return err
	}
	t.Expect(mark("true")).To(gomega.Succeed())
	restore = func() { t.Expect(mark("null")).To(gomega.Succeed()) }
	t.Cleanup(restore)
	onNode := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
	pods, err := t.GuestClient.CoreV1().Pods("").List(t.ctx, onNode)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(pods.Items).NotTo(gomega.BeEmpty())
	for _, pod := range pods.Items {
		t.Eventually(func() error { // a PodDisruptionBudget may refuse it until another pod is ready
			err := t.GuestClient.PolicyV1().Evictions(pod.Namespace).Evict(t.ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}).Should(gomega.Succeed(), pod.Name)
	}
	t.Eventually(func() ([]corev1.Pod, error) {
		pods, err := t.GuestClient.CoreV1().Pods("").List(t.ctx, onNode)
		return pods.Items, err
	}).Should(gomega.BeEmpty())
	return restore
}

func servesWithoutMgmtAPI(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.undisturbed(edge, func() {
		back := t.withoutMgmtAPI()
		<-time.After(30 * time.Second) // the load goes on meanwhile, and the story is about this time
		back()
		t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	})
}

// konnectivityAway stops the agents in the guest. The guest's API server then reaches no kubelet and no pod, but still
// istiod's webhook, which has a URL.
func konnectivityAway(t *fixture, edge *edgeOfTheGuest) {
	pod := t.gatewayPod()
	log := func() error {
		_, err := t.GuestClient.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.ctx)
		return err
	}
	t.Eventually(log).Should(gomega.Succeed())
	t.undisturbed(edge, func() {
		back := t.withoutKonnectivity()
		t.Eventually(log).ShouldNot(gomega.Succeed())
		t.Eventually(t.refusedByWebhook).WithArguments(t.step()).Should(gomega.Succeed())
		back()
		t.Eventually(log).Should(gomega.Succeed())
	})
}

// guestKubeconfigReplaced gives hypergate a new token, and another name of the guest's API server. istiod gets a
// credential with this name, and a new pod.
func guestKubeconfigReplaced(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	server := "https://kube-apiserver." + t.MgmtNamespace + ":6443"
	t.undisturbed(edge, func() {
		old := t.istiodPod()
		t.Expect(t.ReplaceGuestKubeconfig(t.step(), server)).To(gomega.Succeed())
		t.Eventually(func() (string, error) {
			secret, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, model.CredentialSecretName, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return string(secret.Data["config"]), nil
		}).Should(gomega.ContainSubstring(server))
		t.Eventually(func() error { // the old pod ends before the new one starts
			_, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).Get(t.ctx, old.Name, metav1.GetOptions{})
			return err
		}).Should(gomega.Satisfy(apierrors.IsNotFound))
		t.rolledOut()
	})
}

// leaseLost gives hypergate's Lease to another holder, and takes it back when hypergate has ended.
func leaseLost(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	hold := func(holder string) {
		_, err := t.MgmtClient.CoordinationV1().Leases(t.MgmtNamespace).Patch(t.ctx, "hypergate-"+world.Revision, types.MergePatchType,
			[]byte(`{"spec":{"holderIdentity":"`+holder+`"}}`), metav1.PatchOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
	}
	t.undisturbed(edge, func() {
		hold("another-pod")
		t.Eventually(h.Done()).Should(gomega.BeClosed())
		next, err := t.Restarted(t.step(), h)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		hold("")
		t.Expect(next.Ready(t.step(), "readyz")).To(gomega.Succeed())
	})
}

// usersDefaultRevision marks another revision as the default, as the Istio of a user does. Gateways without a revision
// label still belong to hypergate's istiod.
func usersDefaultRevision(t *fixture, edge *edgeOfTheGuest) {
	t.undisturbed(edge, func() { t.foreignDefault() })
}

// twoIstiodsReplaced gives istiod's Deployment two pods, as hypergate does for a highly available control plane, and
// replaces them, while backends are replaced, too. A HostedControlPlane would put them on two nodes, and the management
// cluster has one.
func twoIstiodsReplaced(t *fixture, edge *edgeOfTheGuest) {
	defer t.twoByHand()()
	backends := t.replacesBackends(edge)
	t.undisturbed(edge, t.restartBoth)
	backends.end(t, 1)
}

// twoByHand gives istiod's Deployment two pods, of which one leads.
func (t *fixture) twoByHand() (restore func()) {
	t.Helper()
	return t.byHand(`{"spec":{"replicas":2,
		"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}},
		"template":{"spec":{"containers":[{"name":"discovery","env":[{"name":"ENABLE_LEADER_ELECTION","value":"true"}]}]}}}}`, 2)
}

// restartBoth replaces two pods of istiod.
func (t *fixture) restartBoth() {
	t.Helper()
	t.patchIstiod(`{"spec":{"template":{"metadata":{"annotations":{"example.com/restarted":"under load"}}}}}`)
	t.rolledOutTo(2)
}

// byHand ends hypergate, changes istiod's Deployment, and waits for that number of pods. The returned function starts
// hypergate again, which creates its own Deployment of istiod.
func (t *fixture) byHand(patch string, replicas int) (restore func()) {
	t.Helper()
	t.start().Terminate()
	t.patchIstiod(patch)
	t.rolledOutTo(replicas)
	return func() {
		t.Helper()
		t.Expect(t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Delete(t.ctx, "istiod-"+world.Revision, metav1.DeleteOptions{})).
			To(gomega.Succeed())
		h := t.start()
		t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
		t.rolledOut()
	}
}

// patchIstiod changes istiod's Deployment with a strategic merge patch.
func (t *fixture) patchIstiod(patch string) {
	t.Helper()
	_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).
		Patch(t.ctx, "istiod-"+world.Revision, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}
