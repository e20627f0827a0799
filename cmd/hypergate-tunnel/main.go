// Command hypergate-tunnel carries connections of a guest's gateways to istiod, through the guest's own API server. The
// same binary is the relay in the guest and the sidecar in istiod's pod.
package main

import (
	"os"

	"github.com/hypergate/hypergate/cmd/hypergate-tunnel/app"
)

func main() { os.Exit(app.Main()) }
