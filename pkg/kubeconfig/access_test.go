package kubeconfig

import (
	"strings"
	"testing"
)

// TestAccess checks that a kubeconfig that this package makes is one that it accepts, with the same content.
func TestAccess(t *testing.T) {
	want := Access{Server: "https://kube-apiserver:6443", ServerName: "api.example.com", CA: []byte("ca"), User: "hypergate", Token: "t"}
	content, err := want.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	if (Access{got.Host, got.ServerName, got.CAData, want.User, got.BearerToken}).differs(want) {
		t.Errorf("%+v", got)
	}
	again, err := want.Kubeconfig()
	if err != nil || string(again) != string(content) {
		t.Errorf("the second kubeconfig differs: %v", err)
	}
}

// TestAccessIsRefused checks that no kubeconfig is made that hypergate would refuse.
func TestAccessIsRefused(t *testing.T) {
	whole := Access{Server: "https://kube-apiserver:6443", CA: []byte("ca"), User: "hypergate", Token: "t"}
	for want, edit := range map[string]func(*Access){
		"its server does not begin with https://": func(a *Access) { a.Server = "http://kube-apiserver:6443" },
		"has no server":              func(a *Access) { a.Server = "" },
		"certificate-authority-data": func(a *Access) { a.CA = nil },
	} {
		access := whole
		edit(&access)
		if _, err := access.Kubeconfig(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func (a Access) differs(b Access) bool {
	return a.Server != b.Server || a.ServerName != b.ServerName || string(a.CA) != string(b.CA) || a.User != b.User || a.Token != b.Token
}
