package desired

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// maxReplicas is the largest number of istiod's pods. One of them leads, and the other takes over.
const maxReplicas = 2

// replicateElsewhere sets the number of pods without a HostedControlPlane, and how two of them are replaced: one after
// the other, and never fewer than two serve. A third pod always finds a node, because different nodes and zones are
// only preferred: nothing is known about the nodes. For a HostedControlPlane, see replicate.
func replicateElsewhere(
	u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation,
) error {
	if mgmt.ControlPlane.Exists() || istiodReplicas(cfg, mgmt, guest) == 1 {
		return nil
	}
	pods := cfg.IstiodPods()
	apart := map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{
		weighted(podTerm("kubernetes.io/hostname", pods)), weighted(podTerm("topology.kubernetes.io/zone", pods)),
	}}
	return errors.Join(
		unstructured.SetNestedField(u.Object, int64(maxReplicas), "spec", "replicas"),
		unstructured.SetNestedMap(u.Object, map[string]any{
			"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)},
		}, "spec", "strategy"),
		unstructured.SetNestedMap(u.Object, apart, "spec", "template", "spec", "affinity", "podAntiAffinity"),
	)
}

// addBudget adds the PodDisruptionBudget of two pods, so that the drains of two nodes at once leave one. A pod that is
// not ready can always be evicted: otherwise it would block the drain of its node. A single pod has no budget, which
// would block each drain.
func (p *draft) addBudget() error {
	if !p.cfg.MayHaveBudget() || p.mgmt.ControlPlane.Exists() || istiodReplicas(p.cfg, p.mgmt, p.guest) == 1 {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
		"spec": map[string]any{
			"maxUnavailable": int64(1), "unhealthyPodEvictionPolicy": "AlwaysAllow",
			"selector": map[string]any{"matchLabels": p.cfg.IstiodPods()},
		},
	}}
	u.SetNamespace(p.cfg.MgmtNamespace)
	u.SetName(p.cfg.IstiodName())
	return p.addMgmt(&p.plan.Mgmt, u)
}
