package guest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestNamespacedKindsAreWatchedInOneNamespace: in the guest's other namespaces a Role of hypergate's is not needed, and nothing is looked at.
func TestNamespacedKindsAreWatchedInOneNamespace(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs)
		api.Put(theNamespaces)
	})
	f.observed()
	all := f.api.Requests(fakeapi.Collection{})
	for _, kind := range desired.GuestKinds() {
		ofKind := slices.DeleteFunc(slices.Clone(all), func(r string) bool {
			path, _, _ := strings.Cut(strings.TrimPrefix(r, "GET "), "?")
			return !strings.HasSuffix(path, "/"+kind.Resource)
		})
		if len(ofKind) == 0 {
			t.Errorf("nobody asked for %s", kind.Resource)
		}
		for _, r := range ofKind {
			if strings.Contains(r, "/namespaces/"+config().GuestNamespace+"/") != kind.Namespaced {
				t.Errorf("%s, and namespaced is %t", r, kind.Namespaced)
			}
		}
	}
}
