// Package rollout decides how gateways get the proxies of another istiod: one Gateway after another.
//
// An istiod that begins to lead deploys all Gateways at once. So hypergate holds them first: an annotation makes each
// istiod leave a Gateway's Deployment as it is, and changes no route. Then istiod changes, and hypergate releases one
// Gateway, waits until its new pods are ready, and releases the next one.
//
// # Workflow
//
//	evidence + memo ──► Decide ──► one Step ──► package controller carries it out ──► Memo.After
//
// # Invariants
//
//   - Decide is pure. Each decision follows from evidence: what the Gateways and istiod's Deployment show. After a
//     restart, an empty Memo leads to the same order of steps. It only adds waiting.
//   - At most one Gateway is released at once. The next one is released after the pods of the one before are ready.
//   - A Gateway whose new pods do not become ready stops the rest.
//   - Holding ends after holdTime. A guest that undoes the holds does not keep istiod from being upgraded.
//   - Defaults of a class that the guest does not accept hold Gateways for defaultsTime. Then they no longer count.
//   - A Gateway that another client holds is never written to.
package rollout
