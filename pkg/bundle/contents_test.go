package bundle

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// nested returns a value in some levels of maps, or of lists.
func nested(value any, levels int, inList bool) map[string]any {
	for range levels - 1 {
		if inList {
			value = []any{value}
		} else {
			value = map[string]any{"a": value}
		}
	}
	return map[string]any{"metadata": value}
}

// TestSizeOf checks that the size of an object is known about before its YAML is made.
func TestSizeOf(t *testing.T) {
	t.Parallel()
	numbers := make([]any, 1000)
	pairs := map[string]any{}
	for i := range numbers {
		numbers[i] = int64(1)
		pairs[strings.Repeat("x", i%7+1)+string(rune('a'+i%26))] = map[string]any{"b": true}
	}
	words := strings.Repeat("x ", 2000)
	text := strings.Repeat("x\n", 1000)
	for name, test := range map[string]struct {
		object map[string]any
		want   error
	}{
		"an object":         {nested(map[string]any{"name": "a", "labels": map[string]any{}, "list": []any{}}, 1, false), nil},
		"numbers in maps":   {nested(numbers, 90, false), nil},
		"numbers in lists":  {nested(numbers, 90, true), nil},
		"pairs in maps":     {nested(pairs, 90, false), nil},
		"pairs in lists":    {nested(pairs, 90, true), nil},
		"a text in maps":    {nested(text, 90, false), nil},
		"a text in lists":   {nested(text, 90, true), nil},
		"words":             {nested(words, 3, false), nil},
		"words in maps":     {nested(words, 90, false), nil},
		"words in lists":    {nested(words, 90, true), nil},
		"quoted words":      {nested("# "+words, 90, false), nil},
		"a long word":       {nested("a b "+strings.Repeat("x", 100_000), 30, false), nil},
		"the deepest":       {nested("x", maxDepth, false), nil},
		"too deep":          {nested("x", maxDepth+1, false), errDeep},
		"much too deep":     {nested("x", 9000, false), errDeep},
		"too deep in lists": {nested("x", maxDepth+1, true), errDeep},
		"long":              {nested(strings.Repeat("x", longestObject-100), 1, false), nil},
		"too long":          {nested(strings.Repeat("x", longestObject+1), 1, false), errLong},
		"too long in YAML":  {nested(make([]any, 30_000), 99, false), errLong},
	} {
		size, err := sizeOf(test.object)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if test.want != nil {
			continue
		}
		content, err := yaml.Marshal(test.object)
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(len(content)); size > got*3/2 || size < got/3 {
			t.Errorf("%s: %d, and the YAML has %d", name, size, got)
		}
	}
}
