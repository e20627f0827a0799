// Command hypergate is a controller that splits the control plane of the Gateway API: istiod runs on the management
// cluster, and its gateways run in the guest.
package main

import (
	"os"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
)

func main() { os.Exit(app.Main()) }
