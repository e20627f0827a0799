package hypergate_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"github.com/openshift/hypershift/control-plane-operator/featuregates"
	component "github.com/openshift/hypershift/support/controlplane-component"
	"github.com/openshift/hypershift/support/metrics"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"
	hypergate "github.com/hypergate/hypergate/deploy/cpo/component"
	prometheusoperatorv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

const (
	techPreview = "TechPreviewNoUpgrade"
	goldens     = "../../../test/hypershift/testdata/cpo"
	clusterID   = "0d4ec93c-3cf7-4c4c-9b5e-4c5f5c6b8c11"
)

// release is a release with the images of the goldens.
type release struct{}

func (release) Version() string { return "4.21.0" }

func (release) GetImage(key string) string {
	digest, known := map[string]string{"hypergate": "1111", "istio-pilot": "2222", "istio-proxyv2": "3333"}[key]
	if !known {
		return ""
	}
	return "quay.io/r/" + key + "@sha256:" + digest
}

// newContext returns the context of a reconciliation in an empty namespace whose kube-apiserver is available. edit
// changes the HostedControlPlane. The feature set is configured until the end of the test.
func newContext(t *testing.T, featureSet string, edit func(*hyperv1.HostedControlPlane)) component.ControlPlaneContext {
	t.Helper()
	featuregates.ConfigureFeatureSet(featureSet)
	t.Cleanup(func() { featuregates.ConfigureFeatureSet("Default") })
	hcp := &hyperv1.HostedControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "guest1", Namespace: "clusters-guest1"}}
	hcp.Spec.InfraID, hcp.Spec.Platform.Type = "guest1-abcde", hyperv1.AWSPlatform
	hcp.Spec.ClusterID = clusterID
	hcp.Spec.ControllerAvailabilityPolicy = hyperv1.SingleReplica
	if edit != nil {
		edit(hcp)
	}
	out := component.ControlPlaneContext{
		Context: t.Context(), Client: component.NewStore(), HCP: hcp, ReleaseImageProvider: release{}, UserReleaseImageProvider: release{},
		Assets: []string{filepath.Join("..", "assets", "hypergate")}, Exclusions: component.DefaultExclusions(),
		MetricsSet: metrics.MetricsSetAll,
	}
	out.Client.SetStatus("kube-apiserver", component.Status{Exists: true, RolledOut: true, Version: release{}.Version()})
	return out
}

func reconcile(t *testing.T, c component.ControlPlaneComponent, cpContext component.ControlPlaneContext) {
	t.Helper()
	if err := c.Reconcile(cpContext); err != nil {
		t.Fatal(err)
	}
}

// env returns a variable of hypergate's container.
func env(t *testing.T, cpContext component.ControlPlaneContext, name string) string {
	t.Helper()
	deployment := cpContext.Client.Find("Deployment", "hypergate")
	if deployment == nil {
		t.Fatal("there is no Deployment")
	}
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%d containers: %v", len(containers), err)
	}
	variables, _, err := unstructured.NestedSlice(containers[0].(map[string]any), "env")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variables {
		if variable := v.(map[string]any); variable["name"] == name {
			value, _ := variable["value"].(string)
			return value
		}
	}
	t.Fatalf("there is no variable %s", name)
	return ""
}

// golden returns the objects of a golden file of test/hypershift, by kind and name.
func golden(t *testing.T, name string) map[string]map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldens, name))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)); ; {
		u := unstructured.Unstructured{}
		if err := decoder.Decode(&u); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out[u.GetKind()+"/"+u.GetName()] = u.Object
	}
}

// TestTheComponentInHyperShiftsFramework checks that the component has the objects of test/hypershift, which all other
// tests of deploy/cpo are about, and that it waits for kube-apiserver.
func TestTheComponentInHyperShiftsFramework(t *testing.T) {
	cpContext := newContext(t, techPreview, nil)
	cpContext.Client.SetStatus("kube-apiserver", component.Status{})
	c := hypergate.NewComponent()
	reconcile(t, c, cpContext)
	if status := cpContext.Client.Status("hypergate"); status.RolledOut || !strings.Contains(status.Message, "kube-apiserver") {
		t.Errorf("before kube-apiserver the status is %+v", status)
	}
	cpContext.Client.SetStatus("kube-apiserver", component.Status{RolledOut: true, Version: release{}.Version()})
	reconcile(t, c, cpContext)
	if status := cpContext.Client.Status("hypergate"); !status.RolledOut {
		t.Errorf("the status is %+v", status)
	}
	got := map[string]map[string]any{}
	for _, key := range cpContext.Client.Names() {
		kind, name, _ := strings.Cut(key, "/")
		got[key] = cpContext.Client.Find(kind, name).Object
	}
	if diff := cmp.Diff(golden(t, "single-replica.yaml"), got); diff != "" {
		t.Errorf("-golden +component:\n%s", diff)
	}
}

// TestMetricsSets checks which metrics each of HyperShift's metrics sets keeps, and that each series has the ID of the
// cluster.
func TestMetricsSets(t *testing.T) {
	metrics.SREConfig = []prometheusoperatorv1.RelabelConfig{{Action: "keep", Regex: "hypergate_leader"}}
	t.Cleanup(func() { metrics.SREConfig = nil })
	for set, want := range map[metrics.MetricsSet]string{
		metrics.MetricsSetTelemetry: "drop (.*)", metrics.MetricsSetSRE: "keep hypergate_leader",
		metrics.MetricsSetAll: "keep hypergate_.+|",
	} {
		cpContext := newContext(t, techPreview, nil)
		cpContext.MetricsSet = set
		reconcile(t, hypergate.NewComponent(), cpContext)
		for _, name := range []string{"hypergate", "hypergate-istiod"} {
			monitor := &prometheusoperatorv1.PodMonitor{}
			if err := cpContext.Client.Get(t.Context(), client.ObjectKey{Name: name}, monitor); err != nil {
				t.Fatal(err)
			}
			for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
				all := endpoint.MetricRelabelConfigs
				if len(all) != 2 || !strings.HasPrefix(all[0].Action+" "+all[0].Regex, want) ||
					all[1].TargetLabel != "_id" || *all[1].Replacement != clusterID {
					t.Errorf("%s: PodMonitor %s has %+v at port %v", set, name, all, endpoint.Port)
				}
			}
			if got := monitor.Spec.NamespaceSelector.MatchNames; !slices.Equal(got, []string{cpContext.HCP.Namespace}) {
				t.Errorf("%s: PodMonitor %s selects the namespaces %q", set, name, got)
			}
		}
	}
}

// TestFeatureGate checks that the component does nothing by default, and nothing without the capability Ingress.
func TestFeatureGate(t *testing.T) {
	withoutIngress := func(hcp *hyperv1.HostedControlPlane) {
		hcp.Spec.Capabilities = &hyperv1.Capabilities{Disabled: []hyperv1.OptionalCapability{hyperv1.IngressCapability}}
	}
	for name, tc := range map[string]struct {
		featureSet string
		edit       func(*hyperv1.HostedControlPlane)
		want       bool
	}{
		"by default":       {"Default", nil, false},
		"tech preview":     {techPreview, nil, true},
		"without Ingress":  {techPreview, withoutIngress, false},
		"none of the both": {"Default", withoutIngress, false},
	} {
		t.Run(name, func(t *testing.T) {
			cpContext := newContext(t, tc.featureSet, tc.edit)
			reconcile(t, hypergate.NewComponent(), cpContext)
			if got := cpContext.Client.Names(); (len(got) > 0) != tc.want || cpContext.Client.Status("hypergate").Exists != tc.want {
				t.Errorf("there are %q, with the status %+v", got, cpContext.Client.Status("hypergate"))
			}
		})
	}
}

// report sets the conditions that hypergate reports for a removal.
func report(hcp *hyperv1.HostedControlPlane, id, available string, progressing metav1.ConditionStatus, reason string) {
	message := "hypergate is not enabled for this guest (--install=false, --removal-id=" + id + "); nothing is installed"
	hcp.Status.Conditions = []metav1.Condition{
		{Type: "gateway.hypergate.dev/Available", Status: metav1.ConditionTrue, Reason: available, Message: message},
		{Type: "gateway.hypergate.dev/Progressing", Status: progressing, Reason: reason},
	}
}

// TestTheFeatureIsTurnedOff checks that hypergate stays until it has removed what it installed in both clusters, that
// then only the Secret of its kubeconfig stays, and that the feature can be turned on again.
func TestTheFeatureIsTurnedOff(t *testing.T) {
	cpContext := newContext(t, techPreview, nil)
	c := hypergate.NewComponent()
	reconcile(t, c, cpContext)
	all := cpContext.Client.Names()
	featuregates.ConfigureFeatureSet("Default")
	for _, step := range []struct {
		available   string
		progressing metav1.ConditionStatus
		reason      string
	}{
		{"AsExpected", metav1.ConditionFalse, "AsExpected"},
		{"NotRequested", metav1.ConditionFalse, "AsExpected"},
		{"NotEnabled", metav1.ConditionTrue, "Uninstalling"},
		{"NotEnabled", metav1.ConditionFalse, "Blocked"},
		{"NotEnabled", metav1.ConditionFalse, "ReconciliationPaused"},
	} {
		reconcile(t, c, cpContext) // hypergate gets an ID
		report(cpContext.HCP, env(t, cpContext, "REMOVAL_ID"), step.available, step.progressing, step.reason)
		reconcile(t, c, cpContext)
		if got := cpContext.Client.Names(); !slices.Equal(got, all) || env(t, cpContext, "INSTALL") != "false" {
			t.Errorf("%+v: there are %q, and INSTALL is %q", step, got, env(t, cpContext, "INSTALL"))
		}
	}
	report(cpContext.HCP, env(t, cpContext, "REMOVAL_ID"), "NotEnabled", metav1.ConditionFalse, "AsExpected")
	for range 2 { // a second reconciliation changes nothing
		reconcile(t, c, cpContext)
		want := []string{"Secret/hypergate-service-account-kubeconfig"}
		if got := cpContext.Client.Names(); !slices.Equal(got, want) || cpContext.Client.Status("hypergate").Exists {
			t.Errorf("all is removed, and there are %q", got)
		}
	}
	featuregates.ConfigureFeatureSet(techPreview)
	reconcile(t, c, cpContext)
	if got := cpContext.Client.Names(); !slices.Equal(got, all) || env(t, cpContext, "INSTALL") != "true" {
		t.Errorf("it is on again, and there are %q", got)
	}
}

// TestTheDeploymentIsDeletedWithoutAReport checks that hypergate runs again and removes what it installed, if its
// Deployment is deleted after the feature was turned off. Its ID is new in each case, also without a Deployment that it
// could come from.
func TestTheDeploymentIsDeletedWithoutAReport(t *testing.T) {
	cpContext := newContext(t, techPreview, nil)
	c := hypergate.NewComponent()
	reconcile(t, c, cpContext)
	all := cpContext.Client.Names()
	seen := map[string]bool{"": true}
	for range 2 {
		featuregates.ConfigureFeatureSet("Default")
		for _, when := range []string{"before hypergate has an ID", "while it removes", "again"} {
			cpContext.Client.Delete("Deployment", "hypergate")
			reconcile(t, c, cpContext)
			id := env(t, cpContext, "REMOVAL_ID") // fails without a Deployment
			if got := cpContext.Client.Names(); !slices.Equal(got, all) || seen[id] || env(t, cpContext, "INSTALL") != "false" {
				t.Errorf("%s: there are %q, with the ID %q", when, got, id)
			}
			seen[id] = true
			reconcile(t, c, cpContext)
			if got := env(t, cpContext, "REMOVAL_ID"); got != id {
				t.Errorf("%s: the ID of the removal changes from %q to %q", when, id, got)
			}
			report(cpContext.HCP, id, "NotEnabled", metav1.ConditionFalse, "AsExpected")
		}
		featuregates.ConfigureFeatureSet(techPreview) // the removal is reported, and does not count any more
		reconcile(t, c, cpContext)
	}
	featuregates.ConfigureFeatureSet("Default")
	reconcile(t, c, cpContext)
	report(cpContext.HCP, env(t, cpContext, "REMOVAL_ID"), "NotEnabled", metav1.ConditionFalse, "AsExpected")
	for range 2 {
		reconcile(t, c, cpContext)
		if got := cpContext.Client.Find("Deployment", "hypergate"); got != nil || cpContext.Client.Status("hypergate").Exists {
			t.Errorf("all is removed, and there are %q", cpContext.Client.Names())
		}
	}
}

// TestTheReportOfAnEarlierRemovalDoesNotCount checks that hypergate stays when the feature is turned off again, until
// it reports this removal. The conditions of the earlier one stay if hypergate wrote none meanwhile, for example
// because it lacked the permission.
func TestTheReportOfAnEarlierRemovalDoesNotCount(t *testing.T) {
	cpContext := newContext(t, techPreview, nil)
	c := hypergate.NewComponent()
	reconcile(t, c, cpContext)
	seen := map[string]bool{"": true}
	off := func() string {
		t.Helper()
		featuregates.ConfigureFeatureSet("Default")
		for range 3 {
			reconcile(t, c, cpContext)
		}
		id := env(t, cpContext, "REMOVAL_ID") // fails if the Deployment is deleted
		if seen[id] {
			t.Errorf("the ID %q is that of an earlier removal", id)
		}
		seen[id] = true
		return id
	}
	report(cpContext.HCP, "", "NotEnabled", metav1.ConditionFalse, "AsExpected")
	report(cpContext.HCP, off(), "NotEnabled", metav1.ConditionFalse, "AsExpected")
	t.Log("it is turned on before the Deployment is deleted")
	featuregates.ConfigureFeatureSet(techPreview)
	reconcile(t, c, cpContext)
	if id := env(t, cpContext, "REMOVAL_ID"); id != "" {
		t.Errorf("hypergate is enabled, and has the ID %q", id)
	}
	report(cpContext.HCP, off(), "NotEnabled", metav1.ConditionFalse, "AsExpected")
	reconcile(t, c, cpContext)
	if cpContext.Client.Find("Deployment", "hypergate") != nil {
		t.Fatal("all is removed, and the Deployment exists")
	}
	t.Log("it is turned on after that")
	featuregates.ConfigureFeatureSet(techPreview)
	reconcile(t, c, cpContext)
	off()
}
