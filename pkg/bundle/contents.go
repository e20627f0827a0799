package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// maxDepth is how deep the fields of an object can be nested. YAML indents each line of them.
	maxDepth = 100
	// longestObject limits the YAML of one object, in bytes. An API server stores 1.5 MiB of JSON. Only nested fields
	// with short values need more than this: a line of one letter can have an indentation of 200.
	longestObject = 4 << 20
	// mostKept limits the memory of the objects of one kind, in bytes (estimate). Small maps and lists take many times
	// the memory of their YAML.
	mostKept = 128 << 20

	// lineWidth is the column after which YAML breaks a line, and shortKey how long a key is that it never breaks.
	lineWidth = 80
	shortKey  = 128
	// byteOrderMark at the beginning of a text makes an escape of each of its letters.
	byteOrderMark = "\ufeff"
)

// Reasons why an object is not in the archive.
var (
	errNoMetadata = errors.New("an object has no metadata") // an API server listed something else than objects
	errDeep       = fmt.Errorf("an object is nested more than %d levels deep", maxDepth)
	errLong       = fmt.Errorf("an object has more than %d MiB in YAML", longestObject>>20)
)

// errFull means that the archive has no room for an object.
var errFull = errors.New("the archive has reached its size limit")

// errMemory means that the objects of a kind take too much memory.
var errMemory = fmt.Errorf("they take more than %d MiB of memory", mostKept>>20)

// contents are the objects of a kind that become files.
type contents struct {
	// listed is how many objects were listed. kept are those that become files, by namespace. size is how long they are
	// about, and memory is what they take.
	listed       int
	kept         map[string][]any
	size, memory int64
	// omitted has the objects that are left out, by reason.
	omitted map[error]omission
}

// omission is how many objects are left out for a reason, and the name of the first one.
type omission struct {
	count int
	first string
}

func newContents() *contents {
	return &contents{kept: map[string][]any{}, omitted: map[error]omission{}}
}

func (o *contents) omit(reason error, name string) {
	before := o.omitted[reason]
	if before.count == 0 {
		before.first = name
	}
	before.count++
	o.omitted[reason] = before
}

// problems returns what errors.txt has of the objects that are left out.
func (o *contents) problems() (out []error) {
	for _, reason := range []error{errNoMetadata, errDeep, errLong} {
		switch of := o.omitted[reason]; {
		case of.count == 0:
		case of.first == "":
			out = append(out, fmt.Errorf("%d left out: %w", of.count, reason))
		default:
			out = append(out, fmt.Errorf("%d left out (%s is the first): %w", of.count, of.first, reason))
		}
	}
	return out
}

// sizeOf returns how long an object is about in YAML. The error is why it is left out. It is decided before the YAML
// is made, which can be 1,000 times as long as the JSON.
func sizeOf(object map[string]any) (int64, error) {
	if isDeeper(object, maxDepth) {
		return 0, errDeep
	}
	size := yamlSize(object, 0, true)
	if size > longestObject {
		return 0, errLong
	}
	return size, nil
}

// Estimated memory of what a decoder makes, measured with Go maps and slices.
const (
	mapMemory   = 320 // also with one key
	entryMemory = 64  // one of many keys
	listMemory  = 48
	valueMemory = 16 // an element of a list, or a scalar
)

// memoryOf returns the memory that a value takes (estimate).
func memoryOf(value any) (size int64) {
	switch value := value.(type) {
	case string:
		return valueMemory + int64(len(value))
	case []any:
		size = listMemory
		for _, of := range value {
			size += valueMemory + memoryOf(of)
		}
	case map[string]any:
		size = mapMemory
		for key, of := range value {
			size += entryMemory + int64(len(key)) + memoryOf(of)
		}
	default: // a number, a boolean or null
		return valueMemory
	}
	return size
}

// isDeeper reports whether a value has more than some levels of maps and lists.
func isDeeper(value any, levels int) bool {
	switch value := value.(type) {
	case []any:
		for _, of := range value {
			if levels == 0 || isDeeper(of, levels-1) {
				return true
			}
		}
	case map[string]any:
		for _, of := range value {
			if levels == 0 || isDeeper(of, levels-1) {
				return true
			}
		}
	}
	return false
}

// yamlSize returns how long the YAML of a value is about. The YAML is at most three times as long. indent is the
// indentation of its lines. The lines of a map in a map have two more, and so have the lines of a text. The first line
// of what is in a list follows a dash.
func yamlSize(value any, indent int64, inList bool) (size int64) {
	var lines int
	switch value := value.(type) {
	case string:
		return textSize(value, indent)
	case []any:
		lines = len(value)
		for _, of := range value {
			size += 2 + yamlSize(of, indent+2, true)
		}
	case map[string]any:
		lines = len(value)
		for key, of := range value {
			inner := indent + 2
			if _, isList := of.([]any); isList {
				inner = indent
			}
			size += keySize(key, indent) + yamlSize(of, inner, false)
		}
	default: // a number, a boolean or null
		content, _ := json.Marshal(value)
		return int64(len(content))
	}
	if inList {
		lines--
	}
	return size + int64(max(lines, 0))*indent
}

// keySize returns the same of a key and its colon. YAML writes a short key in one line, with escapes. A longer one is
// a text of its own, and its value begins a line.
func keySize(key string, indent int64) int64 {
	if len(key) <= shortKey {
		return textSize(key, 0) + 2
	}
	return textSize(key, indent+2) + 4 + indent
}

// textSize returns the same of a text. It begins a line at a line break, and at a space beyond lineWidth. The line
// breaks are those of YAML, not only that of Unix: a few letters can then cost an indentation each.
func textSize(text string, indent int64) (size int64) {
	if strings.HasPrefix(text, byteOrderMark) {
		return int64(len(text)) * 4 // each letter is an escape
	}
	column, last := indent, rune(0)
	for _, c := range text {
		long := letterSize(c)
		size += long
		if long < 4 {
			column++
		} else {
			column += long // an escape
		}
		if isLineBreak(c) || c == ' ' && last != ' ' && column > lineWidth {
			size += indent
			column = indent
		}
		last = c
	}
	return size
}

// letterSize returns how long a letter is in YAML, with its escape. JSON keeps no invalid letters.
func letterSize(c rune) int64 {
	switch {
	case c < ' ' && c != '\n':
		return 4
	case c > 0xffff:
		return 10
	case c == '\ufeff':
		return 6
	default:
		return int64(utf8.RuneLen(c))
	}
}

// isLineBreak reports whether YAML begins a line at a letter. U+0085 becomes a space or a line break before. The
// emitter escapes a carriage return.
func isLineBreak(c rune) bool {
	return c == '\n' || c == '\u0085' || c == '\u2028' || c == '\u2029'
}
