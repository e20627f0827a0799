package mgmt

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// configOnly removes everything from a pod template except the fields that say which configuration it has.
func configOnly(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		model.ConfigHashAnnotation: t.Annotations[model.ConfigHashAnnotation],
		model.IstiodModeAnnotation: t.Annotations[model.IstiodModeAnnotation],
	}}}
	for _, name := range []string{model.IgnoredCRDsAnnotation, model.IgnoredSinceAnnotation, ignoredPoolsAnnotation} {
		if value, is := t.Annotations[name]; is {
			out.Annotations[name] = value
		}
	}
	for _, v := range t.Spec.Volumes {
		if v.ConfigMap != nil {
			out.Spec.Volumes = append(out.Spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: v.VolumeSource})
		}
	}
	return out
}

// usedOnly removes everything from the annotations of a Deployment except the settings that it was planned with.
func usedOnly(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for _, name := range []string{model.InfrastructureAnnotation, model.TLSProfileAnnotation} {
		if value, is := annotations[name]; is {
			out[name] = value
		}
	}
	return out
}

// configOf returns the configuration that a pod template has.
func configOf(t corev1.PodTemplateSpec, cfg model.Config) model.IstiodConfig {
	var names []string
	for _, v := range t.Spec.Volumes {
		if v.ConfigMap != nil {
			names = append(names, v.ConfigMap.Name)
		}
	}
	return cfg.MountedConfig(names).WithHash(t.Annotations[model.ConfigHashAnnotation])
}

// modeOf returns the mode that a pod template has.
func modeOf(t corev1.PodTemplateSpec) model.IstiodMode {
	switch mode := model.IstiodMode(t.Annotations[model.IstiodModeAnnotation]); mode {
	case model.IstiodServing, model.IstiodLeading:
		return mode
	default:
		return model.IstiodAlone
	}
}

// ignoredPoolsAnnotation is what an earlier hypergate wrote in place of both annotations, if istiod ignored
// InferencePools. Its value is that of model.IgnoredSinceAnnotation, or another text.
const ignoredPoolsAnnotation = "gateway.hypergate.dev/inference-pools-ignored"

// ignoredOf returns the CRDs whose objects istiod ignores with a pod template, and since when, if that is known.
func ignoredOf(t corev1.PodTemplateSpec, cfg model.Config) (names []string, since time.Time) {
	ignored := strings.Split(t.Annotations[model.IgnoredCRDsAnnotation], ",")
	for _, kind := range cfg.ReadKinds() {
		if slices.Contains(ignored, kind.CRD()) {
			names = append(names, kind.CRD())
		}
	}
	at := t.Annotations[model.IgnoredSinceAnnotation]
	if before, is := t.Annotations[ignoredPoolsAnnotation]; is && len(names) == 0 {
		names, at = []string{model.InferencePoolCRD}, before
	}
	if len(names) > 0 {
		since, _ = time.Parse(time.RFC3339, at) // another value has no time
	}
	return names, since
}

// slotConfigMaps returns the ConfigMaps of both slots.
func (c *Cluster) slotConfigMaps() []apply.ID {
	names := c.cfg.SlotConfigMaps()
	out := make([]apply.ID, 0, len(names))
	for _, name := range names {
		out = append(out, apply.ID{
			GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Key: types.NamespacedName{Namespace: c.cfg.MgmtNamespace, Name: name},
		})
	}
	return out
}
