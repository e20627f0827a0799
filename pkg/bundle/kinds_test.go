package bundle

import (
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// TestKindsHaveAllThatIsWritten checks that an archive has each kind that hypergate writes, but Secrets, and the pods
// of the relays.
func TestKindsHaveAllThatIsWritten(t *testing.T) {
	t.Parallel()
	routes := publish.OtherRouteKinds(model.Config{}, model.PublishAddress)
	for side, of := range map[string]struct {
		written []model.Kind
		kinds   []Kind
	}{
		"management": {slices.Concat(model.MgmtKinds(), routes), Management()},
		"guest":      {model.GuestKinds(), Guest()},
	} {
		for _, written := range of.written {
			has := slices.ContainsFunc(of.kinds, func(k Kind) bool {
				covers := k.selector == "" || k.selector == owned || k.selector == pods
				return covers && k.group == written.GVK.Group && k.resource == written.Resource &&
					(k.scope == ofNamespace) == written.Namespaced
			})
			if isSecret := written.GVK.Kind == "Secret"; has == isSecret {
				t.Errorf("%s: %s is in the archive: %t", side, written.GVK, has)
			}
		}
	}
	if app, is := model.RelayPods()["app"].(string); !is || relays != "app="+app {
		t.Errorf("the relay pods have the labels %v, and the archive selects %q", model.RelayPods(), relays)
	}
	if name := model.MigrationLeaseName("r"); !strings.HasPrefix(name, leases) {
		t.Errorf("the archive lacks the Lease %s", name)
	}
}
