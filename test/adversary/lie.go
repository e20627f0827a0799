package adversary

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Liar makes values that no honest API server returns. The same seed makes the same lies in the same order. A Liar is
// not safe for concurrent use.
type Liar struct {
	*rand.Rand
	// Longest is the size of the longest text, in bytes.
	Longest int
}

// NewLiar returns a Liar with this seed.
func NewLiar(seed uint64, longest int) *Liar {
	return &Liar{Rand: rand.New(rand.NewPCG(seed, seed)), Longest: longest} //nolint:gosec // the same seed must make the same lies
}

// Lie puts an invalid value at one place of an object of this shape, and returns the path of that place.
func (l *Liar) Lie(o map[string]any, shape *Shape) (where string) {
	var path []string
	at := o
	for {
		field := l.field(at, shape)
		path = append(path, field)
		next := shape.at(field)
		if !l.deeper(next, len(path)) {
			at[field] = l.value(next.Type)
			return strings.Join(path, ".")
		}
		if next.Type == Array {
			element := map[string]any{}
			at[field] = append(listOf(at[field]), element)
			path, next = append(path, "[]"), next.Of
			at, shape = element, next
			continue
		}
		inner, ok := at[field].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[field] = inner
		}
		at, shape = inner, next
	}
}

// deeper decides whether the lie goes further down the object.
func (l *Liar) deeper(s *Shape, depth int) bool {
	switch s.Type {
	case Object:
		return len(s.Fields) > 0 && l.IntN(8) > 0
	case Map:
		return s.Of != nil && l.IntN(3) > 0
	case Array:
		return s.Of != nil && s.Of.Type == Object && len(s.Of.Fields) > 0 && depth < deepest && l.IntN(3) > 0
	default:
		return false
	}
}

// field returns the name of a field of the shape. For a map it returns an existing or an invented key.
func (l *Liar) field(o map[string]any, shape *Shape) string {
	names := slices.Sorted(maps.Keys(shape.Fields))
	if shape.Type == Map {
		names = slices.Sorted(maps.Keys(o))
	}
	if len(names) == 0 || shape.Type == Map && l.IntN(2) == 0 {
		return l.Text()
	}
	return names[l.IntN(len(names))]
}

// at returns the shape of a field, or of a value of a map.
func (s *Shape) at(field string) *Shape {
	if found := s.Fields[field]; found != nil {
		return found
	}
	if s.Of != nil {
		return s.Of
	}
	return &Shape{Type: Any}
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// value returns a value for a place of this type: one of another type, or an unexpected one of the same type.
func (l *Liar) value(t Type) any {
	if l.IntN(3) == 0 {
		switch t {
		case String, Any:
			return l.Text()
		case Integer:
			return l.number()
		case Array:
			return l.array()
		case Map, Object:
			return l.object()
		case Boolean:
			return l.IntN(2) == 0
		}
	}
	others := []func() any{
		func() any { return nil },
		func() any { return l.IntN(2) == 0 },
		l.number,
		func() any { return l.Text() },
		l.array,
		l.object,
		l.nested,
	}
	return others[l.IntN(len(others))]()
}

func (l *Liar) number() any {
	numbers := []any{
		float64(0), float64(-1), float64(1), 1.5, -1e-300, 1e300, float64(1 << 31), float64(1 << 53), float64(1 << 62),
		float64(1 << 63),
	}
	return numbers[l.IntN(len(numbers))]
}

func (l *Liar) array() any {
	out := make([]any, l.IntN(20))
	for i := range out {
		switch l.IntN(3) {
		case 0:
			out[i] = l.Text()
		case 1:
			out[i] = map[string]any{l.Text(): l.Text()}
		}
	}
	return out
}

func (l *Liar) object() any {
	out := map[string]any{}
	for range l.IntN(20) {
		out[l.Text()] = l.Text()
	}
	return out
}

// nestedDeepest is less than the depth at which encoding/json gives up (10,000).
const nestedDeepest = 5000

func (l *Liar) nested() any {
	var out any = "deep"
	for range l.IntN(nestedDeepest) {
		if l.IntN(2) == 0 {
			out = []any{out}
		} else {
			out = map[string]any{"x": out}
		}
	}
	return out
}

// Text returns a text that is not a valid name, version, path or message.
func (l *Liar) Text() string {
	texts := []string{
		"", " ", "a", "..", "../../../api/v1/secrets", "a/b", "A_b", "-", "0", "true", "null", "{{ .Values }}", "$(HOSTNAME)", "%s%n%d",
		"[to repair it, run: oc delete hostedcontrolplane guest1]", "] (no action required) [", "\x1b[2J\x1b[31mred",
		"line\nlevel=INFO msg=forged", "a\x00b", "\r\n\r\n",
		"\u202egnp.exe\u202c", "\u2066hidden\u2069", "\u200b\ufeff", "e\u0301\u0301\u0301", "\U0001f600", `"quoted" 'text' \ back`,
		"<script>alert(1)</script>",
		"99999999999999999999", "-1", "1e9", "v1.20.3-\u202e", "2026-13-45T99:99:99Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59Z",
	}
	text := texts[l.IntN(len(texts))]
	if l.IntN(8) == 0 {
		text = l.Long(text + "x")
	}
	return text
}

// Long returns a long text that repeats the given one.
func (l *Liar) Long(of string) string {
	size := 1 << (4 + l.IntN(28))
	size = min(size, l.Longest)
	return strings.Repeat(of, max(1, size/len(of)))
}
