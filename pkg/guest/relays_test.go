package guest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestReadyRelaysAreBounded checks that the number of ready relays, which the guest can set, is one of three.
func TestReadyRelaysAreBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status any
		want   int
	}{
		"no status": {nil, 0},
		"none":      {map[string]any{"replicas": int64(2)}, 0},
		"one":       {map[string]any{"readyReplicas": int64(1)}, 1},
		"all":       {map[string]any{"readyReplicas": int64(2)}, 2},
		"too many":  {map[string]any{"readyReplicas": int64(1000)}, model.RelayReplicas},
		"less":      {map[string]any{"readyReplicas": int64(-7)}, 0},
		"text":      {map[string]any{"readyReplicas": "2"}, 0},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"status": tc.status}}
		u.SetName(model.RelayName)
		if item := readyOnly(u); item.ready != tc.want || item.Name != model.RelayName {
			t.Errorf("%s: %+v; want %d", name, item, tc.want)
		}
	}
}
