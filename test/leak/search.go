package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Entry is a piece of data in a guest.
type Entry struct {
	// Where describes the location of the data.
	Where string
	Data  []byte
}

// Finding is a secret that was found. It contains the secret's name, but not the secret.
type Finding struct{ Name, Form, Where string }

// String returns the finding as text for a test's message.
func (f Finding) String() string { return fmt.Sprintf("%s, %s, in %s", f.Name, f.Form, f.Where) }

// form is one encoding of an atom.
type form struct {
	text       string
	name, kind string
	word       bool
}

// index finds forms by their first eight bytes.
type index struct {
	forms map[uint64][]form
	// maybe has a bit for the lower sixteen bits of each form's first eight bytes. So most positions of a text need
	// no lookup in the map.
	maybe [1 << 16]bool
}

// Search searches entries and returns its findings. A finding occurs once per entry.
func (s *Secrets) Search(entries ...Entry) []Finding {
	ix := s.built()
	found := map[Finding]bool{}
	for _, e := range entries {
		ix.search(e.Data, func(f form, at int) { found[Finding{f.name, f.kind, e.Where + hint(e.Data, at)}] = true })
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b Finding) int { return strings.Compare(a.String(), b.String()) })
}

// hint names the last etcd key before a position in etcd's file.
func hint(data []byte, at int) string {
	const near, longest = 1 << 16, 200
	before := data[max(0, at-near):at]
	i := bytes.LastIndex(before, []byte("/registry/"))
	if i < 0 || len(data) < near {
		return ""
	}
	key := before[i:min(len(before), i+longest)]
	if end := bytes.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }); end >= 0 {
		key = key[:end]
	}
	return " behind " + string(key)
}

// built returns the index of all atoms. It builds the index if it is missing.
func (s *Secrets) built() *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index != nil {
		return s.index
	}
	ix := &index{forms: map[uint64][]form{}}
	for text, a := range s.atoms {
		for _, f := range formsOf(text, a) {
			if len(f.text) < shortest {
				continue
			}
			head := binary.BigEndian.Uint64([]byte(f.text))
			ix.maybe[uint16(head)] = true //nolint:gosec // only the lower bits are needed
			ix.forms[head] = append(ix.forms[head], f)
		}
	}
	s.index = ix
	return ix
}

// formsOf returns all encodings of an atom.
func formsOf(text string, a atom) []form {
	out := []form{{text, a.name, "plain", a.word}}
	add := func(kind string, texts ...string) {
		for _, t := range texts {
			out = append(out, form{t, a.name, kind, false})
		}
	}
	for _, once := range alignments(text) {
		add("base64", once, strings.NewReplacer("+", "-", "/", "_").Replace(once))
		add("base64 of base64", alignments(once)...)
	}
	add("hexadecimal", hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text))))
	return out
}

// alignments returns the base64 forms of a text at each byte offset within a longer text. Characters that also encode
// neighbouring bytes are left out.
func alignments(text string) []string {
	out := make([]string, 0, 3)
	for offset := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + text))
		out = append(out, encoded[(offset*8+5)/6:(offset+len(text))*8/6])
	}
	return out
}

// search calls found for each form in data.
func (ix *index) search(data []byte, found func(form, int)) {
	var head uint64
	for i, c := range data {
		head = head<<8 | uint64(c)
		if i < shortest-1 || !ix.maybe[uint16(head)] { //nolint:gosec // only the lower bits are needed
			continue
		}
		at := i - shortest + 1
		for _, f := range ix.forms[head] {
			if end := at + len(f.text); end <= len(data) && string(data[at:end]) == f.text && (!f.word || isWord(data, at, end)) {
				found(f, at)
			}
		}
	}
}

func isWord(data []byte, begin, end int) bool {
	return (begin == 0 || !isAlphanumeric(data[begin-1])) && (end == len(data) || !isAlphanumeric(data[end]))
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
