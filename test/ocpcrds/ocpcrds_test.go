package ocpcrds

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWithoutNewRules checks that only rules with functions that an older API server does not know are removed, on each
// level of a schema.
func TestWithoutNewRules(t *testing.T) {
	t.Parallel()
	schema := func(texts ...string) any {
		rules := func() (out []any) {
			for _, text := range texts {
				out = append(out, map[string]any{"rule": text})
			}
			return out
		}
		return map[string]any{
			"properties": map[string]any{"ips": map[string]any{"x-kubernetes-validations": rules(), "type": "array"}},
			"versions":   []any{map[string]any{"x-kubernetes-validations": rules()}},
		}
	}
	kept := []string{"self.zip() != ''", "size(self) < 3", "isURL(self)", "self.format == 'a'"}
	got := schema(append([]string{
		"isIP(self)", "size(self) == 2 ? ip(self[0]).family() == 4 : true", "isCIDR(self)",
		"!format.dns1123Label().validate(self).hasValue()",
	}, kept...)...)
	withoutNewRules(got)
	if diff := cmp.Diff(schema(kept...), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
