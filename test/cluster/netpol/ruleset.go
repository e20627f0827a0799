package netpol

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Cluster holds all objects on which the rules depend.
type Cluster struct {
	Policies   []*networkingv1.NetworkPolicy
	Pods       []*corev1.Pod
	Namespaces []*corev1.Namespace
}

// table is the name of the nft table.
const table = "ip hypergate-netpol"

// refuse rejects connections that no policy allows. A connection attempt fails with "no route to host". This differs
// from a port without a listener ("connection refused") and from a timeout of one minute.
//
// The failure takes one second. The kernel drops such an answer during the call that sent the first packet, as
// happens between two ends on one machine. It accepts the answer to the second packet.
const refuse = "counter reject with icmp type admin-prohibited"

// Ruleset returns an nft script that replaces the table with one that enforces the cluster's policies, in one
// transaction. The order of the objects does not change the script.
func Ruleset(c Cluster) (string, error) {
	t := translation{namespaces: map[string]labels.Set{}, policies: slices.Clone(c.Policies)}
	for _, namespace := range c.Namespaces {
		t.namespaces[namespace.Name] = namespace.Labels
	}
	for _, p := range c.Pods {
		if addressed(p) {
			t.pods = append(t.pods, p)
		}
	}
	slices.SortFunc(t.pods, func(a, b *corev1.Pod) int { return byName(a, b) })
	slices.SortFunc(t.policies, func(a, b *networkingv1.NetworkPolicy) int { return byName(a, b) })

	var chains, forward, input strings.Builder
	for _, p := range t.pods {
		for _, d := range directions() {
			rules, isolated, err := t.rules(d, p)
			if err != nil {
				return "", err
			}
			if !isolated {
				continue
			}
			chain := d.name + "_" + strings.ReplaceAll(p.Status.PodIP, ".", "_")
			fmt.Fprintf(&chains, "\t# %s of pod %s/%s\n\tchain %s {\n", d.name, p.Namespace, p.Name, chain)
			for _, rule := range append([]string{d.far + " " + p.Status.PodIP}, rules...) { // a pod can always reach itself
				fmt.Fprintf(&chains, "\t\t%s\n", strings.TrimSpace(rule+" return"))
			}
			fmt.Fprintf(&chains, "\t\t%s\n\t}\n", refuse)
			jump := fmt.Sprintf("\t\t%s %s jump %s\n", d.near, p.Status.PodIP, chain)
			forward.WriteString(jump)
			if d.name == egress().name {
				input.WriteString(jump)
			}
		}
	}
	// The empty table ensures that there is a table to delete. The hooks run after kube-proxy has translated Service
	// addresses, so the rules see pods and their ports. Both directions of every connection are checked, because a
	// chain that allows a connection returns.
	return fmt.Sprintf("table %[1]s {\n}\ndelete table %[1]s\ntable %[1]s {\n%[2]s%[3]s%[4]s}\n", table, chains.String(),
		hook("forward", forward.String()), hook("input", input.String())), nil
}

func hook(name, jumps string) string {
	return fmt.Sprintf("\tchain %[1]s {\n\t\ttype filter hook %[1]s priority 10; policy accept;\n\t\tct state established,"+
		"related accept\n%[2]s\t}\n", name, jumps)
}

// addressed reports whether a pod has its own address. The address of an ended pod may already belong to another one.
func addressed(p *corev1.Pod) bool {
	address, err := netip.ParseAddr(p.Status.PodIP)
	return err == nil && address.Is4() && !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func byName(a, b metav1.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// direction is ingress or egress. near is nft's match for the end of a connection that a policy selects, and far is
// that for the other end.
type direction struct {
	name, near, far string
	kind            networkingv1.PolicyType
}

func ingress() direction {
	return direction{"ingress", "ip daddr", "ip saddr", networkingv1.PolicyTypeIngress}
}

func egress() direction {
	return direction{"egress", "ip saddr", "ip daddr", networkingv1.PolicyTypeEgress}
}

func directions() []direction { return []direction{ingress(), egress()} }

// concerns reports whether a policy covers the direction.
func (d direction) concerns(policy *networkingv1.NetworkPolicy) bool {
	if len(policy.Spec.PolicyTypes) > 0 {
		return slices.Contains(policy.Spec.PolicyTypes, d.kind)
	}
	return d.kind == networkingv1.PolicyTypeIngress || len(policy.Spec.Egress) > 0
}

// policyRule is a rule of either direction.
type policyRule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func (d direction) rules(policy *networkingv1.NetworkPolicy) []policyRule {
	var out []policyRule
	if d.kind == networkingv1.PolicyTypeIngress {
		for _, r := range policy.Spec.Ingress {
			out = append(out, policyRule{r.From, r.Ports})
		}
		return out
	}
	for _, r := range policy.Spec.Egress {
		out = append(out, policyRule{r.To, r.Ports})
	}
	return out
}

// translation holds the sorted cluster, without pods that have no address.
type translation struct {
	policies   []*networkingv1.NetworkPolicy
	pods       []*corev1.Pod
	namespaces map[string]labels.Set
}

// rules returns the nft matches of a pod's allowed connections in a direction. If no policy covers the pod, it is not
// isolated and has no rules.
func (t translation) rules(d direction, p *corev1.Pod) (rules []string, isolated bool, err error) {
	for _, policy := range t.policies {
		if policy.Namespace != p.Namespace || !d.concerns(policy) {
			continue
		}
		selects, err := selected(&policy.Spec.PodSelector, p.Labels)
		if err != nil {
			return nil, false, fmt.Errorf("translating NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
		}
		if !selects {
			continue
		}
		isolated = true
		for _, r := range d.rules(policy) {
			far, err := t.far(d, policy.Namespace, r.peers)
			if err != nil {
				return nil, false, fmt.Errorf("translating NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
			rules = append(rules, far.with(d, p, r.ports)...)
		}
	}
	return rules, isolated, nil
}

// selected applies a selector. As in the API, nil selects nothing.
func selected(s *metav1.LabelSelector, set labels.Set) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false, err
	}
	return selector.Matches(set), nil
}
