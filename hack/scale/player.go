package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/hypergate/hypergate/pkg/model"
)

// play simulates the Deployment controller, istiod's pods, and the cloud that allocates the addresses of load
// balancers, for all hosted clusters.
func (f *fleet) play(ctx context.Context) error {
	ctx, f.stopPlaying = context.WithCancel(ctx)
	if err := f.follow(ctx, appsv1.SchemeGroupVersion.WithResource("deployments"), f.playDeployment); err != nil {
		return err
	}
	return f.follow(ctx, corev1.SchemeGroupVersion.WithResource("services"),
		func(_ context.Context, u *unstructured.Unstructured) (any, error) {
			return loadBalancerStatus(u), nil
		})
}

// follow watches a kind, and writes the status of each object for which the function status returns one.
func (f *fleet) follow(
	ctx context.Context, resource schema.GroupVersionResource, status func(context.Context, *unstructured.Unstructured) (any, error),
) error {
	client := f.mgmt.objects.Resource(resource)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watching %s: %w", resource.Resource, err)
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(),
		&cache.ListWatch{WatchFuncWithContext: client.Watch})
	if err != nil {
		return fmt.Errorf("watching %s: %w", resource.Resource, err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			u, ok := event.Object.(*unstructured.Unstructured)
			if !ok || u.GetDeletionTimestamp() != nil {
				continue
			}
			value, err := status(ctx, u)
			if err == nil && value != nil {
				var patch []byte
				if patch, err = json.Marshal(map[string]any{"status": value}); err == nil {
					_, err = client.Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch,
						metav1.PatchOptions{FieldManager: "scale"}, "status")
				}
			}
			if err != nil && ctx.Err() == nil {
				progress("playing %s %s/%s: %v", resource.Resource, u.GetNamespace(), u.GetName(), err)
			}
		}
	}()
	return nil
}

// playDeployment makes istiod available. Before that, it gives istiod's webhook a certificate of hypergate's mesh CA.
func (f *fleet) playDeployment(ctx context.Context, d *unstructured.Unstructured) (any, error) {
	var of *hosted
	for _, h := range f.hosted {
		if h.namespace == d.GetNamespace() {
			of = h
		}
	}
	observed, _, _ := unstructured.NestedInt64(d.Object, "status", "observedGeneration")
	if of == nil || d.GetName() != of.istiod() || observed == d.GetGeneration() {
		return nil, nil //nolint:nilnil // nothing to write
	}
	if !of.webhook.Used() {
		ca, err := f.mgmt.typed.CoreV1().Secrets(d.GetNamespace()).Get(ctx, model.CASecretName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if err := of.webhook.Use(ca.Data); err != nil {
			return nil, err
		}
	}
	status := map[string]any{
		"observedGeneration": d.GetGeneration(), "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
	}
	if observed == 0 {
		now := time.Now().UTC().Format(time.RFC3339)
		status["conditions"] = []any{map[string]any{
			"type": string(appsv1.DeploymentAvailable), "status": "True", "reason": "MinimumReplicasAvailable",
			"lastTransitionTime": now, "lastUpdateTime": now,
		}}
	}
	return status, nil
}

// loadBalancerStatus returns a status with an address for a Service of type LoadBalancer that has none, and otherwise
// nil.
func loadBalancerStatus(s *unstructured.Unstructured) any {
	kind, _, _ := unstructured.NestedString(s.Object, "spec", "type")
	had, _, _ := unstructured.NestedSlice(s.Object, "status", "loadBalancer", "ingress")
	if kind != string(corev1.ServiceTypeLoadBalancer) || len(had) > 0 {
		return nil
	}
	host := strings.TrimPrefix(s.GetNamespace(), "clusters-") + ".lb.example.com"
	return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"hostname": host}}}}
}
