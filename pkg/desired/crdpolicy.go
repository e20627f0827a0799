package desired

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// CRDPolicyName is the name of the guest's ValidatingAdmissionPolicy that keeps hypergate's CRDs as they are, and of its binding. hypergate's role in the
// guest goes by it (deploy/rbac/guest).
func CRDPolicyName(c model.Config) string { return "hypergate-crds-" + c.Revision }

// PlatformCRDWriters are the users that are OpenShift's own way to upgrade a cluster, standalone or hosted. They may write CRDs that hypergate
// manages: what locks them out stops a cluster's upgrade, and hypergate sees what they did and yields.
//
//   - The ingress operator, which manages these CRDs where hypergate does not (openshift/cluster-ingress-operator manifests/01-service-account.yaml). HyperShift
//     gives it a certificate of the same name, without a pod that a token could be bound to (openshift/hypershift
//     control-plane-operator/controllers/hostedcontrolplane/v2/ingressoperator/component.go), so nothing is asked of it but the name.
//   - The cluster version operator (openshift/cluster-version-operator install/0000_00_cluster-version-operator_02_service_account-cluster-version-operator.yaml).
//   - HyperShift's hosted-cluster-config-operator, and what applies a release's manifests when a kube-apiserver starts. HyperShift's own policies let
//     these two by (openshift/hypershift control-plane-operator/hostedclusterconfigoperator/controllers/resources/kas/admissionpolicies.go).
//   - OLM, whose one account writes CRDs, on OpenShift and as it comes from upstream (operator-framework/operator-lifecycle-manager
//     deploy/chart/templates/0000_50_olm_02-olm-operator.serviceaccount.yaml, deploy/upstream/quickstart/olm.yaml).
//
// HyperShift runs the cluster version operator and OLM as system:admin, who may be a person, too: see unnamedWriter.
func PlatformCRDWriters() []string {
	return []string{
		"system:hosted-cluster-config",
		"system:kas-bootstrap-container",
		"system:serviceaccount:olm:olm-operator-serviceaccount",
		"system:serviceaccount:openshift-cluster-version:cluster-version-operator",
		"system:serviceaccount:openshift-ingress-operator:ingress-operator",
		"system:serviceaccount:openshift-operator-lifecycle-manager:olm-operator-serviceaccount",
	}
}

// unnamedWriter is the user that HyperShift's cluster version operator and OLM share with whoever holds the guest's admin kubeconfig
// (openshift/hypershift control-plane-operator/controllers/hostedcontrolplane/v2/assets/{cluster-version-operator,catalog-operator}/deployment.yaml mount
// service-network-admin-kubeconfig; pki/kas.go ReconcileSystemAdminClientCertSecret). What a person uses (oc, kubectl, helm) names a field manager
// in its requests; the operators do not, and then an update of theirs is let by.
const unnamedWriter = "system:admin"

// crdPolicy protects CRDs of the guest that are hypergate's, given by name and sorted, from being changed or deleted by accident: by a manifest of
// another version, by a cleanup. It is no defence against intent, since the guest's admin owns the policy, too. What it keeps as it is, is the spec but
// for the conversion webhook; the rest of a CRD is everybody's. It is nil if there is nothing to protect.
//
// Nothing is said about creation. A CRD of one of these names that somebody makes before hypergate does is somebody's, and without hypergate's label
// the policy leaves it alone.
func crdPolicy(cfg model.Config, protected, writers []string) []*unstructured.Unstructured {
	if len(protected) == 0 {
		return nil
	}
	rule := map[string]any{
		// Not the subresources: the API server's own controllers write the status, and take their finalizer away by it.
		"apiGroups": []any{"apiextensions.k8s.io"}, "apiVersions": []any{"v1"}, "resources": []any{"customresourcedefinitions"}, "scope": "Cluster",
	}
	updates, deletions := maps.Clone(rule), maps.Clone(rule)
	updates["operations"], updates["resourceNames"] = []any{"UPDATE"}, allOf(protected)
	// A request to delete a collection has no name, and a rule with names lets it by. So the expression looks at the name of each object.
	deletions["operations"] = []any{"DELETE"}
	policy := crdPolicyObject("ValidatingAdmissionPolicy", cfg, map[string]any{
		"failurePolicy": "Fail",
		"matchConstraints": map[string]any{
			"matchPolicy": "Equivalent", "resourceRules": []any{updates, deletions},
			"objectSelector": map[string]any{"matchLabels": map[string]any{model.OwnerLabel: cfg.OwnerValue(model.SideGuest)}},
		},
		"validations": []any{map[string]any{
			"expression": crdPolicyExpression(protected, writers), "messageExpression": crdPolicyMessage,
			"message": "hypergate manages this CRD", "reason": "Forbidden",
		}},
	})
	binding := crdPolicyObject("ValidatingAdmissionPolicyBinding", cfg, map[string]any{
		"policyName": CRDPolicyName(cfg), "validationActions": []any{"Deny"},
	})
	return []*unstructured.Unstructured{policy, binding}
}

func crdPolicyObject(kind string, cfg model.Config, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "spec": spec}}
	u.SetName(CRDPolicyName(cfg))
	return u
}

// crdPolicyExpression holds for each request that is let by, whichever of its lines says so. The last may compare some 100 KB; CEL's limit counts no
// more of that than the number of versions.
func crdPolicyExpression(protected, writers []string) string {
	const (
		updates = "request.operation == 'UPDATE' && "
		manager = "request.?options.?fieldManager.orValue('')"
		user    = "request.userInfo.username"
	)
	writers = slices.Compact(slices.Sorted(slices.Values(slices.Concat(PlatformCRDWriters(), writers))))
	return strings.Join([]string{
		"!(oldObject.metadata.name in " + listCEL(protected) + ")",
		// hypergate itself. Its user name is what its kubeconfig says: it may be another tomorrow, and may be the admin's. The name that it writes
		// under is its own whatever happens, and nobody takes it by accident. hypergate deletes no CRD.
		updates + manager + " == " + quoteCEL(model.FieldManager),
		user + " in " + listCEL(writers),
		updates + user + " == " + quoteCEL(unnamedWriter) + " && " + manager + " == ''",
		// What the message says to do helps at once, and while hypergate does not run.
		"oldObject.metadata.?annotations[?" + quoteCEL(crds.ManageAnnotation) + "].orValue('') == 'false'",
		// The rest of a spec cannot be changed (group, scope, preserveUnknownFields), or may be (conversion).
		updates + "object.spec.names == oldObject.spec.names && object.spec.versions == oldObject.spec.versions",
	}, " ||\n")
}

// crdPolicyMessage makes the text of a refusal, in one line.
const crdPolicyMessage = `'hypergate manages ' + oldObject.metadata.name + ': ' + (request.operation == 'DELETE' ? ` +
	`'deleting it would delete all objects of its kind. ' : 'with another schema, istiod would ignore fields, or objects would lose them. ') + ` +
	`'To take it away from hypergate on purpose, run: kubectl annotate --overwrite crd ' + oldObject.metadata.name + ' ` + crds.ManageAnnotation + `=false'`

// quoteCEL is a string in CEL, listCEL a list of them.
func quoteCEL(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}

func listCEL(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quoteCEL(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
