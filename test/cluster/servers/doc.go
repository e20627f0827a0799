// Package servers finds the real server binaries (etcd, kube-apiserver, kubelet, ...) for tests and the demo.
//
// hack/servers/build.sh builds them once, outside the checkout. The name of their folder contains a hash of all
// inputs. This package asks that script for the folder and never builds anything. A failure that names the build
// command is better than a test that starts a ten-minute build by accident.
//
// ModuleDir finds the folder of a Go module with files that a test needs, and downloads a missing module: one module
// takes seconds.
package servers
