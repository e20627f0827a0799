// Package webhookurl replaces the in-cluster service references of webhooks with URLs. It is for an API server that
// reaches the webhook server from outside its own cluster network.
//
// # Why
//
// kube-apiserver calls a webhook with a service through its egress selection "cluster", and a webhook with a URL
// through "controlplane" (k8s.io/apiserver, pkg/util/webhook/authentication.go). In HyperShift the first is a tunnel
// to a worker node of the guest, and the second is a direct connection in the management cluster's network.
//
// A chart renders the first form. A server that runs beside the guest's API server needs the second form, and its own
// CA bundle with it.
//
// # Workflow
//
// [NewEndpoint] checks once where the webhooks are served. [Rewrite] returns a copy of an object in which every
// webhook of the endpoint's service has the endpoint's URL and CA bundle. [Check] verifies the same for any object
// of any origin. [ValidateURL] and [ForbiddenBy] implement the rules of kube-apiserver and of HyperShift for the
// URLs themselves.
//
// Three kinds have webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration
// (admissionregistration.k8s.io/v1), and CustomResourceDefinition (apiextensions.k8s.io/v1). The same kinds in
// another group or version, and lists of objects, are refused, because webhooks could hide there. All other kinds
// have no webhooks: Rewrite returns a copy, and Check accepts the object.
//
// # Invariants
//
//   - The result of Rewrite passes Check. An object that passes Check has no service reference, and no URL except the
//     endpoint's. A webhook that does not belong to the endpoint is an error, and is never passed on.
//   - Nothing else changes: order, unknown fields and all other fields stay. The input is never modified.
//   - Rewrite(Rewrite(x)) equals Rewrite(x).
//   - A written CA bundle contains only certificates.
//   - Pure: no I/O, no clock, no state.
package webhookurl
