package status

import (
	"strconv"
	"strings"
	"unicode"
)

// clean is a message in one line, in which nothing is hidden and nothing turns the direction of writing: parts of it are the guest's, or a server's.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
}

// told is a message as it is written: clean, and not too long.
func told(text string) string { return short(clean(text), longestMessage) }

// plain is a text that is not all ours without the brackets in which nextStep says what to do.
func plain(text string) string { return strings.NewReplacer("[", "(", "]", ")").Replace(text) }

// quoted is what somebody else says, in quotation marks that it cannot end, so that it cannot pass for ours.
func quoted(text string, most int) string {
	return strconv.Quote(short(strings.ReplaceAll(plain(text), `"`, "'"), most))
}

// How much of it a message has: of an answer of an API server more, since who denied it, and what, comes before the reason.
const (
	longestQuote  = 200
	longestAnswer = 512
)
