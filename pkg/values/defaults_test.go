package values_test

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/values"
)

func TestOverlayProblem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data map[string]string
		want string
	}{
		"nothing":       {nil, ""},
		"objects":       {map[string]string{"deployment": "spec: {replicas: 2}", "service": "{}"}, ""},
		"no content":    {map[string]string{"serviceAccount": "", "podDisruptionBudget": "\n"}, ""},
		"a comment":     {map[string]string{"deployment": "# later"}, ""},
		"an alias":      {map[string]string{"deployment": "a: &a [1]\nb: *a"}, ""},
		"a typing slip": {map[string]string{"deploymnet": "spec: {}"}, `"deploymnet" is not one of the keys deployment, horizontalPod`},
		"a long key":    {map[string]string{strings.Repeat("x", 200): ""}, `"` + strings.Repeat("x", 64) + `" is not one of`},
		"no YAML":       {map[string]string{"service": "spec: {"}, "service is not YAML"},
		"a list":        {map[string]string{"service": "[1]"}, "service is not a part of an object"},
		"a text":        {map[string]string{"service": "spec"}, "service is not a part of an object"},
		"too long":      {map[string]string{"service": strings.Repeat("[", 1<<17)}, ""},
	} {
		got := values.OverlayProblem(test.data)
		if got != test.want && (test.want == "" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
