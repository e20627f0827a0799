package webpage

import (
	"fmt"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
)

// installationOf returns what the page shows of a reading.
func installationOf(r summary.Reading, now time.Time) installation {
	out := installation{Name: r.Namespace, For: sinceText(r, now), Why: r.Why, State: stateOf(r.State), Management: leaseRows(r, now)}
	for _, e := range r.Expiring {
		out.Expiring = append(out.Expiring, row{e.What, left(e.Until, now)})
	}
	s := r.Summary
	if s == nil {
		return out
	}
	if s.Guest != "" {
		out.Name = s.Guest
	}
	out.HasSummary, out.AreOld = true, s.HasOldConditions()
	f := factsOf(r, now)
	out.Wide, out.Narrow = wide(f), narrow(f)
	for _, c := range s.Conditions {
		out.Conditions = append(out.Conditions, condition{c.Type, age(c.Since, now), c.Reason, c.Message, statusOf(c)})
	}
	out.Management = append(out.Management, managementRows(*s, now)...)
	out.Rest = guestRows(*s, now)
	if !s.CA.Expires.IsZero() {
		out.Phases = phasesOf(s.CA.Phase)
	}
	return out
}

// sinceText returns since when a state holds, in words. It is empty if that is not known.
func sinceText(r summary.Reading, now time.Time) string {
	if r.Since.IsZero() {
		return ""
	}
	return joined(" ", r.SinceWhat(), since(r.Since, now))
}

// statusOf returns the status of a condition. Degraded and Progressing are usually False.
func statusOf(c summary.Condition) state {
	usual, class := summary.True, classOK
	if c.Type == summary.Degraded || c.Type == summary.Progressing {
		usual = summary.False
	}
	switch {
	case c.Status == usual:
	case c.Type == summary.Degraded && c.Status == summary.True:
		class = classAct
	default:
		class = classBusy
	}
	return state{c.Status, class}
}

func leaseRows(r summary.Reading, now time.Time) []row {
	renewed := "never"
	if !r.Renewed.IsZero() {
		renewed = age(r.Renewed, now) + " ago"
	}
	return shown(row{"Lease", r.Lease + ", renewed " + renewed}, row{"holder", r.Holder})
}

func managementRows(s summary.Summary, now time.Time) []row {
	lifecycle := joined(" ", string(s.Lifecycle), since(s.PausedSince, now))
	if !s.PausedUntil.IsZero() {
		lifecycle += " until " + s.PausedUntil.UTC().Format(time.RFC3339)
	}
	ca := ""
	if !s.CA.Expires.IsZero() {
		ca = "until " + s.CA.Expires.Format(time.DateOnly)
	} else if s.IsCAUnobserved() {
		ca = summary.NotObserved
	}
	return shown(
		row{"hypergate", s.Hypergate + ", summary of " + age(s.Time, now) + " ago"},
		row{"topology", s.Topology},
		row{"lifecycle", lifecycle},
		row{"istiod", joined(", ", s.Istiod.StateText(), versions(&s))},
		row{"published", s.Published.Text()},
		row{"probe", s.Published.Probe},
		row{"token", left(s.Token.Until, now)},
		row{"mesh CA", ca},
		row{"writes", fmt.Sprintf("%d since the pod started, %d repairs", s.Writes, s.Repairs)},
	)
}

func guestRows(s summary.Summary, now time.Time) []row {
	return shown(
		row{"API", s.GuestAPI.Text()},
		row{"owner", s.Owner},
		row{"classes", s.ClassesText()},
		row{"CRDs", joined(", ", crdTexts(s)...)},
		row{"webhook", s.Webhook.Policy},
		row{"gateways", s.Gateways.Text()},
		row{"credential", s.CredentialText(left(s.GuestCredential.Until, now))},
	)
}

// crdTexts counts the CRDs. The first two texts are about owners, the rest about those that need attention. It returns
// one word if the guest was not observed.
func crdTexts(s summary.Summary) []string {
	if s.GuestUnobserved {
		return []string{summary.NotObserved}
	}
	out := []string{fmt.Sprintf("%d of hypergate", s.CRDs.Ours), fmt.Sprintf("%d of other owners", s.CRDs.Others)}
	if s.CRDs.Blocked > 0 {
		out = append(out, fmt.Sprintf("%d blocked", s.CRDs.Blocked))
	}
	if s.CRDs.Undetermined > 0 {
		out = append(out, fmt.Sprintf("%d undetermined", s.CRDs.Undetermined))
	}
	return out
}

// phasesOf returns the phases of a CA rotation, in their order.
func phasesOf(now string) []phase {
	out := []phase{{Name: summary.PhaseSteady}, {Name: "spreading"}, {Name: "settling"}}
	for i := range out {
		out[i].IsNow = out[i].Name == now
	}
	return out
}

// shown returns the rows that have a text.
func shown(rows ...row) (out []row) {
	for _, r := range rows {
		if r.Text != "" {
			out = append(out, r)
		}
	}
	return out
}

// joined joins the texts that are not empty.
func joined(separator string, texts ...string) string {
	var out []string
	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, separator)
}
