package fleet

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/summary"
)

// TestWithout checks which hosted clusters count as without hypergate.
func TestWithout(t *testing.T) {
	t.Parallel()
	hcp := Cluster{hostedControlPlane, "clusters-a", "a"}
	ofHyperShift := Cluster{"Cluster", "clusters-a", "a-x7k2p"}
	first, second := Cluster{"Cluster", "tenants", "first"}, Cluster{"Cluster", "tenants", "second"}
	reading := func(namespace, guest string) summary.Reading {
		return summary.Reading{Namespace: namespace, Summary: &summary.Summary{Guest: guest}}
	}
	for name, tc := range map[string]struct {
		installations []summary.Reading
		all, want     []Cluster
	}{
		"HyperShift, installed":    {[]summary.Reading{reading("clusters-a", "a")}, []Cluster{hcp, ofHyperShift}, nil},
		"HyperShift, no summary":   {[]summary.Reading{{Namespace: "clusters-a"}}, []Cluster{hcp, ofHyperShift}, nil},
		"HyperShift, without":      {nil, []Cluster{hcp, ofHyperShift}, []Cluster{hcp}},
		"the order does not count": {nil, []Cluster{ofHyperShift, hcp}, []Cluster{hcp}},
		"another namespace":        {[]summary.Reading{reading("clusters-b", "a")}, []Cluster{hcp}, []Cluster{hcp}},
		"Cluster, no summary":      {[]summary.Reading{{Namespace: "tenants"}}, []Cluster{hcp, first}, []Cluster{hcp}},
		"Cluster, no guest":        {[]summary.Reading{reading("tenants", "")}, []Cluster{first}, nil},
		"another one's summary":    {[]summary.Reading{reading("tenants", "first"), {Namespace: "tenants"}}, []Cluster{first, second}, nil},
		"one of two Clusters":      {[]summary.Reading{reading("tenants", "first")}, []Cluster{hcp, first, second}, []Cluster{hcp, second}},
	} {
		if got := without(tc.installations, tc.all); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestForeignLeases checks that a Lease with hypergate's label and another name is not an installation.
func TestForeignLeases(t *testing.T) {
	t.Parallel()
	var leases []coordinationv1.Lease
	for _, name := range []string{"hypergate", "hypergate-openshift-gateway", "other"} {
		leases = append(leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	got := readings(leases, time.Now())
	if len(got) != 1 || got[0].Lease != "hypergate-openshift-gateway" {
		t.Errorf("%v", got)
	}
}
