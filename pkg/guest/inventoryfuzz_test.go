package guest

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/migration"
)

// FuzzInventory checks that what is kept of any Gateway and any Deployment is bounded.
func FuzzInventory(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"g","annotations":{"gateway.hypergate.dev/migration-order":"9999999999999999999"}},` +
		`"spec":{"gatewayClassName":"c"},"status":{"listeners":[{"attachedRoutes":2147483647},{"attachedRoutes":2147483647}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"app.kubernetes.io/version":"999999.1"}},"spec":{"template":{"spec":{` +
		`"containers":[{"name":"discovery","image":"/"},{"env":[{"name":"CA_ADDR","value":"a:1"}]}],` +
		`"volumes":[{"name":"istiod-ca-cert"},{"name":"istiod-ca-cert","configMap":{"name":"roots"}}]}}}}`))
	f.Add([]byte(`{"metadata":{"name":"` + strings.Repeat("x", maxName+1) + `"}}`))
	f.Add([]byte(`{"metadata":{"name":"a","resourceVersion":"` + strings.Repeat("1", maxIdentity+1) + `"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var u unstructured.Unstructured
		if json.Unmarshal(data, &u.Object) == nil && checkIdentity(&u) == nil {
			kept := foreignObjectOf(&u)
			if len(kept.Key.String()) > maxName+1+maxNamespace || len(kept.UID) > maxUID || len(kept.ResourceVersion) > maxIdentity {
				t.Errorf("kept: %+v", kept)
			}
		}
		var g gatewayv1.Gateway
		if json.Unmarshal(data, &g) == nil {
			kept := inventoryGateway(g)
			if max(len(kept.Class), len(kept.Invalid)) > maxName || kept.Routes < 0 || kept.Routes > maxRoutes {
				t.Errorf("kept: %+v", kept)
			}
		}
		var d appsv1.Deployment
		if json.Unmarshal(data, &d) != nil {
			return
		}
		pod := d.Spec.Template.Spec
		if address, root := addressOf(pod), rootOf(pod); len(address) > maxName || len(root) > maxName {
			t.Errorf("kept: %d bytes of an address, %d of a root", len(address), len(root))
		}
		if v := versionOf(d); v != (migration.Version{}) && (v.Major > 999 || v.Minor > 999 || v.Patch > 9999) {
			t.Errorf("the version is %s", v)
		}
	})
}
