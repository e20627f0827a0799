package hypershift_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/golden"
	"github.com/hypergate/hypergate/test/hypershift"
)

// component returns the objects that the framework renders from deploy/cpo.
func component(t *testing.T, plane hypershift.ControlPlane) []*unstructured.Unstructured {
	t.Helper()
	return rendered(t, hypershift.Hypergate, plane)
}

// byRoute returns those of the alternative with a Route.
func byRoute(t *testing.T, plane hypershift.ControlPlane) []*unstructured.Unstructured {
	t.Helper()
	return rendered(t, hypershift.HypergateByRoute, plane)
}

func rendered(t *testing.T, of func() (hypershift.Component, error), plane hypershift.ControlPlane) []*unstructured.Unstructured {
	t.Helper()
	c, err := of()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := c.Render(plane)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// only returns the single object of a kind.
func only(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, u := range objects {
		if u.GetKind() == kind {
			found = append(found, u)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects of kind %s", len(found), kind)
	}
	return found[0]
}

// TestComponent compares the framework's objects with golden files: all objects for one control plane, and the
// Deployment for other ones.
func TestComponent(t *testing.T) {
	check := func(t *testing.T, name string, objects ...*unstructured.Unstructured) {
		t.Helper()
		var got []byte
		for _, u := range objects {
			data, err := yaml.Marshal(u.Object)
			if err != nil {
				t.Fatal(err)
			}
			got = append(append(got, "---\n"...), data...)
		}
		golden.Equal(t, filepath.Join("testdata", "cpo", strings.ReplaceAll(name, " ", "-")+".yaml"), got)
	}
	check(t, "single replica", component(t, variants()["single replica"].rules)...)
	check(t, "by route", byRoute(t, variants()["single replica"].rules)...)
	for _, name := range []string{"highly available", "dedicated nodes", "custom", "all at once"} {
		check(t, name, only(t, component(t, variants()[name].rules), "Deployment"))
	}
}

// TestComponentKeepsTheRules checks all rules in each kind of control plane. Unlike deploy/hosted, deploy/cpo leaves
// nothing to the integrator.
func TestComponentKeepsTheRules(t *testing.T) {
	for name, v := range variants() {
		t.Run(name, func(t *testing.T) {
			for _, broken := range hypershift.Broken(deploymentOf(t, only(t, component(t, v.rules), "Deployment")), v.rules, true) {
				t.Error(broken)
			}
		})
	}
}

// TestServiceBeforeRoute checks the order and the properties of the Service. HyperShift's routers stop at a Route
// whose Service is missing.
//
// The Service leads to istiod, so it must not be a possible target of the guest's webhooks. Its name must not be a
// prefix of the host name of hypergate's own webhook Service, because HyperShift would delete that Service.
func TestServiceBeforeRoute(t *testing.T) {
	objects := byRoute(t, hypershift.ControlPlane{Namespace: namespace})
	service, route := only(t, objects, "Service"), only(t, objects, "Route")
	if slices.Index(objects, service) > slices.Index(objects, route) {
		t.Error("the Route is created first")
	}
	if to, _, _ := unstructured.NestedString(route.Object, "spec", "to", "name"); to != service.GetName() ||
		route.GetName() != model.ControlPlaneRoute {
		t.Errorf("Route %s leads to %s, and the Service is %s; hypergate looks for Route %s", route.GetName(), to, service.GetName(),
			model.ControlPlaneRoute)
	}
	if webhook := "gw-webhook-openshift-gateway"; len(service.GetLabels()) != 0 || strings.HasPrefix(webhook, service.GetName()) {
		t.Errorf("Service %s has labels %v, or its name is a prefix of the webhook's host", service.GetName(), service.GetLabels())
	}
	pods, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	labels := istiod(t, newPlanner(t), variants()["highly available"].plane).Spec.Template.Labels
	for key, value := range pods {
		if labels[key] != value {
			t.Errorf("the Service is for pods with %s %q, and istiod's have %q", key, value, labels[key])
		}
	}
}

// TestComponentMayDoWhatHostedMay checks that the Roles of deploy/cpo with a Route equal the Roles of deploy/hosted,
// except for TLSRoutes, and that without a Route no permission is for Routes.
func TestComponentMayDoWhatHostedMay(t *testing.T) {
	lines := func(objects []*unstructured.Unstructured) []string {
		roles, err := audit.RolesOf(objects)
		if err != nil {
			t.Fatal(err)
		}
		all := slices.Sorted(slices.Values(audit.Lines(audit.Permissions(roles))))
		return slices.DeleteFunc(slices.Compact(all), func(line string) bool { return strings.Contains(line, "tlsroutes") })
	}
	hosted, err := deploy.Render("hosted/example")
	if err != nil {
		t.Fatal(err)
	}
	got := lines(byRoute(t, hypershift.ControlPlane{Namespace: namespace}))
	if diff := cmp.Diff(lines(hosted), got); diff != "" || len(got) < 20 {
		t.Errorf("%d permissions (-deploy/hosted +deploy/cpo):\n%s", len(got), diff)
	}
	want := slices.DeleteFunc(got, func(line string) bool { return strings.Contains(line, "routes") })
	if diff := cmp.Diff(want, lines(component(t, hypershift.ControlPlane{Namespace: namespace}))); diff != "" {
		t.Errorf("without a Route (-deploy/hosted +deploy/cpo):\n%s", diff)
	}
}

// TestTheOperatorNeedsNoMore checks that deploy/cpo adds no permission to the control plane operator's Role that
// hypergate's Role lacks: the operator needs a permission only to grant it. A rule without names is such a permission.
func TestTheOperatorNeedsNoMore(t *testing.T) {
	lines := func(objects []*unstructured.Unstructured) []string {
		roles, err := audit.RolesOf(objects)
		if err != nil {
			t.Fatal(err)
		}
		return audit.Lines(audit.Permissions(roles))
	}
	addition := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(readFile(t, "deploy", "cpo", "control-plane-operator-role.yaml"), &addition.Object); err != nil {
		t.Fatal(err)
	}
	addition.SetNamespace(namespace)
	added, granted := lines([]*unstructured.Unstructured{addition}), lines(component(t, hypershift.ControlPlane{Namespace: namespace}))
	if len(added) < 5 {
		t.Fatalf("only %d permissions are added: %q", len(added), added)
	}
	for _, line := range added {
		if !slices.Contains(granted, line) {
			t.Errorf("the operator gets %q, which hypergate does not have", line)
		}
	}
}

// TestRoutesKeepTheRule checks HyperShift's rule for Routes: the Route of the component keeps it, and a Route without
// the label does not.
func TestRoutesKeepTheRule(t *testing.T) {
	plane := hypershift.ControlPlane{Namespace: namespace, APIServerByRoute: true}
	objects := byRoute(t, plane)
	if broken := hypershift.BrokenRoutes(objects, plane); len(broken) > 0 {
		t.Error(broken)
	}
	only(t, objects, "Route").SetLabels(nil)
	if broken := hypershift.BrokenRoutes(objects, plane); len(broken) != 1 {
		t.Errorf("a Route without the label: %q", broken)
	}
	plane.APIServerByRoute = false
	if broken := hypershift.BrokenRoutes(objects, plane); len(broken) > 0 {
		t.Errorf("the rule is not for this control plane: %q", broken)
	}
}

// substance is the part of a Deployment that must be the same in both deployments.
type substance struct {
	Spec      appsv1.DeploymentSpec
	Container corev1.Container
	Volumes   map[string]string
}

// TestComponentRunsAsHostedDoes compares the framework's Deployment of deploy/cpo with that of deploy/hosted. Three
// things differ: the source of istiod's published address, the switch of the component's feature gate, and the memory
// limit. No rule of HyperShift forbids one, but its own components have none, with few exceptions.
func TestComponentRunsAsHostedDoes(t *testing.T) {
	gate := []string{"INSTALL", "REMOVAL_ID"}
	of := func(d *appsv1.Deployment) substance {
		pod := &d.Spec.Template
		container := pod.Spec.Containers[0]
		out := substance{Volumes: map[string]string{}}
		source := map[string]string{}
		for _, v := range pod.Spec.Volumes {
			source[v.Name] = "empty"
			if v.Secret != nil {
				source[v.Name] = v.Secret.SecretName
			}
		}
		for _, m := range container.VolumeMounts {
			out.Volumes[m.MountPath] = source[m.Name]
		}
		container.Image, container.VolumeMounts = "", nil
		container.Env = slices.DeleteFunc(container.Env, func(e corev1.EnvVar) bool { return slices.Contains(gate, e.Name) })
		container.Args = slices.DeleteFunc(container.Args, func(arg string) bool {
			return slices.ContainsFunc(gate, func(name string) bool { return strings.HasSuffix(arg, "=$("+name+")") })
		})
		for i := range container.Env {
			container.Env[i].Value = ""
			container.Env[i].Name = strings.Replace(container.Env[i].Name, "XDS_ADDRESS", "PUBLISH", 1)
		}
		slices.SortFunc(container.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		for i := range container.Args {
			container.Args[i] = strings.Replace(container.Args[i], "--xds-address=$(XDS_ADDRESS)", "--publish=$(PUBLISH)", 1)
		}
		// One Deployment sets this for the pod, the other for the container.
		security := container.SecurityContext
		if whole := pod.Spec.SecurityContext; whole != nil {
			security.RunAsNonRoot, security.SeccompProfile = whole.RunAsNonRoot, whole.SeccompProfile
		}
		for _, stamped := range []string{"hypershift.openshift.io/release-image", "component.hypershift.openshift.io/config-hash"} {
			delete(pod.Annotations, stamped)
		}
		pod.Spec.SecurityContext, pod.Spec.Volumes, pod.Spec.Containers = nil, nil, nil
		out.Spec, out.Container = d.Spec, container
		return out
	}
	got := of(deploymentOf(t, only(t, component(t, hypershift.ControlPlane{Namespace: namespace}), "Deployment")))
	want := of(hypergate(t))
	want.Container.Resources.Limits = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-deploy/hosted +deploy/cpo):\n%s", diff)
	}
}
