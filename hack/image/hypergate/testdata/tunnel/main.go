// Command tunnel is linked with other modules than program, for the test of the SBOM.
package main

import (
	"github.com/go-logr/logr"
	"github.com/hashicorp/yamux"
)

func main() { logr.Discard().Info("x", "y", yamux.DefaultConfig()) }
