package desired

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// transform changes one rendered object in place. Its name is part of error messages. apply gets a copy of the object.
type transform struct {
	name  string
	kind  string
	apply func(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error
}

// transformAll applies all transforms for the kind of the object.
func transformAll(
	list []transform, u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation,
) error {
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

// podSpec returns the pod specification in a workload's pod template.
func podSpec(u *unstructured.Unstructured) (map[string]any, error) {
	spec, _ := u.Object["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	pod, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the object has no pod template")
	}
	return pod, nil
}

// istiodContainer is the name that the chart gives istiod's container.
const istiodContainer = "discovery"

// istiodPod returns the pod specification and istiod's container in it.
func istiodPod(u *unstructured.Unstructured) (pod, container map[string]any, err error) {
	if pod, err = podSpec(u); err != nil {
		return nil, nil, err
	}
	container, err = named(pod, "containers", istiodContainer)
	return pod, container, err
}

// named returns the entry with this name in a list of objects.
func named(in map[string]any, list, name string) (map[string]any, error) {
	entries, _ := in[list].([]any)
	for _, e := range entries {
		if entry, ok := e.(map[string]any); ok && entry["name"] == name {
			return entry, nil
		}
	}
	return nil, fmt.Errorf("%s has no entry %q", list, name)
}

// removeNamed removes entries from a list by name. A missing entry is an error: it means that the chart changed and
// that this file must change, too.
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

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
