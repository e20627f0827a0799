package desired

import (
	"encoding/json"
	"fmt"
	"maps"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/values"
)

// proxyContainer is the container of a gateway's pod.
const proxyContainer = "istio-proxy"

// budgetValue is the name of the disruption budget among the values.
const budgetValue = "podDisruptionBudget"

// Labels of a gateway's pods, which istiod sets.
const (
	gatewayClassLabel = "gateway.networking.k8s.io/gateway-class-name"
	gatewayNameLabel  = "gateway.networking.k8s.io/gateway-name"
	podTemplateLabel  = "pod-template-hash"
)

// classDefaults returns the defaults for the gateways of each class. The user's values for all classes override them,
// and the user's values for one class override both. istiod merges them into the objects of each gateway
// (pilot/pkg/config/kube/gateway/deploymentcontroller.go).
//
// The defaults are those of cluster-ingress-operator (pkg/operator/controller/gatewayclass/istio_sail_installer.go),
// and a disruption budget.
//
// The proxy settings are those that the operator passes on. There they are in istiod's mesh configuration. Here they
// are in the guest, so that a guest that changes them changes nothing of istiod on the management side.
//
// The name of a class becomes a label value in the ConfigMap with its defaults. If the name is not a valid label value,
// the gateways of the class have no defaults.
func classDefaults(cfg model.Config, guest model.GuestObservation) map[string]any {
	out, userValues := map[string]any{}, cfg.Values.Classes
	if guest.Proxy.IsSet() && cfg.XDS.Host == "" {
		return out // the endpoint is not known: existing defaults stay, so that gateways do not lose the way to istiod
	}
	proxy := guest.Proxy.Bypassing(cfg.XDS.Host)
	for _, class := range guest.Classes {
		if len(validation.IsValidLabelValue(class.Name)) == 0 {
			given := overlay(userValues[values.AllClasses], userValues[class.Name])
			if own, is := userValues[class.Name][budgetValue]; is {
				given[budgetValue] = own // a budget has either minAvailable or maxUnavailable
			}
			out[class.Name] = defaultsOf(class.Name, guest.Infrastructure, proxy, given)
		}
	}
	return out
}

// classTemplates returns model.TemplateOf the planned defaults of each class. It is nil if there are none.
func classTemplates(cfg model.Config, classes []model.GatewayClass, objects []model.GuestObject) (map[string]string, error) {
	named := map[string]string{}
	for _, class := range classes {
		named[cfg.ClassDefaultsName(class.Name)] = class.Name
	}
	var out map[string]string
	for _, o := range objects {
		class, is := named[o.Key().Name]
		if !is || o.GVK().Kind != "ConfigMap" {
			continue
		}
		var read struct {
			Data map[string]string `json:"data"`
		}
		if err := json.Unmarshal(o.JSON(), &read); err != nil {
			return nil, fmt.Errorf("reading the planned defaults of class %s: %w", class, err)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[class] = model.TemplateOf(read.Data)
	}
	return out, nil
}

// defaultsOf returns the defaults for the gateways of one class as istiod reads them: a change for each kind of
// object.
func defaultsOf(
	class string, infrastructure model.InfrastructureTopology, proxy model.Proxy, given map[string]any,
) map[string]any {
	replicas := map[string]any{"minReplicas": values.UsualMinReplicas, "maxReplicas": values.UsualMaxReplicas}
	if infrastructure == model.SingleNode {
		replicas["minReplicas"] = int64(1)
	}
	replicas = overlay(replicas, tree(given, "horizontalPodAutoscaler", "spec"))
	pod := map[string]any{"containers": []any{containerOf(proxy, given)}}
	for _, name := range []string{"nodeSelector", "tolerations"} {
		if value, is := given[name]; is {
			pod[name] = value
		}
	}
	if constraints, is := given["topologySpreadConstraints"].([]any); is {
		pod["topologySpreadConstraints"] = spreadOwnPods(class, constraints)
	}
	return map[string]any{
		"horizontalPodAutoscaler": map[string]any{"spec": replicas},
		budgetValue:               map[string]any{"spec": budget(replicas, tree(given, budgetValue, "spec"))},
		"deployment":              map[string]any{"spec": map[string]any{"template": map[string]any{"spec": pod}}},
	}
}

// budget returns the disruption budget of a gateway. If it can have a single pod, a budget that keeps one available
// would block the drain of its node for ever. There is a budget nevertheless: istiod does not delete one that it made
// with earlier defaults. Pods that are not ready can always be evicted: while no istiod answers, no new pod becomes
// ready, and the guest's nodes must still be drained.
func budget(replicas, given map[string]any) map[string]any {
	out := map[string]any{"unhealthyPodEvictionPolicy": string(policyv1.AlwaysAllow)}
	switch {
	case len(given) > 0:
		maps.Copy(out, given)
	case replicas["minReplicas"] == int64(1):
		out["maxUnavailable"] = int64(1)
	default:
		out["minAvailable"] = int64(1)
	}
	return out
}

// containerOf returns the change to a gateway's container. Of its processes, only pilot-agent uses the proxy: it
// fetches the modules of WasmPlugins, and asks the metadata server of a cloud (Istio's pkg/bootstrap/platform). Its
// connection to istiod bypasses the proxy, see Bypassing: gRPC also obeys HTTPS_PROXY.
func containerOf(proxy model.Proxy, given map[string]any) map[string]any {
	out := map[string]any{"name": proxyContainer, "terminationMessagePolicy": "FallbackToLogsOnError"}
	if resources := tree(given, "resources"); len(resources) > 0 {
		out["resources"] = resources
	}
	variables := proxy.Environment()
	if len(variables) == 0 {
		return out
	}
	env := make([]any, 0, len(variables))
	for _, v := range variables {
		env = append(env, map[string]any{"name": v.Name, "value": v.Value})
	}
	out["env"] = env
	return out
}

// spreadOwnPods returns the constraints with a selector of the pods of one gateway, without those of an earlier
// template of the same gateway. Without a selector, a constraint has no effect.
func spreadOwnPods(class string, constraints []any) []any {
	out := make([]any, 0, len(constraints))
	for _, item := range constraints {
		constraint, _ := item.(map[string]any)
		constraint = maps.Clone(constraint)
		constraint["labelSelector"] = map[string]any{"matchLabels": map[string]any{gatewayClassLabel: class}}
		constraint["matchLabelKeys"] = []any{gatewayNameLabel, podTemplateLabel}
		out = append(out, constraint)
	}
	return out
}

// tree returns the part of a tree of values at a path. It is empty if there is none.
func tree(values map[string]any, path ...string) map[string]any {
	part, _, _ := unstructured.NestedFieldNoCopy(values, path...)
	out, _ := part.(map[string]any)
	return out
}
