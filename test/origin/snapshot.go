package origin

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/world"
)

// kind is a kind of the guest that a snapshot has.
type kind struct {
	resource  schema.GroupVersionResource
	namespace string
	// names is a regular expression for the names. Empty means all.
	names string
}

// kinds returns what distinguishes one origin from another, and what a migration reads or must not touch. Secrets are
// not here.
func kinds() []kind {
	const (
		rbac      = "rbac.authorization.k8s.io"
		gateway   = "gateway.networking.k8s.io"
		sail      = "sailoperator.io"
		olm       = "operators.coreos.com"
		webhooks  = "admissionregistration.k8s.io"
		istios    = "istio"
		operands  = world.GuestNamespace
		notCharts = "^(istio|values|openshift-gw|edge)"
	)
	of := world.Resource
	return []kind{
		{of(gateway, "v1", "gatewayclasses"), "", ""},
		{of(gateway, "v1", "gateways"), operands, ""},
		{of(sail, "v1", "istios"), "", ""},
		{of(sail, "v1", "istiorevisions"), "", ""},
		{of(olm, "v1alpha1", "subscriptions"), operatorNamespace, ""},
		{of(olm, "v1alpha1", "installplans"), operatorNamespace, ""},
		{of(olm, "v1alpha1", "clusterserviceversions"), operatorNamespace, ""},
		{of("apps", "v1", "deployments"), operands, ""},
		{of("", "v1", "services"), operands, ""},
		{of("", "v1", "serviceaccounts"), operands, "^(istiod|edge)"},
		{of(rbac, "v1", "roles"), operands, "^istiod"},
		{of(rbac, "v1", "rolebindings"), operands, "^istiod"},
		{of("autoscaling", "v2", "horizontalpodautoscalers"), operands, ""},
		{of("", "v1", "configmaps"), operands, notCharts},
		{of("coordination.k8s.io", "v1", "leases"), operands, istios},
		{of("networking.k8s.io", "v1", "networkpolicies"), operands, ""},
		{of(rbac, "v1", "clusterroles"), "", "^istio"},
		{of(rbac, "v1", "clusterrolebindings"), "", "^istio"},
		{of(webhooks, "v1", "validatingwebhookconfigurations"), "", istios},
		{of(webhooks, "v1", "mutatingwebhookconfigurations"), "", istios},
	}
}

// Snapshot returns the objects of the guest that belong to an origin and its Gateways, as YAML documents. What differs
// between two runs is replaced: identities, times, addresses, keys.
func Snapshot(ctx context.Context, g Guest) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# A snapshot of package test/origin, without Secrets. Times, UIDs, addresses and certificates are replaced.\n")
	for _, k := range kinds() {
		list, err := g.Dynamic.Resource(k.resource).Namespace(k.namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // its CRD is missing
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.resource.Resource, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if matched, err := regexp.MatchString(k.names, object.GetName()); err != nil || !matched {
				continue
			}
			simplify(object)
			text, err := sigsyaml.Marshal(object.Object)
			if err != nil {
				return nil, err
			}
			out.WriteString("---\n")
			out.Write(text)
		}
	}
	return []byte(numbered(out.String())), nil
}

// longText is the length in bytes above which a text of a ConfigMap is left out: the templates of the injector.
const longText = 8 << 10

// simplify removes what no reader of a snapshot needs, and what a run decides.
func simplify(object *unstructured.Unstructured) {
	object.SetResourceVersion("")
	object.SetGeneration(0)
	simplifyManagers(object)
	switch object.GetKind() {
	case "Deployment":
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
		unstructured.RemoveNestedField(object.Object, "status", "observedGeneration")
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		eachMap(object.Object["webhooks"], func(webhook map[string]any) {
			if client, is := webhook["clientConfig"].(map[string]any); is {
				replaceIfThere(client, "caBundle", "Y2E=") // "ca"
			}
		})
	case "Service":
		if spec, is := object.Object["spec"].(map[string]any); is {
			eachMap(spec["ports"], func(port map[string]any) { delete(port, "nodePort") })
			delete(spec, "healthCheckNodePort")
		}
	case "HorizontalPodAutoscaler":
		unstructured.RemoveNestedField(object.Object, "status")
	case "ConfigMap":
		withoutLongTexts(object)
	case "Lease":
		unstructured.RemoveNestedField(object.Object, "spec", "leaseTransitions")
	}
}

// simplifyManagers leaves out when each manager wrote, and which fields.
func simplifyManagers(object *unstructured.Unstructured) {
	var managers []any
	for _, m := range object.GetManagedFields() {
		manager := map[string]any{"manager": m.Manager, "operation": string(m.Operation)}
		if m.Subresource != "" && object.GetKind() == "HorizontalPodAutoscaler" {
			continue // without metrics, it tries again and again
		}
		if m.Subresource != "" {
			manager["subresource"] = m.Subresource
		}
		managers = append(managers, manager)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
	if len(managers) > 0 {
		_ = unstructured.SetNestedSlice(object.Object, managers, "metadata", "managedFields")
	}
}

func withoutLongTexts(object *unstructured.Unstructured) {
	data, _ := object.Object["data"].(map[string]any)
	for key, value := range data {
		if text, is := value.(string); is && len(text) > longText {
			data[key] = "left out"
		}
	}
}

func replaceIfThere(fields map[string]any, key string, value any) {
	if fields[key] != nil {
		fields[key] = value
	}
}

func eachMap(list any, change func(map[string]any)) {
	items, _ := list.([]any)
	for _, item := range items {
		if fields, is := item.(map[string]any); is {
			change(fields)
		}
	}
}

// numbered replaces values that differ between two runs by numbers in the order of their first appearance, so that
// references still match.
func numbered(text string) string {
	for _, one := range []struct{ pattern, format string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "00000000-0000-4000-8000-%012d"},
		{`\b10\.\d+\.\d+\.\d+\b`, "192.0.2.%d"},
	} {
		seen := map[string]string{}
		text = regexp.MustCompile(one.pattern).ReplaceAllStringFunc(text, func(found string) string {
			if seen[found] == "" {
				seen[found] = fmt.Sprintf(one.format, len(seen)+1)
			}
			return seen[found]
		})
	}
	for pattern, replacement := range map[string]string{
		`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`:                     "2026-01-01T00:00:00Z",
		`(istiod-openshift-gateway)-[0-9a-f]{6,10}-[0-9a-z]{5}\b`:     "$1-pod",
		`(ingress\.operator\.openshift\.io/sync: )\S+`:                "${1}1-" + strconv.Itoa(1767225600),
		`(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----`: "a certificate",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, replacement)
	}
	return strings.ReplaceAll(text, "\n\n", "\n")
}
