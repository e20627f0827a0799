package app

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/text"
)

// screen is where a table is printed.
type screen struct {
	// width is the number of columns. 0 means that lines are not limited.
	width int
	// color reports whether states are colored.
	color bool
}

// narrow is the width below which a table shows fewer columns. narrowest is the smallest width that is used.
const (
	narrow    = 80
	narrowest = 20
)

// screenOf returns the screen of an output. A terminal has a width and colors, unless NO_COLOR is set (no-color.org) or
// TERM is dumb. The environment variable COLUMNS sets the width of any output.
func screenOf(out io.Writer) screen {
	var s screen
	if file, is := out.(*os.File); is && term.IsTerminal(int(file.Fd())) {
		s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			s.width = width
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		s.width = columns
	}
	if s.width > 0 {
		s.width = max(s.width, narrowest)
	}
	return s
}

// state returns a state as a word, in a color if it needs attention. It is padded before it is colored, because the
// characters of a color have no width.
func (s screen) state(state summary.State, most int) string {
	word := stateWord(state)
	padding := strings.Repeat(" ", max(most-len(word), 0))
	if !s.color {
		return word + padding
	}
	color := map[summary.Outcome]string{summary.Well: "32", summary.UnderWay: "33", summary.Act: "1;31"}[state.Outcome()]
	return "\x1b[" + color + "m" + word + "\x1b[0m" + padding
}

// stateWord returns a state in capital letters if an action is required.
func stateWord(state summary.State) string {
	if state.Outcome() == summary.Act {
		return strings.ToUpper(string(state))
	}
	return string(state)
}

// cut returns a line that fits, after used columns.
func (s screen) cut(line string, used int) string {
	if s.width == 0 {
		return line
	}
	room := max(s.width-used, 0)
	if widthOf(line) <= room {
		return line
	}
	dots := min(len(text.Ellipsis), room)
	end, taken := 0, 0
	for i, r := range line {
		if taken += columnsOf(r); taken > room-dots {
			break
		}
		end = i + utf8.RuneLen(r)
	}
	return strings.TrimRight(line[:end], " ") + text.Ellipsis[:dots]
}

// widthOf returns the number of columns that a text takes on a screen. In terminals, characters of East Asian scripts
// take two (Unicode Standard Annex 11), and combining marks none.
func widthOf(line string) (n int) {
	for _, r := range line {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// padded returns a text with spaces up to a number of columns.
func padded(line string, most int) string {
	return line + strings.Repeat(" ", max(most-widthOf(line), 0))
}

// wrapped prints a text in lines that fit, each with an indent. A word that is too long has a line of its own.
func (s screen) wrapped(out *strings.Builder, indent, words string) {
	line := ""
	flush := func() {
		if line != "" {
			out.WriteString(indent + s.cut(line, len(indent)) + "\n")
		}
		line = ""
	}
	for word := range strings.FieldsSeq(words) {
		if s.width > 0 && line != "" && len(indent)+widthOf(line)+1+widthOf(word) > s.width {
			flush()
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	flush()
}
