package guest

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// appendNamed adds an object to a list, up to inventoryObjects.
func appendNamed(list []migration.Object, kind string, u *unstructured.Unstructured) []migration.Object {
	if len(list) >= inventoryObjects {
		return list
	}
	return append(list, migration.Object{Kind: kind, Namespace: bounded(u.GetNamespace(), maxName), Name: bounded(u.GetName(), maxName)})
}

// objects returns the first objects of a resource.
func (r *inventoryReader) objects(
	ctx context.Context, kind string, gvr schema.GroupVersionResource, options metav1.ListOptions,
	counts func(*unstructured.Unstructured) bool,
) (out []migration.Object, err error) {
	err = r.each(ctx, gvr, "", options, func(u *unstructured.Unstructured) bool {
		if counts(u) {
			out = appendNamed(out, kind, u)
		}
		return len(out) < inventoryObjects
	})
	return out, err
}

func always(*unstructured.Unstructured) bool { return true }

// foreign reads objects of Istio's kinds that the origin serves and hypergate's istiod does not.
func (r *inventoryReader) foreign(ctx context.Context) error {
	if r.out.Origin.Deployment == nil {
		return nil
	}
	forOrigin := func(u *unstructured.Unstructured) bool {
		revision := u.GetLabels()[revisionLabel]
		return revision == "" || revision == r.c.cfg.Revision
	}
	for _, kind := range model.IstioKinds() {
		if slices.Contains(r.c.cfg.IstioResources, kind.IstioResource) || !r.served(kind.CRD()) {
			continue
		}
		gvr := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Resource}
		found, err := r.objects(ctx, kind.Kind, gvr, metav1.ListOptions{}, forOrigin)
		if err != nil {
			return err
		}
		r.out.Foreign = append(r.out.Foreign, found...)
	}
	return nil
}

// served reports whether the origin serves a resource (pkg/kube/kclient/crdwatcher.go of Istio, filterPilotResources).
func (r *inventoryReader) served(crd string) bool {
	matches := func(filters []string) bool {
		return slices.ContainsFunc(filters, func(filter string) bool {
			suffix, is := strings.CutPrefix(strings.TrimSpace(filter), "*")
			return is && suffix != "" && strings.HasSuffix(crd, suffix) || !is && suffix == crd
		})
	}
	return !matches(r.ignored) || matches(r.included)
}

// alpha reads objects that only a later Istio serves without alpha features. The first version of a resource that the
// guest serves shows all of them.
func (r *inventoryReader) alpha(ctx context.Context) error {
	r.out.Alpha = slices.Clone(r.passthrough)
	for _, kind := range []struct {
		kind, group, resource string
		versions              []string
	}{
		{"TLSRoute", gatewayGroup, "tlsroutes", []string{"v1", "v1alpha3", "v1alpha2"}},
		{"ListenerSet", gatewayGroup, "listenersets", []string{"v1"}},
		{"XListenerSet", experimentalGroup, "xlistenersets", []string{"v1alpha1"}},
	} {
		if !r.served(kind.resource + "." + kind.group) {
			continue
		}
		for _, version := range kind.versions {
			gvr := schema.GroupVersionResource{Group: kind.group, Version: version, Resource: kind.resource}
			found, err := r.objects(ctx, kind.kind, gvr, metav1.ListOptions{}, always)
			if err != nil {
				return err
			}
			if r.out.Alpha = append(r.out.Alpha, found...); len(found) > 0 {
				break
			}
		}
	}
	r.out.Unread = slices.Compact(r.out.Unread) // one line for all versions
	return nil
}

// sidecars reads the namespaces and pods that the origin injects.
func (r *inventoryReader) sidecars(ctx context.Context) error {
	injected := revisionLabel + "=" + r.c.cfg.Revision
	for _, kind := range []struct {
		kind, selector string
		gvr            schema.GroupVersionResource
	}{
		{"Namespace", injected, namespaceResource()},
		{"Pod", injected + ",app!=istiod,!" + gatewayNameLabel, podResource()},
	} {
		found, err := r.objects(ctx, kind.kind, kind.gvr, metav1.ListOptions{LabelSelector: kind.selector}, always)
		if err != nil {
			return err
		}
		r.out.Sidecars = append(r.out.Sidecars, found...)
	}
	return nil
}
