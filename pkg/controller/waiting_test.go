package controller

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestAnIstiodThatCannotReadInferencePools checks that conditions name the CRD that keeps istiod from becoming ready,
// and do not while istiod serves.
func TestAnIstiodThatCannotReadInferencePools(t *testing.T) {
	t.Parallel()
	k := known{decision: converge{}}
	k.observed.mgmt.Istiod, k.observed.guest.Unserved = model.Unavailable, []string{model.InferencePoolCRD}
	if got := k.waiting(); got != status.WaitingForInferencePools() {
		t.Errorf("%v", got)
	}
	k.observed.mgmt.Istiod = model.Available
	if got := k.waiting(); got != (status.Waiting{}) {
		t.Errorf("while istiod serves: %v", got)
	}
}
