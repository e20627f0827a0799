package webpage

import (
	"fmt"
	"slices"
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/text"
)

// Classes of the style sheet. A box or an arrow without evidence of a state is none.
const (
	classOK   = "ok"
	classBusy = "busy"
	classAct  = "act"
	classNone = "none"
)

// fact is the content of a box or of an arrow. A box also has a word for its state.
type fact struct {
	title, class, word string
	lines              []string
}

// facts is what a picture shows of the two clusters.
type facts struct {
	namespace, guest                              string
	hypergate, istiod, published, ca              fact // boxes of the management cluster
	api, gateways, crds                           fact // boxes of the guest
	toCredential, toToken, fromWebhook, fromProxy fact // arrows
}

// factsOf returns the facts of a reading with a summary.
func factsOf(r summary.Reading, now time.Time) facts {
	s := r.Summary
	box := func(title string, p part, lines ...string) fact {
		state := judge(r, p)
		return fact{title, state.class(), state.word(), lines}
	}
	f := facts{
		namespace: r.Namespace, guest: s.Guest,
		hypergate: box("hypergate", partHypergate, s.Hypergate, string(s.Lifecycle)),
		istiod:    box("istiod", partIstiod, joined(" ", s.Istiod.State, since(s.Istiod.Since, now)), versions(s)),
		published: box("published", partPublished, joined(" ", s.Published.Strategy, s.Published.State), s.Published.Address),
		ca:        box("mesh CA", partCA),
		api:       box("API server", partAPI, "the guest's kube-apiserver"),
		gateways:  box("gateways", partGateways, classes(s), s.Gateways.Text()),
		crds:      box("CRDs", partCRDs, crdLines(s)...),

		toCredential: arrowFact("hypergate's credential", classNone, left(s.GuestCredential.Until, now), apiText(s.GuestAPI)),
		toToken:      arrowFact("istiod's token", classNone, left(s.Token.Until, now)),
		fromWebhook:  arrowFact("webhook", classNone, s.Webhook.Policy, since(s.Webhook.Since, now)),
		fromProxy:    arrowFact("xDS", judge(r, partPublished).class(), s.Published.State),
	}
	if r.State == summary.Silent || r.State == summary.Overdue {
		f.hypergate.lines = append(f.hypergate.lines, stateOf(r.State).Word)
	} else if !s.HasOldConditions() {
		f.fromWebhook.class = classOf(s.Webhook.Policy)
	}
	if !s.CA.Expires.IsZero() {
		f.ca.lines = []string{"until " + s.CA.Expires.Format(time.DateOnly), s.CA.Phase}
	}
	f.valid(r)
	return f
}

// apiText returns how the guest's API server answers, in words that fit above an arrow.
func apiText(a summary.GuestAPI) string {
	switch {
	case a.State == "":
		return ""
	case a.State == summary.APIAnswers && a.Millis > 0:
		return fmt.Sprintf("API in %d ms", a.Millis)
	case a.State == summary.APIFails:
		return "API fails"
	case a.State == summary.APISilent:
		return "API silent"
	default:
		return "API " + a.State
	}
}

func arrowFact(title, class string, lines ...string) fact {
	return fact{title: title, class: class, lines: lines}
}

// versions returns which version of istiod runs, and which one is planned.
func versions(s *summary.Summary) string {
	switch {
	case s.Istio == "":
		return ""
	case s.Istiod.Version != "":
		return "runs " + s.Istiod.Version + ", planned " + s.Istio
	case s.Istiod.State == summary.IstiodServing:
		return "running version unknown, planned " + s.Istio
	default:
		return "planned " + s.Istio
	}
}

// valid sets the classes of what is valid for a time.
func (f *facts) valid(r summary.Reading) {
	s := r.Summary
	for _, v := range []struct {
		until time.Time
		fact  *fact
	}{{s.GuestCredential.Until, &f.toCredential}, {s.Token.Until, &f.toToken}} {
		if !v.until.IsZero() {
			v.fact.class = classOK
		}
		for _, e := range r.Expiring {
			if e.Until.Equal(v.until) {
				v.fact.class = classAct
				v.fact.lines = slices.Insert(v.fact.lines, 1, "overdue") // after the time that is left
			}
		}
	}
	for _, e := range r.Expiring {
		if e.Until.Equal(s.CA.Expires) {
			f.ca.class, f.ca.word = failing.class(), failing.word()
		}
	}
}

// classOf returns the class of the failure policy of the webhooks. A word of a later version is none.
func classOf(policy string) string {
	switch policy {
	case summary.WebhookFail:
		return classOK
	case summary.WebhookIgnore:
		return classBusy
	default:
		return classNone
	}
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "for " + age(t, now)
}

// classes returns the number of GatewayClasses. It is empty if that is not known, which the word of the box says.
func classes(s *summary.Summary) string {
	switch {
	case s.GuestUnobserved:
		return ""
	case s.Classes == 1:
		return "1 GatewayClass"
	default:
		return fmt.Sprintf("%d GatewayClasses", s.Classes)
	}
}

// crdLines returns two lines about CRDs: their owners, and what needs attention. There are none if that is not known.
func crdLines(s *summary.Summary) []string {
	if s.GuestUnobserved {
		return nil
	}
	texts := crdTexts(*s)
	return []string{joined(", ", texts[:2]...), joined(", ", texts[2:]...)}
}

// picture is a drawing of a size.
type picture struct {
	W, H   int
	Label  string
	Frames []frame
	Boxes  []box
	Arrows []arrow
}

// frame is a cluster.
type frame struct {
	X, Y, W, H, TextX, TextY int
	Title, Name              string
}

// box is a part of a cluster.
type box struct {
	X, Y, W, H         int
	Class, Word, Whole string
	// EndX and WordY are where the word ends.
	EndX, WordY int
	Texts       []label
}

// arrow is a line with a head at its end, and words.
type arrow struct {
	X1, Y1, X2, Y2 int
	Class, Head    string
	Texts          []label
}

// label is one line of text at a place.
type label struct {
	X, Y        int
	Text, Class string
}

const (
	// lineHeight is the distance of two lines. columnTenths is the width of a column of the font, in tenths.
	lineHeight   = 17
	columnTenths = 73
	padding      = 12
	headLength   = 9
)

// boxOf returns a box with as much of its content as it has room for.
func boxOf(x, y, w, h int, f fact) box {
	out := box{X: x, Y: y, W: w, H: h, Class: f.class, Word: f.word}
	out.Whole = joined(", ", append([]string{f.title, f.word}, f.lines...)...)
	out.EndX, out.WordY = x+w-padding, y+lineHeight+3
	out.Texts = []label{{x + padding, y + lineHeight + 3, cut(f.title, w-padding*2-110), "title"}}
	at := y + lineHeight + 3
	for _, line := range f.lines {
		if line == "" || at+lineHeight > y+h-4 {
			continue
		}
		at += lineHeight
		out.Texts = append(out.Texts, label{x + padding, at, cut(line, w-padding*2), "mono"})
	}
	return out
}

// cut returns as much of a line as fits into a width.
func cut(line string, width int) string {
	most := max(width*10/columnTenths, 1)
	end, columns := 0, 0
	for i, r := range line {
		if columns <= most-len(text.Ellipsis) {
			end = i
		}
		columns += columnsOf(r)
	}
	if columns <= most {
		return line
	}
	return line[:end] + text.Ellipsis
}

// columnsOf returns how many columns a character takes. Those of East Asian scripts take two. All of them come after
// those of one column that the font has.
func columnsOf(r rune) int {
	if r >= 0x1100 {
		return 2
	}
	return 1
}

// across returns a horizontal arrow. Its words are above it.
func across(x1, x2, y int, f fact) arrow {
	out := arrow{X1: x1, Y1: y, X2: x2, Y2: y, Class: f.class}
	back := headLength
	if x2 < x1 {
		back = -headLength
	}
	out.Head = fmt.Sprintf("%d,%d %d,%d %d,%d", x2, y, x2-back, y-5, x2-back, y+5)
	out.X2 -= back
	width := max(x1, x2) - min(x1, x2)
	at := y - 8
	for _, line := range reversed([]string{f.title, joined(", ", f.lines...)}) {
		out.Texts = append(out.Texts, label{(x1 + x2) / 2, at, cut(line, width), "mono"})
		at -= lineHeight - 2
	}
	return out
}

// along returns a vertical arrow. Its words interrupt it.
func along(x, y1, y2, width int, f fact) []arrow {
	lines := append([]string{f.title}, shownLines(f.lines)...)
	middle, half := (y1+y2)/2, (len(lines)*lineHeight)/2
	top, bottom := middle-half-6, middle+half+4
	down := y2 > y1
	first := arrow{X1: x, Y1: y1, X2: x, Y2: top, Class: f.class}
	second := arrow{X1: x, Y1: bottom, X2: x, Y2: y2 - headLength, Class: f.class}
	second.Head = fmt.Sprintf("%d,%d %d,%d %d,%d", x, y2, x-5, y2-headLength, x+5, y2-headLength)
	if !down {
		first = arrow{X1: x, Y1: y2 + headLength, X2: x, Y2: top, Class: f.class}
		first.Head = fmt.Sprintf("%d,%d %d,%d %d,%d", x, y2, x-5, y2+headLength, x+5, y2+headLength)
		second = arrow{X1: x, Y1: bottom, X2: x, Y2: y1, Class: f.class}
	}
	for i, line := range lines {
		first.Texts = append(first.Texts, label{x, top + 18 + i*lineHeight, cut(line, width), "mono"})
	}
	return []arrow{first, second}
}

func reversed(lines []string) []string {
	out := shownLines(lines)
	slices.Reverse(out)
	return out
}

// shownLines returns the lines that are not empty.
func shownLines(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return line == "" })
}
