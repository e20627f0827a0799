package integration_test

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/pkg/model"
)

// deployer plays istiod and the Deployment controller: it gives each Gateway that is not held the defaults of the class
// at once, as an image of its pods, and new pods become ready a moment later.
type deployer struct {
	*gatewayWorld
	mu sync.Mutex
	// since is when each Deployment began to roll, and rolled how often it did. most is how many rolled at the same
	// time.
	since  map[string]time.Time
	rolled map[string]int
	most   int
}

// podsReadyAfter is how long new pods take to become ready.
const podsReadyAfter = 500 * time.Millisecond

// playDeployer begins to play. The returned function ends it.
func (w *gatewayWorld) playDeployer() (d *deployer, stop func()) {
	d = &deployer{gatewayWorld: w, since: map[string]time.Time{}, rolled: map[string]int{}}
	end, ended := make(chan struct{}), sync.WaitGroup{}
	ended.Go(func() { wait.Until(d.deploy, 10*time.Millisecond, end) })
	stop = sync.OnceFunc(func() {
		close(end)
		ended.Wait()
	})
	w.Cleanup(stop)
	return d, stop
}

// deploy looks at all Gateways once. What fails is tried again.
func (d *deployer) deploy() {
	list, err := d.gateway.Gateways(d.namespace).List(d.Context(), metav1.ListOptions{})
	image := d.imageOfDefaults()
	if err != nil || image == "" {
		return
	}
	deployments := d.guest.AppsV1().Deployments(d.namespace)
	for _, g := range list.Items {
		deployment, err := deployments.Get(d.Context(), g.Name+"-demo", metav1.GetOptions{})
		if err != nil {
			continue
		}
		if g.Annotations[model.HoldAnnotation] == "" && deployment.Spec.Template.Spec.Containers[0].Image != image {
			deployment.Spec.Template.Spec.Containers[0].Image = image
			if deployment, err = deployments.Update(d.Context(), deployment, metav1.UpdateOptions{}); err != nil {
				continue
			}
			d.begins(g.Name)
		}
		ready := int32(0)
		if d.isReady(g.Name) {
			ready = 1
		}
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: ready, AvailableReplicas: ready,
		}
		if _, err := deployments.UpdateStatus(d.Context(), deployment, metav1.UpdateOptions{}); err == nil && ready == 1 {
			d.ends(g.Name)
		}
	}
}

func (d *deployer) begins(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since[name] = time.Now()
	d.rolled[name]++
	d.most = max(d.most, len(d.since))
}

func (d *deployer) isReady(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.since[name]) > podsReadyAfter
}

func (d *deployer) ends(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, name)
}

// rollouts returns how often each Deployment has rolled to the end, and how many rolled at the same time. They are zero
// while one rolls.
func (d *deployer) rollouts() (rolled map[string]int, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.since) > 0 {
		return nil, 0
	}
	return maps.Clone(d.rolled), d.most
}

// defaultsOf returns one of the defaults of class demo. It is empty if there is none.
func (w *gatewayWorld) defaultsOf(kind string) string {
	client := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace)
	defaults, err := client.Get(w.Context(), w.cfg.ClassDefaultsName("demo"), metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return defaults.Data[kind]
}

// imageOfDefaults returns an image that stands for what the defaults of class demo have for pods.
func (w *gatewayWorld) imageOfDefaults() string {
	pods := w.defaultsOf("deployment")
	if pods == "" {
		return ""
	}
	return "registry.example.com/proxyv2:" + model.TemplateOf(map[string]string{"deployment": pods})
}

// TestChangedValuesOfAClassRollGatewaysOneByOne changes values of a class between two processes. The defaults of before
// have no mark of any kind. Other replicas hold nothing. A value that changes the pods reaches one Gateway after
// another: each begins after the pods of the one before are ready. Another client that changes the defaults begins no
// rollout: they are restored, and no Gateway is held. During the rollout, only the test moves the clock: hypergate
// waits for a released Gateway for five seconds, and on a busy machine, istiod could change it later.
func TestChangedValuesOfAClassRollGatewaysOneByOne(t *testing.T) {
	h, clock := newHarness(t), &movedClock{}
	h.clock = clock
	w, stop := newGatewayWorldOn(h, "a", "b", "c")
	w.Eventually(w.imageOfDefaults).ShouldNot(gomega.BeEmpty())
	for _, name := range []string{"a", "b", "c"} {
		w.playGateway(name, w.imageOfDefaults(), 1)
	}
	stop()

	t.Log("other replicas")
	w.cfg.Values.Classes = map[string]map[string]any{
		"demo": {"horizontalPodAutoscaler": map[string]any{"spec": map[string]any{"minReplicas": int64(3)}}},
	}
	istiod, end := w.playDeployer()
	before := w.guestRequests.count()
	stop = w.run()
	w.Eventually(func() string { return w.defaultsOf("horizontalPodAutoscaler") }).Should(gomega.ContainSubstring("minReplicas: 3"))
	w.settle()
	w.Expect(w.gatewayPatches(before)).To(gomega.BeEmpty())
	stop()

	t.Log("other nodes")
	w.cfg.Values.Classes["demo"]["nodeSelector"] = map[string]any{"disk": "ssd"}
	clock.stop()
	w.run()
	w.Eventually(w.held).Should(gomega.Equal([]string{"a", "b", "c"}))
	w.Eventually(w.heldMoving(clock, 3)).WithPolling(time.Second).ShouldNot(gomega.HaveLen(3), "istiod has read the defaults")
	rolled := func() map[string]int { all, _ := istiod.rollouts(); return all }
	w.Eventually(rolled).Should(gomega.Equal(map[string]int{"a": 1, "b": 1, "c": 1}))
	w.Eventually(w.held).Should(gomega.BeEmpty())
	w.Expect(w.defaultsOf("deployment")).To(gomega.ContainSubstring("disk: ssd"))
	_, most := istiod.rollouts()
	w.Expect(most).To(gomega.Equal(1), "Gateways that rolled at the same time")
	w.settle()
	end()

	t.Log("another client changes them")
	before = w.guestRequests.count()
	_, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Patch(t.Context(), w.cfg.ClassDefaultsName("demo"), types.MergePatchType,
		[]byte(`{"data":{"deployment":"spec: {}"}}`), metav1.PatchOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(func() string { return w.defaultsOf("deployment") }).Should(gomega.ContainSubstring("disk: ssd"))
	w.settle()
	w.Expect(w.gatewayPatches(before)).To(gomega.BeEmpty())
	w.Expect(w.held()).To(gomega.BeEmpty())
}
