package summary

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/text"
)

// Size limits of texts, in bytes. Together they leave room for messages in MaxSize.
const (
	longestName    = 100
	longestClass   = 63
	longestWord    = 32
	longestState   = 20 // a word of a closed list
	longestAddress = 260
	longestRequest = 20 // a time in RFC 3339, as hypergate rotate-ca writes it
	// longestMessage is for the condition that explains the state. shortMessage is for the others. They are cut to
	// leastMessage before the longest one is cut.
	longestMessage = 600
	shortMessage   = 180
	leastMessage   = 60
	// maxRead is how much of a message is read. Conditions have at most 8 KiB (pkg/status).
	maxRead = 8 << 10
	// mostGateways is more than a rollout handles, mostPods more than istiod has, mostCounted more than there are of
	// anything else.
	mostGateways = 9999
	mostPods     = 99
	mostCounted  = 999_999
)

// Encode returns a summary as one line of JSON with at most MaxSize bytes. It sets the schema, cleans and cuts texts,
// and cuts the messages further until all fits. If there is no room for messages, it leaves out names, and then the
// rollout, which the reason of Progressing names, too.
func Encode(s Summary) (string, error) {
	s = s.clean()
	s.Schema = Schema
	long, short := longestMessage, shortMessage
	for {
		encoded, err := s.withMessages(long, short).line()
		if err != nil || len(encoded) <= MaxSize {
			return encoded, err
		}
		if long == 0 {
			shorter := s.shorter()
			if !reflect.DeepEqual(shorter, s) {
				s, long, short = shorter, longestMessage, shortMessage
				continue
			}
			return "", fmt.Errorf("a summary has %d bytes without messages: the limit is %d", len(encoded), MaxSize)
		}
		if short > leastMessage {
			short = max(short*3/4, leastMessage)
		} else {
			long, short = long*3/4, min(short, long*3/4)
		}
	}
}

// shorter returns the summary without the first of what it can do without: the address of the probe and the renewal of
// the credential, the name of the Gateway that a rollout waits for, the name of the class, and the rollout.
func (s Summary) shorter() Summary {
	switch {
	case s.Published.Probe != "" || s.GuestCredentialRenewed:
		s.Published.Probe, s.GuestCredentialRenewed = "", false
	case s.Gateways.Gateway != "":
		s.Gateways.Gateway = ""
	case s.Class != "":
		s.Class = ""
	default:
		s.Gateways = Gateways{}
	}
	return s
}

func (s Summary) line() (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // a short form: no browser reads it
	if err := encoder.Encode(s); err != nil {
		return "", fmt.Errorf("encoding the summary: %w", err)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// withMessages returns the summary with shorter messages.
func (s Summary) withMessages(long, short int) Summary {
	s.Conditions = slices.Clone(s.Conditions)
	explaining := s.explaining()
	for i := range s.Conditions {
		c := &s.Conditions[i]
		most := short
		if c.Type == explaining {
			most = long
		}
		c.Message = cutMessage(c.Message, most)
	}
	return s
}

// explaining returns the type of the condition that explains the state. See Reading.judge.
func (s Summary) explaining() string {
	failed, failure := s.failure()
	switch {
	case s.Lifecycle == Paused:
		return Progressing
	case failed != "":
		return failure.Type
	case s.Condition(Available).Status != True:
		return Available
	default:
		return Progressing
	}
}

// cutMessage returns a message of at most most bytes. A message ends with its next step in brackets, which is kept if
// it is not too long: it matters more than the details before it.
func cutMessage(message string, most int) string {
	begin := strings.LastIndex(message, " [")
	if len(message) <= most || begin < 0 || !strings.HasSuffix(message, "]") || len(message)-begin > most*2/3 {
		return text.Cut(message, most)
	}
	return text.Cut(message[:begin], most-len(message[begin:])) + message[begin:]
}

// clean returns the summary with printable texts of limited size, known conditions, times in UTC with seconds, and
// without negative numbers.
func (s Summary) clean() Summary {
	// Names and words have no characters that JSON escapes: otherwise the limit of the text would not limit the JSON.
	unescaped := unescape()
	for _, field := range []struct {
		text *string
		most int
	}{
		{&s.Holder, longestName},
		{&s.Hypergate, longestWord},
		{&s.Istio, longestWord},
		{&s.Topology, longestState},
		{&s.Guest, longestName},
		{(*string)(&s.Lifecycle), longestState},
		{&s.Class, longestClass},
		{&s.Owner, longestState},
		{&s.GuestAPI.State, longestState},
		{&s.Istiod.State, longestState},
		{&s.Istiod.Version, longestWord},
		{&s.Published.Strategy, longestState},
		{&s.Published.Address, longestAddress},
		{&s.Published.State, longestState},
		{&s.Published.Probe, longestName},
		{&s.CA.Phase, longestState},
		{&s.CA.Request, longestRequest},
		{&s.Webhook.Policy, longestState},
		{&s.Gateways.State, longestState},
		{&s.Gateways.Gateway, longestName},
	} {
		*field.text = unescaped.Replace(text.Line(*field.text, field.most))
	}
	if s.GuestUnobserved {
		s.Classes, s.Class, s.Owner, s.CRDs, s.Gateways = 0, "", "", CRDs{}, Gateways{}
	}
	if s.CA.ByOther {
		s.CA.Request = "" // hypergate follows none
	}
	for _, at := range []*time.Time{
		&s.Time, &s.PausedUntil, &s.PausedSince, &s.Istiod.Since, &s.Token.From, &s.Token.Until, &s.GuestCredential.From,
		&s.GuestCredential.Until, &s.CA.Expires, &s.Webhook.Since,
	} {
		*at = inSeconds(*at)
	}
	for _, n := range []*int{
		&s.Classes, &s.CRDs.Ours, &s.CRDs.Others, &s.CRDs.Blocked, &s.CRDs.Undetermined, &s.Gateways.Done, &s.Gateways.Total,
		&s.Istiod.Ready, &s.Istiod.Wanted, &s.GuestAPI.Millis,
	} {
		*n = min(max(*n, 0), mostCounted)
	}
	s.Gateways.Done, s.Gateways.Total = min(s.Gateways.Done, mostGateways), min(s.Gateways.Total, mostGateways)
	s.Istiod.Ready, s.Istiod.Wanted = min(s.Istiod.Ready, mostPods), min(s.Istiod.Wanted, mostPods)
	s.Writes, s.Repairs = max(s.Writes, 0), max(s.Repairs, 0)
	s.Conditions = cleanConditions(s.Conditions, unescaped)
	return s
}

func unescape() *strings.Replacer { return strings.NewReplacer(`"`, "'", `\`, "/") }

// cleanConditions returns the conditions of known types in a fixed order, at most one of each type.
func cleanConditions(in []Condition, unescaped *strings.Replacer) []Condition {
	var out []Condition
	for _, known := range ConditionTypes() {
		i := slices.IndexFunc(in, func(c Condition) bool { return c.Type == known })
		if i < 0 {
			continue
		}
		c := in[i]
		if c.Status != True && c.Status != False {
			c.Status = Unknown
		}
		c.Reason, c.Since = unescaped.Replace(text.Line(c.Reason, longestWord)), inSeconds(c.Since)
		c.Message = cutMessage(text.Line(c.Message, maxRead), longestMessage)
		out = append(out, c)
	}
	return out
}

// inSeconds returns a time as JSON can represent it: in UTC, in seconds, and with a year of four digits. It returns the
// zero time for any other year.
func inSeconds(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Second)
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
