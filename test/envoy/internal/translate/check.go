package translate

import (
	"fmt"
	"slices"
	"strings"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3" // checkAny reads it by name.
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Translator translates resources. It can be used by several goroutines.
type Translator struct{ rules rules }

// New returns a Translator.
func New() *Translator { return &Translator{rules: newRules()} }

// Accepts returns the reason why an extension is accepted although it is not executed.
func (t *Translator) Accepts(typeName string) (string, bool) {
	reason, ok := t.rules.extensions[typeName]
	return reason, ok
}

// check compares a message with the rules. The error names the path of the first field that is not accepted.
func (t *Translator) check(path string, m protoreflect.Message) error {
	name := string(m.Descriptor().FullName())
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		return fmt.Errorf("%s: field numbers %v of %s are unknown", path, numbers(unknown), name)
	}
	if t.rules.values[name] {
		return nil
	}
	if wrapped, ok := m.Interface().(*anypb.Any); ok {
		return t.checkAny(path, wrapped)
	}
	fields, ok := t.rules.fields[name]
	if !ok {
		return fmt.Errorf("%s: type %s is not supported", path, name)
	}
	return t.checkFields(path, m, fields)
}

func (t *Translator) checkFields(path string, m protoreflect.Message, fields known) error {
	for _, field := range ordered(m) {
		name := string(field.Name())
		use, ok := fields[name]
		if !ok {
			return fmt.Errorf("%s.%s is not supported", path, name)
		}
		if use == ignored {
			continue
		}
		if err := t.checkValue(path+"."+name, field, m.Get(field)); err != nil {
			return err
		}
	}
	return nil
}

// ordered returns the fields that are set, by their number, so that errors do not depend on chance.
func ordered(m protoreflect.Message) []protoreflect.FieldDescriptor {
	var set []protoreflect.FieldDescriptor
	m.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		set = append(set, field)
		return true
	})
	slices.SortFunc(set, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	return set
}

func (t *Translator) checkValue(path string, field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch {
	case field.IsMap():
		return t.checkMap(path, field, value.Map())
	case field.Kind() != protoreflect.MessageKind:
		return nil
	case !field.IsList():
		return t.check(path, value.Message())
	}
	list := value.List()
	for i := range list.Len() {
		if err := t.check(fmt.Sprintf("%s[%d]", path, i), list.Get(i).Message()); err != nil {
			return err
		}
	}
	return nil
}

func (t *Translator) checkMap(path string, field protoreflect.FieldDescriptor, values protoreflect.Map) error {
	if field.MapValue().Kind() != protoreflect.MessageKind {
		return nil
	}
	var keys []string
	values.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key.String())
		return true
	})
	slices.Sort(keys)
	for _, key := range keys {
		value := values.Get(protoreflect.ValueOfString(key).MapKey())
		if err := t.check(fmt.Sprintf("%s[%q]", path, key), value.Message()); err != nil {
			return err
		}
	}
	return nil
}

// checkAny checks the message in an Any. The types of such extensions need not be known to the program.
func (t *Translator) checkAny(path string, wrapped *anypb.Any) error {
	name := TypeName(wrapped)
	if _, ok := t.rules.extensions[name]; ok {
		return nil
	}
	if _, ok := t.rules.fields[name]; !ok {
		return fmt.Errorf("%s: type %s is not supported", path, name)
	}
	m, err := wrapped.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("%s: reading %s: %w", path, name, err)
	}
	return t.check(path, m.ProtoReflect())
}

// TypeName returns the name of the message in an Any. For a TypedStruct it is the name of the type that it stands
// for.
func TypeName(wrapped *anypb.Any) string {
	url := wrapped.GetTypeUrl()
	udpa, xds := &udpav1.TypedStruct{}, &xdsv3.TypedStruct{}
	switch {
	case wrapped.MessageIs(udpa) && wrapped.UnmarshalTo(udpa) == nil:
		url = udpa.GetTypeUrl()
	case wrapped.MessageIs(xds) && wrapped.UnmarshalTo(xds) == nil:
		url = xds.GetTypeUrl()
	}
	return url[strings.LastIndexByte(url, '/')+1:]
}

// numbers returns the field numbers in the unknown part of a message.
func numbers(unknown []byte) []protowire.Number {
	var all []protowire.Number
	for len(unknown) > 0 {
		number, kind, n := protowire.ConsumeTag(unknown)
		if n < 0 {
			return all
		}
		m := protowire.ConsumeFieldValue(number, kind, unknown[n:])
		if m < 0 {
			return append(all, number)
		}
		all, unknown = append(all, number), unknown[n+m:]
	}
	return all
}

// unpack reads an Any that check has accepted.
func unpack[M proto.Message](wrapped *anypb.Any, into M) (M, error) {
	if err := wrapped.UnmarshalTo(into); err != nil {
		return into, fmt.Errorf("reading %s: %w", wrapped.GetTypeUrl(), err)
	}
	return into, nil
}
