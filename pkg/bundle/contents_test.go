package bundle

import (
	"errors"
	"math/rand/v2"
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

// TestSizeOfAnyText checks that no text makes the YAML of an object more than three times as long as its size, also
// with the line breaks of YAML (U+0085, U+2028, U+2029), escapes and quotes. An object with certain keys
// has no YAML at all.
func TestSizeOfAnyText(t *testing.T) {
	t.Parallel()
	letters := []string{
		"a", "xyz", " ", "  ", "\n", "\r", "\t", "\x01", "\x00", "\u0085", "\u00a0", "é", "\u2028", "\u2029", "\ufeff", "\ufffd",
		"😀", "'", "\"", "\\", "#", ": ", "- ", "~", "1", "<",
	}
	check := func(value any, what string) {
		size, err := sizeOf(value.(map[string]any))
		if err != nil {
			t.Fatalf("%q: %v", what, err)
		}
		content, err := yaml.Marshal(value)
		if err == nil && int64(len(content)) > 3*size {
			t.Errorf("%q: %d, and the YAML has %d", what, size, len(content))
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same texts in each run
	for i := range 400 {
		unit := letters[i%len(letters)]
		for range random.IntN(4) {
			unit += letters[random.IntN(len(letters))]
		}
		begin := []string{"", "x", "\ufeff", "# ", "\n", " "}[random.IntN(6)]
		levels := []int{1, 20, 36, 38, 90}[random.IntN(5)]
		text := begin + strings.Repeat(unit, 100)
		key := begin + strings.Repeat(unit, []int{100, 400}[random.IntN(2)]/len(unit))
		check(nested(text, levels, i%2 == 0), text[:20])
		check(nested(map[string]any{key: "b", "c": []any{text, unit}}, levels, false), key)
	}
	for _, value := range []any{"", "~", "'", 1e18, 1e300, -1.7976931348623157e308, 0.0, nil, true, map[string]any{}, []any{}} {
		check(nested([]any{value, value, value, value, value, value}, 1, false), "six values")
		check(nested(map[string]any{"a": value, "b": value, "c": value, "": value}, 1, false), "four pairs")
	}
}
