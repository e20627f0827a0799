package controller

import (
	"errors"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/desired"
)

// TestHeldInDoubt: nobody knows which HostedControlPlane counts, or what one says, and any of them may be paused.
func TestHeldInDoubt(t *testing.T) {
	active := desired.ControlPlane{Name: "a", UID: "a", By: desired.HyperShift}
	paused := desired.ControlPlane{Name: "b", UID: "b", PausedUntil: "true"}
	past := desired.ControlPlane{Name: "c", UID: "c", PausedUntil: time.Now().Add(-time.Hour).Format(time.RFC3339)}
	going := desired.ControlPlane{Name: "d", UID: "d", Deleting: true}
	for name, tc := range map[string]struct {
		followed desired.ControlPlane
		doubted  []desired.ControlPlane
		held     bool
	}{
		"two that work":                      {active, []desired.ControlPlane{active, past}, false},
		"one of two is paused":               {active, []desired.ControlPlane{active, paused}, true},
		"one that cannot be read is paused":  {desired.ControlPlane{}, []desired.ControlPlane{paused}, true},
		"one that cannot be read is going":   {desired.ControlPlane{}, []desired.ControlPlane{going}, true},
		"the one that was followed is going": {going, []desired.ControlPlane{active, going}, true},
		"another is going":                   {active, []desired.ControlPlane{active, going}, false},
	} {
		r := &Reconciler{clock: clock.RealClock{}}
		err := r.hold(t.Context(), desired.Hosted{ControlPlane: tc.followed, Doubted: tc.doubted, DoubtfulControlPlane: errors.New("there are two")}, nil)
		if (err != nil) != tc.held {
			t.Errorf("%s: %v", name, err)
		}
	}
}
