// Package desired is the planner: from the flags and from observations it computes the Plan, which is everything that
// should exist on the two sides.
//
// The values that it computes with belong to other packages. Package model has the configuration, the observations and
// the objects of the two sides. Package publish knows the publish strategies and the endpoint of istiod. Package
// leakcheck searches the plan for secrets of the management side. Package ownership decides whether hypergate is
// allowed to apply a plan; the planner does not use it.
//
// # Workflow
//
//	model.Config (flags)         ─┐
//	model.ManagementObservation  ─┼─► Compute ─► Plan{ CRDs · Adopted · Protection · Guest · Mgmt · Routes ·
//	model.GuestObservation       ─┘                    Endpoint · Workload · Admission · Dropped }
//
// Compute works in this order:
//
//  1. Validate the Config, and compute the endpoint at which istiod is published (package publish).
//  2. Decide about each CRD (package crds), and protect hypergate's CRDs with an admission policy.
//  3. Render Istio's istio-discovery chart twice: as the release "istiod" for the management side, and as the release
//     "istiod-remote" (profile remote) for the guest.
//  4. Send every rendered object through one routing table (routing.go): to the management side, to the guest, or
//     dropped with a reason.
//  5. Post-render the routed objects with a list of named transforms (postrender.go, hypershift.go), and replace the
//     Services of webhooks by URLs (package webhookurl).
//  6. Add what no chart renders: istiod's RBAC in the guest, the mesh CA, the network policies, the Service of the
//     webhook, and what publishes istiod: a Service and a route, or the relays of the tunnel (tunnel.go).
//  7. Convert each object into a model.MgmtObject or a model.GuestObject. The constructors check kind and namespace.
//  8. Sort the plan. Refuse it if it has duplicates or if it leaks a secret to the guest.
//
// A Planner computes the same as Compute, and remembers CRDs and renderings between plans.
//
// # Invariants
//
//   - Every rendered object is accounted for. A kind or a name that the routing table does not know is an error,
//     because charts change.
//   - A MgmtObject is namespaced, and its namespace is the management namespace. It is never RBAC, a webhook or a CRD.
//     A GuestObject is never a Secret, and never a workload other than the relays of the tunnel (model.NewRelays). If a
//     constructor refuses an object, Compute returns no Plan.
//   - No GuestObject reveals anything of the management side (package leakcheck): no key of the mesh CA, no address and
//     no CA of the management API. The name of the management namespace is allowed only in URLs of webhooks. The search
//     includes encoded and nested text. Compute refuses a plan that leaks.
//   - If no GatewayClass requests an installation, the Plan contains only CRDs and their protection. Pruning removes
//     the rest.
//   - The same input gives the same bytes. The planner uses no clock, no environment, no network and no file.
package desired
