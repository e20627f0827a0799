package status

import (
	"fmt"
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

// longestMessage is the most that a condition says. The CRD allows 32 KiB, and the guest decides how much there is to say.
const longestMessage = 8 << 10

// short is a text, cut off where it is too long.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// fewFailures is how many failures a message names.
const fewFailures = 5

// someOf lists the first of them.
func someOf(list []string) string {
	if len(list) > fewFailures {
		list = append(list[:fewFailures:fewFailures], fmt.Sprintf("and %d more", len(list)-fewFailures))
	}
	return strings.Join(list, "; ")
}
