package hypershift_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/hypershift"
)

const namespace = deploy.MgmtNamespace

// variant is a hosted control plane in the form of the rules and in the form of hypergate.
type variant struct {
	rules hypershift.ControlPlane
	plane model.ControlPlane
}

// variants returns the hosted control planes of HyperShift's tests.
func variants() map[string]variant {
	of := func(edit func(*variant)) variant {
		v := variant{
			hypershift.ControlPlane{Namespace: namespace},
			model.ControlPlane{
				Name: "guest1", UID: "7f3a", Platform: "AWS", Availability: model.SingleReplica,
				ReleaseImage: "quay.io/r:4.21",
			},
		}
		edit(&v)
		return v
	}
	available := func(v *variant) { v.rules.HighlyAvailable, v.plane.Availability = true, model.HighlyAvailable }
	custom := func(v *variant) {
		v.rules.Labels = map[string]string{"hypershift-e2e-test-label": "test"}
		v.rules.Tolerations = []corev1.Toleration{
			{Key: "hypershift-e2e-test-toleration", Operator: "Equal", Value: "true", Effect: "NoSchedule"},
		}
		v.plane.Labels, v.plane.Tolerations = v.rules.Labels, v.rules.Tolerations
	}
	dedicated := func(v *variant) { v.rules.Dedicated, v.plane.DedicatedRequestServing = true, true }
	selected := func(v *variant) {
		v.rules.NodeSelector = map[string]string{"hypershift.openshift.io/control-plane": "true"}
		v.plane.NodeSelector = v.rules.NodeSelector
	}
	return map[string]variant{
		"single replica":   of(func(*variant) {}),
		"highly available": of(available),
		"KubeVirt": of(func(v *variant) {
			available(v)
			v.plane.Platform = "KubeVirt"
		}),
		"dedicated nodes": of(func(v *variant) {
			available(v)
			dedicated(v)
		}),
		"custom":                of(custom),
		"nodes of its own":      of(selected),
		"without SCC":           of(func(v *variant) { v.rules.User, v.plane.RunAsUser = 1005, 1005 }),
		"a priority of its own": of(func(v *variant) { v.rules.PriorityClass, v.plane.PriorityClass = "mine", "mine" }),
		"all at once": of(func(v *variant) {
			available(v)
			dedicated(v)
			custom(v)
			selected(v)
			v.rules.User, v.plane.RunAsUser = 1005, 1005
		}),
	}
}

// newPlanner returns a planner for all variants of a test, so that it renders the chart only once.
func newPlanner(t *testing.T) *desired.Planner {
	t.Helper()
	return plannerOf(t, config())
}

func plannerOf(t *testing.T, cfg model.Config) *desired.Planner {
	t.Helper()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return desired.NewPlanner(cfg, source)
}

// config returns the configuration of an ordinary installation.
func config() model.Config {
	return model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: namespace, GuestNamespace: "openshift-ingress", Revision: "openshift-gateway",
		ControllerName: "openshift.io/gateway-controller/v1", PilotImage: "registry.example.com/pilot:" +
			charts.EmbeddedVersion, ProxyImage: "registry.example.com/proxyv2:" + charts.EmbeddedVersion,
		XDS: model.HostPort{Host: "istiod.apps.example.com", Port: 443}, WebhookHost: "gw-webhook-openshift-gateway",
		NetworkPolicies: model.HyperShiftPeers(),
	}
}

// istiod returns istiod's Deployment under a HostedControlPlane.
func istiod(t *testing.T, planner *desired.Planner, plane model.ControlPlane) *appsv1.Deployment {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("..", "..", "pkg", "desired", "testdata", "ca", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	guest := model.GuestObservation{Classes: []model.GatewayClass{{Name: "demo"}}, CRDs: map[string]crds.Fact{}}
	for _, name := range crds.GatewayAPI().Names() {
		// a third party owns the CRDs, so the slow plan of them is skipped
		guest.CRDs[name] = crds.Fact{Owner: crds.Owner{Kind: crds.ThirdParty}}
	}
	ca := pki.CA{Cert: read("ca-cert.pem"), Key: read("ca-key.pem"), Chain: read("cert-chain.pem"), Root: read("root-cert.pem")}
	state, err := planner.Compute(model.ManagementObservation{CA: ca, ControlPlane: plane}, guest)
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Workload) != 1 {
		t.Fatalf("the workload is %v", state.Workload)
	}
	u, err := state.Workload[0].Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	return deploymentOf(t, u)
}

func deploymentOf(t *testing.T, u *unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, d, true); err != nil {
		t.Fatal(err)
	}
	return d
}

// hypergate returns hypergate's Deployment in deploy/.
func hypergate(t *testing.T) *appsv1.Deployment {
	t.Helper()
	objects, err := deploy.Render("hosted/example")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			return deploymentOf(t, u)
		}
	}
	t.Fatal("there is no Deployment")
	return nil
}

// TestIstiodKeepsTheRules checks istiod's pod, also with the sidecar of the tunnel.
func TestIstiodKeepsTheRules(t *testing.T) {
	byTunnel := config()
	byTunnel.Publish = model.Publish{
		Strategy: model.PublishTunnel, RelayImage: "registry.example.com/hypergate:1", SidecarImage: "registry.example.com/hypergate:1",
	}
	for containers, planner := range map[int]*desired.Planner{1: newPlanner(t), 2: plannerOf(t, byTunnel)} {
		for name, v := range variants() {
			t.Run(fmt.Sprintf("%s, %d containers", name, containers), func(t *testing.T) {
				deployment := istiod(t, planner, v.plane)
				if got := len(deployment.Spec.Template.Spec.Containers); got != containers {
					t.Fatalf("it has %d containers", got)
				}
				for _, broken := range hypershift.Broken(deployment, v.rules, false) {
					t.Error(broken)
				}
			})
		}
	}
}

// TestHypergateKeepsTheRules checks the Deployment of deploy/. Additional requirements of a HostedControlPlane are
// the integrator's task, in an overlay. The same rules detect what the overlay is missing.
func TestHypergateKeepsTheRules(t *testing.T) {
	missing := map[string]string{
		"custom":                "EnsureCustomLabels EnsureCustomTolerations",
		"nodes of its own":      "EnsureNoHCPPodsLandOnDefaultNode",
		"without SCC":           "EnsureSecurityContextUID",
		"a priority of its own": "EnsureNoPodsWithTooHighPriority",
		"all at once":           "EnsureCustomLabels EnsureCustomTolerations EnsureNoHCPPodsLandOnDefaultNode EnsureSecurityContextUID",
	}
	for name, v := range variants() {
		t.Run(name, func(t *testing.T) {
			left := missing[name]
			for _, broken := range hypershift.Broken(hypergate(t), v.rules, true) {
				rule, _, _ := strings.Cut(broken, ":")
				if !strings.Contains(missing[name], rule) {
					t.Error(broken)
				}
				left = strings.TrimSpace(strings.Replace(left, rule, "", 1))
			}
			if left != "" {
				t.Errorf("it follows %s, so the overlay need not set anything", left)
			}
		})
	}
}

// TestARuleCanBeBroken checks that each rule detects a change of a Deployment that breaks it, and that no other rule
// does, except where the change cannot break one alone. The Deployment is istiod's, or hypergate's if the rule is for
// pods with access to the management API.
func TestARuleCanBeBroken(t *testing.T) {
	all, planner := variants()["all at once"], newPlanner(t)
	for _, rule := range hypershift.Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			edit, known := breaks()[rule.Name]
			ofHypergate, knownOfHypergate := breaksOfHypergate()[rule.Name]
			if known == knownOfHypergate {
				t.Fatal("nothing here breaks it, or two changes do")
			}
			plane, d, mgmt := all.rules, istiod(t, planner, all.plane), false
			if knownOfHypergate {
				plane, d, mgmt, edit = variants()["single replica"].rules, hypergate(t), true, ofHypergate
			}
			edit(d, &d.Spec.Template.Spec)
			want := []string{rule.Name}
			if also, is := map[string]string{
				"EnsureAppLabel": "WorkloadRegistryValidationTest", "setLabels, setColocation": "VerifyRequestServingPodLabels",
			}[rule.Name]; is {
				want = append(want, also)
			}
			var got []string
			for _, broken := range hypershift.Broken(d, plane, mgmt) {
				name, _, _ := strings.Cut(broken, ": ")
				got = append(got, name)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("the change breaks %q, want %q", got, want)
			}
		})
	}
}

// TestOtherRulesHaveATest checks that each test exists which is named instead of a rule.
func TestOtherRulesHaveATest(t *testing.T) {
	var all strings.Builder
	for _, folder := range []string{"pkg", "test", "deploy"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			all.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range hypershift.Others() {
		if other.Why == "" || other.By != "" && !strings.Contains(all.String(), "\nfunc "+other.By+"(t *testing.T)") {
			t.Errorf("%s: there is no test %q, or no reason", other.Name, other.By)
		}
	}
}

// breaksOfHypergate has changes of hypergate's Deployment that break a rule each.
func breaksOfHypergate() map[string]func(*appsv1.Deployment, *corev1.PodSpec) {
	return map[string]func(*appsv1.Deployment, *corev1.PodSpec){
		"EnsureNetworkPolicies (EnsureComponentsHaveNeedManagementKASAccessLabel)": func(d *appsv1.Deployment, _ *corev1.PodSpec) {
			delete(d.Spec.Template.Labels, "hypershift.openshift.io/need-management-kas-access")
		},
		"EnsureOnlyRequestServingPodsOnRequestServingNodes": func(_ *appsv1.Deployment, p *corev1.PodSpec) {
			p.Tolerations = append(p.Tolerations, corev1.Toleration{
				Key: "hypershift.openshift.io/request-serving-component", Operator: "Exists",
			})
		},
		"VerifyRequestServingPodLabels": func(d *appsv1.Deployment, _ *corev1.PodSpec) {
			d.Spec.Template.Labels["hypershift.openshift.io/request-serving-component"] = "true"
		},
	}
}

// breaks has changes of istiod's Deployment that break a rule each.
func breaks() map[string]func(*appsv1.Deployment, *corev1.PodSpec) {
	type pod = corev1.PodSpec
	return map[string]func(d *appsv1.Deployment, p *pod){
		"EnsureAppLabel":                 func(d *appsv1.Deployment, _ *pod) { delete(d.Spec.Template.Labels, "app") },
		"WorkloadRegistryValidationTest": func(d *appsv1.Deployment, _ *pod) { d.Spec.Template.Labels["app"] = "other" },
		"SafeToEvictAnnotationsTest": func(_ *appsv1.Deployment, p *pod) {
			p.Volumes = append(p.Volumes, corev1.Volume{
				Name: "x", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
			})
		},
		"EnsureNoHCPPodsLandOnDefaultNode": func(_ *appsv1.Deployment, p *pod) { p.NodeSelector = nil },
		"EnsureAllContainersHavePullPolicyIfNotPresent": func(_ *appsv1.Deployment, p *pod) {
			p.Containers[0].ImagePullPolicy = "Always"
		},
		"EnsureAllContainersHaveTerminationMessagePolicyFallbackToLogsOnError": func(_ *appsv1.Deployment, p *pod) {
			p.Containers[0].TerminationMessagePolicy = ""
		},
		"EnsureHCPContainersHaveResourceRequests": func(_ *appsv1.Deployment, p *pod) {
			delete(p.Containers[0].Resources.Requests, "memory")
		},
		"EnsurePodsWithEmptyDirPVsHaveSafeToEvictAnnotations": func(d *appsv1.Deployment, _ *pod) {
			d.Spec.Template.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"] = "tmp-dir,local-certs"
		},
		"EnsureReadOnlyRootFilesystem": func(_ *appsv1.Deployment, p *pod) {
			p.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil
		},
		"EnsureReadOnlyRootFilesystem (/tmp)": func(_ *appsv1.Deployment, p *pod) { p.Containers[0].VolumeMounts = nil },
		"EnsureHCPPodsAffinitiesAndTolerations": func(_ *appsv1.Deployment, p *pod) {
			p.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[1].Weight = 1
		},
		"EnsureSATokenNotMountedUnlessNecessary": func(_ *appsv1.Deployment, p *pod) {
			p.Volumes = append(p.Volumes,
				corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}},
				}}})
		},
		"EnsureCustomLabels": func(d *appsv1.Deployment, _ *pod) {
			delete(d.Spec.Template.Labels, "hypershift-e2e-test-label")
		},
		"EnsureCustomTolerations":         func(_ *appsv1.Deployment, p *pod) { p.Tolerations = p.Tolerations[:3] },
		"EnsureSecurityContextUID":        func(_ *appsv1.Deployment, p *pod) { p.SecurityContext.RunAsUser = new(int64(7)) },
		"EnsureNoPodsWithTooHighPriority": func(_ *appsv1.Deployment, p *pod) { p.PriorityClassName = "system-cluster-critical" },
		"EnsureAllReqServingPodsLandOnReqServingNodes": func(_ *appsv1.Deployment, p *pod) {
			p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		},
		"setLabels, setColocation": func(d *appsv1.Deployment, _ *pod) {
			d.Spec.Template.Labels["hypershift.openshift.io/need-management-kas-access"] = "true"
		},
		"setMultizoneSpread":     func(_ *appsv1.Deployment, p *pod) { p.Affinity.PodAntiAffinity = nil },
		"SetReplicasAndStrategy": func(d *appsv1.Deployment, _ *pod) { d.Spec.RevisionHistoryLimit = nil },
		"Pod Security Standard restricted": func(_ *appsv1.Deployment, p *pod) {
			p.Containers[0].SecurityContext.Capabilities.Drop = nil
		},
	}
}
