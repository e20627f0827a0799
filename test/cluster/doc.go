// Package cluster starts real clusters for tests and the demo, as HyperShift lays them out: a management cluster with one real node
// (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd, kubelet, kube-proxy, CoreDNS), and on it, as pods in the
// namespace of the hosted control plane, the guest cluster's etcd, kube-apiserver and kube-controller-manager; or several guests, each in a
// namespace of its own. It needs root and Linux.
//
// Workflow: [Start] re-executes the running binary as process 1 of new mount, pid, network, ipc and uts namespaces ([MaybeRunNode], which
// every main and TestMain that uses this package calls first), gives it a veth pair and cgroups, applies the guest's
// manifests and returns when the guest's API server answers. [Cluster.Stop], or [Down] in another process, kills process 1.
//
// Invariants:
//   - Everything that the node makes (processes, pods, mounts, bridges, firewall rules, data) lives in the namespaces and ends with
//     process 1, which ends with the process that called Start, unless Detach was asked for.
//   - Outside there are only one veth pair with one route, one cgroup folder per hierarchy and one state folder, all named after the run;
//     Stop removes them, and the next Start of the same name removes those of a crashed run.
//   - Two runs of different names share nothing: each has a /16 of its own (see network).
//   - The machine's sysctls, firewall and disks (but the state folder) are not written.
package cluster
