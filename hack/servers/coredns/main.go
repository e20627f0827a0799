// Command coredns is CoreDNS with just the plugins that the test cluster's DNS needs: a resolver for the management cluster's Services,
// reading its API with a kubeconfig.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// CoreDNS refuses a directive that is not listed here, and runs plugins in this order.
	dnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes"}
	coremain.Run()
}
