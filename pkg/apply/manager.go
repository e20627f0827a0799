package apply

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherManager is who wrote an object last, if that was after the manager did: the other's name and the first field that it wrote, outside of the
// metadata if there is one. Empty when nobody did. It is asked only of what is written again and again, so that the condition can name who does.
func otherManager(manager string, entries []metav1.ManagedFieldsEntry) string {
	var last metav1.ManagedFieldsEntry
	var since *metav1.Time
	for _, e := range entries {
		switch {
		case e.Subresource != "" || e.Time == nil || e.FieldsV1 == nil:
		case e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply:
			since = e.Time
		case last.Manager == "" || last.Time.Before(e.Time):
			last = e
		}
	}
	if last.Time.Before(since) || last.Manager == "" {
		return ""
	}
	name := last.Manager
	if field := fieldOf(last); field != "" {
		name += " (" + field + ")"
	}
	return cutManager(name)
}

func cutManager(name string) string {
	if len(name) <= maxManager {
		return name
	}
	return strings.Clone(strings.ToValidUTF8(name[:maxManager], "")) + "..." // a clone, so that the rest is let go
}

// maxManager is how many bytes are kept of a field manager and a field, of each object. The API server allows 128 for the manager, and a field
// may be a path of any length. The rest is cut.
const maxManager = 256

// fieldOf is the first field of an entry; empty when nobody understands it.
func fieldOf(entry metav1.ManagedFieldsEntry) string {
	var fields map[string]any
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return ""
	}
	return firstField(fields)
}

// firstField is the path of the first field in a set of fields (fieldsV1: f: before a field's name, other prefixes before a list's items).
func firstField(set map[string]any) string {
	names := slices.Sorted(maps.Keys(set))
	if i := slices.Index(names, "f:metadata"); i >= 0 {
		names = append(slices.Delete(names, i, i+1), "f:metadata")
	}
	for _, key := range names {
		name, field := strings.CutPrefix(key, "f:")
		if !field {
			continue
		}
		below, _ := set[key].(map[string]any)
		if rest := firstField(below); rest != "" {
			return name + "." + rest
		}
		return name
	}
	return ""
}
