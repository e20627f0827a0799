// Package e2e has the stories that need everything to be real: a node, the guest's control plane as pods on it, istiod as the pod of the
// Deployment that hypergate applied, called by the guest's own API server, and a proxy's connection with a guest token.
//
// Each topology is one test with its own clusters, both at the same time; its stories run one after the other on them, and each leaves nothing
// behind but CRDs and the namespace. hypergate runs under the accounts and roles of deploy/ and no others. The last two stories read the audit
// logs of all before: nobody was refused anything, unless the story says that it provokes it, and istiod used all that it may.
//
// Before them two stories have clusters of their own: a control plane that Cluster API describes, and three hosted clusters on one management
// cluster, where a user runs Istio too.
package e2e
