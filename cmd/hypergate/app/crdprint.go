package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/text"
)

// report is what crds prints: as a table, or as it is.
type report interface {
	table(out io.Writer)
	code() int
}

// printed prints a report, and ends with its exit code.
func printed(out io.Writer, format string, r report) error {
	var rendered strings.Builder
	switch format {
	case "json":
		encoder := json.NewEncoder(&rendered)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("printing the report: %w", err)
		}
	case "yaml":
		data, err := yaml.Marshal(r)
		if err != nil {
			return fmt.Errorf("printing the report: %w", err)
		}
		rendered.Write(data)
	default:
		r.table(&rendered)
	}
	if _, err := io.WriteString(out, text.Lines(rendered.String())); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	if code := r.code(); code != exitOK {
		return codeError(code)
	}
	return nil
}

// columns prints rows as kubectl does.
func columns(out io.Writer, rows ...[]string) {
	w := tabwriter.NewWriter(out, 6, 4, 3, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // into memory
}

// oneLine is a text of the guest's as one cell of a table.
func oneLine(theirs string) string { return text.Line(theirs, longestCell) }

// longestCell is the longest text in a table, in bytes: more than the longest that is of use, the differences of two CRDs.
const longestCell = 64 << 10

// table is the report for people.
func (r crdReport) table(out io.Writer) {
	rows := append(make([][]string, 0, 1+len(r.CRDs)), []string{"CRD", "OWNER", "INSTALLED", "WANTED", "VERDICT", "NEXT STEP"})
	var why [][]string
	for _, line := range r.CRDs {
		rows = append(rows, []string{line.Name, line.Owner.short(), line.installed(), line.Wanted.String(), line.Verdict, orNothing(line.NextStep)})
		if line.stuck() || line.Verdict == string(crds.Wait) || line.Verdict == string(crds.Keep) && line.Content == different {
			why = append(why, []string{"  " + line.Name, line.Message})
		}
	}
	columns(out, rows...)
	if r.ManagementMode != string(crds.Managed) {
		fmt.Fprintf(out, "\nThe management mode is %s: nothing is written, and istiod does not run.\n", oneLine(r.ManagementMode))
	}
	if len(why) > 0 {
		fmt.Fprintln(out, "\nWhy:")
		columns(out, why...)
	}
	if len(r.ObjectsInUse) > 0 {
		fmt.Fprintf(out, "\nObjects that use what istiod %s ignores:\n", r.IstioVersion)
		columns(out, objectRows(r.ObjectsInUse)...)
	}
	if len(r.UnknownKinds) > 0 {
		fmt.Fprintf(out, "\nKinds that are served and that istiod %s does not know: %s\n", r.IstioVersion, oneLine(strings.Join(r.UnknownKinds, ", ")))
	}
}

// objectRows are objects with one row for each field.
func objectRows(list []objectLine) [][]string {
	var rows [][]string
	for _, o := range list {
		name := "  " + o.CRD + " " + strings.TrimPrefix(o.Namespace+"/", "/") + o.Name
		if len(o.Fields) == 0 {
			rows = append(rows, []string{name, "all of it"})
		}
		for i, f := range o.Fields {
			if i > 0 {
				name = ""
			}
			rows = append(rows, []string{name, f.String()})
		}
	}
	return rows
}

// table is the report for people.
func (r takeoverReport) table(out io.Writer) {
	if len(r.Takeovers) == 0 {
		fmt.Fprintln(out, "There is nothing to take over: each CRD is hypergate's, or is not there.")
		return
	}
	if r.ManagementMode != string(crds.Managed) {
		fmt.Fprintf(out, "The management mode is %s: this is what would happen in mode Managed.\n", oneLine(r.ManagementMode))
	}
	for i, t := range r.Takeovers {
		if i > 0 {
			fmt.Fprintln(out)
		}
		t.print(out)
	}
}

func (t takeover) print(out io.Writer) {
	fmt.Fprintln(out, oneLine(t.Name))
	may := "no: " + t.Message
	if t.Verdict == string(crds.Adopt) {
		may = "yes: " + t.Message
	}
	rows := [][]string{{"  owner", t.Owner.String()}, {"  installed", t.installed()}, {"  wanted", t.Wanted.String()}, {"  takeover", may}}
	add := func(name string, texts []string) {
		for _, text := range texts {
			rows = append(rows, []string{name, text})
			name = ""
		}
	}
	if t.NextStep != "" {
		add("  next step", []string{t.NextStep})
	}
	add("  API server", []string{t.APIServer.String()})
	add("  lost", fieldTexts(t.Lost))
	add("  gained", fieldTexts(t.Gained))
	add("  changed", fieldTexts(t.Changed))
	add("  other", t.Other)
	add("  cannot be changed", t.Unchangeable)
	add("  stored versions lost", t.StoredVersionsLost)
	columns(out, rows...)
	if t.Content == "Same" {
		fmt.Fprintln(out, "  Both are the same to every client.")
	}
	if len(t.ObjectsInUse) > 0 {
		fmt.Fprintln(out, "  Objects that use what would vanish:")
		columns(out, objectRows(t.ObjectsInUse)...)
	}
}

func fieldTexts(list []fieldLine) []string {
	out := make([]string, 0, len(list))
	for _, f := range list {
		out = append(out, f.String())
	}
	return out
}

// String is the field with its versions, and a mark where it may be what keeps somebody out.
func (f fieldLine) String() string {
	text := crds.Field{Path: f.Path, Versions: f.Versions}.String()
	if f.Security != "" {
		text += " [security]"
	}
	return text
}

// String is the owner as people read it.
func (o ownerLine) String() string {
	if o.Kind == "none" {
		return orNothing("")
	}
	return crds.Owner{Kind: crds.OwnerKind(o.Kind), Name: o.Name, Namespace: o.Namespace}.String()
}

// short is the owner in a table. Of an unknown one the name is a sentence.
func (o ownerLine) short() string {
	if o.Kind == string(crds.Unknown) {
		return o.Kind
	}
	return o.String()
}

// String is the version and the channel.
func (r releaseLine) String() string {
	if r.Version == "" && r.Channel == "" {
		return "no version"
	}
	return strings.TrimSpace(r.Version + " " + r.Channel)
}

// String is the answer in words.
func (a answer) String() string {
	switch a.Result {
	case accepted:
		return "accepts it"
	case refused:
		return "refuses it: " + a.Message
	default:
		return "was not asked: " + a.Message
	}
}

// installed is the version that is there, and whether it is what it claims to be.
func (l crdLine) installed() string {
	switch l.Content {
	case "Absent":
		return orNothing("")
	case different:
		if l.Installed == l.Wanted {
			return l.Installed.String() + ", altered"
		}
	}
	return l.Installed.String()
}

// orNothing is a text, or what kubectl prints where there is none.
func orNothing(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}
