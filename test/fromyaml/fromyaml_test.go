package fromyaml_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/test/fromyaml"
)

func TestObject(t *testing.T) {
	want := map[string]any{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"port": int64(1), "part": 0.5}}
	got := fromyaml.Object(t, "{apiVersion: v1, kind: Service, spec: {port: 1, part: 0.5}}")
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestObjects(t *testing.T) {
	const text = `# A comment.
---
{apiVersion: v1, kind: A}
---
# Another comment.
---
apiVersion: v1
kind: B # ---
---
`
	var got []string
	for _, u := range fromyaml.Objects(t, []byte(text)) {
		got = append(got, u.GetKind())
	}
	if diff := cmp.Diff([]string{"A", "B"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if none := fromyaml.Objects(t, ""); len(none) != 0 {
		t.Errorf("got %v", none)
	}
}
