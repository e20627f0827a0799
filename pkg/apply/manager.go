package apply

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherManager returns who wrote an object last, if that was after manager wrote it: the name of the other manager
// and the first field that it wrote. A field outside of the metadata comes first if there is one. It returns "" if no
// other manager wrote the object later.
//
// The result is used only for objects that are written repeatedly, so that the condition can name the other manager.
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
	return strings.Clone(strings.ToValidUTF8(name[:maxManager], "")) + "..." // the clone frees the rest
}

// maxManager is the maximum number of bytes kept for a field manager and a field, for each object. The API server
// allows 128 bytes for the manager, and a field can be a path of any length. The rest is cut.
const maxManager = 256

// fieldOf returns the first field of an entry, or "" if the entry cannot be parsed.
func fieldOf(entry metav1.ManagedFieldsEntry) string {
	var fields map[string]any
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return ""
	}
	return firstField(fields)
}

// firstField returns the path of the first field in a set of fields in fieldsV1 format. A field name has the prefix
// f:, and items of a list have other prefixes.
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
