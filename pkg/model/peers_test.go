package model_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/modeltest"
)

func TestParsePeer(t *testing.T) {
	for text, want := range map[string]model.Peer{
		"pods:app=kube-apiserver": model.PodPeer{Label: "app", Value: "kube-apiserver"},
		"namespaces:network.openshift.io/policy-group=a.b-C": model.NamespacePeer{
			Label: "network.openshift.io/policy-group", Value: "a.b-C",
		},
		"192.0.2.0/24":  model.BlockPeer{Prefix: netip.MustParsePrefix("192.0.2.0/24")},
		"2001:db8::/32": model.BlockPeer{Prefix: netip.MustParsePrefix("2001:db8::/32")},
	} {
		got := modeltest.Peer(t, text)
		if got != want || got.String() != text {
			t.Errorf("%q is read as %#v (%s), want %#v", text, got, got, want)
		}
	}
	for _, text := range []string{
		"", "pods", "pods:", "pods:app", "pods:app=", "pods:=x", "pods:a b=c", "pods:a=b=c", "pods:app=x,y=z", "namespaces:",
		"namespaces:a/b/c=d", "nodes:a=b",
		"192.0.2", "192.0.2.256", "192.0.2.0/33", "2001:db8::/129", "fe80::1%eth0", "any", "*",
	} {
		if p, err := model.ParsePeer(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("%q is read as %v, error %v", text, p, err)
		}
	}
}

// TestParsePeerReadsAnAddress checks that an address is read as the block that contains only this address.
func TestParsePeerReadsAnAddress(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.10": "10.0.0.10/32", "2001:db8::1": "2001:db8::1/128"} {
		if got := modeltest.Peer(t, text); got != modeltest.Peer(t, want) {
			t.Errorf("%q is read as %s, want %s", text, got, want)
		}
	}
}
