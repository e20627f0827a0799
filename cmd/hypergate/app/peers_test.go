package app_test

import (
	"strings"
	"testing"
)

// TestNetworkPolicyFlags checks that the network policy follows its flags. Each case lists texts that the management
// side has, and texts that it does not have.
func TestNetworkPolicyFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		flags       []string
		has, hasNot []string
	}{
		"as it is": {
			nil,
			[]string{
				"kind: NetworkPolicy", "app: kube-apiserver", "app: private-router", "policy-group: monitoring",
				"port: 15014\n      protocol",
			},
			[]string{"ipBlock"},
		},
		"other peers": {
			[]string{
				"--xds-peers=192.0.2.0/24,pods:app=router", "--dns-peers=169.254.20.10", "--metrics-peers=",
				"--guest-api-peers=namespaces:guest=one",
			},
			[]string{"cidr: 192.0.2.0/24", "app: router", "cidr: 169.254.20.10/32", "guest: one"},
			[]string{"private-router", "openshift-dns", "port: 15014\n      protocol", "app: kube-apiserver"},
		},
		"off":        {[]string{"--network-policies=false", "--xds-peers=ignored"}, nil, []string{"kind: NetworkPolicy"}},
		"standalone": {[]string{"--topology=standalone", "--namespace=", "--xds-address="}, nil, []string{"kind: NetworkPolicy"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, append([]string{"render", "--side=management"}, flags(tc.flags...)...)...)
			if r.code != 0 {
				t.Fatal(r.errOut)
			}
			for _, w := range tc.has {
				if !strings.Contains(r.out, w) {
					t.Errorf("there is no %q", w)
				}
			}
			for _, w := range tc.hasNot {
				if strings.Contains(r.out, w) {
					t.Errorf("there is %q", w)
				}
			}
		})
	}
	fails(t, append([]string{"render"}, flags("--xds-peers=everybody", "--dns-peers=10.0.0")...),
		"--xds-peers", `"everybody"`, "--dns-peers", `"10.0.0"`)
	fails(t, append([]string{"render"}, flags("--guest-api-peers=")...), "--guest-api-peers", "--network-policies=false")
}
