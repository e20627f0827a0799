package app

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

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
func (s screen) state(state summary.State, width int) string {
	word := stateWord(state)
	padded := word + strings.Repeat(" ", max(width-len(word), 0))
	if !s.color {
		return padded
	}
	color := map[summary.Outcome]string{summary.Well: "32", summary.UnderWay: "33", summary.Act: "1;31"}[state.Outcome()]
	return "\x1b[" + color + "m" + word + "\x1b[0m" + padded[len(word):]
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
	if utf8.RuneCountInString(line) <= room {
		return line
	}
	runes := []rune(line)
	dots := min(len(text.Ellipsis), room)
	return strings.TrimRight(string(runes[:room-dots]), " ") + text.Ellipsis[:dots]
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
		if s.width > 0 && line != "" && len(indent)+utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > s.width {
			flush()
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	flush()
}
