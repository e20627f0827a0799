// Package text makes strings that others wrote fit for a condition, a log line or a terminal.
//
// Names, versions, paths and messages of an API server may hold anything: line breaks, terminal escapes, characters that turn the
// direction of writing, and megabytes. Each function here cuts its input before it copies it, so that the cost is that of the result.
package text

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ellipsis ends a text that was cut.
const Ellipsis = "..."

// Line is a text in one line of at most most bytes. What cannot be printed becomes a space: control characters, line breaks, characters
// that turn the direction of writing or that are invisible. Bytes that are not UTF-8 become U+FFFD.
func Line(s string, most int) string {
	return Cut(strings.Map(printable, head(s, most)), most)
}

// Plain is Line with round brackets in place of square ones. Conditions keep square brackets for what hypergate says to do next.
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

// Quoted is Plain in quotation marks that the text cannot end, so that it cannot pass for hypergate's own words. Without the quotation
// marks and what they escape it has at most most bytes.
func Quoted(s string, most int) string {
	return strconv.Quote(strings.ReplaceAll(Plain(s, most), `"`, "'"))
}

// Lines is a text of several lines, none of which can do anything but be read: as Line, and line breaks stay.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return printable(r)
	}, s)
}

// Cut is a text of at most most bytes. One that is longer ends in Ellipsis.
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

// head is as much of a text as one of most bytes is made from: one byte more, so that it is seen that there was more.
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
