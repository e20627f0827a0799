package values

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Values are the chart values of a user. The zero value has none.
type Values struct {
	// Istiod has the values for istiod's release.
	Istiod map[string]any
	// Classes has the defaults of gateways by class, including AllClasses.
	Classes map[string]map[string]any
}

// largest is the maximum size of a file in bytes. A larger file is not a file of values.
const largest = 64 << 10

// reportAtMost is the maximum number of reported mistakes.
const reportAtMost = 20

// Parse parses a file of values. name is the name of the file for errors. The error lists the mistakes in the file,
// each with file, line and column. Parse returns no Values with an error.
func Parse(name string, data []byte) (Values, error) {
	if len(data) > largest {
		return Values{}, fmt.Errorf("%s: it has %d bytes, and %d are read at most", name, len(data), largest)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	var document, another yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return Values{}, nil
	} else if err != nil {
		return Values{}, fmt.Errorf("%s: it is not YAML: %w", name, err)
	}
	if err := decoder.Decode(&another); !errors.Is(err, io.EOF) {
		return Values{}, fmt.Errorf("%s: it has more than one document; put all values into one", name)
	}
	r := reader{file: name}
	read, _ := r.read(document.Content[0], table(), nil).(map[string]any)
	if len(r.errs) == 0 {
		r.checkReplicas(read)
		r.checkResources(read)
		r.checkProviders(read)
	}
	if err := r.err(); err != nil {
		return Values{}, err
	}
	out := Values{Istiod: read}
	if classes, given := read["gatewayClasses"].(map[string]any); given {
		delete(read, "gatewayClasses")
		out.Classes = map[string]map[string]any{}
		for class, defaults := range classes {
			out.Classes[class], _ = defaults.(map[string]any)
		}
	}
	return out, nil
}

// The default replicas of gateways.
const (
	UsualMinReplicas int64 = 2
	UsualMaxReplicas int64 = 10
)

// checkReplicas compares the minimum and the maximum replicas of each class. It includes the values for all classes
// and the defaults.
func (r *reader) checkReplicas(read map[string]any) {
	classes, _ := read["gatewayClasses"].(map[string]any)
	replicas := func(name string, usual int64) map[string]int64 {
		out := map[string]int64{"": usual}
		for class, tree := range classes {
			level, _ := tree.(map[string]any)
			for _, key := range []string{"horizontalPodAutoscaler", "spec"} {
				level, _ = level[key].(map[string]any)
			}
			if n, given := level[name].(int64); given {
				out[class] = n
			}
		}
		return out
	}
	fewest, largest := replicas("minReplicas", UsualMinReplicas), replicas("maxReplicas", UsualMaxReplicas)
	of := func(all map[string]int64, class string) int64 {
		for _, name := range []string{class, AllClasses} {
			if n, given := all[name]; given {
				return n
			}
		}
		return all[""]
	}
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		if low, high := of(fewest, class), of(largest, class); low > high {
			path := "gatewayClasses." + class + ".horizontalPodAutoscaler.spec"
			r.errs = append(
				r.errs,
				fmt.Errorf(
					"%s:%d: %s: minReplicas would be %d and maxReplicas %d (they are %d and %d unless given): give both",
					r.file, r.lines[class], path, low, high, UsualMinReplicas, UsualMaxReplicas,
				),
			)
		}
	}
}

// reader collects mistakes.
type reader struct {
	file string
	errs []error
	// lines maps each class to its line.
	lines map[string]int
}

func (r *reader) wrong(n *yaml.Node, path []string, format string, args ...any) any {
	at := strings.Join(path, ".")
	if at == "" {
		at = "the file"
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d:%d: %s %s", r.file, n.Line, n.Column, at, fmt.Sprintf(format, args...)))
	return nil
}

func (r *reader) err() error {
	if more := len(r.errs) - reportAtMost; more > 0 {
		r.errs = append(r.errs[:reportAtMost], fmt.Errorf("and %d more", more))
	}
	return errors.Join(r.errs...)
}

// read converts a node to the value for the charts.
func (r *reader) read(n *yaml.Node, want shape, path []string) any {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return r.wrong(n, path, "has an anchor or an alias: write it out")
	}
	switch want := want.(type) {
	case scalar:
		return r.single(n, want, path)
	case fields:
		return r.mapping(n, path, func(key string) (shape, string) {
			if of, known := want[key]; known {
				return of, ""
			}
			return nil, "is not a supported value; supported are " + strings.Join(slices.Sorted(maps.Keys(want)), ", ")
		})
	case checked:
		return r.check(n, want, path)
	case items:
		return r.list(n, want.of, path)
	case each:
		if len(path) == 1 {
			r.noteLines(n)
		}
		return r.mapping(n, path, func(key string) (shape, string) { return want.of, want.key(key) })
	}
	return r.wrong(n, path, "has an unknown shape")
}

// single converts a single value.
func (r *reader) single(n *yaml.Node, want scalar, path []string) any {
	if n.Kind != yaml.ScalarNode {
		return r.wrong(n, path, "should be a single value")
	}
	value, wrong := want(n)
	if wrong != "" {
		return r.wrong(n, path, "is %q, and %s", short(n.Value), wrong)
	}
	return value
}

// check converts a value and checks its rule. The rule is about values without other mistakes.
func (r *reader) check(n *yaml.Node, want checked, path []string) any {
	errs := len(r.errs)
	value := r.read(n, want.of, path)
	if wrong := want.wrong(value); len(r.errs) == errs && wrong != "" {
		return r.wrong(n, path, "%s", wrong)
	}
	return value
}

// mostItems is the maximum length of a list.
const mostItems = 50

// list converts each item of a list.
func (r *reader) list(n *yaml.Node, of shape, path []string) any {
	if n.Kind != yaml.SequenceNode {
		return r.wrong(n, path, "should be a list")
	}
	if len(n.Content) > mostItems {
		return r.wrong(n, path, "has %d items, and %d are read at most", len(n.Content), mostItems)
	}
	out := make([]any, 0, len(n.Content))
	for i, item := range n.Content {
		at := append(slices.Clip(path), strconv.Itoa(i))
		out = append(out, r.read(item, of, at))
	}
	return out
}

// noteLines remembers the line of each class.
func (r *reader) noteLines(n *yaml.Node) {
	r.lines = map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		r.lines[n.Content[i].Value] = n.Content[i].Line
	}
}

// mapping converts each value of a mapping with the shape for its key.
func (r *reader) mapping(n *yaml.Node, path []string, of func(key string) (shape, string)) any {
	if n.Kind != yaml.MappingNode {
		return r.wrong(n, path, "should have keys and values")
	}
	out := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := append(slices.Clip(path), short(key.Value))
		if _, twice := out[key.Value]; twice {
			r.wrong(key, at, "is given twice")
			continue
		}
		of, wrong := of(key.Value)
		if wrong != "" || key.Kind != yaml.ScalarNode {
			r.wrong(key, at, "%s", wrong)
			continue
		}
		out[key.Value] = r.read(value, of, at)
	}
	return out
}

// short returns a text for an error, truncated to 60 bytes.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "..."
	}
	return s
}
