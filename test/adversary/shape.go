package adversary

import (
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Type is a JSON type at one place of an object.
type Type string

// The types in a Shape.
const (
	Object  Type = "object"
	Map     Type = "map"
	Array   Type = "array"
	String  Type = "string"
	Integer Type = "integer"
	Boolean Type = "boolean"
	Any     Type = "any"
)

// Shape describes the fields of a kind and their types.
type Shape struct {
	Type   Type
	Fields map[string]*Shape // for an object
	Of     *Shape            // the type of each value of a map or an array
}

// deepest limits the depth of a shape. Some types contain themselves, such as the schemas of a CRD.
const deepest = 10

// ShapeOfType returns the shape of a kind that has a Go type.
func ShapeOfType(example any) *Shape { return shapeOfType(reflect.TypeOf(example), deepest) }

func shapeOfType(t reflect.Type, depth int) *Shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if own := ownForm(t); own != "" {
		return &Shape{Type: own}
	}
	if depth == 0 {
		return &Shape{Type: Any}
	}
	switch t.Kind() {
	case reflect.Struct:
		out := &Shape{Type: Object, Fields: map[string]*Shape{}}
		addFields(out, t, depth)
		return out
	case reflect.Map:
		return &Shape{Type: Map, Of: shapeOfType(t.Elem(), depth-1)}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return &Shape{Type: String}
		}
		return &Shape{Type: Array, Of: shapeOfType(t.Elem(), depth-1)}
	case reflect.String:
		return &Shape{Type: String}
	case reflect.Bool:
		return &Shape{Type: Boolean}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return &Shape{Type: Integer}
	default:
		return &Shape{Type: Any}
	}
}

// ownForm returns the JSON type of a Go type with its own marshaller, or an empty string for other types.
func ownForm(t reflect.Type) Type {
	switch reflect.Zero(t).Interface().(type) {
	case metav1.Time, metav1.MicroTime, metav1.Duration, resource.Quantity:
		return String
	case intstr.IntOrString, json.RawMessage:
		return Any
	case metav1.FieldsV1, runtime.RawExtension:
		return Map
	default:
		return ""
	}
}

func addFields(to *Shape, t reflect.Type, depth int) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && (field.Anonymous || strings.Contains(options, "inline")):
			embedded := field.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			addFields(to, embedded, depth)
		case name != "":
			to.Fields[name] = shapeOfType(field.Type, depth-1)
		}
	}
}

// ShapeOfSchema returns the shape of a kind that a CRD defines. The argument is the content of openAPIV3Schema. The
// shape has no metadata, because the schema does not describe it.
func ShapeOfSchema(schema map[string]any) *Shape {
	of := func(key string) (map[string]any, bool) {
		m, ok := schema[key].(map[string]any)
		return m, ok
	}
	switch schema["type"] {
	case "object":
		if properties, ok := of("properties"); ok {
			out := &Shape{Type: Object, Fields: map[string]*Shape{}}
			for name, property := range properties {
				if sub, ok := property.(map[string]any); ok {
					out.Fields[name] = ShapeOfSchema(sub)
				}
			}
			return out
		}
		if values, ok := of("additionalProperties"); ok {
			return &Shape{Type: Map, Of: ShapeOfSchema(values)}
		}
		return &Shape{Type: Map, Of: &Shape{Type: Any}}
	case "array":
		items, _ := of("items")
		return &Shape{Type: Array, Of: ShapeOfSchema(items)}
	case "string":
		return &Shape{Type: String}
	case "integer", "number":
		return &Shape{Type: Integer}
	case "boolean":
		return &Shape{Type: Boolean}
	default:
		return &Shape{Type: Any}
	}
}

// Has reports whether a shape has a field of a field.
func (s *Shape) Has(path ...string) bool {
	for _, field := range path {
		if s = s.Fields[field]; s == nil {
			return false
		}
	}
	return true
}

// Paths returns the number of places in a shape where a Liar can put a value.
func (s *Shape) Paths() int {
	n := 1
	for _, field := range s.Fields {
		n += field.Paths()
	}
	if s.Of != nil {
		n += s.Of.Paths()
	}
	return n
}
