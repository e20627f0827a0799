package values

import (
	"fmt"
	"math"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeyaml "sigs.k8s.io/yaml"
)

// Target is what istiod merges the parameters of one Gateway into.
type Target struct {
	// Namespace is that of the Gateway. Names are those of the objects that istiod makes for it.
	Namespace string
	Names     []string
	// Defaults are the defaults of its class: the content of the ConfigMap that istiod uses. nil: they are not known.
	Defaults map[string]string
}

// ParametersProblem returns why istiod cannot make a gateway with the content of the ConfigMap that
// spec.infrastructure.parametersRef of the Gateway names, or the empty string. It finds what OverlayProblem finds, and
// parameters that contradict the defaults of the class.
func ParametersProblem(data map[string]string, into Target) string {
	return overlaysProblem(data, &into)
}

// DrainProblem returns why a drain of a node can wait without an end for a gateway with these parameters, or the empty
// string. That is so if the gateway can have a single pod, and its disruption budget keeps one available. It needs the
// defaults of the class, and parameters without a ParametersProblem.
func DrainProblem(data map[string]string, into Target) string {
	scaler, budget := &autoscalingv2.HorizontalPodAutoscaler{}, &policyv1.PodDisruptionBudget{}
	for key, object := range map[string]any{"horizontalPodAutoscaler": scaler, "podDisruptionBudget": budget} {
		part := data[key]
		if !into.merge(key, object) || !isBlank(part) && !mergeInto(object, key, part) {
			return ""
		}
	}
	least, keeps := scaler.Spec.MinReplicas, budget.Spec.MinAvailable
	if least == nil || *least != 1 || keeps == nil {
		return ""
	}
	if n, err := intstr.GetScaledValueFromIntOrPercent(keeps, 1, true); err != nil || n < 1 {
		return ""
	}
	return fmt.Sprintf("horizontalPodAutoscaler has spec.minReplicas 1, and podDisruptionBudget has spec.minAvailable %s; "+
		"set spec: {minAvailable: null, maxUnavailable: 1}", keeps.String())
}

// isBlank reports whether a part has only white space and comments. Such a part changes nothing, and is not an object.
func isBlank(part string) bool {
	for line := range strings.Lines(part) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// mergeInto writes a part of an object over the object, and reports whether that is possible. It does not parse a part
// that is not checked: a user of the guest can write one that needs any amount of memory.
func mergeInto(object any, key, part string) bool {
	_, isObject := overlayProblem(key, part)
	return isObject && kubeyaml.Unmarshal([]byte(part), object) == nil
}

// prepare writes to an empty object what is below the parameters, as far as it decides whether the API server rejects
// the object. A mistake in the defaults is not the Gateway's, so defaults with one count as not known.
func (t *Target) prepare(key string, object metav1.Object) {
	if t == nil {
		return
	}
	switch object := object.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		if !t.merge(key, object) {
			object.Spec.MaxReplicas = math.MaxInt32
		}
	case *policyv1.PodDisruptionBudget:
		t.merge(key, object)
	}
}

// merge writes the defaults to an object, and reports whether they are known.
func (t *Target) merge(key string, object any) bool {
	text, has := t.Defaults[key]
	if !has {
		return t.Defaults != nil
	}
	_, isObject := overlayProblem(key, text)
	return isObject && objectProblem(key, text, nil) == "" && kubeyaml.Unmarshal([]byte(text), object) == nil
}

// fixedField returns a field of the metadata that istiod does not let a value change. Without a Target, a namespace can
// be that of the Gateway.
func (t *Target) fixedField(object metav1.Object) string {
	if t == nil {
		return fixedField(object)
	}
	if object.GetNamespace() != "" && object.GetNamespace() != t.Namespace {
		return "namespace"
	}
	if slices.Contains(t.Names, object.GetName()) {
		object.SetName("")
	}
	return fixedField(object)
}
