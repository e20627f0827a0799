// Package cluster starts real clusters for tests and the demo, with the layout of HyperShift. The management cluster
// has one real node (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd, kubelet, kube-proxy,
// CoreDNS).
//
// The guest's etcd, kube-apiserver and kube-controller-manager run on it as pods in the namespace of the hosted
// control plane. There can be several guests, each in its own namespace. The package needs root and Linux.
//
// A guest can have real nodes: containerd, kubelet, kube-proxy and CoreDNS, each node in namespaces of its own. Its API
// server reaches them directly, or through konnectivity as in HyperShift ([Options].Konnectivity).
//
// NetworkPolicies are enforced on all nodes, each by the policies of its own cluster.
//
// # Workflow
//
// [Start] re-executes the running binary as process 1 of new mount, pid, network, ipc and uts namespaces. For this,
// every main and TestMain that uses this package calls [MaybeRunNode] first. Start gives the process a veth pair and
// cgroups, applies the guest's manifests and returns when the guest's API server answers. [Cluster.Stop], or [Down]
// in another process, kills process 1.
//
// # Invariants
//
//   - Everything that the node creates (processes, pods, mounts, bridges, firewall rules, data) is in the namespaces
//     and ends with process 1. Process 1 ends with the process that called Start, unless Detach is set.
//   - Outside there are only one veth pair with one route, one cgroup folder per hierarchy and one state folder. All
//     are named after the run. Stop removes them. The next Start of the same name removes those of a crashed run.
//   - Two runs with different names share nothing. Each has its own /16 (see network).
//   - The machine's sysctls, firewall and disks are not changed, except for the state folder.
package cluster
