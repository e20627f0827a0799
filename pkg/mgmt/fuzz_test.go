package mgmt

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/hypergate/hypergate/pkg/model"
)

// FuzzControlPlane checks that any HostedControlPlane or Cluster is either read, with the same result each time, or
// refused.
func FuzzControlPlane(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"guest1","uid":"u",`+
		`"annotations":{"resource-request-override.hypershift.openshift.io/istiod.discovery":"cpu=1,memory=1Gi",`+
		`"hypershift.openshift.io/topology":"dedicated-request-serving-components"}},"spec":{"releaseImage":"r",`+
		`"clusterID":"c","pausedUntil":"true",`+
		`"services":[{"service":"APIServer","servicePublishingStrategy":{"type":"Route","route":{"hostname":"h"}}}],`+
		`"platform":{"type":"AWS","aws":{"endpointAccess":"Private"}},`+
		`"networking":{"apiServer":{"allowedCIDRBlocks":["10.0.0.0/8","x"]}},"tolerations":[{"key":"k",`+
		`"operator":"Exists"}]},"status":{"conditions":[{"type":"KubeAPIServerAvailable","status":"True"}]}}`),
		"istiod")
	f.Add(
		[]byte(
			`{"metadata":{"name":"c","annotations":{"cluster.x-k8s.io/paused":""}},"spec":{"paused":true},`+
				`"status":{"controlPlaneReady":true,"conditions":[{"type":"ControlPlaneInitialized","status":"True"}]}}`,
		),
		"",
	)
	f.Add([]byte(`{"metadata":[],"spec":7,"status":{"conditions":{"a":[]}}}`), "a")
	f.Fuzz(func(t *testing.T, data []byte, deployment string) {
		var u unstructured.Unstructured
		if utiljson.Unmarshal(data, &u.Object) != nil || u.Object == nil {
			return
		}
		before := u.DeepCopy()
		for name, read := range map[string]func() (model.ControlPlane, error){
			"readControlPlane": func() (model.ControlPlane, error) { return readControlPlane(&u, deployment) },
			"readCluster":      func() (model.ControlPlane, error) { return readCluster(&u) },
			"whatIsSure":       func() (model.ControlPlane, error) { return certainFields(&u), nil },
		} {
			first, firstErr := read()
			second, secondErr := read()
			if (firstErr == nil) != (secondErr == nil) {
				t.Errorf("%s: %v and then %v", name, firstErr, secondErr)
			}
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("%s reads it in two ways:\n%s", name, diff)
			}
		}
		if diff := cmp.Diff(before.Object, u.Object); diff != "" {
			t.Errorf("reading changes it:\n%s", diff)
		}
	})
}
