package desired_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/desired"
)

func aCluster() desired.ControlPlane {
	return desired.ControlPlane{ReportedBy: desired.ClusterAPI, APIVersion: "cluster.x-k8s.io/v1beta2", Name: "guest1", UID: "7f3b"}
}

func TestPhaseOfACluster(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*desired.ControlPlane)
		want desired.Lifecycle
	}{
		"up":                     {func(*desired.ControlPlane) {}, desired.Active{}},
		"not up yet":             {func(c *desired.ControlPlane) { c.Stage = desired.Uninitialized }, desired.Starting{}},
		"paused":                 {func(c *desired.ControlPlane) { c.PausedUntil = desired.PausedForNow }, desired.Paused{}},
		"paused before it is up": {func(c *desired.ControlPlane) { c.PausedUntil, c.Stage = desired.PausedForNow, desired.Uninitialized }, desired.Paused{}},
		"going":                  {func(c *desired.ControlPlane) { c.Deleting = true }, desired.Deleting{}},
		"going, and paused":      {func(c *desired.ControlPlane) { c.Deleting, c.PausedUntil = true, desired.PausedForNow }, desired.Deleting{}},
		"going, and never up":    {func(c *desired.ControlPlane) { c.Deleting, c.Stage = true, desired.Uninitialized }, desired.Deleting{}},
	} {
		c := aCluster()
		tc.edit(&c)
		if diff := cmp.Diff(tc.want, c.Lifecycle(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if c.Exists() || !c.Owns() || len(c.Warnings()) > 0 {
			t.Errorf("%s: it passes for a HostedControlPlane", name)
		}
	}
}

// TestAClusterOwnsAndNothingElse: what is on the management side is as without one, but for its owner, and the guest does not notice.
func TestAClusterOwnsAndNothingElse(t *testing.T) {
	cfg, guest := config(desired.TopologyHosted), withForeignCRDs(asking("demo"))
	without := compute(t, cfg, embedded(t), installed(t), guest)
	owned := installed(t)
	owned.ControlPlane = aCluster()
	with := compute(t, cfg, embedded(t), owned, guest)
	want := []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "guest1", UID: "7f3b", Controller: new(true)}}
	before, after := mgmtObjects(without), mgmtObjects(with)
	if len(before) != len(after) || len(before) == 0 {
		t.Fatalf("%d objects without it, %d with", len(before), len(after))
	}
	for i := range after {
		u := parse(t, string(after[i].JSON()))
		if diff := cmp.Diff(want, u.GetOwnerReferences()); diff != "" {
			t.Errorf("%s is not the Cluster's (-want +got):\n%s", after[i], diff)
		}
		u.SetOwnerReferences(nil)
		if diff := cmp.Diff(parse(t, string(before[i].JSON())).Object, u.Object); diff != "" {
			t.Errorf("%s differs (-without +with):\n%s", after[i], diff)
		}
	}
	if diff := cmp.Diff(texts(guestObjects(without)), texts(guestObjects(with))); diff != "" {
		t.Errorf("the guest notices (-without +with):\n%s", diff)
	}
	if text := strings.Join(texts(guestObjects(with)), ""); strings.Contains(text, "guest1") || strings.Contains(text, "7f3b") {
		t.Error("the guest is told of the Cluster")
	}
	secret, err := desired.CredentialSecret(cfg, aCluster(), credential())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, parse(t, string(secret.JSON())).GetOwnerReferences()); diff != "" {
		t.Errorf("istiod's credential is not the Cluster's (-want +got):\n%s", diff)
	}
}
