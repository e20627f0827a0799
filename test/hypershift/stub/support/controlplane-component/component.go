package controlplanecomponent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/test/hypershift"
)

const (
	workloadFile  = "deployment.yaml"
	kubeAPIServer = "kube-apiserver"
	managedBy     = "hypershift.openshift.io/managed-by"
	version       = "release.openshift.io/version"
)

// DefaultExclusions returns the components that do not wait for kube-apiserver in HyperShift, besides etcd's shards
// (support/controlplane-component/status.go, componentsExcludedFromKubeAPIServerDependency).
func DefaultExclusions() []string {
	return []string{
		"etcd", "featuregate-generator", "control-plane-operator", "cluster-api", "capi-provider", "karpenter-operator", "karpenter",
		"router", "ignition-server", "ignition-server-proxy",
	}
}

// deploymentComponent is a component with a Deployment.
type deploymentComponent struct {
	name         string
	options      ComponentOptions
	predicate    func(WorkloadContext) (bool, error)
	adapters     map[string]*adapter
	dependencies []string
	kubeconfig   ServiceAccountKubeConfigOpts
	monitored    bool
}

// Name returns the name of the component.
func (c *deploymentComponent) Name() string { return c.name }

// Reconcile implements ControlPlaneComponent.
func (c *deploymentComponent) Reconcile(cpContext ControlPlaneContext) error {
	if c.predicate != nil {
		enabled, err := c.predicate(cpContext.workload())
		if err != nil {
			return err
		}
		if !enabled {
			return c.delete(cpContext)
		}
	}
	missing := MissingDependencies(cpContext, c.name, c.dependencies...)
	var problem error
	if len(missing) == 0 {
		problem = c.update(cpContext)
	}
	cpContext.Client.SetStatus(c.name, c.status(cpContext, missing, problem))
	return problem
}

// MissingDependencies returns the components that a component waits for, sorted: kube-apiserver, unless the component
// is excluded, and others. A component counts once it is rolled out at the version of the release.
func MissingDependencies(cpContext ControlPlaneContext, name string, others ...string) []string {
	wanted := slices.Clone(others)
	if !slices.Contains(cpContext.Exclusions, name) {
		wanted = append(wanted, kubeAPIServer)
	}
	wanted = slices.DeleteFunc(wanted, func(dependency string) bool {
		status := cpContext.Client.Status(dependency)
		return dependency == name || status.RolledOut && status.Version == cpContext.ReleaseImageProvider.Version()
	})
	slices.Sort(wanted)
	return slices.Compact(wanted)
}

// files returns the names of all manifests.
func files(folders []string) ([]string, error) {
	var out []string
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			out = append(out, entry.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// rendered returns the objects of the component, in the order in which they are written.
func (c *deploymentComponent) rendered(cpContext ControlPlaneContext, skip func(file string) bool) ([]*unstructured.Unstructured, error) {
	if c.options.IsRequestServing() || c.options.MultiZoneSpread() {
		return nil, errors.New("this stand-in does not know components that serve requests or are spread over zones")
	}
	adapt := map[string]func(*unstructured.Unstructured) error{}
	for file, a := range c.adapters {
		if a.adapt != nil {
			adapt[file] = func(u *unstructured.Unstructured) error { return a.adapt(cpContext.workload(), u) }
		}
	}
	return hypershift.Component{
		Name: c.name, Assets: cpContext.Assets, ManagementAccess: c.options.NeedsManagementKASAccess(),
		KubeconfigMount: c.kubeconfig.MountPath, Images: map[string]string{c.name: cpContext.ReleaseImageProvider.GetImage(c.name)},
		Adapt: adapt, Skip: skip,
	}.Render(planeOf(cpContext.HCP))
}

// planeOf returns the fields of a HostedControlPlane that pods depend on.
func planeOf(hcp *hyperv1.HostedControlPlane) hypershift.ControlPlane {
	return hypershift.ControlPlane{
		Namespace: hcp.Namespace, Labels: hcp.Spec.Labels, Tolerations: hcp.Spec.Tolerations, NodeSelector: hcp.Spec.NodeSelector,
		HighlyAvailable: hcp.Spec.ControllerAvailabilityPolicy != hyperv1.SingleReplica,
		PriorityClass:   hcp.Annotations[hyperv1.ControlPlanePriorityClass],
	}
}

// update writes the manifests whose predicates are true, then the kubeconfig and the Deployment. It deletes the others.
func (c *deploymentComponent) update(cpContext ControlPlaneContext) error {
	excluded := func(file string) bool {
		a := c.adapters[file]
		return a != nil && a.predicate != nil && !a.predicate(cpContext.workload())
	}
	objects, err := c.rendered(cpContext, excluded)
	if err != nil {
		return err
	}
	unwanted, err := c.unwanted(cpContext, excluded)
	if err != nil {
		return err
	}
	for _, u := range unwanted {
		cpContext.Client.Delete(u.GetKind(), u.GetName())
	}
	for _, u := range objects {
		cpContext.Client.Put(u)
	}
	return nil
}

// unwanted returns the objects of the manifests that are excluded.
func (c *deploymentComponent) unwanted(
	cpContext ControlPlaneContext, excluded func(file string) bool,
) ([]*unstructured.Unstructured, error) {
	all, err := files(cpContext.Assets)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, file := range all {
		if file == workloadFile || !excluded(file) {
			continue
		}
		u, err := hypershift.Component{Name: c.name, Assets: cpContext.Assets}.Manifest(file, planeOf(cpContext.HCP))
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// delete deletes the Deployment and the objects of all manifests, by name.
func (c *deploymentComponent) delete(cpContext ControlPlaneContext) error {
	cpContext.Client.Delete("Deployment", c.name)
	all, err := c.unwanted(cpContext, func(string) bool { return true })
	if err != nil {
		return err
	}
	for _, u := range all {
		cpContext.Client.Delete(u.GetKind(), u.GetName())
	}
	cpContext.Client.SetStatus(c.name, Status{})
	return nil
}

// status returns the status of the component's ControlPlaneComponent.
func (c *deploymentComponent) status(cpContext ControlPlaneContext, missing []string, problem error) Status {
	out := Status{Exists: true, Version: cpContext.Client.Status(c.name).Version}
	switch {
	case len(missing) > 0:
		out.Message = "Waiting for Dependencies: " + strings.Join(missing, ", ")
	case problem != nil:
		out.Message = problem.Error()
	default:
		if out.Message = c.operandsProblem(cpContext); out.Message == "" {
			out.RolledOut, out.Version = true, cpContext.ReleaseImageProvider.Version()
		}
	}
	return out
}

// operandsProblem returns why the rollout waits for operands. It is empty if it does not.
func (c *deploymentComponent) operandsProblem(cpContext ControlPlaneContext) string {
	if !c.monitored {
		return ""
	}
	for _, u := range cpContext.Client.All("Deployment") {
		if u.GetLabels()[managedBy] != c.name {
			continue
		}
		ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
		wanted, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		switch got := u.GetAnnotations()[version]; {
		case got != cpContext.ReleaseImageProvider.Version():
			return fmt.Sprintf("deployment %s has version %q", u.GetName(), got)
		case ready != wanted:
			return fmt.Sprintf("deployment %s is not ready", u.GetName())
		}
	}
	return ""
}
