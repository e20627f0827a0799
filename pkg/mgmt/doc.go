// Package mgmt is all that talks to the management cluster: it observes (the HostedControlPlane, or Cluster API's Cluster, the guest's kubeconfig in a Secret, the mesh CA, istiod's availability, the identity of the cluster) into
// plain values, applies desired.MgmtObjects in one namespace, and reports to its HostedControlPlane.
//
// # Invariants
//
//   - Every request is for one namespace: a namespaced Role is enough, and no other hosted cluster's objects can be touched.
//   - The two Secrets that it reads (CA, istiod's guest credential) are read once, when it starts to lead. After that it knows what it wrote,
//     and a Secret changed by hand is put back like any other object.
//   - Of a HostedControlPlane nothing is written but conditions of its status, and of those only ours; all others stay as they stand there.
//   - It never imports package guest, nor anything of the guest's API.
package mgmt
