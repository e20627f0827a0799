package adversary_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
)

// TestAFormerNameStaysUntilTheNewOneExists has an installation of a hypergate that gave an object another name, and a
// guest whose CRDs are read late. The pass that waits for the CRDs writes nothing else in the guest. So it must not
// delete the object with the former name either.
func TestAFormerNameStaysUntilTheNewOneExists(t *testing.T) {
	t.Parallel()
	const former, services = "former-marker", "services"
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	putClass(g, "demo")
	_, stop := runUntil(t, m, g)
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	marker := g.Get("v1", services, "openshift-ingress", model.DefaultRevisionMarker)
	marker["metadata"].(map[string]any)["name"] = former
	g.PutObject("v1", services, marker)
	g.Delete("v1", services, "openshift-ingress", model.DefaultRevisionMarker)
	foreign := g.Get(crdAPI, crdResource, "", "gateways.gateway.networking.k8s.io")
	metadata := foreign["metadata"].(map[string]any)
	delete(metadata, "labels")
	delete(metadata, "managedFields")
	g.PutObject(crdAPI, crdResource, foreign)
	from := len(g.Log())
	exists := func() bool { return strings.Contains(strings.Join(g.Names("v1", services), " "), former) }
	late := hold(t, g, http.MethodGet, "customresourcedefinitions?fieldSelector=")
	log := run(t, m, g)
	eventually(t, "a pass ended without the CRDs", func() bool { return strings.Contains(log.String(), "msg=Applied") })
	if !exists() {
		t.Error("the object with the former name was deleted before the new one existed")
	}
	late.open()
	eventually(t, "the object with the former name is gone", func() bool { return !exists() })
	made, deleted := -1, -1
	for i, r := range g.Log()[from:] {
		switch {
		case r.Method == http.MethodPatch && strings.HasSuffix(r.Path, services+"/"+model.DefaultRevisionMarker) && made < 0:
			made = i
		case r.Method == http.MethodDelete && strings.HasSuffix(r.Path, services+"/"+former):
			deleted = i
		}
	}
	if made < 0 || deleted < made {
		t.Errorf("the new object is request %d, and the deletion of the former one is request %d", made, deleted)
	}
}
