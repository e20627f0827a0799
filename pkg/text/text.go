// Package text makes strings from other sources safe for a condition, a log line or a terminal.
//
// Names, versions, paths and messages of an API server can contain anything: line breaks, terminal escapes,
// characters that change the direction of writing, and megabytes of text.
//
// Letters of scripts that are written from right to left are also replaced. A terminal reorders the text around them,
// and this text includes hypergate's own words.
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

	"golang.org/x/text/unicode/bidi"
)

// Ellipsis is the end of a text that was cut.
const Ellipsis = "..."

// Line returns a text as one line of at most most bytes. A space replaces each character that hides or reorders text:
// control characters, line breaks, invisible characters, marks that are drawn over another character, and characters
// of scripts that are written from right to left. U+FFFD replaces bytes that are not UTF-8.
func Line(s string, most int) string {
	return Cut(strings.Map(printable, head(s, most)), most)
}

// Plain is like Line, but replaces square brackets, and all brackets that resemble them, with round ones. In
// conditions, square brackets are reserved for the next step that hypergate proposes.
func Plain(s string, most int) string {
	return Cut(strings.Map(func(r rune) rune { return round(printable(r)) }, head(s, most)), most)
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

// printable returns a space for a character that hides or reorders text, and other characters unchanged.
func printable(r rune) rune {
	if r < utf8.RuneSelf && unicode.IsPrint(r) {
		return r // most texts are ASCII
	}
	if !unicode.IsPrint(r) || unicode.In(r, unicode.Mn, unicode.Me) || isBlank(r) || isRightToLeft(r) {
		return ' '
	}
	return r
}

// isBlank reports whether a terminal draws the character as nothing or as a space, although it counts as printable: the
// Hangul fillers and similar characters, Braille without dots, a null note head, and blank hieroglyphs.
func isBlank(r rune) bool {
	switch r {
	case 0x2800, 0x13441, 0x13442, 0x1D159:
		return true
	default:
		return unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
	}
}

// isRightToLeft reports whether a terminal writes the character, or the characters around it, from right to left.
func isRightToLeft(r rune) bool {
	properties, _ := bidi.LookupRune(r)
	switch properties.Class() {
	case bidi.R, bidi.AL, bidi.AN:
		return true
	default:
		return false
	}
}

// round returns the round bracket for any other opening or closing bracket, except for braces. Unicode also counts the
// low quotation marks as opening.
func round(r rune) rune {
	switch {
	case r == '{', r == '}', r == '\u201a', r == '\u201e':
		return r
	case unicode.Is(unicode.Ps, r), r >= 0x23A1 && r <= 0x23A3: // also the pieces of a tall left square bracket
		return '('
	case unicode.Is(unicode.Pe, r), r >= 0x23A4 && r <= 0x23A6:
		return ')'
	default:
		return r
	}
}
