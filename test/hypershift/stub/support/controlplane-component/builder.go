package controlplanecomponent

import (
	"context"
	"fmt"
	"reflect"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"github.com/openshift/hypershift/control-plane-operator/controllers/hostedcontrolplane/imageprovider"
	"github.com/openshift/hypershift/support/metrics"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControlPlaneComponent is a component of a hosted control plane.
type ControlPlaneComponent interface {
	Name() string
	// Reconcile makes the objects of the component what they should be. It returns the error of the predicate, of an
	// adapt function or of a manifest.
	Reconcile(cpContext ControlPlaneContext) error
}

// ComponentOptions are the properties of a component that are code.
type ComponentOptions interface {
	IsRequestServing() bool
	MultiZoneSpread() bool
	NeedsManagementKASAccess() bool
}

// ControlPlaneContext is what a reconciliation has.
type ControlPlaneContext struct {
	context.Context //nolint:containedctx // as in HyperShift

	Client                   *Store
	HCP                      *hyperv1.HostedControlPlane
	ReleaseImageProvider     imageprovider.ReleaseImageProvider
	UserReleaseImageProvider imageprovider.ReleaseImageProvider
	MetricsSet               metrics.MetricsSet

	// Assets are the folders with the manifests. In HyperShift they are embedded.
	Assets []string
	// Exclusions are the components that do not wait for kube-apiserver. In HyperShift they are a variable.
	Exclusions []string
}

// WorkloadContext is what predicates and adapt functions have. It only reads.
type WorkloadContext struct {
	context.Context //nolint:containedctx // as in HyperShift

	Client                   client.Reader
	HCP                      *hyperv1.HostedControlPlane
	ReleaseImageProvider     imageprovider.ReleaseImageProvider
	UserReleaseImageProvider imageprovider.ReleaseImageProvider
	MetricsSet               metrics.MetricsSet
}

func (c ControlPlaneContext) workload() WorkloadContext {
	return WorkloadContext{c.Context, c.Client, c.HCP, c.ReleaseImageProvider, c.UserReleaseImageProvider, c.MetricsSet}
}

// ServiceAccountKubeConfigOpts are the options of the kubeconfig of a service account of the guest.
type ServiceAccountKubeConfigOpts struct {
	Name, Namespace, MountPath, ContainerName string
}

// Predicate reports whether a manifest exists.
type Predicate func(cpContext WorkloadContext) bool

type adapter struct {
	adapt     func(WorkloadContext, *unstructured.Unstructured) error
	predicate Predicate
}

// option changes how a manifest is handled. As in HyperShift, no other package can name it.
type option func(*adapter)

// WithPredicate makes a manifest depend on a predicate. If it is false, the object is deleted.
func WithPredicate(predicate Predicate) option {
	return func(a *adapter) { a.predicate = predicate }
}

// WithAdaptFunction makes a function change the object of a manifest.
func WithAdaptFunction[T client.Object](adapt func(WorkloadContext, T) error) option {
	return func(a *adapter) {
		a.adapt = func(cpContext WorkloadContext, u *unstructured.Unstructured) error {
			return adapted(cpContext, u, adapt)
		}
	}
}

// adapted calls an adapt function for an object without a type.
func adapted[T client.Object](cpContext WorkloadContext, u *unstructured.Unstructured, adapt func(WorkloadContext, T) error) error {
	typed, is := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	if !is {
		return fmt.Errorf("%s is not a pointer to a type", reflect.TypeFor[T]())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return err
	}
	if err := adapt(cpContext, typed); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	u.Object = content
	unstructured.RemoveNestedField(u.Object, "status")
	removeNulls(u.Object)
	return err
}

// removeNulls removes the fields without a value, which an API server does not store.
func removeNulls(fields map[string]any) {
	for name, value := range fields {
		switch value := value.(type) {
		case nil:
			delete(fields, name)
		case map[string]any:
			removeNulls(value)
		}
	}
}

// controlPlaneWorkloadBuilder builds a component with a workload. It has HyperShift's name, which is not exported, so
// that a component which names it does not compile here either.
type controlPlaneWorkloadBuilder[T client.Object] struct{ built deploymentComponent }

// NewDeploymentComponent returns a builder of a component with a Deployment of its name.
func NewDeploymentComponent(name string, options ComponentOptions) *controlPlaneWorkloadBuilder[*appsv1.Deployment] {
	built := deploymentComponent{name: name, options: options, adapters: map[string]*adapter{}}
	return &controlPlaneWorkloadBuilder[*appsv1.Deployment]{built}
}

// WithPredicate makes the component depend on a predicate. If it is false, the component is deleted.
func (b *controlPlaneWorkloadBuilder[T]) WithPredicate(
	predicate func(WorkloadContext) (bool, error),
) *controlPlaneWorkloadBuilder[T] {
	b.built.predicate = predicate
	return b
}

// WithAdaptFunction makes a function change the workload.
func (b *controlPlaneWorkloadBuilder[T]) WithAdaptFunction(
	adapt func(WorkloadContext, T) error,
) *controlPlaneWorkloadBuilder[T] {
	return b.WithManifestAdapter(workloadFile, WithAdaptFunction(adapt))
}

// WithManifestAdapter changes how a manifest is handled.
func (b *controlPlaneWorkloadBuilder[T]) WithManifestAdapter(file string, options ...option) *controlPlaneWorkloadBuilder[T] {
	a := &adapter{}
	for _, change := range options {
		change(a)
	}
	b.built.adapters[file] = a
	return b
}

// WithDependencies makes the component wait for other components.
func (b *controlPlaneWorkloadBuilder[T]) WithDependencies(names ...string) *controlPlaneWorkloadBuilder[T] {
	b.built.dependencies = append(b.built.dependencies, names...)
	return b
}

// InjectServiceAccountKubeConfig mounts a kubeconfig for the guest with a client certificate.
func (b *controlPlaneWorkloadBuilder[T]) InjectServiceAccountKubeConfig(
	options ServiceAccountKubeConfigOpts,
) *controlPlaneWorkloadBuilder[T] {
	b.built.kubeconfig = options
	return b
}

// MonitorOperandsRolloutStatus makes the rollout of the component wait for its operands.
func (b *controlPlaneWorkloadBuilder[T]) MonitorOperandsRolloutStatus() *controlPlaneWorkloadBuilder[T] {
	b.built.monitored = true
	return b
}

// Build returns the component.
func (b *controlPlaneWorkloadBuilder[T]) Build() ControlPlaneComponent { return &b.built }
