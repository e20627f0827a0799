// Command ingress-operator is a stand-in for the gatewayclass controller of OpenShift's cluster-ingress-operator, for
// the stories about the migration of a guest. It installs Istio in the guest, and does on each pass what that
// controller does.
//
// Facts about cluster-ingress-operator have the prefix C in comments. They are from commit acca9642, and its paths are
// below pkg/operator/controller/gatewayclass. S is the sail-operator that it vendors.
//
// # Workflow
//
// A pass handles one GatewayClass of the controller name. With --install=olm, it writes the resource Istio, and the
// real sail-operator installs istiod (C controller.go, reconcileWithOLM). With --install=library, it does this by Helm
// itself (C controller.go, reconcileWithSailLibrary): finalizer, removal of the resource Istio, Helm release,
// conditions, NetworkPolicy, annotation. With --install=external, it removes what the library has installed, and
// nothing else: the way that docs/hypershift.md proposes. In all cases, labeler.go puts the revision on Gateways.
//
// # What differs
//
//   - The library of S cannot be downloaded. release.go does what it does with Helm 3, as OpenShift 4.20 to 4.22 have
//     it. C has Helm 4 without server-side apply, which sends the same patches.
//   - S reconciles on a goroutine of its own. Here it is a part of the pass, so that a pass also follows from drift.
//   - Istio's CRDs are there before. Nothing is written to them.
//   - The Proxy, the Infrastructure and the APIServer of config.openshift.io do not exist.
package main
