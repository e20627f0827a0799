// Package webhookurl turns the in-cluster service references of webhooks into URLs, for an API server that reaches the
// webhook's server from outside its own cluster network.
//
// # Why
//
// kube-apiserver calls a webhook given as a service through its egress selection "cluster", one given as a URL through
// "controlplane" (k8s.io/apiserver, pkg/util/webhook/authentication.go). In HyperShift the first is a tunnel to a
// worker node of the guest, the second a direct dial on the management cluster's network. A chart renders the first;
// a server that runs beside the guest's API server needs the second, and its own CA bundle with it.
//
// # Workflow
//
// [NewEndpoint] checks, once, where the webhooks are to be reached. [Rewrite] returns a copy of an object in which
// every webhook of the endpoint's service has the endpoint's URL and CA bundle. [Check] proves the same of any object,
// whoever made it. [ValidateURL] and [ForbiddenBy] are the rules of kube-apiserver and of HyperShift for the URLs
// themselves.
//
// MutatingWebhookConfiguration and ValidatingWebhookConfiguration (admissionregistration.k8s.io/v1) and
// CustomResourceDefinition (apiextensions.k8s.io/v1) hold webhooks; the same kinds in another group or version, and
// lists of objects, are refused, because webhooks could hide there. Every other kind holds none: Rewrite returns a
// copy of it, Check accepts it.
//
// # Invariants
//
//   - Total: what Rewrite returns passes Check, and what passes Check has no service reference and no URL but the
//     endpoint's. What is not the endpoint's is an error, never passed on.
//   - Nothing else changes: order, unknown fields and all other fields stay. The input is never written to.
//   - Rewrite(Rewrite(x)) equals Rewrite(x).
//   - Nothing but certificates can be in a CA bundle that was written.
//   - Pure: no I/O, no clock, no state.
package webhookurl
