// Package servers finds the real server binaries (etcd, kube-apiserver, kubelet, ...) that tests and the demo run.
//
// They are built once, outside the checkout, by hack/servers/build.sh, which names their folder by a hash over everything that goes
// into them. This package asks that script for the folder and never builds anything: a test that starts a ten-minute build by accident
// is worse than one that says which command to run.
package servers
