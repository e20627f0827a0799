package desired

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// CRDPolicyName returns the name of the guest's ValidatingAdmissionPolicy that protects hypergate's CRDs, and of its
// binding. hypergate's role in the guest contains this name (deploy/rbac/guest).
func CRDPolicyName(c model.Config) string { return "hypergate-crds-" + c.Revision }

// PlatformCRDWriters returns the users with which OpenShift upgrades a cluster, standalone or hosted. They are allowed
// to write CRDs that hypergate manages. A policy that rejects them would stop the upgrade of a cluster. hypergate
// observes their change and accepts it.
//
//   - The ingress operator, which manages these CRDs in clusters without hypergate (openshift/cluster-ingress-operator
//     manifests/01-service-account.yaml). HyperShift gives it a certificate with the same user name, without a pod that
//     a token could be bound to (openshift/hypershift
//     control-plane-operator/controllers/hostedcontrolplane/v2/ingressoperator/component.go). So the policy checks only
//     the name.
//   - The cluster version operator (openshift/cluster-version-operator
//     install/0000_00_cluster-version-operator_02_service_account-cluster-version-operator.yaml).
//   - HyperShift's hosted-cluster-config-operator, and the container that applies a release's manifests when a
//     kube-apiserver starts. HyperShift's own policies allow these two (openshift/hypershift
//     control-plane-operator/hostedclusterconfigoperator/controllers/resources/kas/admissionpolicies.go).
//   - OLM. One of its accounts writes CRDs, both on OpenShift and in the upstream installation
//     (operator-framework/operator-lifecycle-manager
//     deploy/chart/templates/0000_50_olm_02-olm-operator.serviceaccount.yaml, deploy/upstream/quickstart/olm.yaml).
//
// HyperShift runs the cluster version operator and OLM as system:admin, which can also be a person: see unnamedWriter.
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

// unnamedWriter is the user of HyperShift's cluster version operator and OLM. It is also the user of the guest's admin
// kubeconfig (openshift/hypershift control-plane-operator/controllers/hostedcontrolplane/v2/assets: the deployment.yaml
// of cluster-version-operator and of catalog-operator mount service-network-admin-kubeconfig; pki/kas.go
// ReconcileSystemAdminClientCertSecret).
//
// The tools of a person (oc, kubectl, helm) set a field manager in their requests. The operators do not, and the policy
// allows updates of this user without a field manager.
const unnamedWriter = "system:admin"

// crdPolicy returns a ValidatingAdmissionPolicy and its binding, or nil if there is nothing to protect. The policy
// protects hypergate's CRDs in the guest from accidental changes and deletion, for example by a manifest of another
// version or by a cleanup. It does not protect against intent, because the guest's admin also controls the policy.
//
// The policy protects the spec except the conversion webhook. Every client is allowed to change the rest of a CRD.
// protected are the names of the CRDs, sorted. writers are the users that are allowed to write in addition to
// PlatformCRDWriters.
//
// The policy does not restrict creation. If another client creates one of these CRDs before hypergate does, the CRD
// does not have hypergate's label, and the policy ignores it.
func crdPolicy(cfg model.Config, protected, writers []string) []*unstructured.Unstructured {
	if len(protected) == 0 {
		return nil
	}
	rule := map[string]any{
		// The rule excludes subresources: the API server's own controllers write the status, and remove their finalizer
		// with such a write.
		"apiGroups": []any{"apiextensions.k8s.io"}, "apiVersions": []any{"v1"},
		"resources": []any{"customresourcedefinitions"}, "scope": "Cluster",
	}
	updates, deletions := maps.Clone(rule), maps.Clone(rule)
	updates["operations"], updates["resourceNames"] = []any{"UPDATE"}, allOf(protected)
	// A request to delete a collection has no name, so a rule with names does not match it. So this rule has no names,
	// and the expression checks the name of each object.
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
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "spec": spec,
	}}
	u.SetName(CRDPolicyName(cfg))
	return u
}

// crdPolicyExpression returns a CEL expression that is true for each request that the policy allows. One true line is
// enough. The last line can compare about 100 KB. Of that, CEL's cost limit counts only the number of versions.
func crdPolicyExpression(protected, writers []string) string {
	const (
		updates = "request.operation == 'UPDATE' && "
		manager = "request.?options.?fieldManager.orValue('')"
		user    = "request.userInfo.username"
	)
	writers = slices.Compact(slices.Sorted(slices.Values(slices.Concat(PlatformCRDWriters(), writers))))
	return strings.Join([]string{
		"!(oldObject.metadata.name in " + listCEL(protected) + ")",
		// hypergate itself. Its user name depends on its kubeconfig: it can change, and it can be the admin's. Its
		// field manager never changes, and no other client uses it by accident. hypergate does not delete CRDs.
		updates + manager + " == " + quoteCEL(model.FieldManager),
		user + " in " + listCEL(writers),
		updates + user + " == " + quoteCEL(unnamedWriter) + " && " + manager + " == ''",
		// The annotation that the message recommends takes effect immediately, even while hypergate does not run.
		"oldObject.metadata.?annotations[?" + quoteCEL(crds.ManageAnnotation) + "].orValue('') == 'false'",
		// The other fields of a spec are immutable (group, scope, preserveUnknownFields), or everyone is allowed to
		// change them (conversion).
		updates + "object.spec.names == oldObject.spec.names && object.spec.versions == oldObject.spec.versions",
	}, " ||\n")
}

// crdPolicyMessage is a CEL expression that returns the text of a rejection, in one line.
const crdPolicyMessage = `'hypergate manages ' + oldObject.metadata.name + ': ' + ` +
	`(request.operation == 'DELETE' ? ` +
	`'deleting it would delete all objects of its kind. ' : ` +
	`'with another schema, istiod would ignore fields, or objects would lose them. ') + ` +
	`'To take it away from hypergate on purpose, run: ` +
	`kubectl annotate --overwrite crd ' + oldObject.metadata.name + ' ` + crds.ManageAnnotation + `=false'`

// quoteCEL returns a CEL string literal.
func quoteCEL(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}

// listCEL returns a CEL list of string literals.
func listCEL(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quoteCEL(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
