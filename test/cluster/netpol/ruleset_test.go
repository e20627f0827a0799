package netpol_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/test/cluster/netpol"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/golden"
)

// TestRuleset compares the translation of each testdata/CASE.yaml with CASE.nft. The policies apply to the objects in
// cluster.yaml.
func TestRuleset(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if name == "cluster" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := read(t, "testdata/cluster.yaml", file)
			got, err := netpol.Ruleset(c)
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, filepath.Join("testdata", name+".nft"), got)
			shuffle(c)
			again, err := netpol.Ruleset(c)
			if diff := cmp.Diff(got, again); err != nil || diff != "" {
				t.Errorf("another order of the same objects gives another script (%v):\n%s", err, diff)
			}
		})
	}
}

func TestRulesetRefusesUnknownPolicies(t *testing.T) {
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "back", Name: "odd"}}
	for name, peer := range map[string]networkingv1.NetworkPolicyPeer{
		"selector": {PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}},
		"block":    {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0"}},
	} {
		c := read(t, "testdata/cluster.yaml")
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}}
		c.Policies = append(c.Policies, policy)
		if script, err := netpol.Ruleset(c); err == nil || !strings.Contains(err.Error(), "back/odd") || script != "" {
			t.Errorf("%s: error %v, script %q", name, err, script)
		}
	}
}

func shuffle(c netpol.Cluster) {
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(c.Pods), func(i, j int) { c.Pods[i], c.Pods[j] = c.Pods[j], c.Pods[i] })
	random.Shuffle(len(c.Policies), func(i, j int) { c.Policies[i], c.Policies[j] = c.Policies[j], c.Policies[i] })
}

// read reads the objects in files.
func read(t *testing.T, files ...string) netpol.Cluster {
	t.Helper()
	var c netpol.Cluster
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range fromyaml.Objects(t, data) {
			if err := add(&c, u); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	return c
}

func add(c *netpol.Cluster, u *unstructured.Unstructured) error {
	var into any
	switch u.GetKind() {
	case "Namespace":
		c.Namespaces = append(c.Namespaces, &corev1.Namespace{})
		into = c.Namespaces[len(c.Namespaces)-1]
	case "Pod":
		c.Pods = append(c.Pods, &corev1.Pod{})
		into = c.Pods[len(c.Pods)-1]
	case "NetworkPolicy":
		c.Policies = append(c.Policies, &networkingv1.NetworkPolicy{})
		into = c.Policies[len(c.Policies)-1]
	default:
		return fmt.Errorf("the translation does not support kind %s", u.GetKind())
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, into, true)
}
