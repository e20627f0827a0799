package netpol

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// farEnd is the other end of the connections in a rule.
type farEnd struct {
	// matches are nft matches, one for each kind of peer. An empty string matches all peers. An empty list matches
	// none.
	matches []string
	// pods are the pods among the peers. Named ports are resolved in them.
	pods []*corev1.Pod
}

// far returns the peers of a rule. A rule without peers matches all.
func (t translation) far(d direction, namespace string, peers []networkingv1.NetworkPolicyPeer) (farEnd, error) {
	if len(peers) == 0 {
		return farEnd{matches: []string{""}, pods: t.pods}, nil
	}
	var out farEnd
	for _, peer := range peers {
		if peer.IPBlock != nil {
			match, err := block(d, peer.IPBlock)
			if err != nil {
				return farEnd{}, err
			}
			out.matches = append(out.matches, match...)
			continue
		}
		for _, p := range t.pods {
			is, err := t.is(p, namespace, peer)
			if err != nil {
				return farEnd{}, err
			}
			if is && !slices.Contains(out.pods, p) {
				out.pods = append(out.pods, p)
			}
		}
	}
	if len(out.pods) > 0 {
		addresses := make([]string, 0, len(out.pods))
		for _, p := range out.pods {
			addresses = append(addresses, p.Status.PodIP)
		}
		slices.Sort(addresses)
		out.matches = append(out.matches, fmt.Sprintf("%s { %s }", d.far, strings.Join(addresses, ", ")))
	}
	return out, nil
}

// block returns the nft match of an ipBlock, or nothing for IPv6.
func block(d direction, b *networkingv1.IPBlock) ([]string, error) {
	prefix, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return nil, err
	}
	if !prefix.Addr().Is4() {
		return nil, nil
	}
	match := d.far + " " + prefix.Masked().String()
	if len(b.Except) > 0 {
		match += fmt.Sprintf(" %s != { %s }", d.far, strings.Join(b.Except, ", "))
	}
	return []string{match}, nil
}

// is reports whether a pod is a peer. A peer without a namespace selector means the policy's own namespace.
func (t translation) is(p *corev1.Pod, namespace string, peer networkingv1.NetworkPolicyPeer) (bool, error) {
	if peer.NamespaceSelector == nil {
		if p.Namespace != namespace {
			return false, nil
		}
	} else if in, err := selected(peer.NamespaceSelector, t.namespaces[p.Namespace]); err != nil || !in {
		return false, err
	}
	if peer.PodSelector == nil {
		return true, nil
	}
	return selected(peer.PodSelector, p.Labels)
}

// with combines the far end with a rule's ports. Ports are those of the receiving pod: me for ingress, the far end
// for egress. A rule without ports matches all ports.
func (f farEnd) with(d direction, me *corev1.Pod, ports []networkingv1.NetworkPolicyPort) []string {
	if len(ports) == 0 {
		return f.matches
	}
	var out []string
	for _, port := range ports {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		word := strings.ToLower(string(protocol))
		switch {
		case port.Port == nil:
			out = append(out, joined(f.matches, "meta l4proto "+word)...)
		case port.Port.Type == intstr.Int:
			last := ""
			if port.EndPort != nil {
				last = fmt.Sprintf("-%d", *port.EndPort)
			}
			out = append(out, joined(f.matches, fmt.Sprintf("%s dport %d%s", word, port.Port.IntVal, last))...)
		case d.kind == networkingv1.PolicyTypeIngress:
			for _, number := range numbers(me, protocol, port.Port.StrVal) {
				out = append(out, joined(f.matches, fmt.Sprintf("%s dport %d", word, number))...)
			}
		default: // the name can have a different number in each receiving pod
			for _, p := range f.pods {
				for _, number := range numbers(p, protocol, port.Port.StrVal) {
					out = append(out, fmt.Sprintf("%s %s %s dport %d", d.far, p.Status.PodIP, word, number))
				}
			}
		}
	}
	return out
}

func joined(matches []string, port string) []string {
	out := make([]string, 0, len(matches))
	for _, match := range matches {
		out = append(out, strings.TrimSpace(match+" "+port))
	}
	return out
}

// numbers returns the ports of a pod with this name.
func numbers(p *corev1.Pod, protocol corev1.Protocol, name string) []int32 {
	var out []int32
	for _, container := range p.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == name && (port.Protocol == protocol || port.Protocol == "" && protocol == corev1.ProtocolTCP) {
				out = append(out, port.ContainerPort)
			}
		}
	}
	return out
}
