// Package desired computes everything that should exist, from what was observed, with one pure function.
//
// # Workflow
//
//	Config (flags) ─┐
//	Hosted (mgmt)  ─┼─► Compute ─► State{ CRDs · Adopted · Protection · Guest · Mgmt · Exposure · Workload · Admission · Dropped }
//	Guest  (guest) ─┘
//
// Compute renders Istio's istio-discovery chart twice, as the release "istiod" and as the release "istiod-remote" (profile remote), and sends
// every rendered object through one routing table: to the management side, to the guest, or dropped with the reason. What is routed is then
// post-rendered (a list of named transforms), webhooks get URLs (package webhookurl), and each object is minted as a MgmtObject or a
// GuestObject, which only this package can do.
//
// # Invariants
//
//   - Every rendered object is accounted for. A kind or a name that the table does not know is an error: charts change under us.
//   - A MgmtObject is namespaced and lies in the management namespace; it is never RBAC, a webhook or a CRD. A GuestObject is never a
//     Secret and never a workload. Minting refuses, and Compute then returns no State at all.
//   - Nothing of the management side can be read in a GuestObject (leakcheck.go): no key of the mesh CA, no name of the management namespace but in
//     the URLs of webhooks, no address and no CA of the management API; as it is, or encoded, or in text within text. Compute refuses such a plan.
//   - No GatewayClass asks for us: State holds nothing but CRDs and what protects them. Pruning does the rest.
//   - Same input, same bytes. No clock, no environment, no network, no file.
package desired
