package guestconn_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/guestconn"
)

// TestDirectNeedsNoCertificateAuthority checks that Direct accepts a config without a certificate authority. Fixed
// rejects it, because istiod needs one.
func TestDirectNeedsNoCertificateAuthority(t *testing.T) {
	config := &rest.Config{Host: "https://guest.example.com:6443"}
	if _, err := guestconn.Fixed(config); err == nil {
		t.Error("Fixed accepts a config without a certificate authority")
	}
	conn := guestconn.Direct(config)
	if diff := cmp.Diff(guestconn.Endpoint{Server: "https://guest.example.com:6443"}, conn.Endpoint()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := conn.Config().Host; got != config.Host {
		t.Errorf("Config().Host = %q", got)
	}
	if err := conn.Problem(); err != nil {
		t.Error(err)
	}
}
