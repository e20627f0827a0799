// Package text makes strings from other sources safe for a condition, a log line or a terminal.
//
// Names, versions, paths and messages of an API server can contain anything: line breaks, terminal escapes,
// characters that change the direction of writing, and megabytes of text.
//
// # Workflow
//
// Line, Plain and Quoted return one line of limited length. Lines keeps line breaks. Cut only limits the length.
//
// # Invariants
//
// Functions with a maximum length cut the input before they copy it, so that the cost depends on the size of the
// result.
package text

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ellipsis is the end of a text that was cut.
const Ellipsis = "..."

// Line returns a text as one line of at most most bytes. A space replaces each character that is not printable:
// control characters, line breaks, invisible characters, and characters that change the direction of writing. U+FFFD
// replaces bytes that are not UTF-8.
func Line(s string, most int) string {
	return Cut(strings.Map(printable, head(s, most)), most)
}

// Plain is like Line, but replaces square brackets with round ones. In conditions, square brackets are reserved for
// the next step that hypergate proposes.
func Plain(s string, most int) string {
	return Cut(strings.Map(func(r rune) rune {
		switch r {
		case '[':
			return '('
		case ']':
			return ')'
		default:
			return printable(r)
		}
	}, head(s, most)), most)
}

// Quoted returns Plain in quotation marks that the text cannot end, so that the text cannot pass for hypergate's own
// words. The limit of most bytes does not include the quotation marks and escape characters.
func Quoted(s string, most int) string {
	return strconv.Quote(strings.ReplaceAll(Plain(s, most), `"`, "'"))
}

// Lines is like Line, but keeps line breaks and has no maximum length.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return printable(r)
	}, s)
}

// Cut returns a text of at most most bytes. A longer text is cut and ends in Ellipsis.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := max(most-len(Ellipsis), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + Ellipsis[:min(len(Ellipsis), most)]
}

// head returns as much of a text as a result of most bytes needs. It includes at least one byte more, so that Cut
// detects that there was more.
func head(s string, most int) string {
	if len(s) <= most+utf8.UTFMax {
		return s
	}
	return s[:most+utf8.UTFMax]
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}
