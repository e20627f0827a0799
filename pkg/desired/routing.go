package desired

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// release is one of the two renders of Istio's istio-discovery chart.
type release string

const (
	// releaseIstiod is istiod itself.
	releaseIstiod release = "istiod"
	// releaseRemote is what a cluster needs if its istiod runs in another cluster: the chart with the profile remote.
	// Since Istio 1.24, this profile replaces the istiod-remote chart.
	releaseRemote release = "istiod-remote"
)

// destination is the destination of a rendered object: exactly one of the types below. The interface is sealed.
type destination interface{ isDestination() }

type (
	// toMgmt is the management side, before the workload.
	toMgmt struct{}
	// toWorkload is the management side, after everything exists that the workload mounts and calls.
	toWorkload struct{}
	// toGuest is the guest, before istiod starts.
	toGuest struct{}
	// toAdmission is the guest, after istiod is available.
	toAdmission struct{}
	// toExternal is a Secret of the management side, from which another party writes the object to the guest.
	toExternal struct{}
	// drop means that hypergate does not apply the object, for this reason.
	drop struct{ reason string }
)

func (toMgmt) isDestination()      {}
func (toWorkload) isDestination()  {}
func (toGuest) isDestination()     {}
func (toAdmission) isDestination() {}
func (toExternal) isDestination()  {}
func (drop) isDestination()        {}

// route is one row of the routing table: the destination of the objects with this release, kind and name. The rows of
// applied objects contain the whole name, except the part that the chart derives from a namespace or a class.
type route struct {
	release release // empty: both releases
	kind    string  // Kind.group
	name    string  // <rev> stands for the revision, and * at the end for any suffix
	to      destination
}

// matches reports whether the row applies to a rendered object.
func (r route) matches(rel release, kind, name string, cfg model.Config) bool {
	pattern, anyRest := strings.CutSuffix(strings.ReplaceAll(r.name, "<rev>", cfg.Revision), "*")
	return (r.release == "" || r.release == rel) && r.kind == kind && (name == pattern || anyRest && strings.HasPrefix(name, pattern))
}

// Reasons for dropping an object. "render --side dropped" and the demo show them. Each reason explains why, and names
// the replacement if there is one.
const (
	whyNoMgmtRBAC     = "istiod has no permission on the management side; it talks to the guest's API only"
	whyMinimalRBAC    = "replaced by least-privilege rules: the chart's rules can write every Secret of the namespace"
	whyGuestCallsURL  = "the guest calls istiod by URL and needs no Service or EndpointSlice"
	whyWebhookInGuest = "webhooks are in the guest, from the istiod-remote release"
	whyNoInjection    = "the pod-mutating webhook requires --sidecar-injection"
	whyTagInjection   = "injection uses this revision's label only: the default revision's labels are for a mesh of the user's own"
	whyNoValidation   = "nothing to validate: --istio-resources is empty"
	whyValues         = "istiod does not read it, and it would show the whole configuration"
	whyClassDefaults  = "istiod reads gateway defaults from the guest; the istiod-remote release carries them"
	whyReplicas       = "the availability policy decides the number of replicas, not the load"
	whyPolicy         = "Istio's stable-channel policy is cluster-scoped and not part of a Gateway API installation"
	whyNetworkPolicy  = "network policies are hypergate's own, not the chart's"
	whyRemoteMesh     = "mesh configuration and injection templates are files of istiod's pod, from the management side"
	whyTagOnce        = "the default-revision marker is in the guest, from the istiod-remote release"
)

const rbacGroup, admissionGroup = ".rbac.authorization.k8s.io", ".admissionregistration.k8s.io"

// routes returns the routing table. The first row that matches an object applies.
func routes(cfg model.Config) []route {
	webhook := destination(toAdmission{})
	if cfg.ExternalWebhooks() {
		webhook = toExternal{}
	}
	injector, tagInjector := destination(drop{whyNoInjection}), drop{whyNoInjection}
	if cfg.SidecarInjection {
		injector, tagInjector = webhook, drop{whyTagInjection}
	}
	validator := webhook
	if len(cfg.IstioResources) == 0 {
		validator = drop{whyNoValidation}
	}
	return []route{
		{releaseIstiod, "Deployment.apps", "istiod-<rev>", toWorkload{}},
		{releaseIstiod, "Service", "istiod-<rev>", toMgmt{}},
		{releaseIstiod, "Service", "istiod-revision-tag-*", drop{whyTagOnce}},
		{releaseIstiod, "ConfigMap", "istio-<rev>", toMgmt{}},
		{releaseIstiod, "ConfigMap", "istio-sidecar-injector-<rev>", toMgmt{}},
		{releaseIstiod, "ConfigMap", "istio-<rev>-gatewayclass-*", drop{whyClassDefaults}},
		{releaseIstiod, "ConfigMap", "values*", drop{whyValues}},
		{releaseIstiod, "ServiceAccount", "istiod-<rev>", toMgmt{}},
		{releaseIstiod, "ClusterRole" + rbacGroup, "*", drop{whyNoMgmtRBAC}},
		{releaseIstiod, "ClusterRoleBinding" + rbacGroup, "*", drop{whyNoMgmtRBAC}},
		{releaseIstiod, "Role" + rbacGroup, "*", drop{whyNoMgmtRBAC}},
		{releaseIstiod, "RoleBinding" + rbacGroup, "*", drop{whyNoMgmtRBAC}},
		{releaseIstiod, "MutatingWebhookConfiguration" + admissionGroup, "*", drop{whyWebhookInGuest}},
		{releaseIstiod, "ValidatingWebhookConfiguration" + admissionGroup, "*", drop{whyWebhookInGuest}},
		{releaseIstiod, "HorizontalPodAutoscaler.autoscaling", "*", drop{whyReplicas}},
		{releaseIstiod, "PodDisruptionBudget.policy", "*", drop{whyReplicas}},

		{releaseRemote, "ServiceAccount", "istiod-<rev>", toGuest{}},
		{releaseRemote, "ConfigMap", "istio-<rev>-gatewayclass-*", toGuest{}},
		{releaseRemote, "ConfigMap", "istio-<rev>", drop{whyRemoteMesh}},
		{releaseRemote, "ConfigMap", "istio-sidecar-injector-<rev>", drop{whyRemoteMesh}},
		{releaseRemote, "ConfigMap", "values*", drop{whyValues}},
		{releaseRemote, "Service", "istiod-revision-tag-default", toGuest{}},
		{releaseRemote, "Service", "istiod*", drop{whyGuestCallsURL}},
		{releaseRemote, "EndpointSlice.discovery.k8s.io", "istiod*", drop{whyGuestCallsURL}},
		{releaseRemote, "ClusterRole" + rbacGroup, "*", drop{whyMinimalRBAC}},
		{releaseRemote, "ClusterRoleBinding" + rbacGroup, "*", drop{whyMinimalRBAC}},
		{releaseRemote, "Role" + rbacGroup, "*", drop{whyMinimalRBAC}},
		{releaseRemote, "RoleBinding" + rbacGroup, "*", drop{whyMinimalRBAC}},
		{releaseRemote, "MutatingWebhookConfiguration" + admissionGroup, "istio-sidecar-injector-<rev>*", injector},
		{releaseRemote, "MutatingWebhookConfiguration" + admissionGroup, "istio-revision-tag-*", tagInjector},
		{releaseRemote, "ValidatingWebhookConfiguration" + admissionGroup, "istio-validator-<rev>*", validator},

		{"", "ValidatingAdmissionPolicy" + admissionGroup, "stable-channel-*", drop{whyPolicy}},
		{"", "ValidatingAdmissionPolicyBinding" + admissionGroup, "stable-channel-*", drop{whyPolicy}},
		{"", "NetworkPolicy.networking.k8s.io", "istiod*", drop{whyNetworkPolicy}},
	}
}

// routeOf returns the destination of a rendered object. If no row matches the object, routeOf returns an error and does
// not guess.
func routeOf(table []route, rel release, cfg model.Config, u *unstructured.Unstructured) (destination, error) {
	kind := u.GroupVersionKind().GroupKind().String()
	for _, r := range table {
		if r.matches(rel, kind, u.GetName(), cfg) {
			return r.to, nil
		}
	}
	return nil, fmt.Errorf("the chart's release %s renders %s %q, which hypergate's routing table does not know: "+
		"the chart is newer than this hypergate, or it is not Istio's; "+
		"use a chart version that this hypergate was built for, or add a row to pkg/desired/routing.go",
		rel, kind, u.GetName())
}
