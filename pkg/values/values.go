package values

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Values are what a user adds to the charts' values. The zero value is nothing.
type Values struct {
	// Istiod is for istiod's release.
	Istiod map[string]any
	// Classes are the defaults of gateways, by their class, AllClasses among them.
	Classes map[string]map[string]any
}

// largest is the size of a file that is read: whoever says more says something else.
const largest = 64 << 10

// tellAtMost is how many mistakes are told.
const tellAtMost = 20

// Parse reads a file of values; name is the file's, for errors. An error is all that is wrong with it, each with file, line and column, and then there
// are no Values.
func Parse(name string, data []byte) (Values, error) {
	if len(data) > largest {
		return Values{}, fmt.Errorf("%s: it has %d bytes, and %d are read at most", name, len(data), largest)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	var document, another yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return Values{}, nil
	} else if err != nil {
		return Values{}, fmt.Errorf("%s: it is no YAML: %w", name, err)
	}
	if err := decoder.Decode(&another); !errors.Is(err, io.EOF) {
		return Values{}, fmt.Errorf("%s: it has more than one document; put all values into one", name)
	}
	r := reader{file: name}
	read, _ := r.read(document.Content[0], table(), nil).(map[string]any)
	if len(r.errs) == 0 {
		r.checkReplicas(read)
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

// The replicas of gateways where a user says nothing.
const (
	UsualMinReplicas int64 = 2
	UsualMaxReplicas int64 = 10
)

// checkReplicas holds the fewest and the most replicas of each class against each other, with what is said for all classes, and what nobody says.
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
			r.errs = append(r.errs, fmt.Errorf("%s:%d: %s: minReplicas would be %d and maxReplicas %d (they are %d and %d unless given): give both", r.file, r.lines[class], path, low, high, UsualMinReplicas, UsualMaxReplicas))
		}
	}
}

// reader collects mistakes.
type reader struct {
	file string
	errs []error
	// lines are where classes are.
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
	if more := len(r.errs) - tellAtMost; more > 0 {
		r.errs = append(r.errs[:tellAtMost], fmt.Errorf("and %d more", more))
	}
	return errors.Join(r.errs...)
}

// read is a node as the charts get it.
func (r *reader) read(n *yaml.Node, want shape, path []string) any {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return r.wrong(n, path, "has an anchor or an alias: write it out")
	}
	switch want := want.(type) {
	case scalar:
		if n.Kind != yaml.ScalarNode {
			return r.wrong(n, path, "should be a single value")
		}
		value, wrong := want(n)
		if wrong != "" {
			return r.wrong(n, path, "is %q, and %s", short(n.Value), wrong)
		}
		return value
	case fields:
		return r.mapping(n, path, func(key string) (shape, string) {
			if of, known := want[key]; known {
				return of, ""
			}
			return nil, "is no value that may be given; there are " + strings.Join(slices.Sorted(maps.Keys(want)), ", ")
		})
	case each:
		r.lines = map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			r.lines[n.Content[i].Value] = n.Content[i].Line
		}
		return r.mapping(n, path, func(key string) (shape, string) { return want.of, want.key(key) })
	}
	return r.wrong(n, path, "is of a shape that nobody knows")
}

// mapping reads each value of a mapping by its key's shape.
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

// short is a text as an error shows it.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "..."
	}
	return s
}
