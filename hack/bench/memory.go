package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The bars of the memory at rest. rssBar is what the Deployments of deploy/ request: the scheduler counts on it.
const (
	mib        = 1 << 20
	rssAnonBar = 16 * mib
	rssBar     = 60 * mib
)

// measureMemory installs into a guest with many foreign objects, and reads the controller's memory at rest.
func measureMemory(ctx context.Context, w *environment, r *report) error {
	if err := errors.Join(w.uninstall(ctx), w.crowd(ctx), w.quiet(ctx)); err != nil {
		return err
	}
	if _, err := w.install(ctx); err != nil {
		return err
	}
	// The figures are the maximum of the second half of a rest, because memory is higher directly after work.
	rest := min(w.opts.rest, 30*time.Second)
	worst := map[string]int{}
	for i := range 4 {
		select {
		case <-time.After(rest / 4):
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := w.controller.memory()
		if err != nil {
			return err
		}
		for name, bytes := range now {
			if i >= 2 {
				worst[name] = max(worst[name], bytes)
			}
		}
	}
	show := r.addMemory(fmt.Sprintf("memory at rest, %d foreign ConfigMaps, %d foreign CRDs: ", w.opts.configMaps, w.opts.crds), worst)
	binary, err := os.Stat(w.binary)
	if err != nil {
		return fmt.Errorf("reading the size of the binary: %w", err)
	}
	r.add(row{What: "size of the binary", Bar: "reported", Measured: fmt.Sprintf("%d bytes", binary.Size())})
	r.note("Memory: of the RSS, %s are pages of the binary; the peak since the start (VmHWM) was %s. The sail library: "+
		"118 MB RSS.", show("RssFile"), show("VmHWM"))
	return w.uninstall(ctx)
}

// addMemory adds the rows of the memory at rest, and returns how to show a figure. Without a figure, no bar is met.
func (r *report) addMemory(what string, worst map[string]int) (show func(string) string) {
	show = func(name string) string { return fmt.Sprintf("%.1f MiB", float64(worst[name])/mib) }
	add := func(what, name string, bar int, values map[string]any) {
		r.add(row{
			What: what, Bar: fmt.Sprintf("<= %d MiB", bar/mib), Measured: show(name),
			Met: new(worst[name] > 0 && worst[name] <= bar), Values: values,
		})
	}
	add(what+"RssAnon", "RssAnon", rssAnonBar, map[string]any{"bytes": worst})
	add("  RSS", "VmRSS", rssBar, nil)
	return show
}

// crowd fills the guest with foreign ConfigMaps and CRDs. The CRDs are small. Every fifth CRD has a last-applied
// annotation of 16 KiB, as kubectl apply writes it, because hypergate watches metadata.
func (w *environment) crowd(ctx context.Context) error {
	progress("creating %d ConfigMaps and %d CRDs in the guest", w.opts.configMaps, w.opts.crds)
	const namespace = "foreign"
	if err := w.guest.createNamespace(ctx, namespace); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	configMaps := w.guest.objects.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
	for i := range w.opts.configMaps {
		group.Go(func() error {
			_, err := configMaps.Create(ctx, foreignConfigMap(i), metav1.CreateOptions{})
			return err
		})
	}
	foreignCRDs := w.guest.objects.Resource(crds())
	for i := range w.opts.crds {
		group.Go(func() error {
			_, err := foreignCRDs.Create(ctx, foreignCRD(i), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("filling the guest: %w", err)
	}
	return nil
}

func foreignConfigMap(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("foreign-%d", i)},
		"data": map[string]any{"content": strings.Repeat("x", 1024)},
	}}
}

func foreignCRD(i int) *unstructured.Unstructured {
	group, name := fmt.Sprintf("g%d.example.com", i%50), fmt.Sprintf("thing%d", i)
	annotations := map[string]any{"controller-gen.kubebuilder.io/version": "v0.18.0"}
	if i%5 == 0 {
		annotations["kubectl.kubernetes.io/last-applied-configuration"] = strings.Repeat("x", 16<<10)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name + "s." + group, "annotations": annotations},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Thing" + fmt.Sprint(i), "singular": name, "plural": name + "s"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}
