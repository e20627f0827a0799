package migration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/text"
)

// ReportAnnotation is the Report.
const ReportAnnotation = "gateway.hypergate.dev/migration-report"

const (
	// MaxReport is the size limit of an encoded Report, in bytes.
	MaxReport = 16 << 10
	// longestName is the size limit of a name, and longestText that of a sentence, in bytes. mostReported is how many
	// Gateways are counted.
	longestName, longestText = 320, 300
	mostReported             = 9999
	reportSchema             = 1
)

// encodedReport is the format of a Report. Times are seconds since 1970, and 0 is none. Fields are added, and never
// renamed or removed: another version of hypergate can read it.
type encodedReport struct {
	Schema      int              `json:"schema"`
	Goal        Goal             `json:"goal,omitempty"`
	Paused      bool             `json:"paused,omitempty"`
	RequestedAt int64            `json:"requestedAt,omitempty"`
	Phase       Phase            `json:"phase,omitempty"`
	Since       int64            `json:"since,omitempty"`
	Progress    Progress         `json:"progress"`
	Why         Reason           `json:"why,omitempty"`
	WhySince    int64            `json:"whySince,omitempty"`
	Gateway     string           `json:"gateway,omitempty"`
	Cause       string           `json:"cause,omitempty"`
	Findings    []Finding        `json:"findings,omitempty"`
	HasOrigin   bool             `json:"hasOrigin,omitempty"`
	Leftovers   []Leftover       `json:"leftovers,omitempty"`
	Moved       int              `json:"moved,omitempty"`
	Moving      int              `json:"moving,omitempty"`
	Gateways    []encodedGateway `json:"gateways,omitempty"`
	More        int              `json:"more,omitempty"`
}

type encodedGateway struct {
	Namespace string       `json:"ns"`
	Name      string       `json:"name"`
	State     GatewayState `json:"state"`
	Since     int64        `json:"since,omitempty"`
}

// Encode returns a Report as one line of at most MaxReport bytes. Gateways that do not fit are only counted.
func (r Report) Encode() (string, error) {
	r = r.clean()
	for {
		longest, err := r.timed().line()
		switch {
		case err != nil:
			return "", fmt.Errorf("encoding the report of the migration: %w", err)
		case len(longest) <= MaxReport:
			return r.line()
		case len(r.Gateways) == 0:
			return "", fmt.Errorf("the report of the migration has %d bytes without Gateways: the limit is %d", len(longest), MaxReport)
		}
		r = r.without((len(r.Gateways) + 9) / 10)
	}
}

// timed returns the report with the longest times, so that which Gateways fit does not depend on the time.
func (r Report) timed() Report {
	latest := timeOf(latestTime)
	r.Since, r.WhySince, r.Intent.At = latest, latest, latest
	r.Gateways = slices.Clone(r.Gateways)
	for i := range r.Gateways {
		r.Gateways[i].Since = latest
	}
	return r
}

func (r Report) line() (string, error) {
	in := encodedReport{
		Schema: reportSchema, Goal: r.Intent.Goal, Paused: r.Intent.Paused, RequestedAt: seconds(r.Intent.At),
		Phase: r.Phase, Since: seconds(r.Since), Progress: r.Progress, Why: r.Why, WhySince: seconds(r.WhySince), Gateway: r.Gateway,
		Cause: r.Cause, Findings: r.Findings, HasOrigin: r.HasOrigin, Leftovers: r.Leftovers,
		Moved: counted(r.Moved), Moving: counted(r.Moving), More: counted(r.More),
	}
	for _, g := range r.Gateways {
		in.Gateways = append(in.Gateways, encodedGateway{g.Namespace, g.Name, g.State, seconds(g.Since)})
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // a short form: no browser reads it
	err := encoder.Encode(in)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// ParseReport returns the Report of an annotation. Without one, it is the zero value. A caller can go on with the zero
// value after an error. It accepts unknown fields: a later version can have written it.
func ParseReport(annotation string) (Report, error) {
	if annotation == "" {
		return Report{}, nil
	}
	if len(annotation) > MaxReport {
		return Report{}, fmt.Errorf("the annotation %s has %d bytes: the limit is %d", ReportAnnotation, len(annotation), MaxReport)
	}
	var in encodedReport
	if err := json.Unmarshal([]byte(annotation), &in); err != nil {
		return Report{}, fmt.Errorf("the annotation %s is not the report of a migration: %w", ReportAnnotation, err)
	}
	if err := in.check(); err != nil {
		return Report{}, fmt.Errorf("the annotation %s: %w", ReportAnnotation, err)
	}
	out := Report{
		Intent: Intent{Goal: in.Goal, Paused: in.Paused, At: timeOf(in.RequestedAt)},
		Phase:  in.Phase, Since: timeOf(in.Since), Progress: in.Progress, Why: Reason(word(string(in.Why))), WhySince: timeOf(in.WhySince),
		Gateway: in.Gateway, Cause: in.Cause, Findings: in.Findings, HasOrigin: in.HasOrigin, Leftovers: in.Leftovers,
		Moved: in.Moved, Moving: in.Moving, More: in.More,
	}
	for _, g := range in.Gateways {
		out.Gateways = append(out.Gateways, ReportedGateway{g.Namespace, g.Name, g.State, timeOf(g.Since)})
	}
	return out.clean(), nil
}

func (e encodedReport) check() error {
	switch {
	case e.Schema != reportSchema:
		return fmt.Errorf("schema %d is not supported", e.Schema)
	case e.Goal != NoGoal && !slices.Contains(goals(), e.Goal):
		return unsupported("goal", string(e.Goal), goals())
	case e.Phase != "" && !slices.Contains(Phases(), e.Phase):
		return unsupported("phase", string(e.Phase), Phases())
	case !slices.Contains(progresses(), e.Progress):
		return unsupported("progress", string(e.Progress), progresses())
	case min(e.Moved, e.Moving, e.More) < 0, max(e.Moved, e.Moving, e.More) > mostReported:
		return errors.New("a number is out of range")
	}
	times := []int64{e.RequestedAt, e.Since, e.WhySince}
	for _, g := range e.Gateways {
		if !slices.Contains(gatewayStates(), g.State) {
			return unsupported("state of a Gateway", string(g.State), gatewayStates())
		}
		times = append(times, g.Since)
	}
	if slices.Min(times) < 0 || slices.Max(times) > latestTime {
		return errors.New("a time is out of range")
	}
	return nil
}

func counted(n int) int { return min(max(n, 0), mostReported) }

// name returns the name of an object as it is reported. It has no characters that JSON escapes, so its limit is that of
// the encoding, too.
func name(s string) string { return unescaped(text.Line(s, longestName)) }

func word(s string) string { return unescaped(text.Line(s, longestQuoted)) }

func limited(s string) string { return unescaped(text.Line(s, longestText)) }

func unescaped(s string) string { return strings.NewReplacer(`"`, "'", `\`, "/").Replace(s) }

// clean returns a finding with texts of limited size.
func (f Finding) clean() Finding {
	f.Severity, f.Code, f.More = Severity(word(string(f.Severity))), Code(word(string(f.Code))), counted(f.More)
	f.Object, f.Message, f.NextStep = f.Object.clean(), limited(f.Message), limited(f.NextStep)
	return f
}

func (o Object) clean() Object {
	return Object{Kind: word(o.Kind), Namespace: name(o.Namespace), Name: name(o.Name)}
}
