package tunnel_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/test/previous"
)

// TestThePreviousTunnel runs each end with the binary of the version before, and the other end with the current one, as
// while an installation is upgraded or goes back.
func TestThePreviousTunnel(t *testing.T) {
	dir, err := previous.Build(t.Context(), previous.Tunnel)
	if err != nil {
		t.Fatal(err)
	}
	w := newHarness(t)
	w.pod("istiod-relay-0", relay0IP)
	before, current := filepath.Join(dir, "hypergate-tunnel"), w.binary
	for _, ends := range []struct{ name, relay, sidecar string }{
		{"the relay is older", before, current},
		{"the sidecar is older", current, before},
	} {
		t.Log(ends.name)
		w.binary = ends.relay
		relay := w.relay("istiod-relay-0", relay0IP)
		w.binary = ends.sidecar
		sidecar := w.sidecar("--relays=istiod-relay-0")
		conn := w.talks(relay0IP)
		if err := talk(conn, strings.Repeat("0123456789abcdef", 1<<18)); err != nil { // 4 MiB each way
			t.Errorf("%s: 4 MiB: %v", ends.name, err)
		}
		w.becomes(istiodIP, up0, 1)
		sidecar.Kill()
		relay.Kill()
	}
}
