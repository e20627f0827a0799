// Package netpol makes NetworkPolicies real on a test cluster's node: it translates the API's policies, pods and namespaces into one nft table,
// and writes the table anew whenever they change.
//
// What it does not do. A pod is known by its address, so in the second between a pod's start and the kubelet's report of its address nothing
// stops it, and a connection that is open stays open when a policy changes. Policies are about IPv4. What the node sends to its own pods
// (the kubelet's probes) always passes, as with most network plugins; what a pod sends to the node does not, because the management API
// server is there.
package netpol
