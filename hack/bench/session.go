package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// installOnce creates the installation that several parts share.
func (w *environment) installOnce(ctx context.Context) error {
	if w.installedAt != nil {
		return nil
	}
	m, err := w.install(ctx)
	w.installedAt = &m
	return err
}

// install clears both clusters, starts the controller, creates a GatewayClass, and simulates istiod. It returns when
// the webhook is proven and the controller sends no more requests. The returned mark is the time at which install
// creates the GatewayClass.
func (w *environment) install(ctx context.Context) (mark, error) {
	if err := errors.Join(w.clear(ctx), w.startController(ctx)); err != nil {
		return mark{}, err
	}
	m, err := w.mark()
	if err != nil {
		return m, err
	}
	if err := w.createClass(ctx); err != nil {
		return m, err
	}
	err = w.until(ctx, "istiod's Deployment is there", func(ctx context.Context) (bool, error) {
		_, err := w.mgmt.objects.Resource(deployments()).Namespace(w.cfg.MgmtNamespace).Get(ctx, w.cfg.IstiodName(), metav1.GetOptions{})
		return err == nil, ignoreNotFound(err)
	})
	if err != nil {
		return m, err
	}
	ca, err := w.meshCA(ctx)
	if err != nil {
		return m, err
	}
	if err := w.webhook.Use(ca); err != nil {
		return m, err
	}
	if err := w.startPlayer(ctx); err != nil {
		return m, err
	}
	return m, w.untilProven(ctx)
}

// untilProven waits until hypergate has proven the webhook and sends no more requests. It waits for a silent controller
// first and last, because hypergate has perhaps not observed yet that there is more to do.
func (w *environment) untilProven(ctx context.Context) error {
	if err := w.settle(ctx); err != nil {
		return err
	}
	webhooks := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	err := w.until(ctx, "the webhook fails closed, since it was seen to work", func(ctx context.Context) (bool, error) {
		list, err := w.guest.objects.Resource(webhooks).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false, err
		}
		hooks, _, _ := unstructured.NestedSlice(list.Items[0].Object, "webhooks")
		hook, _ := hooks[0].(map[string]any)
		return hook["failurePolicy"] == string(admissionregistrationv1.Fail), nil
	})
	if err != nil {
		return err
	}
	return w.settle(ctx)
}

// startPlayer simulates the Deployment controller and istiod's pod: each Deployment becomes available at once.
func (w *environment) startPlayer(ctx context.Context) error {
	ctx, w.stopPlaying = context.WithCancel(ctx)
	client := w.mgmt.objects.Resource(deployments()).Namespace(w.cfg.MgmtNamespace)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watching istiod's Deployment: %w", err)
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(),
		&cache.ListWatch{WatchFuncWithContext: client.Watch})
	if err != nil {
		return fmt.Errorf("watching istiod's Deployment: %w", err)
	}
	play := func(obj runtime.Object) {
		d, ok := obj.(*unstructured.Unstructured)
		if !ok || d.GetName() != w.cfg.IstiodName() {
			return
		}
		if patch := deploymentStatus(d); patch != nil {
			// If the Deployment was deleted or changed in the meantime, another event follows.
			_, _ = client.Patch(ctx, d.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "bench"}, "status")
		}
	}
	for i := range list.Items {
		play(&list.Items[i])
	}
	go func() {
		for event := range watcher.ResultChan() {
			play(event.Object)
		}
	}()
	return nil
}

// deploymentStatus returns a patch that makes a Deployment available. It returns nil if the status is up to date.
func deploymentStatus(d *unstructured.Unstructured) []byte {
	observed, _, _ := unstructured.NestedInt64(d.Object, "status", "observedGeneration")
	if observed == d.GetGeneration() || d.GetDeletionTimestamp() != nil {
		return nil
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
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return nil
	}
	return patch
}

func (w *environment) stopPlayer() {
	if w.stopPlaying != nil {
		w.stopPlaying()
		w.stopPlaying = nil
	}
}

// uninstall stops the controller and removes all objects of the installation.
func (w *environment) uninstall(ctx context.Context) error {
	w.stopPlayer()
	w.installedAt = nil
	if err := w.stopController(); err != nil {
		return err
	}
	return w.clear(ctx)
}

// measureWrites lists the writes of the shared installation.
func measureWrites(_ context.Context, w *environment, r *report) error {
	requests, err := w.requests(*w.installedAt)
	if err != nil {
		return err
	}
	byKind, byObject := map[kind]int{}, map[string]int{}
	for _, e := range requests {
		byKind[e.kind()]++
		if e.kind() == kindWrite {
			byObject[e.id()]++
		}
	}
	onlyOnce := true
	for id, n := range byObject {
		onlyOnce = onlyOnce && (n == 1 || n == 2 && isWebhook(id))
	}
	r.add(row{
		What: "writes during install, with the admission stage", Bar: "1 per object + status + token",
		Measured: fmt.Sprintf("%d objects, %d writes; %d status, %d token",
			len(byObject), byKind[kindWrite], byKind[kindStatus], byKind[kindToken]),
		Met:    new(onlyOnce),
		Values: map[string]any{"objects": len(byObject), "requests": byKind, "writesPerObject": byObject},
	})
	r.note("Writes of the installation, beside one to each of its %d objects: %s.\nThe webhook is written twice: "+
		"with failure policy Ignore when istiod is available, "+
		"with Fail once a dry run was seen to be refused by it. Reads: %d.",
		len(byObject), describe(besides(requests, byObject)), byKind[kindRead])
	return nil
}

func isWebhook(id string) bool { return strings.Contains(id, "validatingwebhookconfigurations") }

// besides returns all requests except reads and the first write of each object.
func besides(requests []event, objects map[string]int) []event {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(requests), func(e event) bool {
		first := e.kind() == kindWrite && objects[e.id()] > 0 && !seen[e.id()]
		seen[e.id()] = seen[e.id()] || first
		return first || e.kind() == kindRead
	})
}

// describe counts requests by kind and object, for example "2 status of guest gatewayclasses openshift-default".
func describe(requests []event) string {
	counts := map[string]int{}
	for _, e := range requests {
		counts[string(e.kind())+" of "+e.id()]++
	}
	out := make([]string, 0, len(counts))
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[text], text))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// measureRest counts the requests of the installed controller at rest.
func measureRest(ctx context.Context, w *environment, r *report) error {
	m, err := w.mark()
	if err != nil {
		return err
	}
	select {
	case <-time.After(w.opts.rest):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := w.controller.alive(); err != nil {
		return err
	}
	events, err := w.since(m)
	if err != nil {
		return err
	}
	count := map[string]int{}
	var active []event
	for _, e := range events {
		if !e.byController() {
			continue
		}
		count[fmt.Sprintf("%s %s", e.Side, e.kind())]++
		if e.kind() != kindWatch && e.kind() != kindLease {
			active = append(active, e)
		}
	}
	reads := len(slices.DeleteFunc(slices.Clone(active), func(e event) bool { return e.kind() != kindRead }))
	r.add(row{
		What: fmt.Sprintf("at rest, %s, both sides", w.opts.rest), Bar: "0 reads, 0 writes but watches and our Lease",
		Measured: fmt.Sprintf("%d reads, %d writes (%d for the Lease)",
			reads, len(active)-reads, count["management lease"]+count["guest lease"]),
		Met: new(len(active) == 0), Values: map[string]any{"requests": count},
	})
	if len(active) > 0 {
		r.note("Requests at rest: %s.", describe(active))
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
