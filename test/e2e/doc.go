// Package e2e contains the tests that need a complete real environment. This is a node with the guest's control plane
// as pods, and istiod as the pod of the Deployment that hypergate applied. The guest's own API server calls istiod,
// and a proxy connects with a guest token.
//
// Each topology is one test with its own clusters. Both tests run in parallel. The stories of a test run one after
// the other, and each leaves behind only CRDs and the namespace. hypergate runs with the accounts and roles of
// deploy/, and no others.
//
// The last stories read the audit logs of all earlier stories. No request was refused, except those that a story
// provokes, and istiod used all of its permissions.
//
// Three further tests have their own clusters: a control plane that Cluster API describes, three hosted clusters on one
// management cluster where a user also runs Istio, and a guest with real nodes, to which requests are sent.
//
// Tests that send requests take turns, story by story, because two loads at once exceed two busy CPUs.
package e2e
