// Command coredns is CoreDNS with only the plugins of the test cluster's Corefile (test/cluster/files/Corefile): a
// resolver for the Services of a cluster that reads its API with a kubeconfig, and for a few fixed names.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// CoreDNS rejects a directive that is not in this list. It runs plugins in this order.
	dnsserver.Directives = []string{"bind", "errors", "hosts", "kubernetes"}
	coremain.Run()
}
