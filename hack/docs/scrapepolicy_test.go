package docs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/test/deploy"
)

// TestIstiodsPolicyAdmitsTheScrapes renders istiod's policy with the arguments of a Deployment of deploy/, and with the
// tunnel. The policy admits the namespace of the PodMonitors on istiod's port for metrics, and on the sidecar's.
func TestIstiodsPolicyAdmitsTheScrapes(t *testing.T) {
	t.Parallel()
	for folder, monitoring := range map[string]string{
		"hosted/example": "monitoring/hosted", "cluster-api/example": "monitoring/cluster-api",
	} {
		policy := istiodsPolicy(t, folder)
		monitors, err := deploy.Render(monitoring)
		if err != nil {
			t.Fatal(err)
		}
		namespace := labels.Set{corev1.LabelMetadataName: monitors[0].GetNamespace()}
		if monitors[0].GetNamespace() == "openshift-monitoring" { // cluster-monitoring-operator: manifests/01-namespace.yaml
			namespace["network.openshift.io/policy-group"] = "monitoring"
		}
		for _, port := range []int32{15014, 15444} {
			if !slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
				return admits(t, rule, namespace, port)
			}) {
				t.Errorf("%s: istiod's policy does not admit %v on port %d: %+v", folder, namespace, port, policy.Spec.Ingress)
			}
		}
	}
}

// admits reports whether a rule admits all pods of a namespace on a port.
func admits(t *testing.T, rule networkingv1.NetworkPolicyIngressRule, namespace labels.Set, port int32) bool {
	t.Helper()
	from := slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.NamespaceSelector == nil || peer.PodSelector != nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		return selector.Matches(namespace)
	})
	return from && slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == port })
}

// istiodsPolicy returns istiod's policy as hypergate would write it with the arguments in a folder of deploy/.
func istiodsPolicy(t *testing.T, folder string) networkingv1.NetworkPolicy {
	t.Helper()
	args := slices.Concat([]string{"render", "--side=management"}, argumentsIn(t, folder),
		[]string{"--publish=tunnel", "--relay-image=registry.example.com/hypergate:dev"})
	var out, errOut bytes.Buffer
	if code := app.Execute(t.Context(), args, &out, &errOut); code != 0 {
		t.Fatalf("%q: code %d: %s", args, code, errOut.String())
	}
	var policy networkingv1.NetworkPolicy
	for document := range strings.SplitSeq(out.String(), "\n---\n") {
		if !strings.Contains(document, "kind: NetworkPolicy\n") {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
	}
	if policy.Name != "istiod-openshift-gateway" {
		t.Fatalf("%q: no policy of istiod", args)
	}
	return policy
}

// argumentsIn returns the flags of hypergate's container in a folder of deploy/, with the values of its variables.
func argumentsIn(t *testing.T, folder string) []string {
	t.Helper()
	objects, err := deploy.Render(folder)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &deployment); err != nil {
		t.Fatal(err)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	values := []string{"$(NAMESPACE)", deploy.MgmtNamespace}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			values = append(values, fmt.Sprintf("$(%s)", variable.Name), variable.Value)
		}
	}
	out := make([]string, 0, len(container.Args))
	for _, arg := range container.Args[1:] {
		if !strings.HasPrefix(arg, "--guest-kubeconfig") { // hypergate render connects to no guest
			out = append(out, strings.NewReplacer(values...).Replace(arg))
		}
	}
	return out
}
