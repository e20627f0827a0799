package values

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"
	kubeyaml "sigs.k8s.io/yaml"
)

// kubernetes is the version whose fields hypergate knows: that of k8s.io/api.
const kubernetes = "1.36"

// objectProblem returns why the API server, or istiod, rejects the object that istiod makes with this value, or the
// empty string. text is a YAML object. A value with aliases is not checked, because they can expand to any size.
//
// Only what is wrong in each case is found. The API server rejects a wrong type, and in a server-side apply also a
// field that it does not know. A guest of a later Kubernetes can know more fields than this hypergate.
func objectProblem(key, text string, into *Target) string {
	raw, err := kubeyaml.YAMLToJSON([]byte(text)) // as istiod reads it
	if err != nil {
		return key + " is not YAML"
	}
	var content map[string]any
	if json.Unmarshal(raw, &content) != nil {
		return key + " is not a part of an object"
	}
	withoutDirectives(content)
	if raw, err = json.Marshal(content); err != nil {
		return ""
	}
	object, kind, rejected := overlayObject(key)
	into.prepare(key, object)
	unknown, err := strictjson.UnmarshalStrict(raw, object, strictjson.DisallowUnknownFields)
	switch wrong, is := errors.AsType[*json.UnmarshalTypeError](err); {
	case is:
		return fmt.Sprintf("%s: %.128s cannot be a JSON %.32s", key, wrong.Field, wrong.Value)
	case err != nil:
		return fmt.Sprintf("%s: %.160s", key, err)
	case len(unknown) > 0:
		return fmt.Sprintf("%s: %.160s in Kubernetes %s", key, unknown[0], kubernetes)
	}
	if got, _ := content["kind"].(string); got != "" && got != kind {
		return fmt.Sprintf("%s: its kind is %.64q", key, got)
	}
	if field := into.fixedField(object); field != "" {
		return key + " sets metadata." + field + ", which must stay as istiod sets it"
	}
	if why := rejected(); why != "" {
		return key + ": " + why
	}
	return ""
}

// overlayObject returns an empty object of the kind that a key is for, the kind, and why the API server rejects the
// object once it has content. Defaults of a class replace those of hypergate, so only the chart's template is below
// them.
func overlayObject(key string) (object metav1.Object, kind string, rejected func() string) {
	fine := func() string { return "" }
	switch key {
	case "deployment":
		return &appsv1.Deployment{}, "Deployment", fine
	case "service":
		return &corev1.Service{}, "Service", fine
	case "serviceAccount":
		return &corev1.ServiceAccount{}, "ServiceAccount", fine
	case "podDisruptionBudget":
		budget := &policyv1.PodDisruptionBudget{}
		return budget, "PodDisruptionBudget", func() string {
			if budget.Spec.MinAvailable != nil && budget.Spec.MaxUnavailable != nil {
				return "spec has both minAvailable and maxUnavailable"
			}
			return ""
		}
	default:
		scaler := &autoscalingv2.HorizontalPodAutoscaler{}
		return scaler, "HorizontalPodAutoscaler", func() string {
			least, most := scaler.Spec.MinReplicas, max(scaler.Spec.MaxReplicas, 1) // 1 is the template's
			if least != nil && *least > most {
				return fmt.Sprintf("spec.minReplicas %d is more than maxReplicas, which is %d", *least, most)
			}
			return ""
		}
	}
}

// fixedField returns a field of the metadata that istiod does not let a value change ("illegal metadata change"). A
// namespace can be that of the Gateway, so it does not count. A name cannot be that of each Gateway of a class.
func fixedField(o metav1.Object) string {
	created := o.GetCreationTimestamp()
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"name", o.GetName() != ""},
		{"generateName", o.GetGenerateName() != ""},
		{"uid", o.GetUID() != ""},
		{"resourceVersion", o.GetResourceVersion() != ""},
		{"generation", o.GetGeneration() != 0},
		{"creationTimestamp", !created.IsZero()},
		{"deletionTimestamp", o.GetDeletionTimestamp() != nil},
		{"deletionGracePeriodSeconds", o.GetDeletionGracePeriodSeconds() != nil},
		{"ownerReferences", len(o.GetOwnerReferences()) > 0},
		{"finalizers", len(o.GetFinalizers()) > 0},
		{"managedFields", len(o.GetManagedFields()) > 0},
	} {
		if field.set {
			return field.name
		}
	}
	return ""
}

// withoutDirectives removes the directives of a strategic merge patch, such as $patch. They are no fields.
func withoutDirectives(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			if strings.HasPrefix(key, "$") {
				delete(value, key)
			} else {
				withoutDirectives(below)
			}
		}
	case []any:
		for _, below := range value {
			withoutDirectives(below)
		}
	}
}

// hasAlias reports whether a document has an alias.
func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}
