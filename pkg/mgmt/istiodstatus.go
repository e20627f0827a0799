package mgmt

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hypergate/hypergate/pkg/model"
)

// istiodStatus reports whether istiod is available, and since when. The time is the later of two times: when istiod
// became available, and when its last rollout ended.
func (c *Cluster) istiodStatus() model.ManagementObservation {
	obj, _ := c.istiod.Get(types.NamespacedName{Namespace: c.cfg.MgmtNamespace, Name: c.cfg.IstiodName()}.String())
	d, ok := obj.(*appsv1.Deployment)
	if !ok || d.DeletionTimestamp != nil {
		return model.ManagementObservation{Istiod: model.Absent}
	}
	out := model.ManagementObservation{
		Istiod: model.Unavailable, Rollout: rollout(d), IstiodConfig: configOf(d.Spec.Template, c.cfg), IstiodMode: modeOf(d.Spec.Template),
	}
	out.IstiodWanted = ptr.Deref(d.Spec.Replicas, 1)
	// A rollout has more pods than are wanted for a while.
	out.IstiodReady = min(d.Status.ReadyReplicas, out.IstiodWanted)
	out.Used = model.UsedSettingsIn(d.Annotations)
	out.IgnoredCRDs, out.IgnoredSince = ignoredOf(d.Spec.Template, c.cfg)
	// The observed generation does not matter here: during a rollout the old pod serves.
	if d.Status.ReadyReplicas == 0 {
		return out
	}
	since := time.Time{}
	for _, condition := range d.Status.Conditions {
		switch {
		case condition.Type == appsv1.DeploymentAvailable && condition.Status == corev1.ConditionTrue:
			out.Istiod, since = model.Available, later(since, condition.LastTransitionTime.Time)
		case condition.Type == appsv1.DeploymentProgressing && condition.Reason == newReplicaSetAvailable:
			since = later(since, condition.LastUpdateTime.Time)
		}
	}
	out.IstiodSince = since
	return out
}

// rollout returns the progress of istiod's latest rollout. The Deployment controller gives up on a rollout after
// progressDeadlineSeconds (ten minutes). It reports immediately that pods cannot be created.
func rollout(d *appsv1.Deployment) model.Rollout {
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse ||
			condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return model.Stuck
		}
	}
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas ||
		d.Status.ReadyReplicas < d.Status.Replicas {
		return model.Rolling
	}
	return model.RolledOut
}

// newReplicaSetAvailable is the reason of a completed rollout (kubernetes pkg/controller/deployment/util).
const newReplicaSetAvailable = "NewReplicaSetAvailable"

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
