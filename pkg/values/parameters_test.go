package values_test

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/values"
)

// TestParametersProblem checks parameters of one Gateway: they are merged into the defaults of its class, and can
// repeat what istiod sets.
func TestParametersProblem(t *testing.T) {
	t.Parallel()
	const hpa, pdb, above = "horizontalPodAutoscaler", "podDisruptionBudget", " is more than maxReplicas, which is "
	defaults := map[string]string{hpa: "spec: {minReplicas: 2, maxReplicas: 10}", pdb: "spec: {minAvailable: 1}"}
	known := values.Target{Namespace: "shop", Names: []string{"web-class"}, Defaults: defaults}
	unknown := values.Target{Namespace: "shop", Names: []string{"web-class"}}
	without := values.Target{Namespace: "shop", Defaults: map[string]string{}}
	broken := values.Target{Defaults: map[string]string{hpa: "spec: {minReplicas: 9, maxReplicas: 1}", pdb: "spec: [1]"}}
	for name, test := range map[string]struct {
		into             values.Target
		key, value, want string
	}{
		"an unknown key":          {known, "deploymnet", "", `"deploymnet" is not one of the keys`},
		"no YAML":                 {known, "service", "spec: {", "service is not YAML"},
		"an unknown field":        {known, "service", "spec: {Type: NodePort}", `service: unknown field "spec.Type"`},
		"below the default's max": {known, hpa, "spec: {minReplicas: 5}", ""},
		"above the default's max": {known, hpa, "spec: {minReplicas: 11}", hpa + ": spec.minReplicas 11" + above + "10"},
		"below the default's min": {known, hpa, "spec: {maxReplicas: 1}", hpa + ": spec.minReplicas 2" + above + "1"},
		"no default's min":        {known, hpa, "spec: {minReplicas: null, maxReplicas: 1}", ""},
		"max of no defaults":      {without, hpa, "spec: {minReplicas: 2}", hpa + ": spec.minReplicas 2" + above + "1"},
		"max of unknown defaults": {unknown, hpa, "spec: {minReplicas: 5}", ""},
		"unknown, but its own":    {unknown, hpa, "spec: {minReplicas: 5, maxReplicas: 4}", hpa + ": spec.minReplicas 5"},
		"max of broken defaults":  {broken, hpa, "spec: {minReplicas: 3}", ""},
		"both limits":             {known, pdb, "spec: {maxUnavailable: 1}", pdb + ": spec has both minAvailable and maxUnavailable"},
		"instead of the default":  {known, pdb, "spec: {minAvailable: null, maxUnavailable: 1}", ""},
		"unknown limits":          {unknown, pdb, "spec: {maxUnavailable: 1}", ""},
		"broken limits":           {broken, pdb, "spec: {maxUnavailable: 1}", ""},
		"its name":                {known, "service", "metadata: {name: web-class, namespace: shop}", ""},
		"another name":            {known, "service", "metadata: {name: web}", "service sets metadata.name, which must stay"},
		"another namespace":       {known, "service", "metadata: {namespace: b}", "service sets metadata.namespace, which must stay"},
		"a finalizer":             {known, "service", "metadata: {name: web-class, finalizers: [a/b]}", "service sets metadata.finalizers"},
	} {
		got := values.ParametersProblem(map[string]string{test.key: test.value}, test.into)
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestDrainProblem checks parameters with which a gateway can have a single pod that must not be evicted.
func TestDrainProblem(t *testing.T) {
	t.Parallel()
	const hpa, pdb, one = "horizontalPodAutoscaler", "podDisruptionBudget", "spec: {minReplicas: 1}"
	defaults := map[string]string{hpa: "spec: {minReplicas: 2, maxReplicas: 10}", pdb: "spec: {minAvailable: 1}"}
	single := map[string]string{hpa: one, pdb: "spec: {maxUnavailable: 1}"}
	for name, test := range map[string]struct {
		defaults, data map[string]string
		want           string
	}{
		"none":               {defaults, nil, ""},
		"a single pod":       {defaults, map[string]string{hpa: one}, "spec.minAvailable 1;"},
		"half of one":        {defaults, map[string]string{hpa: one, pdb: "spec: {minAvailable: 50%}"}, "spec.minAvailable 50%;"},
		"its own limit":      {defaults, map[string]string{hpa: one, pdb: "spec: {minAvailable: null, maxUnavailable: 1}"}, ""},
		"keeps none":         {defaults, map[string]string{hpa: one, pdb: "spec: {minAvailable: 0}"}, ""},
		"two pods":           {defaults, map[string]string{pdb: "spec: {minAvailable: 1}"}, ""},
		"of a single node":   {single, nil, ""},
		"there, one is kept": {single, map[string]string{pdb: "spec: {maxUnavailable: null, minAvailable: 1}"}, "spec.minAvailable 1;"},
		"unknown defaults":   {nil, map[string]string{hpa: one}, ""},
		"no scaler":          {map[string]string{pdb: "spec: {minAvailable: 1}"}, nil, ""},
		"blank": {
			single, map[string]string{hpa: " \n", pdb: "spec: {maxUnavailable: null, minAvailable: 1}"}, "spec.minAvailable 1;",
		},
		"an empty part":  {defaults, map[string]string{hpa: one, pdb: ""}, "spec.minAvailable 1;"},
		"a space":        {defaults, map[string]string{hpa: one, pdb: " "}, "spec.minAvailable 1;"},
		"an empty spec":  {defaults, map[string]string{hpa: one, pdb: "spec: {}"}, "spec.minAvailable 1;"},
		"a comment":      {defaults, map[string]string{hpa: one, pdb: "# nothing\n\n # here"}, "spec.minAvailable 1;"},
		"after comments": {defaults, map[string]string{hpa: one, pdb: "# none\nspec: {minAvailable: 0}"}, ""},
		"an alias":       {defaults, map[string]string{hpa: "spec: {maxReplicas: &one 1, minReplicas: *one}"}, ""},
		"an alias, kept": {single, map[string]string{pdb: "spec: {maxUnavailable: null, minAvailable: &one 1, a: *one}"}, ""},
		"the longest":    {defaults, map[string]string{hpa: one + strings.Repeat(" ", 64<<10-len(one))}, "spec.minAvailable 1;"},
		"too long":       {defaults, map[string]string{hpa: one + strings.Repeat(" ", 64<<10-len(one)+1)}, ""},
	} {
		got := values.DrainProblem(test.data, values.Target{Defaults: test.defaults})
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
