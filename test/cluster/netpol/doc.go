// Package netpol implements NetworkPolicies on a test cluster's node. It translates the API's policies, pods and
// namespaces into one nft table, and rewrites the table when they change.
//
// # Limits
//
//   - The table identifies a pod by its address. There is about one second between a pod's start and the kubelet's
//     report of its address. In that time, the pod is not restricted.
//   - An open connection stays open when a policy changes.
//   - Only IPv4 is supported.
//   - Traffic from the node to its own pods (the kubelet's probes) is always allowed, as with most network plugins.
//     Traffic from a pod to the node is not, because the management API server runs there.
package netpol
