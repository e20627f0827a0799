// Package origin installs an istiod in the guest, as OpenShift does without hypergate: the origin of a migration.
//
// There are three ways, with the same istiod, chart and class. [StartOLM] runs the real sail-operator with a resource
// Istio, between objects of OLM as OLM writes them. [StartSail] runs a stand-in for cluster-ingress-operator's own
// installation by Helm, hack/servers/origin/ingress-operator. In both, this stand-in does what cluster-ingress-operator
// does with GatewayClasses on each pass. [StartHelm] installs the chart with the command helm, and has no operator.
//
// # Workflow
//
// A caller starts a world with real nodes of the guest, and with [Image] among its images. All three write CRDs.
// StartOLM also writes OLM's objects. StartOLM and StartSail start the operators as processes of this machine with the
// guest's kubeconfig. The operators follow from a GatewayClass. [Origin.Stop] ends the operators, and leaves in the
// guest what they installed. [Snapshot] returns the objects of the guest that distinguish one origin from another.
//
// # Invariants
//
//   - OLM itself does not run. Nothing writes its objects after StartOLM.
//   - The sail-operator knows no newer Istio than 1.24.3. The charts are those of Options.Version, under that name.
//   - A snapshot has no Secrets, and does not differ between two runs.
package origin
