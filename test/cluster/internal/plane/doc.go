// Package plane holds what every Kubernetes control plane here has in common, whether it runs as plain processes, on the management node
// or in pods: its own certificate authority and service-account key, kubeconfigs, the kube-apiserver flags, the audit policy.
//
// Each plane gets keys of its own, so that a credential of one side that is shown to the other is refused, as in production.
package plane
