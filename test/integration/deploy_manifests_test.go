package integration_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/fromyaml"
)

const deployDir = "../../deploy"

// render returns the objects that kubectl apply -k would apply.
func render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	out, err := deploy.Render(dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// checkManifests checks that the objects of deploy/ are valid, that every file is part of a kustomization, that no
// role is too broad, and that the pods follow the rules.
func checkManifests(t *testing.T, own *planes.Pair) {
	t.Helper()
	prepareMonitoring(t, own.Mgmt)
	seen := map[string]bool{}
	for _, test := range []struct {
		dir     string
		servers []*planes.Plane
		scope   string // the only namespace, or empty
	}{
		{"hosted/example", []*planes.Plane{own.Mgmt}, deployedMgmtNamespace},
		{"hosted/guest", []*planes.Plane{own.Guest}, ""},
		{"cluster-api/example", []*planes.Plane{own.Mgmt}, deployedMgmtNamespace},
		{"standalone", []*planes.Plane{own.Mgmt}, ""},
		{"standalone-own-namespace", []*planes.Plane{own.Mgmt}, ""},
		{"sidecar-injection", []*planes.Plane{own.Guest, own.Mgmt}, ""},
		{"istio-resources", []*planes.Plane{own.Guest, own.Mgmt}, ""},
		{"rbac/migration", []*planes.Plane{own.Guest, own.Mgmt}, ""},
		{"fleet", []*planes.Plane{own.Mgmt}, ""},
		{"migration-operator", []*planes.Plane{own.Mgmt}, ""},
		{"monitoring/hosted", []*planes.Plane{own.Mgmt}, ""},
		{"external-webhooks", []*planes.Plane{own.Mgmt}, deployedMgmtNamespace},
		{"renewal/management", []*planes.Plane{own.Mgmt}, deployedMgmtNamespace},
		{"renewal/guest", []*planes.Plane{own.Guest}, ""},
	} {
		t.Run(test.dir, func(t *testing.T) {
			objects := render(t, test.dir)
			if test.scope != "" {
				objects = inNamespace(objects, test.scope) // a base has none
			}
			for _, plane := range test.servers {
				if err := deploy.Apply(t.Context(), plane.Config, objects, metav1.DryRunAll); err != nil {
					t.Error(err)
				}
			}
			for _, u := range objects {
				seen[u.GetKind()+" "+u.GetName()] = true
				if test.scope != "" && u.GetNamespace() != test.scope {
					t.Errorf("%s %s is in namespace %q, want %q", u.GetKind(), u.GetName(), u.GetNamespace(), test.scope)
				}
			}
			for _, r := range rolesOf(t, objects) {
				refuseBroad(t, r)
			}
			if d := deploymentOf(t, objects); d != nil {
				checkPod(t, d, test.dir == "hosted/example")
			}
		})
	}
	for _, u := range checkComponent(t, own) {
		seen[u.GetKind()+" "+u.GetName()] = true
	}
	for _, name := range written(t) {
		if !seen[name] {
			t.Errorf("%s is in no kustomization", name)
		}
	}
	checkEveryFolder(t, own)
	checkCRDNames(t)
	checkPorts(t)
}

// prepareMonitoring installs what deploy/monitoring requires: namespaces, and CRDs of the Prometheus operator. These
// have no schemas. test/monitoring checks the content of the rules.
func prepareMonitoring(t *testing.T, plane *planes.Plane) {
	t.Helper()
	g := gomega.NewWithT(t)
	for _, name := range []string{"monitoring", "openshift-monitoring"} {
		_, err := kubernetes.NewForConfigOrDie(plane.Config).CoreV1().Namespaces().
			Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}
	client := dynamic.NewForConfigOrDie(plane.Config)
	for plural, kind := range map[string]string{"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"} {
		resource := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: plural}
		_, err := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).
			Create(t.Context(), minimalCRD(plural+"."+resource.Group, kind, resource.Version, "Namespaced"), metav1.CreateOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Eventually(func() error {
			_, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
			return err
		}).Should(gomega.Succeed(), plural)
	}
}

// checkEveryFolder checks that a real API server accepts each kustomization of deploy/ without unknown or duplicate
// fields. This includes the bases. It applies all of them to the same cluster, because all kinds are served there. A
// kind of a CRD needs an installed CRD first.
func checkEveryFolder(t *testing.T, own *planes.Pair) {
	t.Helper()
	folders := 0
	err := filepath.WalkDir(deployDir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "monitoring" {
			return filepath.SkipDir // its kinds are those of the Prometheus operator; test/monitoring checks them
		}
		if err != nil || entry.Name() != "kustomization.yaml" {
			return err
		}
		folders++
		folder, err := filepath.Rel(deployDir, filepath.Dir(path))
		if err != nil {
			return err
		}
		objects := inNamespace(render(t, folder), deployedMgmtNamespace)
		if err := deploy.Apply(t.Context(), own.Mgmt.Config, objects, metav1.DryRunAll); err != nil {
			t.Errorf("deploy/%s: %v", folder, err)
		}
		return nil
	})
	if err != nil || folders < 10 {
		t.Errorf("%d folders: %v", folders, err)
	}
	t.Log("the check detects an unknown field")
	for field, spoil := range map[string]func(spec map[string]any){
		"spec.replics": func(spec map[string]any) { spec["replics"] = int64(1) },
		"spec.template.spec.hostNets": func(spec map[string]any) {
			_ = unstructured.SetNestedField(spec, true, "template", "spec", "hostNets")
		},
	} {
		objects := inNamespace(render(t, "hosted/management"), deployedMgmtNamespace)
		for _, u := range objects {
			if u.GetKind() == "Deployment" {
				spec, _ := u.Object["spec"].(map[string]any)
				spoil(spec)
			}
		}
		if err := deploy.Apply(t.Context(), own.Mgmt.Config, objects, metav1.DryRunAll); err == nil ||
			!strings.Contains(err.Error(), field[strings.LastIndexByte(field, '.')+1:]) {
			t.Errorf("with the unknown field %s: %v", field, err)
		}
	}
}

// inNamespace sets the namespace that an overlay would set, on a base's objects and on the subjects of its role
// bindings.
func inNamespace(objects []*unstructured.Unstructured, namespace string) []*unstructured.Unstructured {
	for _, u := range objects {
		if u.GetNamespace() == "" && !strings.HasPrefix(u.GetKind(), "Cluster") {
			u.SetNamespace(namespace)
		}
		subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
		for _, s := range subjects {
			if subject, ok := s.(map[string]any); ok && subject["namespace"] == nil {
				subject["namespace"] = namespace
			}
		}
		if len(subjects) > 0 {
			u.Object["subjects"] = subjects
		}
	}
	return objects
}

// prepare creates what deploy/ requires: namespaces that admit only restricted pods, and HyperShift's priority class.
func prepare(t *testing.T, own *planes.Pair) {
	t.Helper()
	namespace := func(config *rest.Config, name string) {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().
			Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
			}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	namespace(own.Mgmt.Config, deployedMgmtNamespace)
	namespace(own.Mgmt.Config, deployedGuestNamespace) // for standalone
	namespace(own.Mgmt.Config, "hypergate-system")
	namespace(own.Guest.Config, deployedGuestNamespace)
	_, err := kubernetes.NewForConfigOrDie(own.Mgmt.Config).SchedulingV1().PriorityClasses().
		Create(t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: "hypershift-control-plane"}, Value: 100000000,
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// written returns the objects in the files of deploy/, as kind and name.
func written(t *testing.T) []string {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(deployDir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{"chart", "examples", "monitoring"}, entry.Name()) {
			return filepath.SkipDir // hack/generate-chart checks the chart, hack/docs the others
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, u := range fromyaml.Objects(t, data) {
			out[u.GetKind()+" "+u.GetName()] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(out))
}

// refuseBroad refuses rules that give more permissions than they seem to.
func refuseBroad(t *testing.T, r role) {
	t.Helper()
	for _, rule := range r.Rules {
		all := slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames)
		for _, word := range []string{rbacv1.VerbAll, "escalate", "bind", "impersonate"} {
			if slices.Contains(all, word) {
				t.Errorf("role %s: %q in %v", r.Name, word, rule)
			}
		}
		for _, resource := range rule.Resources {
			if strings.Contains(resource, "*") {
				t.Errorf("role %s: resource %q", r.Name, resource)
			}
		}
		if len(rule.NonResourceURLs) > 0 {
			t.Errorf("role %s: URLs %v", r.Name, rule.NonResourceURLs)
		}
	}
}

// checkPod checks the requirements of HyperShift's tests on each pod in a control plane's namespace (hypershift
// test/e2e/util/util.go). It also checks the properties that HyperShift's framework gives a pod of this kind
// (support/controlplane-component/defaults.go). Most of them are good practice elsewhere, too.
func checkPod(t *testing.T, d *appsv1.Deployment, hosted bool) {
	t.Helper()
	pod, labels := d.Spec.Template.Spec, d.Spec.Template.Labels
	rules := map[string]bool{
		"an app label":                 labels["app"] != "",
		"one pod at a time":            *d.Spec.Replicas == 1 && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType,
		"its token":                    *pod.AutomountServiceAccountToken,
		"non-root":                     *pod.SecurityContext.RunAsNonRoot,
		"seccomp":                      pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"no user id: the SCC gives it": pod.SecurityContext.RunAsUser == nil && pod.SecurityContext.FSGroup == nil,
	}
	if hosted {
		rules["the priority class"] = pod.PriorityClassName == "hypershift-control-plane"
		rules["the way to the management API"] = labels["hypershift.openshift.io/need-management-kas-access"] == "true"
		rules["the component label"] = labels["hypershift.openshift.io/control-plane-component"] == "hypergate"
		rules["the control plane label"] = labels["hypershift.openshift.io/hosted-control-plane"] == d.Namespace
		rules["evictable"] = d.Spec.Template.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"] == "tmp-dir"
		rules["tolerations"] = slices.Equal(pod.Tolerations, []corev1.Toleration{
			{
				Key: "hypershift.openshift.io/control-plane", Operator: corev1.TolerationOpEqual, Value: "true",
				Effect: corev1.TaintEffectNoSchedule,
			},
			{
				Key: "hypershift.openshift.io/cluster", Operator: corev1.TolerationOpEqual, Value: d.Namespace,
				Effect: corev1.TaintEffectNoSchedule,
			},
		})
		preferred := pod.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		rules["node affinity"] = len(preferred) == 2 &&
			slices.Equal(preferred[1].Preference.MatchExpressions[0].Values, []string{d.Namespace})
		colocated := pod.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels
		rules["pod affinity"] = colocated["hypershift.openshift.io/hosted-control-plane"] == d.Namespace
	}
	for _, c := range pod.Containers {
		rules[c.Name+": pull policy"] = c.ImagePullPolicy == corev1.PullIfNotPresent
		rules[c.Name+": termination messages"] = c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError
		rules[c.Name+": requests"] = c.Resources.Requests.Cpu().String() == "10m" && c.Resources.Requests.Memory().String() == "60Mi"
		rules[c.Name+": read-only root"] = *c.SecurityContext.ReadOnlyRootFilesystem
		rules[c.Name+": /tmp"] = slices.Contains(c.VolumeMounts, corev1.VolumeMount{Name: "tmp-dir", MountPath: "/tmp"})
	}
	for rule, kept := range rules {
		if !kept {
			t.Errorf("Deployment %s does not have: %s", d.Name, rule)
		}
	}
}

// checkCRDNames checks that hypergate's permission to write CRDs covers exactly the CRDs that it installs.
func checkCRDNames(t *testing.T) {
	t.Helper()
	want := crds.GatewayAPI().Names()
	for _, r := range model.LayeredProductResources() {
		want = append(want, r.CRD())
	}
	for _, r := range rolesOf(t, render(t, "hosted/guest")) {
		for _, rule := range r.Rules {
			if slices.Contains(rule.Resources, "customresourcedefinitions") && slices.Contains(rule.Verbs, "patch") &&
				!slices.Equal(slices.Sorted(slices.Values(rule.ResourceNames)), slices.Sorted(slices.Values(want))) {
				t.Errorf("role %s may write the CRDs %v, want %v", r.Name, rule.ResourceNames, want)
			}
		}
	}
}

// checkPorts checks that the containers' ports are hypergate's defaults.
func checkPorts(t *testing.T) {
	t.Helper()
	help := startHypergate(t, []string{"run", "--help"})
	<-help.Done()
	text, err := os.ReadFile(help.Log())
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ") // a description can have several lines
	for _, dir := range []string{"hosted/example", "cluster-api/example", "standalone"} {
		for _, port := range deploymentOf(t, render(t, dir)).Spec.Template.Spec.Containers[0].Ports {
			flag, byDefault := "--"+port.Name+"-address string", `(default ":`+strconv.Itoa(int(port.ContainerPort))+`")`
			_, description, _ := strings.Cut(words, " "+flag)
			description, _, _ = strings.Cut(description, " --") // the next flag
			if !strings.Contains(description, byDefault) {
				t.Errorf("%s: port %s is %d, which is not the default of %s", dir, port.Name, port.ContainerPort, flag)
			}
		}
	}
}

// deploymentOf returns the only Deployment in a list, or nil.
func deploymentOf(t *testing.T, objects []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			d := &appsv1.Deployment{}
			convert(t, u, d)
			return d
		}
	}
	return nil
}

func convert(t *testing.T, u *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		t.Fatal(err)
	}
}
