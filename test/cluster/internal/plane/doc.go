// Package plane contains the common parts of all Kubernetes control planes in these tests. They run as plain
// processes, on the management node or in pods. The common parts are a certificate authority and service account key
// per plane, kubeconfigs, the kube-apiserver flags and the audit policy.
//
// Each plane has its own keys. So a side refuses a credential of the other side, as in production.
package plane
