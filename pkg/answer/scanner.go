package answer

import "bytes"

// Estimates of what JSON takes in memory, measured with Go's maps, slices and the structs of apimachinery.
const (
	objectCost = 320
	arrayCost  = 96
	commaCost  = 64
)

// Scanner counts the bytes of a JSON value, and estimates what it takes in memory once it is decoded: "{}," has three
// bytes, and takes a hundred times that as a struct or a map. The zero Scanner is ready for a value.
type Scanner struct {
	// Size is the bytes of the value so far, Cost the estimate beside them.
	Size, Cost int64
	// depth, quoted and escaped are where in the value the reader is.
	depth           int
	quoted, escaped bool
}

// Memory is the estimate, in bytes: the value's own bytes, and what its structure costs.
func (s *Scanner) Memory() int64 { return s.Size + s.Cost }

// Scan takes the next bytes of a stream of values, up to the end of a value or of p. It returns how many it took, and
// whether a value ended there. The caller then sets the Scanner to zero.
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

// structure takes one byte outside texts, and reports whether the value ends with it.
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

// text takes bytes within a text, up to its end or that of p, and returns how many. Most bytes of an answer are text, and
// each is looked at at most twice, whatever the text is.
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
		if i > end { // that quotation mark was the escaped one
			end = quoteIn(p, i)
		}
	}
}

// quoteIn is where the first quotation mark from an index on is in p; its length if there is none.
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
