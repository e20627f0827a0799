package desired_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// countingSource counts renderings and CRDs.
type countingSource struct {
	desired.ChartSource
	renders, crds *int
}

func (s countingSource) Render(r charts.Release) ([]*unstructured.Unstructured, error) {
	*s.renders++
	return s.ChartSource.Render(r)
}

func (s countingSource) CRDs(names []string) ([]*unstructured.Unstructured, error) {
	*s.crds += len(names)
	return s.ChartSource.CRDs(names)
}

// TestAPlannerHasNoHistory checks that a Planner returns the same as Compute, whatever it computed before, and
// renders only what differs.
func TestAPlannerHasNoHistory(t *testing.T) {
	otherCA := withOtherCA(t)
	some := withClasses("a")
	some.CRDs = map[string]crds.Fact{"destinationrules.networking.istio.io": ours(), "gateways.gateway.networking.k8s.io": foreign()}
	proven := withClasses("a")
	proven.WebhookProbe = model.WebhookVerified
	for _, topology := range bothTopologies() {
		cfg := config(topology)
		renders, read := 0, 0
		planner := desired.NewPlanner(cfg, countingSource{embedded(t), &renders, &read})
		for i, step := range []struct {
			what          string
			mgmt          model.ManagementObservation
			guest         model.GuestObservation
			renders, crds int
		}{
			{"no class", installed(t), withClasses(), 0, 0},
			{"a class", installed(t), withClasses("a"), 2, 3},
			{"the same again", installed(t), withClasses("a"), 0, 0},
			{"its webhook is proven", installed(t), proven, 0, 0},
			{"istiod is gone", model.ManagementObservation{CA: testCA(t)}, withClasses("a"), 0, 0},
			{"some CRDs are ours, some are others'", installed(t), some, 0, 0},
			{"another class", installed(t), withClasses("a", "b"), 1, 0},
			{"another CA", otherCA, withClasses("a", "b"), 1, 0},
			{"no class any more", otherCA, withClasses(), 0, 0},
			{"the first class again", installed(t), withClasses("a"), 1, 0},
		} {
			name := fmt.Sprintf("%s, step %d: %s", topology, i, step.what)
			renders, read = 0, 0
			got, err := planner.Compute(step.mgmt, step.guest)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(everything(compute(t, cfg, embedded(t), step.mgmt, step.guest)), everything(got)); diff != "" {
				t.Errorf("%s, -Compute +Planner:\n%s", name, diff)
			}
			if renders != step.renders || read != step.crds {
				t.Errorf("%s: rendered %d releases and read %d of Istio's CRDs, want %d and %d", name, renders, read, step.renders,
					step.crds)
			}
		}
	}
}

// freshCRDs is a ChartSource that parses its CRD each time.
type freshCRDs struct {
	desired.ChartSource
	parse func() *unstructured.Unstructured
}

func (s freshCRDs) CRDs([]string) ([]*unstructured.Unstructured, error) {
	return []*unstructured.Unstructured{s.parse()}, nil
}

// TestAPlannerDoesNotCacheConversionWebhooks checks that a Planner does not remember a CRD with a conversion webhook,
// because the webhook's configuration depends on the CA.
func TestAPlannerDoesNotCacheConversionWebhooks(t *testing.T) {
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: wasmplugins.extensions.istio.io},
		spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {
			namespace: openshift-ingress, name: istiod-openshift-gateway, path: /convert}}}}}}`
	planner := desired.NewPlanner(config(model.TopologyHosted),
		freshCRDs{embedded(t), func() *unstructured.Unstructured { return fromyaml.Object(t, crd) }})
	bundles := map[string]bool{}
	for _, mgmt := range []model.ManagementObservation{installed(t), withOtherCA(t), installed(t)} {
		plan, err := planner.Compute(mgmt, withClasses("a"))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range plan.CRDs {
			if _, bundle, found := strings.Cut(string(o.JSON()), `"caBundle":"`); found {
				bundles[bundle] = true
			}
		}
	}
	if len(bundles) != 2 {
		t.Errorf("the conversion webhook has %d CA bundles in plans with two CAs", len(bundles))
	}
}

// withOtherCA returns a management side with another CA root than installed.
func withOtherCA(t *testing.T) model.ManagementObservation {
	t.Helper()
	mgmt := installed(t)
	mgmt.CA.Root, mgmt.CA.Chain = mgmt.CA.Cert, mgmt.CA.Cert
	return mgmt
}
