package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// caRootHash is an annotation of the pod template that changes with the roots of the mesh CA. It makes the Deployment
// replace istiod's pods, because istiod does not load new roots while it runs. It does load another issuing CA with the
// same roots.
const caRootHash = "gateway.hypergate.dev/ca-root-hash"

// guestAPIHash is an annotation of the pod template that changes with the URL or the CA of the guest's API server. It
// makes the Deployment replace istiod's pods, because client-go reads a token file again, but not the server and its
// CA.
const guestAPIHash = "gateway.hypergate.dev/guest-api-hash"

// mgmtTransforms returns the changes that no chart value can make, for objects of the management side.
func mgmtTransforms() []transform {
	return append([]transform{
		{"the service account is in the pod's namespace and has no token", "ServiceAccount", powerlessAccount},
		{"the Service for xDS does not lead to the webhook", "Service", withoutWebhook},
		{"the pod has no credential of the management cluster", "Deployment", withoutMgmtCredentials},
		{"the pod follows the conventions for pods of a control plane", "Deployment", controlPlanePod},
		{"the pod does not start without the CA and the guest kubeconfig", "Deployment", requireVolumes},
		{"a new CA root rolls istiod", "Deployment", hashCARoot},
		{"a change of the guest's API server rolls istiod", "Deployment", hashGuestAPI},
		{"a pod that stops still serves for a few seconds", "Deployment", sleepBeforeStop},
		{"a single istiod runs without leader election, and never beside another", "Deployment", singleReplica},
		{"an istiod beside another one leaves Gateways to it", "Deployment", besideAnother},
		{"istiod ignores kinds that it cannot read", "Deployment", ignoreCRDs},
		{"two istiods without a HostedControlPlane are spread, and roll one after the other", "Deployment", replicateElsewhere},
		{"the settings of the guest that are in use are recorded", "Deployment", recordSettings},
		{"no environment variable is set twice", "Deployment", refuseDuplicateEnv},
		{"the tunnel's sidecar is beside istiod", "Deployment", addSidecar},
	}, controlPlaneTransforms()...)
}

// guestTransforms returns the changes that no chart value can make, for objects of the guest.
func guestTransforms() []transform {
	return []transform{
		{"the marker of the default revision has hypergate's name", "Service", ownMarker},
		{"the marker of the default revision selects no pods", "Service", withoutEndpoints},
		{"the service account has hypergate's name", "ServiceAccount", ownAccount},
		{"pods in the guest do not mount istiod's token", "ServiceAccount", tokenlessAccount},
		{"the defaults of a class have hypergate's name", "ConfigMap", ownClassDefaults},
		{"the webhook has hypergate's name", "ValidatingWebhookConfiguration", ownValidator},
		{"the webhook checks only what istiod serves", "ValidatingWebhookConfiguration", narrowValidation},
		{"the webhook fails closed only after it was verified", "ValidatingWebhookConfiguration", failurePolicy},
	}
}

// pullSecret is the Secret with which the pods of a hosted control plane pull their images. HyperShift sets it on each
// service account.
const pullSecret = "pull-secret"

// powerlessAccount moves the service account from Istio's namespace, where the chart puts it, to the pod's namespace.
// It also disables the mounting of its token.
func powerlessAccount(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.SetNamespace(cfg.MgmtNamespace)
	u.Object["automountServiceAccountToken"] = false
	if cfg.Topology == model.TopologyHosted {
		u.Object["imagePullSecrets"] = []any{map[string]any{"name": pullSecret}}
	}
	return nil
}

// ownAccount gives istiod's service account in the guest a name of hypergate's own.
func ownAccount(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.SetName(cfg.GuestIstiodName())
	return nil
}

// ownClassDefaults gives the defaults of a class a name of hypergate's own. istiod finds them by their label
// (pilot/pkg/config/kube/gateway/deploymentcontroller.go). If two objects have the same label, it uses the older one.
// It also marks them with the settings of the guest that they have, and with the time of their last change. The mark is
// evidence of what the gateways got.
func ownClassDefaults(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, guest model.GuestObservation) error {
	class, found := strings.CutPrefix(u.GetName(), "istio-"+cfg.Revision+"-gatewayclass-")
	if !found {
		return fmt.Errorf("the name does not end with the name of a class")
	}
	u.SetName(cfg.ClassDefaultsName(class))
	if marks := settingsMarks(guest); len(marks) > 0 {
		maps.Copy(marks, u.GetAnnotations())
		u.SetAnnotations(marks)
	}
	return nil
}

// ownValidator gives the webhook configuration a name of hypergate's own, and removes the label of the revision. Each
// istiod of that revision writes its own CA into a webhook configuration with the label, leader or not
// (pilot/pkg/bootstrap/validation.go, pkg/webhooks/validation/controller/controller.go). hypergate's istiod does not
// (VALIDATION_WEBHOOK_CONFIG_NAME is empty). The webhooks select objects by the same label on the objects.
func ownValidator(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	labels := u.GetLabels()
	delete(labels, "istio.io/rev")
	u.SetLabels(labels)
	u.SetName(cfg.ValidatorName())
	return nil
}

// ownMarker gives the marker of the default revision a name of hypergate's own. A release of Istio's chart in the same
// namespace can have a marker with the chart's name, and helm uninstall deletes it by this name.
func ownMarker(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.SetName(model.DefaultRevisionMarker)
	return nil
}

// tokenlessAccount disables the mounting of the service account's token in the guest.
func tokenlessAccount(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.Object["automountServiceAccountToken"] = false
	return nil
}

// withoutMgmtCredentials removes the automounted and the projected token of the management cluster. It also removes the
// two volumes through which a Secret or ConfigMap that an attacker creates in the namespace would replace istiod's
// serving certificate.
//
// It removes the variable KUBECONFIG, because istiod has the argument --kubeconfig. If the file is missing, the
// argument causes an error; the variable would make istiod fall back to the management cluster.
func withoutMgmtCredentials(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	removed := []string{"istio-token", "istio-csr-dns-cert", "istio-csr-ca-configmap"}
	pod, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	pod["automountServiceAccountToken"] = false
	pod["enableServiceLinks"] = false
	if err := removeNamed(pod, "volumes", removed); err != nil {
		return err
	}
	if err := removeNamed(container, "volumeMounts", removed); err != nil {
		return err
	}
	if err := removeNamed(container, "env", []string{"KUBECONFIG"}); err != nil {
		return err
	}
	return refuseTokens(pod)
}

// controlPlanePod sets what HyperShift's end-to-end tests and OpenShift's conventions require of each pod of a control
// plane:
//
//   - The pod's status contains the reason of its end, and its image is not pulled again with each start
//     (openshift/hypershift, test/e2e/util: EnsureAllContainersHaveTerminationMessagePolicyFallbackToLogsOnError,
//     EnsureAllContainersHavePullPolicyIfNotPresent).
//   - Less important pods do not take its place. The priority class is HyperShift's own. In a standalone cluster it is
//     the class that OpenShift's cluster-ingress-operator gives istiod.
func controlPlanePod(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	pod, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	container["terminationMessagePolicy"] = "FallbackToLogsOnError"
	container["imagePullPolicy"] = "IfNotPresent"
	pod["priorityClassName"] = "system-cluster-critical"
	if cfg.Topology == model.TopologyHosted {
		pod["priorityClassName"] = "hypershift-control-plane"
	}
	return nil
}

// refuseTokens returns an error if the pod has another volume with a token of the management cluster, which
// withoutMgmtCredentials does not know by name.
func refuseTokens(pod map[string]any) error {
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		projected, _ := volume["projected"].(map[string]any)
		sources, _ := projected["sources"].([]any)
		for _, s := range sources {
			if source, _ := s.(map[string]any); source["serviceAccountToken"] != nil {
				return fmt.Errorf("volume %v contains a token of the management cluster", volume["name"])
			}
		}
	}
	return nil
}

// requireVolumes makes the volumes of the CA and of the guest kubeconfig required. Without either of them istiod would
// not fail: it would do something else.
func requireVolumes(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	pod, err := podSpec(u)
	if err != nil {
		return err
	}
	for _, name := range []string{model.CASecretName, model.CredentialSecretName} {
		volume, err := named(pod, "volumes", name)
		if err != nil {
			return err
		}
		secret, ok := volume["secret"].(map[string]any)
		if !ok {
			return fmt.Errorf("volume %s is not a Secret", name)
		}
		secret["optional"] = false
		if name == model.CASecretName {
			secret["items"] = caFiles()
		}
	}
	return nil
}

// caFiles returns the files of the CA that issues certificates now. It omits the files of the CA that issues next.
func caFiles() []any {
	out := make([]any, 0, 4)
	for _, name := range []string{model.CACertFile, model.CAKeyFile, model.CAChainFile, model.CARootFile} {
		out = append(out, map[string]any{"key": name, "path": name})
	}
	return out
}

// hashCARoot sets the annotation caRootHash.
func hashCARoot(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	sum := sha256.Sum256(mgmt.CA.Root)
	return unstructured.SetNestedField(u.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata", "annotations", caRootHash)
}

// hashGuestAPI sets the annotation guestAPIHash. It hashes the certificates and not their text, because another order
// or another line length does not change the meaning.
func hashGuestAPI(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, guest model.GuestObservation) error {
	sum := sha256.Sum256(append([]byte(guest.API.Server+"\n"), pki.CanonicalCAs(guest.API.CABundle)...))
	return unstructured.SetNestedField(u.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata", "annotations", guestAPIHash)
}

// stopDelay is the time, in seconds, that istiod's pod continues to serve after its deletion begins. In this time every
// node learns not to send connections to it. Otherwise a new connection would hang. (The lifecycle hook sleep is part
// of Kubernetes since 1.30.)
const stopDelay = 3

// sleepBeforeStop delays the end of a pod by stopDelay.
func sleepBeforeStop(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error {
	if istiodReplicas(cfg, mgmt, guest) == 1 {
		return nil // there is no other pod that could serve, and the next pod waits for the end of this one
	}
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	return unstructured.SetNestedField(container, int64(stopDelay), "lifecycle", "preStop", "sleep", "seconds")
}

// refuseDuplicateEnv returns an error if an environment variable is set twice. Server-side apply would refuse such a
// pod template with a message about list keys.
func refuseDuplicateEnv(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	env, _ := container["env"].([]any)
	for _, e := range env {
		entry, _ := e.(map[string]any)
		name, isString := entry["name"].(string)
		switch {
		case !isString:
			return fmt.Errorf("an environment variable has the name %v, which is not a string", entry["name"])
		case seen[name]:
			return fmt.Errorf("environment variable %s is set twice", name)
		}
		seen[name] = true
	}
	return nil
}

// withoutEndpoints reduces the tag Service to its labels, which are all that istiod reads. The Service then has no
// cluster IP and selects no pods of the guest.
func withoutEndpoints(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.Object["spec"] = map[string]any{
		"clusterIP": "None",
		"ports":     []any{map[string]any{"name": "unused", "port": int64(15012), "protocol": "TCP"}},
	}
	return nil
}

// narrowValidation replaces the chart's rule, which matches all resources in all of Istio's groups, by rules for the
// resources that this istiod serves.
func narrowValidation(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	byGroup := map[string][]string{}
	for _, r := range cfg.SortedIstioResources() {
		byGroup[r.Group] = append(byGroup[r.Group], r.Resource)
	}
	rules := make([]any, 0, len(byGroup))
	for _, group := range sortedKeys(byGroup) {
		rules = append(rules, map[string]any{
			"apiGroups": []any{group}, "apiVersions": []any{"*"}, "resources": allOf(byGroup[group]),
			"operations": []any{"CREATE", "UPDATE"},
		})
	}
	return eachWebhook(u, func(webhook map[string]any) { webhook["rules"] = rules })
}

// failurePolicy sets the failure policy of the webhooks. It is Ignore until the webhook probe has observed a rejection
// through the guest's API server. Otherwise a webhook that does not answer would block every write of the resources
// that it covers.
func failurePolicy(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error {
	policy := "Ignore"
	if guest.WebhookProbe == model.WebhookVerified && mgmt.Istiod == model.Available {
		policy = "Fail"
	}
	return eachWebhook(u, func(webhook map[string]any) { webhook["failurePolicy"] = policy })
}

// eachWebhook calls do for each webhook of a webhook configuration.
func eachWebhook(u *unstructured.Unstructured, do func(map[string]any)) error {
	webhooks, _ := u.Object["webhooks"].([]any)
	if len(webhooks) == 0 {
		return fmt.Errorf("the object has no webhooks")
	}
	for _, w := range webhooks {
		webhook, ok := w.(map[string]any)
		if !ok {
			return fmt.Errorf("a webhook is not an object")
		}
		do(webhook)
	}
	return nil
}
