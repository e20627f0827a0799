// Package mgmt is hypergate's client of the management cluster. It observes the management side, applies
// model.MgmtObjects in one namespace, and reports conditions to the HostedControlPlane.
//
// # Workflow
//
// Observe returns plain values. They describe the HostedControlPlane or Cluster API's Cluster, the mesh CA, the
// availability of istiod, and the identity of the cluster. GuestKubeconfig returns the guest's kubeconfig from a
// Secret. Apply, Publish and Prune change objects. ReportConditions writes conditions.
//
// # Invariants
//
//   - Every request is for one namespace. A namespaced Role is enough, and hypergate cannot change objects of other
//     hosted clusters.
//   - hypergate reads two Secrets (the CA and istiod's credential for the guest) once, when it starts to lead. After
//     that it knows what it wrote, and it reverts manual changes of a Secret like those of any other object. The caller
//     keeps their content (Secrets). Cluster does not.
//   - hypergate writes nothing to a HostedControlPlane but its own conditions in the status. All other conditions
//     stay unchanged.
//   - This package never imports package guest, nor any part of the guest's API.
package mgmt
