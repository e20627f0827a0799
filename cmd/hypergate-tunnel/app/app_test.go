package app_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/cmd/hypergate-tunnel/app"
)

// TestExecute: what the commands print, and their exit codes. test/tunnel runs both ends.
func TestExecute(t *testing.T) {
	t.Setenv("POD_IP", "")
	sidecar := "sidecar --health-address=127.0.0.1:0 --relay-namespace=istio-system "
	for line, tc := range map[string]struct {
		code int
		want string // a part of the output or of the error
	}{
		"":                                 {0, "hypergate-tunnel relay"},
		"help":                             {0, "hypergate-tunnel sidecar"},
		"version":                          {0, "hypergate-tunnel dev"},
		"relay -h":                         {0, "-tunnel-name"},
		"sidecar -h":                       {0, "-credential"},
		"agent":                            {1, `unknown command "agent": the commands are relay, sidecar and version`},
		"relay":                            {1, `--tunnel-name is ""`},
		"relay --tunnel-name=Tunnel_x":     {1, `--tunnel-name is "Tunnel_x"`},
		"relay --tunnel-name=x now":        {1, `unexpected argument "now"`},
		"relay --port=1":                   {1, "not defined: -port"},
		"sidecar":                          {1, `--relay-namespace is ""`},
		sidecar + "--relays=a,../b":        {1, `--relays has the name "../b"`},
		sidecar + "--relays=a,b,a":         {1, `--relays has the name "a" twice`},
		sidecar + "--relays=":              {1, `--relays has the name ""`},
		sidecar:                            {1, `--pod-ip: "" is not the IP address of a pod`},
		sidecar + "--pod-ip=127.0.0.1":     {1, "loopback, link-local and multicast addresses are refused"},
		sidecar + "--target-port=70000":    {1, "--target-port is 70000"},
		sidecar + "--max-age=1s":           {1, "--max-age is 1s: give 5s to 24h0m0s"},
		sidecar + "--pod-ip=10.0.0.1":      {0, ""}, // it stops at once, because the context has ended
		"relay --tunnel-name=x " + anyPort: {0, ""},
		"relay --tunnel-name=x --tunnels-address=256.0.0.1:1": {1, "listening on"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if strings.Contains(line, "256.0.0.1") {
			ctx = t.Context() // else no address is looked at
		}
		var out, errOut strings.Builder
		code := app.Execute(ctx, strings.Fields(line), &out, &errOut)
		if said := out.String() + errOut.String(); code != tc.code || !strings.Contains(said, tc.want) {
			t.Errorf("%q: exit code %d, want %d with %q:\n%s", line, code, tc.code, tc.want, said)
		}
	}
}

const anyPort = "--gateways-address=127.0.0.1:0 --tunnels-address=127.0.0.1:0 --health-address=127.0.0.1:0"
