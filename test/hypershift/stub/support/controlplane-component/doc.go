// Package controlplanecomponent stands for HyperShift's framework of control plane components. It has the part of its
// API that a single Deployment needs which serves no requests.
//
// # Workflow
//
//	Reconcile ─► predicate is false ─► delete: manifests, Deployment, ControlPlaneComponent
//	          └► dependencies ─► missing: only the status is written
//	                          └► update: manifests by name, the kubeconfig, the Deployment ─► status
//
// # Invariants
//
//   - Every component depends on kube-apiserver, unless it is excluded (DefaultExclusions).
//   - Objects are deleted by name, as in HyperShift. The kubeconfig's Secret is never deleted.
//   - The objects are those of Component.Render in test/hypershift.
package controlplanecomponent
