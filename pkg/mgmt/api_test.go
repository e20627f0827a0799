package mgmt_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestTheManagementAPIIsObserved checks that the observation has the address of the management API and its CA
// bundle. A plan is searched for both.
func TestTheManagementAPIIsObserved(t *testing.T) {
	f := start(t, func(*fakeapi.Server) {})
	config := f.api.Config()
	want := model.MgmtAPI{Server: config.Host, CABundle: config.CAData}
	if diff := cmp.Diff(want, f.observed().API); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
