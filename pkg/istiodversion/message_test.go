package istiodversion

import (
	"bytes"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// FuzzAnswer checks that no answer makes answer panic, and that a version has the form of one.
func FuzzAnswer(f *testing.F) {
	message, err := proto.Marshal(&discoveryv3.DiscoveryResponse{
		VersionInfo: "1", ControlPlane: &corev3.ControlPlane{Identifier: `{"Info":{"version":"1.20.3"}}`},
	})
	if err != nil {
		f.Fatal(err)
	}
	valid := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	f.Add(valid)
	f.Add(valid[:len(valid)-3])
	f.Add([]byte{0, 0, 0, 0, 20, 0x32, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := answer(bytes.NewReader(body))
		if (err == nil) != version.MatchString(got) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
