package guest

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// The CRDs of OpenShift's configuration that hypergate reads. The settings are in one object of each, with the name
// "cluster" (openshift/api, config/v1).
const (
	infrastructureCRD = "infrastructures.config.openshift.io"
	proxyCRD          = "proxies.config.openshift.io"
	apiServerCRD      = "apiservers.config.openshift.io"
	configObject      = "cluster"
)

// openShiftConfig watches one of these objects, while its CRD exists. T is the part of the object that is kept. Without
// the object, it is the zero value.
type openShiftConfig[T any] struct {
	*watch.Switch
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
}

// configItem is the part of the object that is kept. Of an object with another name, it is only the identity: an API
// server of the guest's own can ignore the field selector, and show very many.
type configItem[T any] struct {
	metav1.ObjectMeta
	value T
	// size is the memory of value, in bytes.
	size int
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *configItem[T]) KeptBytes() int { return i.size }

// configReader returns what an object says, and the memory of that, in bytes.
type configReader[T any] func(*unstructured.Unstructured) (value T, size int)

func newOpenShiftConfig[T any](
	resource, kind string, read configReader[T], client dynamic.Interface, budget *watch.Budget, notify func(),
) openShiftConfig[T] {
	version := schema.GroupVersion{Group: "config.openshift.io", Version: "v1"}
	gvr := version.WithResource(resource)
	return openShiftConfig[T]{kind: version.WithKind(kind), resource: gvr, Switch: watch.NewSwitch(watch.Options{
		Name: resource,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = "metadata.name=" + configObject
			return client.Resource(gvr).List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = "metadata.name=" + configObject
			return client.Resource(gvr).Watch(ctx, o)
		},
		Example: &unstructured.Unstructured{}, Client: client, Patience: servedPatience, Budget: budget,
		Transform: keeps(configOnly(read)),
		OnEvent:   func(watch.Event) { notify() }, OnSynced: notify, OnProblem: notify,
	})}
}

// configOnly returns a function that keeps what read returns.
func configOnly[T any](read configReader[T]) func(*unstructured.Unstructured) *configItem[T] {
	return func(u *unstructured.Unstructured) *configItem[T] {
		out := &configItem[T]{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}}
		if out.Name == configObject {
			out.value, out.size = read(u)
		}
		return out
	}
}

// value returns what the object says. It is the zero value while the object is unread.
func (w openShiftConfig[T]) value() T {
	obj, _ := w.Get(configObject)
	if item, ok := obj.(*configItem[T]); ok {
		return item.value
	}
	var none T
	return none
}

// pending reports whether the value can still change because its watch has not synced. Without it, a restart of
// hypergate would change gateways, and change them back. A resource that is not served is not waited for. One that
// hypergate is not allowed to read is not either: it stays unread.
func (w openShiftConfig[T]) pending() bool {
	return w.On() != nil && !w.Synced() && !apierrors.IsNotFound(w.Err()) && !w.unread()
}

// unread reports whether hypergate is not allowed to read the object and has not read it before.
func (w openShiftConfig[T]) unread() bool { return !w.Synced() && apierrors.IsForbidden(w.Err()) }

// watchProblem returns why the object cannot be read.
func (w openShiftConfig[T]) watchProblem() []apply.WatchProblem {
	err := w.Err()
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return []apply.WatchProblem{{GVK: w.kind, Cause: apply.Classify(err, "list", w.resource.GroupResource())}}
}

// topologyOf returns for how many nodes the guest's infrastructure is made.
func topologyOf(u *unstructured.Unstructured) (topology model.InfrastructureTopology, size int) {
	text, _, _ := unstructured.NestedString(u.Object, "status", "infrastructureTopology")
	topology = model.TopologyNamed(text)
	return topology, sizeOf(string(topology))
}

// proxySettings are the proxy settings that gateways can use, and descriptions of those that they cannot use.
type proxySettings struct {
	usable  model.Proxy
	ignored []string
}

// proxyOf returns the guest's proxy settings. As in cluster-ingress-operator, they come from the status: OpenShift's
// network operator copies the valid ones there, and adds the guest's own networks to noProxy.
func proxyOf(u *unstructured.Unstructured) (settings proxySettings, size int) {
	text := func(field string) string {
		out, _, _ := unstructured.NestedString(u.Object, "status", field)
		return out
	}
	proxy, ignored := model.UsableProxy(model.Proxy{HTTP: text("httpProxy"), HTTPS: text("httpsProxy"), No: text("noProxy")})
	return proxySettings{proxy, ignored}, sizeOf(proxy.HTTP, proxy.HTTPS, proxy.No) + sizeOf(ignored...)
}

// tlsProfileOf returns the TLS security profile of a cluster. A field of another type than text, or than a list of
// texts, counts as not set.
func tlsProfileOf(u *unstructured.Unstructured) (profile model.TLSProfile, size int) {
	text := func(fields ...string) string {
		out, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, fields...)...)
		return out
	}
	texts := func(field string) []string {
		out, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "tlsSecurityProfile", "custom", field)
		return out
	}
	profile = model.TLSProfile{
		Type: text("tlsSecurityProfile", "type"), Adherence: text("tlsAdherence"),
		Ciphers: texts("ciphers"), Groups: texts("groups"), MinVersion: text("tlsSecurityProfile", "custom", "minTLSVersion"),
	}.Bounded()
	return profile, sizeOf(profile.Type, profile.Adherence, profile.MinVersion) + sizeOf(profile.Ciphers...) + sizeOf(profile.Groups...)
}

// sizeOf returns the memory of texts, in bytes.
func sizeOf(texts ...string) int {
	n := stringSize * len(texts)
	for _, text := range texts {
		n += len(text)
	}
	return n
}
