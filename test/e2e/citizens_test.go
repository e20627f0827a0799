package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/hypershift"
	"github.com/hypergate/hypergate/test/world"
)

// maxGeneration is the limit of HyperShift's tests for the generation of a control plane's Deployment
// (EnsureNoRapidDeploymentRollouts).
const maxGeneration = 10

// citizens holds the last state of all Deployments and pods of hypergate and istiod that existed during the stories.
type citizens struct {
	mu          sync.Mutex
	deployments map[string]*appsv1.Deployment
	pods        map[string]*corev1.Pod
	// broken are the violations of HyperShift's rules at any time.
	broken []string
}

// watchCitizens watches the management side until the end of the suite.
func watchCitizens(t *testing.T, w *world.World) *citizens {
	t.Helper()
	c := &citizens{deployments: map[string]*appsv1.Deployment{}, pods: map[string]*corev1.Pod{}}
	factory := informers.NewSharedInformerFactoryWithOptions(w.MgmtClient, 0, informers.WithNamespace(w.MgmtNamespace))
	handler := cache.ResourceEventHandlerFuncs{AddFunc: c.saw, UpdateFunc: func(_, now any) { c.saw(now) }}
	for _, informer := range []cache.SharedIndexInformer{factory.Apps().V1().Deployments().Informer(), factory.Core().V1().Pods().
		Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // ended by the clean-up
	factory.StartWithContext(ctx)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	return c
}

// saw records a Deployment or a pod.
func (c *citizens) saw(obj any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := obj.(type) {
	case *appsv1.Deployment:
		if slices.Contains([]string{deploy.Account, "istiod-" + world.Revision}, o.Name) {
			c.deployments[string(o.UID)] = o
			c.judge(o)
		}
	case *corev1.Pod:
		if slices.Contains([]string{deploy.Account, "istiod"}, o.Labels["app"]) {
			c.pods[string(o.UID)] = o
		}
	}
}

// look records the current state, because a watch may be late, by half a minute after an outage.
func (c *citizens) look(t *fixture) {
	t.Helper()
	deployments, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range deployments.Items {
		c.saw(&deployments.Items[i])
	}
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range pods.Items {
		c.saw(&pods.Items[i])
	}
}

// judge records the rules that a Deployment breaks.
func (c *citizens) judge(d *appsv1.Deployment) {
	for _, broken := range hypershift.Broken(d, hypershift.ControlPlane{Namespace: d.Namespace}, d.Name == deploy.Account) {
		if line := d.Name + ": " + broken; !slices.Contains(c.broken, line) {
			c.broken = append(c.broken, line)
		}
	}
}

// goodCitizens checks the rules of HyperShift's tests for the pods of a control plane at the end of a cluster's life.
// The standalone topology has no HyperShift, but restarts and rollouts are checked there too.
func goodCitizens(t *fixture) {
	c := t.citizens
	c.look(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]int{}
	for _, d := range c.deployments {
		seen[d.Name]++
		t.Expect(d.Generation).To(gomega.BeNumerically("<=", maxGeneration), "Deployment %s of %s changed often", d.Name,
			d.CreationTimestamp)
	}
	t.Expect(seen).To(gomega.And(gomega.HaveKey(deploy.Account), gomega.HaveKey("istiod-"+world.Revision)),
		"the watch saw both Deployments")
	for _, pod := range c.pods {
		for _, s := range pod.Status.ContainerStatuses {
			t.Expect(int(s.RestartCount)).
				To(gomega.BeNumerically("<=", t.Kills(pod.UID)),
					"restarts of %s's container %s, and how often a story killed it; the last ended as %s",
					pod.Name, s.Name, s.LastTerminationState.String())
		}
	}
	t.Logf("%v Deployments, %d pods", seen, len(c.pods))
	if t.Topology == model.TopologyStandalone {
		return
	}
	t.Expect(c.broken).To(gomega.BeEmpty())
	t.Log("the namespace admits only restricted pods")
	_, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).Create(t.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "unrestricted"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: world.ProxyImage}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	t.Expect(apierrors.IsForbidden(err)).To(gomega.BeTrue(), fmt.Sprint(err))
}
