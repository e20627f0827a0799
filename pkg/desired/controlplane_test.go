package desired_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/modeltest"
)

// withControlPlane returns a management side with a HostedControlPlane whose istiod serves.
func withControlPlane(tb testing.TB, edit func(*model.ControlPlane)) model.ManagementObservation {
	tb.Helper()
	mgmt := installed(tb)
	mgmt.ControlPlane = modeltest.ControlPlane()
	edit(&mgmt.ControlPlane)
	return mgmt
}

// TestTheControlPlaneOwnsManagementObjects checks that the HostedControlPlane owns each object on the
// management side. It owns nothing in the guest, and no object in the guest names it.
func TestTheControlPlaneOwnsManagementObjects(t *testing.T) {
	mgmt := withControlPlane(t, func(*model.ControlPlane) {})
	plan := compute(t, config(model.TopologyHosted), embedded(t), mgmt, withForeignCRDs(withClasses("demo")))
	secret, err := model.CredentialSecret(config(model.TopologyHosted), mgmt.ControlPlane, modeltest.Credential())
	if err != nil {
		t.Fatal(err)
	}
	objects := append(mgmtObjects(plan), secret)
	if len(objects) < 9 {
		t.Fatalf("there are but %q", names(objects))
	}
	for _, o := range objects {
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		owners := u.GetOwnerReferences()
		if len(owners) != 1 || owners[0].Kind != "HostedControlPlane" ||
			owners[0].APIVersion != "hypershift.openshift.io/v1beta1" || owners[0].UID != "7f3a" ||
			owners[0].Name != "guest1" || !*owners[0].Controller || owners[0].BlockOwnerDeletion != nil {
			t.Errorf("%s is owned by %+v", o, owners)
		}
		if len(u.GetFinalizers()) > 0 {
			t.Errorf("%s has finalizers", o)
		}
	}
	for _, o := range guestObjects(plan) {
		if strings.Contains(string(o.JSON()), "ownerReferences") || strings.Contains(string(o.JSON()), "guest1") {
			t.Errorf("%s in the guest names the HostedControlPlane", o)
		}
	}
}

// TestGuestObjectsDoNotDependOnTheControlPlane checks that the guest's objects are the same with and without a
// HostedControlPlane.
func TestGuestObjectsDoNotDependOnTheControlPlane(t *testing.T) {
	cfg, guest := config(model.TopologyHosted), withForeignCRDs(withClasses("demo"))
	texts := func(mgmt model.ManagementObservation) (out []string) {
		for _, o := range guestObjects(compute(t, cfg, embedded(t), mgmt, guest)) {
			out = append(out, string(o.JSON()))
		}
		return out
	}
	with := withControlPlane(t, func(c *model.ControlPlane) {
		c.Availability, c.InfraID, c.Labels = model.HighlyAvailable, "infra-1", map[string]string{"team": "a"}
	})
	if diff := cmp.Diff(texts(installed(t)), texts(with)); diff != "" {
		t.Errorf("-without +with:\n%s", diff)
	}
}

// istiodUnder returns a function that computes istiod's Deployment for a HostedControlPlane. It renders the chart only
// once.
func istiodUnder(t *testing.T) func(*testing.T, func(*model.ControlPlane)) *unstructured.Unstructured {
	t.Helper()
	planner := desired.NewPlanner(config(model.TopologyHosted), embedded(t))
	return func(t *testing.T, edit func(*model.ControlPlane)) *unstructured.Unstructured {
		t.Helper()
		plan, err := planner.Compute(withControlPlane(t, edit), withForeignCRDs(withClasses("demo")))
		if err != nil {
			t.Fatal(err)
		}
		return theOnly(t, mgmtObjects(plan), "Deployment")
	}
}

// at returns the value at a path of an object. A number in the path is an index of a list.
func at(u *unstructured.Unstructured, path ...any) any {
	var here any = u.Object
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := here.(map[string]any)
			here = object[step]
		case int:
			list, _ := here.([]any)
			if step >= len(list) {
				return nil
			}
			here = list[step]
		}
	}
	return here
}

// deploymentCase is a change of the HostedControlPlane, and a value in the Deployment.
type deploymentCase struct {
	edit func(*model.ControlPlane)
	path []any
	want any
}

// TestControlPlaneFieldsOfTheDeployment checks each field of the HostedControlPlane that istiod's Deployment depends
// on.
func TestControlPlaneFieldsOfTheDeployment(t *testing.T) {
	pod := func(path ...any) []any { return append([]any{"spec", "template", "spec"}, path...) }
	annotations := func(key string) []any { return []any{"spec", "template", "metadata", "annotations", key} }
	checkDeployment(t, map[string]deploymentCase{
		"one replica":              {func(*model.ControlPlane) {}, []any{"spec", "replicas"}, int64(1)},
		"one replica is recreated": {func(*model.ControlPlane) {}, []any{"spec", "strategy"}, map[string]any{"type": "Recreate"}},
		"no preStop hook":          {func(*model.ControlPlane) {}, pod("containers", 0, "lifecycle"), nil},
		"a preStop hook of two replicas": {
			func(c *model.ControlPlane) { c.Availability = model.HighlyAvailable },
			pod("containers", 0, "lifecycle", "preStop", "sleep", "seconds"), int64(3),
		},
		"two replicas": {
			func(c *model.ControlPlane) { c.Availability = model.HighlyAvailable }, []any{"spec", "replicas"}, int64(2),
		},
		"one of two may be missing": {
			func(c *model.ControlPlane) { c.Availability = model.HighlyAvailable },
			[]any{"spec", "strategy", "rollingUpdate", "maxUnavailable"},
			int64(1),
		},
		"an unknown policy":     {func(c *model.ControlPlane) { c.Availability = "Many" }, []any{"spec", "replicas"}, int64(2)},
		"few old versions":      {func(*model.ControlPlane) {}, []any{"spec", "revisionHistoryLimit"}, int64(2)},
		"a priority of its own": {func(c *model.ControlPlane) { c.PriorityClass = "mine" }, pod("priorityClassName"), "mine"},
		"HyperShift's priority": {func(*model.ControlPlane) {}, pod("priorityClassName"), "hypershift-control-plane"},
		"a node selector": {
			func(c *model.ControlPlane) { c.NodeSelector = map[string]string{"role": "infra"} }, pod("nodeSelector"),
			map[string]any{"role": "infra"},
		},
		"no node selector": {func(*model.ControlPlane) {}, pod("nodeSelector"), nil},
		"a user": {
			func(c *model.ControlPlane) { c.RunAsUser = 1001 }, pod("securityContext"),
			map[string]any{"runAsUser": int64(1001), "fsGroup": int64(1001)},
		},
		"no user": {func(*model.ControlPlane) {}, pod("securityContext"), nil},
		"a toleration": {func(c *model.ControlPlane) {
			c.Tolerations = []corev1.Toleration{{Key: "k", Operator: "Exists", TolerationSeconds: new(int64(5))}}
		}, pod("tolerations", 2), map[string]any{"key": "k", "operator": "Exists", "tolerationSeconds": int64(5)}},
		"a restart": {
			func(c *model.ControlPlane) { c.RestartDate = "now" }, annotations("hypershift.openshift.io/restart-date"), "now",
		},
		"no restart": {func(*model.ControlPlane) {}, annotations("hypershift.openshift.io/restart-date"), nil},
		"the control plane's image": {
			func(c *model.ControlPlane) { c.ReleaseImage = "quay.io/r:4.21.3" }, annotations("hypershift.openshift.io/release-image"),
			"quay.io/r:4.21.3",
		},
		"the version": {
			func(*model.ControlPlane) {}, []any{"metadata", "annotations", "release.openshift.io/version"}, "4.21.0",
		},
		"no version": {
			func(c *model.ControlPlane) { c.ReleaseVersion = "" }, []any{"metadata", "annotations", "release.openshift.io/version"}, nil,
		},
	})
}

// TestControlPlaneLabelsAndPlacement checks labels, requests and the placement of pods.
func TestControlPlaneLabelsAndPlacement(t *testing.T) {
	pod := func(path ...any) []any { return append([]any{"spec", "template", "spec"}, path...) }
	labels := func(key string) []any { return []any{"spec", "template", "metadata", "labels", key} }
	checkDeployment(t, map[string]deploymentCase{
		"a label": {func(c *model.ControlPlane) { c.Labels = map[string]string{"team": "a"} }, labels("team"), "a"},
		"a label of the chart": {
			func(c *model.ControlPlane) { c.Labels = map[string]string{"release": "a"} }, labels("release"), "a",
		},
		"a label that is selected": {func(c *model.ControlPlane) { c.Labels = map[string]string{"app": "a"} }, labels("app"), "istiod"},
		"a label that opens network policies": {
			func(c *model.ControlPlane) {
				c.Labels = map[string]string{"hypershift.openshift.io/need-management-kas-access": "true"}
			},
			labels("hypershift.openshift.io/need-management-kas-access"), nil,
		},
		"a label of Istio's": {
			func(c *model.ControlPlane) { c.Labels = map[string]string{"sidecar.istio.io/inject": "true"} },
			labels("sidecar.istio.io/inject"), "false",
		},
		"requests": {func(c *model.ControlPlane) {
			c.Requests = map[string]map[string]string{"discovery": {"cpu": "1"}, "gone": {"cpu": "9"}}
		}, pod("containers", 0, "resources", "requests"), map[string]any{"cpu": "1", "memory": "160Mi"}},
		"extended requests": {func(c *model.ControlPlane) {
			c.Requests = map[string]map[string]string{"discovery": {"example.com/nic": "1"}}
		}, pod("containers", 0, "resources", "limits"), map[string]any{"example.com/nic": "1"}},
		"zones are required": {
			func(c *model.ControlPlane) { c.Availability = model.HighlyAvailable },
			pod("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", 0, "topologyKey"),
			"topology.kubernetes.io/zone",
		},
		"or only preferred": {
			func(c *model.ControlPlane) { c.Availability, c.Platform = model.HighlyAvailable, "KubeVirt" },
			pod("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", 0, "topologyKey"),
			"kubernetes.io/hostname",
		},
		"one is not spread": {func(*model.ControlPlane) {}, pod("affinity", "podAntiAffinity"), nil},
		"dedicated nodes": {func(c *model.ControlPlane) {
			c.DedicatedRequestServing, c.ServingNodes = true, map[string]string{"size": "large"}
		}, pod(
			"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
			"nodeSelectorTerms", 0, "matchExpressions", 2, "key",
		), "size"},
		"no dedicated nodes": {
			func(*model.ControlPlane) {}, pod("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"), nil,
		},
		"the Secrets' mode": {func(*model.ControlPlane) {}, pod("volumes", 1, "secret", "defaultMode"), int64(416)},
		"the operand's label": {
			func(*model.ControlPlane) {}, []any{"metadata", "labels", "hypershift.openshift.io/managed-by"}, "hypergate",
		},
	})
}

func checkDeployment(t *testing.T, cases map[string]deploymentCase) {
	t.Helper()
	istiod := istiodUnder(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, at(istiod(t, tc.edit), tc.path...)); diff != "" {
				t.Errorf("at %v, -want +got:\n%s", tc.path, diff)
			}
		})
	}
}

// TestConfiguredReleaseVersionHasPriority checks that Config.ReleaseVersion has priority over the
// HostedControlPlane's version. During an upgrade, the HostedControlPlane already has the new version. A client that
// waits for istiod must not read that istiod belongs to the new release.
func TestConfiguredReleaseVersionHasPriority(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.ReleaseVersion = "4.20.9"
	plan := compute(t, cfg, embedded(t), withControlPlane(t, func(*model.ControlPlane) {}), withForeignCRDs(withClasses("demo")))
	if got := at(theOnly(t, mgmtObjects(plan), "Deployment"), "metadata", "annotations", "release.openshift.io/version"); got != "4.20.9" {
		t.Errorf("it says %v", got)
	}
}

// TestOnlyPodChangesRollIstiod checks that other fields of the HostedControlPlane do not change the pod
// template.
func TestOnlyPodChangesRollIstiod(t *testing.T) {
	istiod := istiodUnder(t)
	pods := func(edit func(*model.ControlPlane)) any { return at(istiod(t, edit), "spec", "template") }
	before := pods(func(*model.ControlPlane) {})
	for i, edit := range []func(*model.ControlPlane){
		func(c *model.ControlPlane) { c.ReleaseVersion = "4.22.0" },
		func(c *model.ControlPlane) { c.GuestReleaseImage = "quay.io/r:4.20" },
		func(c *model.ControlPlane) { c.PausedUntil = "false" },
		func(c *model.ControlPlane) { c.UnreadFields = []string{"x"} },
		func(c *model.ControlPlane) { c.Services = []model.PublishedService{{Service: "APIServer"}} },
		func(c *model.ControlPlane) { c.UID = "another" },
	} {
		if diff := cmp.Diff(before, pods(edit)); diff != "" {
			t.Errorf("edit %d rolls istiod:\n%s", i, diff)
		}
	}
	if cmp.Equal(before, pods(func(c *model.ControlPlane) { c.RestartDate = "now" })) {
		t.Error("a restart that was asked for does not")
	}
}

// TestOneLocalVolume checks that istiod's pod has one local volume, in memory, that istiod keeps its key there, and
// that the sidecar of the tunnel sees another part of the volume.
func TestOneLocalVolume(t *testing.T) {
	mgmt := withControlPlane(t, func(*model.ControlPlane) {})
	plan := compute(t, byTunnel(t), embedded(t), mgmt, withForeignCRDs(withClasses("demo")))
	d := &appsv1.Deployment{}
	if err := json.Unmarshal(plan.Workload[0].JSON(), d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	var local []corev1.Volume
	for _, v := range pod.Volumes {
		if v.EmptyDir != nil || v.HostPath != nil {
			local = append(local, v)
		}
	}
	if len(local) != 1 || local[0].Name != "tmp-dir" || local[0].EmptyDir == nil || local[0].EmptyDir.Medium != corev1.StorageMediumMemory {
		t.Errorf("the local volumes are %+v", local)
	}
	got := map[string][]string{}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			if m.Name == "tmp-dir" {
				got[c.Name] = append(got[c.Name], m.MountPath+" "+m.SubPath)
			}
		}
	}
	want := map[string][]string{"discovery": {"/var/run/secrets/istio-dns local-certs", "/tmp "}, "tunnel": {"/tmp tunnel"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the mounts, -want +got:\n%s", diff)
	}
}

// TestThePlanDoesNotDependOnMapOrder checks that the order in a plan does not depend on the iteration order of maps.
func TestThePlanDoesNotDependOnMapOrder(t *testing.T) {
	var texts []string
	istiod := istiodUnder(t)
	for range 5 {
		u := istiod(t, func(c *model.ControlPlane) {
			c.DedicatedRequestServing = true
			c.Labels, c.ServingNodes, c.NodeSelector = map[string]string{}, map[string]string{}, map[string]string{}
			for i := range 20 {
				key := fmt.Sprintf("key%d", i)
				c.Labels[key], c.ServingNodes[key], c.NodeSelector[key] = "v", "v", "v"
			}
		})
		data, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(data))
	}
	if slices.Sort(texts); texts[0] != texts[4] {
		t.Error(cmp.Diff(texts[0], texts[4]))
	}
}
