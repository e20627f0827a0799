package app

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/webpage"
)

// statusReport is the output of the command status.
type statusReport struct {
	Installations []summary.Reading `json:"installations"`

	screen screen
	wide   bool
	goal   goal
	now    time.Time
}

// isColored reports whether the table has escape characters of its own. All texts of a reading are printable already.
func (r statusReport) isColored() bool { return r.screen.color }

// webpage returns the report as a page for a browser.
func (r statusReport) webpage() ([]byte, error) {
	return webpage.OfInstallations(r.Installations, r.now)
}

func (r statusReport) code() int { return exitCode(r.goal.worst(r.Installations)) }

func (r statusReport) table(out io.Writer) {
	var text strings.Builder
	for i, reading := range r.Installations {
		if i > 0 {
			text.WriteString("\n")
		}
		page{&text, r.screen, reading, r.wide, r.now}.print()
	}
	fmt.Fprint(out, text.String())
}

// page prints one installation.
type page struct {
	out *strings.Builder
	screen

	reading summary.Reading
	wide    bool
	now     time.Time
}

func (p page) print() {
	r, s := p.reading, p.reading.Summary
	since := p.since(r.Since)
	if what := r.SinceWhat(); what != "" {
		since = ", " + what + since
	}
	fmt.Fprintln(p.out, p.cut(nameOf(r), len(stateWord(r.State))+len(since)+3)+"   "+p.state(r.State, 0)+since)
	if r.Why != "" {
		p.wrapped(p.out, "  ", r.Why)
	}
	if s == nil {
		p.list("MANAGEMENT "+r.Namespace, p.lease())
		return
	}
	left, right := p.management(s), p.guest(s)
	p.list("MANAGEMENT "+r.Namespace, left)
	p.list("GUEST", right)
	p.conditions(s)
	for _, e := range r.Expiring {
		fmt.Fprintln(p.out, p.cut("! "+e.What+": "+p.left(e.Until), 0))
	}
}

// list prints rows of a label and a text.
func (p page) list(title string, rows [][2]string) {
	fmt.Fprintln(p.out, p.cut(title, 0))
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintln(p.out, p.cut(fmt.Sprintf("  %-12s%s", row[0], row[1]), 0))
		}
	}
}

func (p page) lease() [][2]string {
	holder := p.reading.Holder
	if holder == "" {
		holder = "no pod"
	}
	return [][2]string{
		{"Lease", p.reading.Lease + ", renewed " + p.ago(p.reading.Renewed)},
		{"holder", holder},
	}
}

func (p page) management(s *summary.Summary) [][2]string {
	rows := append([][2]string{{"hypergate", orNothing(s.Hypergate) + ", summary of " + p.ago(s.Time)}}, p.lease()...)
	rows = append(rows,
		[2]string{"lifecycle", string(s.Lifecycle) + p.since(s.PausedSince) + p.until(s.PausedUntil)},
		[2]string{"istiod", p.istiod(s)},
	)
	if s.Published.State != "" {
		rows = append(rows, [2]string{"published", s.Published.Text()}, [2]string{"probe", s.Published.Probe})
	}
	rows = append(rows, [2]string{"token", p.left(s.Token.Until) + p.renewed(s)})
	if !s.CA.Expires.IsZero() {
		text := "until " + s.CA.Expires.Format(time.DateOnly) + ", " + s.CA.Phase
		if s.CA.ByOther {
			text += ", not rotated by hypergate"
		}
		rows = append(rows, [2]string{"mesh CA", text})
	} else if s.IsCAUnobserved() {
		rows = append(rows, [2]string{"mesh CA", summary.NotObserved})
	}
	return append(rows, [2]string{"writes", fmt.Sprintf("%d since the pod started, %d repairs", s.Writes, s.Repairs)})
}

// istiod returns the state of istiod, and the versions that run and that are planned.
func (p page) istiod(s *summary.Summary) string {
	text := s.Istiod.StateText() + p.since(s.Istiod.Since)
	if pods := s.Istiod.PodsText(); pods != "" {
		text += ", " + pods
	}
	if s.Istiod.Version != "" {
		text += ", runs version " + s.Istiod.Version
	}
	return text + ", planned version " + s.Istio
}

func (p page) guest(s *summary.Summary) [][2]string {
	return [][2]string{
		{"API", s.GuestAPI.Text()},
		{"owner", s.Owner},
		{"classes", s.ClassesText()},
		{"CRDs", crdsText(s)},
		{"webhook", p.webhook(s)},
		{"gateways", s.Gateways.Text()},
		{"credential", s.CredentialText(p.left(s.GuestCredential.Until))},
	}
}

func (p page) webhook(s *summary.Summary) string {
	if s.Webhook.Policy == "" {
		return ""
	}
	return s.Webhook.Policy + p.since(s.Webhook.Since)
}

func crdsText(s *summary.Summary) string {
	if s.GuestUnobserved {
		return summary.NotObserved
	}
	c := s.CRDs
	parts := []string{fmt.Sprintf("%d of hypergate", c.Ours)}
	for _, more := range []struct {
		n    int
		text string
	}{{c.Others, "of other owners"}, {c.Blocked, "blocked"}, {c.Undetermined, "undetermined"}} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", more.n, more.text))
		}
	}
	return strings.Join(parts, ", ")
}

// conditions prints the conditions. Messages are printed only if they report a problem or a change, or with -o wide.
func (p page) conditions(s *summary.Summary) {
	if len(s.Conditions) > 0 {
		fmt.Fprintln(p.out, "CONDITIONS")
	}
	if s.HasOldConditions() {
		p.wrapped(p.out, "  ", "These are from before the pause, except Progressing.")
	}
	for _, c := range s.Conditions {
		line := fmt.Sprintf("  %-12s%-8s%-6s%s", c.Type, c.Status, p.age(c.Since), c.Reason)
		fmt.Fprintln(p.out, p.cut(line, 0))
		usual := summary.True
		if c.Type == summary.Degraded || c.Type == summary.Progressing {
			usual = summary.False
		}
		isWhy := p.reading.Why == c.Reason+": "+c.Message // which is printed already
		if !isWhy && (p.wide || c.Status != usual) {
			p.wrapped(p.out, "    ", c.Message)
		}
	}
}

// age returns the time since a time, as kubectl shows it. It returns a dash if the time is not known.
func (p page) age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(p.now.Sub(t), 0))
}

func (p page) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + p.age(t)
}

func (p page) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return p.age(t) + " ago"
}

func (p page) until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.Format(time.RFC3339)
}

// renewed returns when hypergate renews istiod's token. It is empty if that is due, or if hypergate is on hold or does
// not run.
func (p page) renewed(s *summary.Summary) string {
	at := model.Credential{Issued: s.Token.From, Expires: s.Token.Until}.RenewAt()
	if s.Token.From.IsZero() || !p.now.Before(at) || s.Lifecycle.IsOnHold() || p.reading.State == summary.Silent {
		return ""
	}
	return ", renewed in " + duration.HumanDuration(at.Sub(p.now))
}

// left returns how long something is still valid. It returns an empty string if that is not known.
func (p page) left(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !p.now.Before(t):
		return "expired " + p.ago(t)
	default:
		return duration.HumanDuration(t.Sub(p.now)) + " left"
	}
}
