package desired_test

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// TestPlansLeaveTheOperatorsObjectsAlone checks that no plan has an object that a controller of OpenShift's ingress
// operator writes: DNSRecords, the roles of users, network policies of gateways, and administrators' acknowledgements.
func TestPlansLeaveTheOperatorsObjectsAlone(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, cfg := range configsOfAllStrategies(t) {
		plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("a")))
		for _, object := range slices.Concat(mgmtObjects(plan), guestObjects(plan)) {
			o, err := object.Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			kinds[o.GetKind()]++
			if why := operatorsOwn(t, o); why != "" {
				t.Errorf("%s, %s: %s %s: %s", cfg.Topology, cfg.Publish.Strategy, o.GetKind(), o.GetName(), why)
			}
		}
	}
	for _, kind := range []string{"ClusterRole", "NetworkPolicy", "ConfigMap"} {
		if kinds[kind] == 0 {
			t.Errorf("no plan has a %s, so the test shows nothing", kind)
		}
	}
}

// configsOfAllStrategies returns a Config of each strategy on HyperShift, and that of a standalone cluster.
func configsOfAllStrategies(tb testing.TB) []model.Config {
	tb.Helper()
	out := []model.Config{config(model.TopologyStandalone), config(model.TopologyHosted), byTunnel(tb)}
	for _, strategy := range publish.Strategies() {
		if strategy == model.PublishTunnel || strategy == model.PublishAuto {
			continue
		}
		cfg := config(model.TopologyHosted)
		cfg.XDS, cfg.Publish = model.HostPort{}, model.Publish{Strategy: strategy, At: model.HostPort{Host: "x.example.com"}}
		if strategy == model.PublishTLSRoute {
			cfg.Publish.Gateway = model.ParentGateway{Namespace: "infra", Name: "edge"}
		}
		out = append(out, cfg)
	}
	return out
}

// operatorsOwn returns why an object is one of those that the ingress operator writes, or the empty string.
func operatorsOwn(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	switch group := o.GroupVersionKind().Group; {
	case o.GetKind() == "DNSRecord" || group == "ingress.operator.openshift.io" || group == "config.openshift.io":
		return "a kind of the operator"
	case slices.Contains([]string{"openshift-config", "openshift-config-managed"}, o.GetNamespace()):
		return "a namespace of acknowledgements"
	case o.GetKind() == "ClusterRole":
		for label := range o.GetLabels() {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				return "a role of users"
			}
		}
	case o.GetKind() == "NetworkPolicy":
		policy := as[networkingv1.NetworkPolicy](t, o)
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if selector.Matches(labels.Set{"gateway.networking.k8s.io/gateway-name": "web"}) {
			return "a policy of a gateway"
		}
	}
	return ""
}
