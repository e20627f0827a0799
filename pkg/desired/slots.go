package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// configOf returns the configuration of a rendered release of istiod, and its slots. has is the configuration of
// istiod's Deployment. What is another content goes to another slot, so that the istiod that runs does not read it.
func configOf(cfg model.Config, has model.IstiodConfig, rendered []routed) (model.IstiodConfig, error) {
	content := map[string]any{}
	for _, o := range rendered {
		if _, onMgmt := o.to.(toMgmt); onMgmt && o.u.GetKind() == "ConfigMap" {
			content[o.u.GetName()] = o.u.Object["data"]
		}
		if _, workload := o.to.(toWorkload); workload {
			// A Deployment without istiod's container is refused later, by the transforms.
			if _, container, err := istiodPod(o.u); err == nil {
				content[imageKey] = container["image"]
			}
		}
	}
	hashes := map[string]string{}
	for name, value := range content {
		text, err := json.Marshal(value)
		if err != nil {
			return model.IstiodConfig{}, fmt.Errorf("comparing istiod's configuration: %w", err)
		}
		sum := sha256.Sum256(text)
		hashes[name] = hex.EncodeToString(sum[:8])
	}
	return model.IstiodConfig{
		Mesh: has.Mesh.In(hashes[cfg.ChartMeshConfigMap()]), Templates: has.Templates.In(hashes[cfg.ChartInjectorConfigMap()]),
		Image: hashes[imageKey],
	}, nil
}

// imageKey is a key that is not the name of a ConfigMap.
const imageKey = "/image"

// useSlot gives the ConfigMaps of istiod the names of their planned slots, makes the Deployment mount them, and sets
// the annotation model.ConfigHashAnnotation of its pods. It changes no other object.
func (p *draft) useSlot(u *unstructured.Unstructured) error {
	config := p.plan.IstiodConfig
	switch u.GetKind() {
	case "ConfigMap":
		if name, slotted := p.cfg.InSlot(u.GetName(), config); slotted {
			u.SetName(name)
		}
		return nil
	case "Deployment":
	default:
		return nil
	}
	pod, _, err := istiodPod(u)
	if err != nil {
		return fmt.Errorf("mounting istiod's configuration: %w", err)
	}
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		source, _ := volume["configMap"].(map[string]any)
		name, _ := source["name"].(string)
		if slotted, is := p.cfg.InSlot(name, config); is {
			source["name"] = slotted
		}
	}
	err = unstructured.SetNestedField(u.Object, config.Hash(), "spec", "template", "metadata", "annotations", model.ConfigHashAnnotation)
	if err != nil {
		return fmt.Errorf("setting the annotation %s: %w", model.ConfigHashAnnotation, err)
	}
	return nil
}
