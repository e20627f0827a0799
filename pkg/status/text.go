package status

import (
	"fmt"
	"strings"

	"github.com/hypergate/hypergate/pkg/text"
)

// A message consists of hypergate's own text and of foreign text: what the guest has chosen, an API server's answer,
// a name. Foreign text always passes through plain or quoted first. Only nextStep writes brackets, so that foreign
// text cannot look like a next step of hypergate's.

// forMessage returns a message as it is written: in one line, and with a bounded length.
func forMessage(message string) string { return text.Line(message, longestMessage) }

// plain returns foreign text, or text that contains foreign text, without brackets and unprintable characters.
func plain(foreign string) string { return text.Plain(foreign, longestMessage) }

// quoted returns foreign text in quotation marks that it cannot end, so that it cannot look like hypergate's own
// text.
func quoted(foreign string, most int) string { return text.Quoted(foreign, most) }

// Limits of quoted text in a message, in bytes. An answer of the API server gets more, because the names of the
// object and of the webhook or policy precede the reason.
const (
	longestQuote  = 200
	longestAnswer = 512
)

// longestMessage is the longest message of a condition, in bytes. The CRD allows 32 KiB. The guest controls how much
// there is to report.
const longestMessage = 8 << 10

// maxListed is the number of failures, or of other items, that a message lists.
const maxListed = 5

// joinFirst returns the first items of a list, and how many more there are.
func joinFirst(list []string) string {
	if len(list) > maxListed {
		list = append(list[:maxListed:maxListed], fmt.Sprintf("and %d more", len(list)-maxListed))
	}
	return strings.Join(list, "; ")
}
