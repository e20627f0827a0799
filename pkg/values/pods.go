package values

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// tolerations returns the shape of the tolerations of a pod. The rules are those of the Kubernetes API
// (pkg/apis/core/validation).
func tolerations() shape {
	return items{checked{fields{
		"key": scalar(labelName), "operator": oneOf("Exists", "Equal"), "value": scalar(labelValue),
		"effect": oneOf("NoSchedule", "PreferNoSchedule", "NoExecute"), "tolerationSeconds": scalar(seconds),
	}, func(value any) string {
		toleration, _ := value.(map[string]any)
		_, hasKey := toleration["key"]
		_, hasValue := toleration["value"]
		_, hasSeconds := toleration["tolerationSeconds"]
		switch exists := toleration["operator"] == "Exists"; {
		case !hasKey && !exists:
			return "has no key, so its operator should be Exists"
		case hasValue && exists:
			return "has the operator Exists, so it should have no value"
		case hasSeconds && toleration["effect"] != "NoExecute":
			return "has tolerationSeconds, so its effect should be NoExecute"
		default:
			return ""
		}
	}}}
}

// spreading returns the shape of the topology spread constraints of a gateway's pods. hypergate adds the selector of
// the gateway's own pods.
func spreading() shape {
	constraint := checked{fields{
		"maxSkew": scalar(replicas), "topologyKey": scalar(labelName), "whenUnsatisfiable": oneOf("DoNotSchedule", "ScheduleAnyway"),
		"minDomains": scalar(replicas), "nodeAffinityPolicy": oneOf("Honor", "Ignore"), "nodeTaintsPolicy": oneOf("Honor", "Ignore"),
	}, func(value any) string {
		given, _ := value.(map[string]any)
		if wrong := needs("maxSkew", "topologyKey", "whenUnsatisfiable")(value); wrong != "" {
			return wrong
		}
		if _, is := given["minDomains"]; is && given["whenUnsatisfiable"] != "DoNotSchedule" {
			return "has minDomains, so whenUnsatisfiable should be DoNotSchedule"
		}
		return ""
	}}
	return checked{items{constraint}, func(value any) string {
		seen := map[string]bool{}
		list, _ := value.([]any)
		for _, item := range list {
			constraint, _ := item.(map[string]any)
			// istiod merges the constraints by topologyKey alone.
			key, _ := constraint["topologyKey"].(string)
			if seen[key] {
				return "has two constraints with the topologyKey " + key
			}
			seen[key] = true
		}
		return ""
	}}
}

// labelKey checks a key of a nodeSelector.
func labelKey(name string) string {
	if len(validation.IsQualifiedName(name)) > 0 {
		return "is not a label of a node"
	}
	return ""
}

func labelName(n *yaml.Node) (any, string) {
	if n.ShortTag() != "!!str" || labelKey(n.Value) != "" {
		return nil, "should be the name of a label or taint, such as topology.kubernetes.io/zone"
	}
	return n.Value, ""
}

func labelValue(n *yaml.Node) (any, string) {
	if n.ShortTag() != "!!str" || len(validation.IsValidLabelValue(n.Value)) > 0 {
		return nil, "should be the value of a label, in quotation marks if it is a number, true or false"
	}
	return n.Value, ""
}

// mostSeconds is the longest time in which a pod tolerates a taint: a day.
const mostSeconds = 24 * 60 * 60

func seconds(n *yaml.Node) (any, string) {
	value, err := strconv.ParseInt(n.Value, 10, 64)
	if n.ShortTag() != "!!int" || err != nil || value < 0 || value > mostSeconds {
		return nil, "should be a number from 0 to " + strconv.Itoa(mostSeconds)
	}
	return value, ""
}

// UsualResources returns the requests and limits that a gateway's container has without other values. They are the
// charts'.
func UsualResources() map[string]map[string]string {
	return map[string]map[string]string{
		"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2000m", "memory": "1024Mi"},
	}
}

// checkResources compares the requests and limits that the gateways of each class would have, with the values for all
// classes and the charts'. The API server would refuse pods that request more than their limit.
func (r *reader) checkResources(read map[string]any) {
	classes, _ := read["gatewayClasses"].(map[string]any)
	given := func(class, kind, name string) string {
		level, _ := classes[class].(map[string]any)
		for _, key := range []string{"resources", kind} {
			level, _ = level[key].(map[string]any)
		}
		text, _ := level[name].(string)
		return text
	}
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		for _, name := range []string{"cpu", "memory"} {
			of := func(kind string) string {
				return cmp.Or(given(class, kind, name), given(AllClasses, kind, name), UsualResources()[kind][name])
			}
			// quantity has accepted both.
			if request, limit := resource.MustParse(of("requests")), resource.MustParse(of("limits")); request.Cmp(limit) > 0 {
				r.errs = append(r.errs, fmt.Errorf("%s:%d: gatewayClasses.%s.resources: the request of %s would be %s and the limit %s: "+
					"give both", r.file, r.lines[class], class, name, of("requests"), of("limits")))
			}
		}
	}
}
