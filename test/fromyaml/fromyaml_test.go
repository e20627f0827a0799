package fromyaml_test

import (
	"strings"
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

// TestParse checks that an error contains the document that is wrong, and not the others.
func TestParse(t *testing.T) {
	got, err := fromyaml.Parse("{apiVersion: v1, kind: A}\n---\n{apiVersion: v1, kind: B}")
	if err != nil || len(got) != 2 || got[1].GetKind() != "B" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, wrong := range []string{"{apiVersion: v1, of: B}", "kind: [B", "--- of: B"} {
		got, err := fromyaml.Parse("{apiVersion: v1, kind: A}\n---\n" + wrong + "\n---\n{apiVersion: v1, kind: C}")
		if got != nil || err == nil || !strings.Contains(err.Error(), "of: B") && !strings.Contains(err.Error(), wrong) ||
			strings.Contains(err.Error(), "kind: A") || strings.Contains(err.Error(), "kind: C") {
			t.Errorf("%s: got %v, %v", wrong, got, err)
		}
	}
}
