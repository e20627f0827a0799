package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// caRootHash makes a change of the roots roll istiod, which does not take up a new root while it runs. Another issuing CA under the same roots
// it does take up.
const caRootHash = "gateway.hypergate.dev/ca-root-hash"

// guestAPIHash makes a change of how istiod reaches the guest's API server roll istiod: client-go reads a token file again, but neither the
// server nor its CA.
const guestAPIHash = "gateway.hypergate.dev/guest-api-hash"

// transform changes one rendered object in place. It gets a copy that is its own.
type transform struct {
	name  string
	kind  string
	apply func(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error
}

// mgmtTransforms say what the chart has no value for, on the management side.
func mgmtTransforms() []transform {
	return append([]transform{
		{"the service account lives where the pod does and has no token", "ServiceAccount", powerlessAccount},
		{"the Service for xDS leads to nothing else", "Service", withoutWebhook},
		{"the pod holds no management credential", "Deployment", withoutMgmtCredentials},
		{"the pod is one of a control plane's", "Deployment", controlPlanePod},
		{"the pod does not start without what it needs", "Deployment", requireVolumes},
		{"a new CA root rolls istiod", "Deployment", hashCARoot},
		{"another way to the guest's API server rolls istiod", "Deployment", hashGuestAPI},
		{"nobody is sent to a pod that is gone", "Deployment", lingerBeforeEnd},
		{"one istiod alone elects nobody, and is never two", "Deployment", singleReplica},
		{"no environment variable is given twice", "Deployment", refuseDuplicateEnv},
	}, controlPlaneTransforms()...)
}

// guestTransforms say what the chart has no value for, in the guest.
func guestTransforms() []transform {
	return []transform{
		{"the marker of the default revision selects nothing", "Service", withoutEndpoints},
		{"no pod in the guest runs as istiod", "ServiceAccount", tokenlessAccount},
		{"the webhook checks only what istiod serves", "ValidatingWebhookConfiguration", narrowValidation},
		{"the webhook fails closed only once it was seen to work", "ValidatingWebhookConfiguration", failurePolicy},
	}
}

func transformAll(list []transform, u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error {
	for _, t := range list {
		if t.kind != u.GetKind() {
			continue
		}
		if err := t.apply(u, cfg, mgmt, guest); err != nil {
			return fmt.Errorf("post-rendering %s %s (%s): %w", u.GetKind(), u.GetName(), t.name, err)
		}
	}
	return nil
}

// pullSecret is the Secret with which the pods of a hosted control plane pull their images; HyperShift gives it to each service account.
const pullSecret = "pull-secret"

// powerlessAccount moves the account from Istio's namespace, where the chart puts it, to the pod's.
func powerlessAccount(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.SetNamespace(cfg.MgmtNamespace)
	u.Object["automountServiceAccountToken"] = false
	if cfg.Topology == model.TopologyHosted {
		u.Object["imagePullSecrets"] = []any{map[string]any{"name": pullSecret}}
	}
	return nil
}

func tokenlessAccount(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.Object["automountServiceAccountToken"] = false
	return nil
}

// withoutMgmtCredentials takes away the automounted and the projected token of the management cluster, and the two volumes by which a Secret
// or ConfigMap planted in the namespace would replace istiod's serving certificate. KUBECONFIG goes because the argument --kubeconfig is
// given: that one is an error when the file is missing, where the variable falls back to the management cluster.
func withoutMgmtCredentials(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	gone := []string{"istio-token", "istio-csr-dns-cert", "istio-csr-ca-configmap"}
	pod, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	pod["automountServiceAccountToken"] = false
	pod["enableServiceLinks"] = false
	if err := removeNamed(pod, "volumes", gone); err != nil {
		return err
	}
	if err := removeNamed(container, "volumeMounts", gone); err != nil {
		return err
	}
	if err := removeNamed(container, "env", []string{"KUBECONFIG"}); err != nil {
		return err
	}
	return refuseTokens(pod)
}

// controlPlanePod gives the pod what HyperShift's end-to-end tests and OpenShift's conventions ask of each pod of a control plane: why it ended is
// in its status, its image is not pulled anew with each start, and nothing of less importance takes its place (openshift/hypershift, test/e2e/util:
// EnsureAllContainersHaveTerminationMessagePolicyFallbackToLogsOnError, EnsureAllContainersHavePullPolicyIfNotPresent; the priority class is
// HyperShift's own, and standalone the one that OpenShift's cluster-ingress-operator gives istiod).
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

// refuseTokens looks for what the list above does not know by name: another volume with a token of the management cluster.
func refuseTokens(pod map[string]any) error {
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		projected, _ := volume["projected"].(map[string]any)
		sources, _ := projected["sources"].([]any)
		for _, s := range sources {
			if source, _ := s.(map[string]any); source["serviceAccountToken"] != nil {
				return fmt.Errorf("volume %v has a token of the management cluster", volume["name"])
			}
		}
	}
	return nil
}

// requireVolumes makes the CA and the guest kubeconfig required: with either missing, istiod would not fail but do something else.
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

// caFiles are the files of the CA that issues, and not those of the one that will.
func caFiles() []any {
	out := make([]any, 0, 4)
	for _, name := range []string{model.CACertFile, model.CAKeyFile, model.CAChainFile, model.CARootFile} {
		out = append(out, map[string]any{"key": name, "path": name})
	}
	return out
}

func hashCARoot(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	sum := sha256.Sum256(mgmt.CA.Root)
	return unstructured.SetNestedField(u.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata", "annotations", caRootHash)
}

// hashGuestAPI hashes the certificates and not their text: the same ones in another order, or wrapped in another way, mean the same.
func hashGuestAPI(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, guest model.GuestObservation) error {
	sum := sha256.Sum256(append([]byte(guest.API.Server+"\n"), pki.CanonicalCAs(guest.API.CABundle)...))
	return unstructured.SetNestedField(u.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata", "annotations", guestAPIHash)
}

// linger is how long, in seconds, istiod's pod goes on when it is told to end: until every node has heard that it is to be asked no more. A
// connection that is on its way to it would otherwise hang (the lifecycle hook sleep is part of Kubernetes since 1.30).
const linger = 3

func lingerBeforeEnd(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	if istiodReplicas(mgmt) == 1 {
		return nil // there is nobody else to be sent to, and the next one waits for its end
	}
	_, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	return unstructured.SetNestedField(container, int64(linger), "lifecycle", "preStop", "sleep", "seconds")
}

// refuseDuplicateEnv keeps a pod template from the server that server-side apply would refuse with a message about list keys.
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
			return fmt.Errorf("an environment variable has the name %v, which is no string", entry["name"])
		case seen[name]:
			return fmt.Errorf("environment variable %s is given twice", name)
		}
		seen[name] = true
	}
	return nil
}

// withoutEndpoints leaves of the tag Service only what istiod looks at, its labels: no address is taken and no pod of the guest is selected.
func withoutEndpoints(u *unstructured.Unstructured, _ model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	u.Object["spec"] = map[string]any{
		"clusterIP": "None",
		"ports":     []any{map[string]any{"name": "unused", "port": int64(15012), "protocol": "TCP"}},
	}
	return nil
}

// narrowValidation replaces the chart's rule, all resources of all of Istio's groups, by the resources that this istiod serves.
func narrowValidation(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	byGroup := map[string][]string{}
	for _, r := range cfg.SortedIstioResources() {
		byGroup[r.Group] = append(byGroup[r.Group], r.Resource)
	}
	rules := make([]any, 0, len(byGroup))
	for _, group := range sortedKeys(byGroup) {
		rules = append(rules, map[string]any{
			"apiGroups": []any{group}, "apiVersions": []any{"*"}, "resources": allOf(byGroup[group]), "operations": []any{"CREATE", "UPDATE"},
		})
	}
	return eachWebhook(u, func(webhook map[string]any) { webhook["rules"] = rules })
}

// failurePolicy is Ignore until a rejection was seen to come through the guest's API server: a webhook that nobody answers would otherwise
// stop every write to what it covers.
func failurePolicy(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error {
	policy := "Ignore"
	if guest.WebhookProbe == model.WebhookVerified && mgmt.Istiod == model.Available {
		policy = "Fail"
	}
	return eachWebhook(u, func(webhook map[string]any) { webhook["failurePolicy"] = policy })
}

func eachWebhook(u *unstructured.Unstructured, do func(map[string]any)) error {
	webhooks, _ := u.Object["webhooks"].([]any)
	if len(webhooks) == 0 {
		return fmt.Errorf("it has no webhooks")
	}
	for _, w := range webhooks {
		webhook, ok := w.(map[string]any)
		if !ok {
			return fmt.Errorf("a webhook is no object")
		}
		do(webhook)
	}
	return nil
}

func podSpec(u *unstructured.Unstructured) (map[string]any, error) {
	spec, _ := u.Object["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	pod, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no pod template")
	}
	return pod, nil
}

// istiodPod is the pod's specification and istiod's container in it; the chart calls it discovery.
func istiodPod(u *unstructured.Unstructured) (pod, container map[string]any, err error) {
	if pod, err = podSpec(u); err != nil {
		return nil, nil, err
	}
	container, err = named(pod, "containers", "discovery")
	return pod, container, err
}

// named finds the entry of a list of objects that has a name.
func named(in map[string]any, list, name string) (map[string]any, error) {
	entries, _ := in[list].([]any)
	for _, e := range entries {
		if entry, ok := e.(map[string]any); ok && entry["name"] == name {
			return entry, nil
		}
	}
	return nil, fmt.Errorf("%s has no entry %q", list, name)
}

// removeNamed takes entries out of a list by name. Each must be there: that one is not means that the chart changed and that the reader of
// this file must look again.
func removeNamed(in map[string]any, list string, names []string) error {
	for _, name := range names {
		if _, err := named(in, list, name); err != nil {
			return err
		}
	}
	entries, _ := in[list].([]any)
	in[list] = slices.DeleteFunc(slices.Clone(entries), func(e any) bool {
		entry, _ := e.(map[string]any)
		name, _ := entry["name"].(string)
		return slices.Contains(names, name)
	})
	return nil
}
