package desired_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/modeltest"
)

func aCluster() model.ControlPlane {
	return model.ControlPlane{ReportedBy: model.ClusterAPI, APIVersion: "cluster.x-k8s.io/v1beta2", Name: "guest1", UID: "7f3b"}
}

// TestAClusterOnlyChangesOwnerReferences checks that a Cluster of Cluster API changes only the owner of the objects on
// the management side. The guest's objects do not change.
func TestAClusterOnlyChangesOwnerReferences(t *testing.T) {
	cfg, guest := config(model.TopologyHosted), withForeignCRDs(withClasses("demo"))
	without := compute(t, cfg, embedded(t), installed(t), guest)
	owned := installed(t)
	owned.ControlPlane = aCluster()
	with := compute(t, cfg, embedded(t), owned, guest)
	want := []metav1.OwnerReference{
		{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "guest1", UID: "7f3b", Controller: new(true)},
	}
	before, after := mgmtObjects(without), mgmtObjects(with)
	if len(before) != len(after) || len(before) == 0 {
		t.Fatalf("%d objects without it, %d with", len(before), len(after))
	}
	for i := range after {
		u := fromyaml.Object(t, after[i].JSON())
		if diff := cmp.Diff(want, u.GetOwnerReferences()); diff != "" {
			t.Errorf("%s is not the Cluster's (-want +got):\n%s", after[i], diff)
		}
		u.SetOwnerReferences(nil)
		if diff := cmp.Diff(fromyaml.Object(t, before[i].JSON()).Object, u.Object); diff != "" {
			t.Errorf("%s differs (-without +with):\n%s", after[i], diff)
		}
	}
	if diff := cmp.Diff(texts(guestObjects(without)), texts(guestObjects(with))); diff != "" {
		t.Errorf("the guest notices (-without +with):\n%s", diff)
	}
	if text := strings.Join(texts(guestObjects(with)), ""); strings.Contains(text, "guest1") || strings.Contains(text, "7f3b") {
		t.Error("an object in the guest names the Cluster")
	}
	secret, err := model.CredentialSecret(cfg, aCluster(), modeltest.Credential())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, fromyaml.Object(t, secret.JSON()).GetOwnerReferences()); diff != "" {
		t.Errorf("istiod's credential is not the Cluster's (-want +got):\n%s", diff)
	}
}
