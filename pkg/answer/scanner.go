package answer

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
	for i, char := range p {
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.quoted, s.escaped = char != '"', char == '\\'
		case char == '"':
			s.quoted = true
		case char == ',':
			s.Cost += commaCost
		case char == '{', char == '[':
			s.depth++
			s.Cost += costOf(char)
		case char == '}', char == ']':
			if s.depth--; s.depth <= 0 {
				s.depth = 0
				s.Size += int64(i + 1)
				return i + 1, true
			}
		}
	}
	s.Size += int64(len(p))
	return len(p), false
}

func costOf(char byte) int64 {
	if char == '{' {
		return objectCost
	}
	return arrayCost
}
