package status

import (
	"fmt"
	"strings"

	"github.com/hypergate/hypergate/pkg/text"
)

// A condition is put together from hypergate's own words and from others': what the guest has chosen, a server's answer, a name. Others' words
// go through plain or quoted first, and through nothing else. Brackets are left to nextStep, so that nobody else can say what to do next.

// forMessage is a message as it is written: in one line, and not too long.
func forMessage(message string) string { return text.Line(message, longestMessage) }

// plain is a text that is not all ours.
func plain(theirs string) string { return text.Plain(theirs, longestMessage) }

// quoted is what somebody else says, in quotation marks that it cannot end, so that it cannot pass for ours.
func quoted(theirs string, most int) string { return text.Quoted(theirs, most) }

// How much of it a message has: of an answer of an API server more, since who denied it, and what, comes before the reason.
const (
	longestQuote  = 200
	longestAnswer = 512
)

// longestMessage is the most that a condition says. The CRD allows 32 KiB, and the guest decides how much there is to say.
const longestMessage = 8 << 10

// fewFailures is how many failures a message names.
const fewFailures = 5

// someOf lists the first of them.
func someOf(list []string) string {
	if len(list) > fewFailures {
		list = append(list[:fewFailures:fewFailures], fmt.Sprintf("and %d more", len(list)-fewFailures))
	}
	return strings.Join(list, "; ")
}
