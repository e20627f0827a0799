// Command hypergate is a split control-plane controller for the Gateway API: istiod on the management cluster, its gateways in the guest.
package main

import (
	"os"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
)

func main() { os.Exit(app.Main()) }
