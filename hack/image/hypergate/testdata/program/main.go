// Command program is linked with another module, for the test of the SBOM.
package main

import "github.com/google/go-cmp/cmp"

func main() { _ = cmp.Diff(1, 2) }
