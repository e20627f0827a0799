package guestnode

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// podPlayer simulates the scheduler and the kubelet. The controller runs it for one pod at a time, so its fields need
// no lock.
type podPlayer struct {
	client    client.Client
	nodes     []string
	addresses *pool
	bound     int
}

// Reconcile performs the pod's next step: bind it, report it as running, or remove it. The event of each step
// triggers the next one.
func (p *podPlayer) Reconcile(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	switch {
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0:
		return done(p.bind(ctx, pod))
	case !p.ours(pod.Spec.NodeName):
		return reconcile.Result{}, nil
	case pod.DeletionTimestamp != nil:
		// A kubelet deletes a pod finally when its containers have ended. These containers end at once.
		return done(p.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	case !reported(pod):
		return done(p.report(ctx, pod))
	}
	return reconcile.Result{}, nil
}

func (p *podPlayer) ours(node string) bool { return slices.Contains(p.nodes, node) }

// reported reports whether the pod already has the status that report writes. A running pod may have lost it, because
// the node lifecycle controller marks pods of an unresponsive node as not ready.
func reported(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
}

func (p *podPlayer) bind(ctx context.Context, pod *corev1.Pod) error {
	p.bound++
	return p.client.SubResource("binding").Create(ctx, pod,
		&corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: p.nodes[p.bound%len(p.nodes)]}})
}

func (p *podPlayer) report(ctx context.Context, cached *corev1.Pod) error {
	address, err := p.address(ctx, cached)
	if err != nil {
		return err
	}
	pod := cached.DeepCopy()
	now := metav1.Now()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	pod.Status.Conditions = nil
	for _, condition := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now, ObservedGeneration: pod.Generation})
	}
	pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = nil, nil
	for _, container := range pod.Spec.InitContainers {
		status := running(container, now)
		if container.RestartPolicy == nil { // not a sidecar, so it has completed
			status.Started = new(false)
			status.State = corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now},
			}
		}
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status)
	}
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, running(container, now))
	}
	return p.client.Status().Update(ctx, pod)
}

// address returns the pod's address, or a new address if it has none.
func (p *podPlayer) address(ctx context.Context, pod *corev1.Pod) (string, error) {
	if pod.Status.PodIP != "" {
		return pod.Status.PodIP, nil
	}
	var pods corev1.PodList
	if err := p.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing the addresses in use: %w", err)
	}
	used := map[string]bool{}
	for _, pod := range pods.Items {
		used[pod.Status.PodIP] = true
	}
	return p.addresses.next(used)
}

func running(container corev1.Container, now metav1.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: "played", Ready: true, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
}

// servicePlayer simulates the cloud's load balancer controller.
type servicePlayer struct {
	client    client.Client
	addresses *pool
}

// Reconcile gives a Service of type LoadBalancer an address if it has none.
func (s *servicePlayer) Reconcile(ctx context.Context, cached *corev1.Service) (reconcile.Result, error) {
	if cached.Spec.Type != corev1.ServiceTypeLoadBalancer || len(cached.Status.LoadBalancer.Ingress) > 0 ||
		cached.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	var services corev1.ServiceList
	if err := s.client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the addresses in use: %w", err)
	}
	used := map[string]bool{}
	for _, service := range services.Items {
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			used[ingress.IP] = true
		}
	}
	address, err := s.addresses.next(used)
	if err != nil {
		return reconcile.Result{}, err
	}
	service := cached.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	return done(s.client.Status().Update(ctx, service))
}

// done drops errors which mean that the object has changed. The next event triggers the next attempt.
func done(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}
