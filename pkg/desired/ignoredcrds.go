package desired

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// inferencePoolsEnv makes istiod serve InferencePools (pilot/pkg/features/experimental.go). includedEnv has the CRDs of
// Istio's kinds that istiod serves.
const (
	inferencePoolsEnv = "ENABLE_GATEWAY_API_INFERENCE_EXTENSION"
	includedEnv       = "PILOT_INCLUDE_RESOURCES"
)

// ignoreCRDs makes istiod ignore the kinds of a guest whose CRDs do not serve the version that istiod reads. An istiod
// that starts would wait for this version, and would not become ready.
//
// The values of the chart stay as they are: they are part of the templates of gateways. So do istiod's permissions, of
// which it does not use those, and the rules of the webhook, which checks objects of each version.
func ignoreCRDs(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, guest model.GuestObservation) error {
	if len(guest.IgnoredCRDs) == 0 {
		return nil
	}
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	included, err := named(container, "env", includedEnv)
	if err != nil {
		return err
	}
	value, _ := included["value"].(string)
	included["value"] = strings.Join(slices.DeleteFunc(strings.Split(value, ","), func(crd string) bool {
		return slices.Contains(guest.IgnoredCRDs, strings.TrimSpace(crd))
	}), ",")
	if slices.Contains(guest.IgnoredCRDs, model.InferencePoolCRD) {
		variable, err := named(container, "env", inferencePoolsEnv)
		if err != nil {
			return err
		}
		variable["value"] = "false"
	}
	annotations := []string{"spec", "template", "metadata", "annotations"}
	if !guest.IgnoredSince.IsZero() {
		since := guest.IgnoredSince.UTC().Format(time.RFC3339)
		if err := unstructured.SetNestedField(u.Object, since, append(annotations, model.IgnoredSinceAnnotation)...); err != nil {
			return err
		}
	}
	return unstructured.SetNestedField(u.Object, strings.Join(guest.IgnoredCRDs, ","), append(annotations, model.IgnoredCRDsAnnotation)...)
}
