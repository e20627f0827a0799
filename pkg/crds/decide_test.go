package crds_test

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/crds"
)

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name string
		fact crds.Fact
		want crds.Decision
	}{
		{"absent", crds.Fact{}, crds.Install},
		{"ours", crds.FactOf(true, false), crds.Update},
		{"ours, being deleted", crds.FactOf(true, true), crds.Wait},
		{"foreign", crds.FactOf(false, false), crds.Keep},
		{"foreign, being deleted", crds.FactOf(false, true), crds.Keep},
		{"an owner of tomorrow", crds.Fact{Owner: crds.Foreign + 1}, crds.Keep},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := crds.Decide(tc.fact); got != tc.want {
				t.Errorf("Decide(%+v) = %d, want %d", tc.fact, got, tc.want)
			}
		})
	}
}

// A CRD that nobody looked at is in no map, and must not be taken for ours.
func TestNoFactIsAbsent(t *testing.T) {
	facts := map[string]crds.Fact{}
	if got := facts["httproutes.gateway.networking.k8s.io"].Owner; got != crds.Absent {
		t.Errorf("Owner = %d, want Absent", got)
	}
}
