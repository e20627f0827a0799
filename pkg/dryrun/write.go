package dryrun

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/text"
)

// Write is a write that was sent as a dry run.
type Write struct {
	// Side is management or guest.
	Side string `json:"side"`
	// Verb is create, update, delete, or none if the write would change nothing.
	Verb string `json:"verb"`
	// Resource is the resource with its group, such as deployments.apps, and its subresource after a slash.
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Fields are the fields that an update would change, sorted, at most 20. More is the number of others.
	Fields []string `json:"fields,omitempty"`
	More   int      `json:"more,omitempty"`
	// Refusal is why the API server would refuse the write. Status is its HTTP status then.
	Refusal string `json:"refusal,omitempty"`
	Status  int    `json:"status,omitempty"`
	// Later reports whether the API server cannot validate the write yet, because an earlier write creates its
	// namespace.
	Later bool `json:"later,omitempty"`
}

// The values of Write.Verb.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
	None   = "none"
)

// Limits for what a Write keeps of an API server's answers.
const (
	// mostFields is how many fields a Write names.
	mostFields = 20
	// longestText is the most that it keeps of the path of a field, of a name and of a refusal, in bytes.
	longestText = 1 << 10
)

// key identifies the object of a write.
func (w Write) key() string {
	return strings.Join([]string{w.Side, w.Resource, w.Namespace, w.Name}, " ")
}

// writeOf returns what a write would change. before is the object as it is, empty if there is none. status and after
// are the response of the dry run.
func writeOf(side, method string, t target, before map[string]any, status int, after map[string]any) Write {
	w := Write{Side: side, Resource: t.whole(), Namespace: t.namespace, Name: t.name}
	if w.Name == "" { // a creation
		metadata, _ := after["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		w.Name = text.Line(name, longestText)
	}
	w.Verb = Update
	switch {
	case method == http.MethodDelete:
		w.Verb = Delete
	case len(before) == 0:
		w.Verb = Create
	}
	if status >= http.StatusMultipleChoices {
		message, _ := after["message"].(string)
		w.Refusal, w.Status = cmp.Or(text.Line(message, longestText), http.StatusText(status)), status
		return w
	}
	if w.Verb == Update {
		found := changed(before, after, t.subresource)
		if w.Fields, w.More = found.first, found.more; len(w.Fields) == 0 {
			w.Verb = None
		}
	}
	return w
}

// differences are the paths of fields: the first ones in their order, and the number of others.
type differences struct {
	first []string
	more  int
}

func (d *differences) add(path string) {
	path = text.Line(path, longestText)
	at, _ := slices.BinarySearch(d.first, path)
	if d.first = slices.Insert(d.first, at, path); len(d.first) > mostFields {
		d.first = d.first[:mostFields]
		d.more++
	}
}

// changed returns the paths of the fields in which two objects differ. What an API server sets itself does not
// count, nor does the status unless it is what is written.
func changed(before, after map[string]any, subresource string) differences {
	before, after = maps.Clone(before), maps.Clone(after)
	for _, object := range []map[string]any{before, after} {
		if subresource != "status" {
			delete(object, "status")
		}
		metadata, _ := object["metadata"].(map[string]any)
		metadata = maps.Clone(metadata)
		for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"} {
			delete(metadata, field)
		}
		object["metadata"] = metadata
	}
	var out differences
	compare("", before, after, &out)
	return out
}

// compare adds the paths of the leaves in which two values differ. It visits each value once, however deep it is.
func compare(path string, before, after any, out *differences) {
	a, isMap := before.(map[string]any)
	b, bothMaps := after.(map[string]any)
	if isMap && bothMaps {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for key := range keys {
			compare(below(path, "."+key), a[key], b[key], out)
		}
		return
	}
	x, isList := before.([]any)
	y, bothLists := after.([]any)
	if isList && bothLists && len(x) == len(y) {
		for i := range x {
			compare(below(path, fmt.Sprintf("[%d]", i)), x[i], y[i], out)
		}
		return
	}
	if !reflect.DeepEqual(before, after) {
		out.add(path)
	}
}

// below returns the path of a field or element of the value at path, cut to what a Write keeps.
func below(path, step string) string {
	if len(path) >= longestText {
		return path
	}
	return text.Cut(strings.TrimPrefix(path+step, "."), longestText)
}
