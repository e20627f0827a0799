package answer

import "bytes"

// Estimated sizes of decoded JSON, measured with Go maps, slices and the structs of apimachinery. elementCost is for an
// element of an array that is not an object: where a struct is expected, each "null" or "0" takes the size of one.
const (
	objectCost  = 320
	arrayCost   = 96
	commaCost   = 64
	elementCost = 320
)

// Scanner counts the bytes of a JSON value, and estimates its decoded size. For example, "{}," has three bytes, and
// takes a hundred times that as a struct or a map. The zero Scanner is ready for a value.
type Scanner struct {
	// Size is the number of bytes of the value so far. Cost is the estimate in addition to them.
	Size, Cost int64
	// depth, quoted and escaped are the position within the value.
	depth           int
	quoted, escaped bool
	// scalar means that a string or a literal was read since the last comma or bracket. keyed means that a colon was:
	// the present value is that of a field, and not an element.
	scalar, keyed bool
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
		s.quoted, s.scalar = true, true
	case ' ', '\t', '\r', '\n':
	case ':':
		s.keyed = true
	case ',':
		s.Cost += commaCost
		s.endScalar()
	case '{', '[':
		s.open(char)
	case '}', ']':
		s.endScalar()
		s.depth = max(s.depth-1, 0)
		return s.depth == 0
	default:
		s.scalar = true
	}
	return false
}

// endScalar adds the cost of a scalar that is an element.
func (s *Scanner) endScalar() {
	if s.scalar && !s.keyed {
		s.Cost += elementCost
	}
	s.scalar, s.keyed = false, false
}

// open begins an object or an array.
func (s *Scanner) open(char byte) {
	s.Cost += arrayCost
	switch {
	case char == '{':
		s.Cost += objectCost - arrayCost
	case s.depth > 0 && !s.keyed:
		s.Cost += elementCost
	}
	s.depth++
	s.scalar, s.keyed = false, false
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
