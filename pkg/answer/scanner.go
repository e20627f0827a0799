package answer

import "bytes"

// Estimated sizes of decoded JSON, measured with Go maps, slices and the structs of apimachinery.
const (
	objectCost = 320
	arrayCost  = 96
	commaCost  = 64
)

// Scanner counts the bytes of a JSON value, and estimates its decoded size. For example, "{}," has three bytes, and
// takes a hundred times that as a struct or a map. The zero Scanner is ready for a value.
type Scanner struct {
	// Size is the number of bytes of the value so far. Cost is the estimate in addition to them.
	Size, Cost int64
	// depth, quoted and escaped are the position within the value.
	depth           int
	quoted, escaped bool
}

// Memory returns the estimated size in bytes: the bytes of the value plus the cost of its structure.
func (s *Scanner) Memory() int64 { return s.Size + s.Cost }

// Scan processes the next bytes of a stream of values, up to the end of a value or of p. It returns the number of
// processed bytes, and whether a value ended there. After the end of a value, the caller sets the Scanner to zero,
// unless it needs the sum of several values.
func (s *Scanner) Scan(p []byte) (n int, ended bool) {
	for n < len(p) && !ended {
		if s.quoted {
			n += s.text(p[n:])
		} else {
			ended = s.structure(p[n])
			n++
		}
	}
	s.Size += int64(n)
	return n, ended
}

// structure processes one byte outside of strings, and reports whether the value ends with it.
func (s *Scanner) structure(char byte) (ended bool) {
	switch char {
	case '"':
		s.quoted = true
	case ',':
		s.Cost += commaCost
	case '{', '[':
		s.depth++
		s.Cost += costOf(char)
	case '}', ']':
		s.depth = max(s.depth-1, 0)
		return s.depth == 0
	}
	return false
}

// text processes bytes within a string, up to the end of the string or of p, and returns their number. Most bytes of
// a response are in strings. text reads each of them at most twice.
func (s *Scanner) text(p []byte) int {
	i := 0
	if s.escaped {
		s.escaped, i = false, 1
	}
	for end := quoteIn(p, i); ; {
		escape := bytes.IndexByte(p[i:end], '\\')
		switch {
		case escape < 0 && end < len(p):
			s.quoted = false
			return end + 1
		case escape < 0:
			return end
		}
		if i += escape + 2; i > len(p) {
			s.escaped = true
			return len(p)
		}
		if i > end { // that quotation mark was escaped
			end = quoteIn(p, i)
		}
	}
}

// quoteIn returns the index of the first quotation mark in p at or after from, or len(p) if p has none.
func quoteIn(p []byte, from int) int {
	if i := bytes.IndexByte(p[from:], '"'); i >= 0 {
		return from + i
	}
	return len(p)
}

func costOf(char byte) int64 {
	if char == '{' {
		return objectCost
	}
	return arrayCost
}
