package guest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestNamespacedKindsAreWatchedInOneNamespace checks that hypergate sends no requests for other namespaces of the
// guest, so that it needs no Role there. It watches kinds with a list of names by name.
func TestNamespacedKindsAreWatchedInOneNamespace(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theCRDs)
		api.Put(theNamespaces)
	})
	f.observed()
	all := f.api.Requests(fakeapi.Collection{})
	for _, kind := range model.GuestKinds() {
		ofKind := slices.DeleteFunc(slices.Clone(all), func(r string) bool {
			path, _, _ := strings.Cut(strings.TrimPrefix(r, "GET "), "?")
			return !strings.HasSuffix(path, "/"+kind.Resource)
		})
		if len(ofKind) == 0 {
			t.Errorf("no request for %s", kind.Resource)
		}
		for _, r := range ofKind {
			if strings.Contains(r, "/namespaces/"+config().GuestNamespace+"/") != kind.Namespaced {
				t.Errorf("request %s, want namespaced = %t", r, kind.Namespaced)
			}
			// RBAC allows a list of some names only with a field selector.
			if len(kind.Names) == 1 && !strings.Contains(r, "fieldSelector=metadata.name%3D"+kind.Names[0]+"&") {
				t.Errorf("request %s, want only %q", r, kind.Names)
			}
		}
	}
}
