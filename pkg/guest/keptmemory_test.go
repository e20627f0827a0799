package guest

import (
	"reflect"
	"regexp"
	"strings"
	"time"
	"unsafe"
)

// keptMemory measures the memory of what a watch keeps of an object. A text that is a part of one of the object's texts
// counts as the whole text, because it keeps that in memory.
type keptMemory struct {
	// wholes are the texts of the object that was decoded.
	wholes []string
	// counted has what was counted already, by its address.
	counted map[uintptr]bool
	bytes   int64
}

// keptMemoryOf prepares the measurement of what will be kept of an object.
func keptMemoryOf(object any) *keptMemory {
	m := &keptMemory{counted: map[uintptr]bool{}}
	m.each(reflect.ValueOf(object), func(text string) { m.wholes = append(m.wholes, text) })
	return m
}

// of returns the memory of what is kept, in bytes.
func (m *keptMemory) of(kept any) int64 {
	m.counted, m.bytes = map[uintptr]bool{}, 0
	m.each(reflect.ValueOf(kept), func(text string) {
		at := address(text)
		for _, whole := range m.wholes {
			if from := address(whole); at >= from && at < from+uintptr(len(whole)) {
				text, at = whole, from
			}
		}
		m.count(at, len(text))
	})
	return m.bytes
}

func address(text string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(text))) }

// count adds what has an address, once.
func (m *keptMemory) count(at uintptr, size int) (first bool) {
	if at == 0 || m.counted[at] {
		return false
	}
	m.counted[at] = true
	m.bytes += int64(size)
	return true
}

// each calls found for each text of a value, and counts the memory of everything else that the value refers to.
func (m *keptMemory) each(v reflect.Value, found func(text string)) {
	switch v.Kind() { //nolint:exhaustive // the others refer to nothing
	case reflect.String:
		if v.Len() > 0 {
			found(v.String())
		}
	case reflect.Pointer:
		switch v.Type() {
		case reflect.TypeFor[*time.Location](), reflect.TypeFor[*wantedFields]():
			return // all objects share them
		}
		if !v.IsNil() && m.count(v.Pointer(), int(v.Type().Elem().Size())) {
			m.each(v.Elem(), found)
		}
	case reflect.Interface:
		if !v.IsNil() {
			m.each(v.Elem(), found)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			m.each(field, found)
		}
	case reflect.Slice:
		m.count(v.Pointer(), v.Cap()*int(v.Type().Elem().Size()))
		for i := range v.Len() {
			m.each(v.Index(i), found)
		}
	case reflect.Map:
		m.count(v.Pointer(), v.Len()*int(v.Type().Key().Size()+v.Type().Elem().Size()))
		for of := v.MapRange(); of.Next(); {
			m.each(of.Key(), found)
			m.each(of.Value(), found)
		}
	}
}

// jsonText matches a text of JSON, or a key.
var jsonText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// withLongText returns copies of an object as JSON. In each, another text or key of the object ends with a long text:
// one that some limits permit, and one that none does.
func withLongText(object string) (out [][]byte) {
	for _, n := range []int{1000, 300 << 10} {
		for _, at := range jsonText.FindAllStringIndex(object, -1) {
			out = append(out, []byte(object[:at[1]-1]+","+strings.Repeat("l", n)+object[at[1]-1:]))
		}
	}
	return out
}
