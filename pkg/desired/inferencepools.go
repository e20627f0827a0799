package desired

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// inferencePoolsEnv makes istiod serve InferencePools (pilot/pkg/features/experimental.go).
const inferencePoolsEnv = "ENABLE_GATEWAY_API_INFERENCE_EXTENSION"

// ignorePools makes istiod ignore the InferencePools of a guest whose CRD does not serve the version that istiod reads.
// An istiod that starts would wait for this version, and would not become ready.
func ignorePools(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, guest model.GuestObservation) error {
	if guest.InferencePools != model.PoolsUnreadable {
		return nil
	}
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	variable, err := named(container, "env", inferencePoolsEnv)
	if err != nil {
		return err
	}
	variable["value"] = "false"
	since := "true"
	if !guest.PoolsEnded.IsZero() {
		since = guest.PoolsEnded.UTC().Format(time.RFC3339)
	}
	return unstructured.SetNestedField(u.Object, since, "spec", "template", "metadata", "annotations", model.IgnoredPoolsAnnotation)
}
