package app

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

// report is the output of the command crds: a table for people, or the value itself as JSON or YAML.
type report interface {
	table(out io.Writer)
	code() int
}

// printed prints a report in a format, and returns its exit code as a codeError. The result is nil for exit code 0.
func printed(out io.Writer, format string, r report) error {
	var rendered strings.Builder
	switch format {
	case outputHTML:
		return printedPage(out, r)
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
	output := rendered.String()
	if c, is := r.(interface{ isColored() bool }); !is || !c.isColored() {
		output = text.Lines(output)
	}
	return write(out, output, r)
}

// write prints a rendered report, and returns its exit code as a codeError.
func write(out io.Writer, rendered string, r report) error {
	if _, err := io.WriteString(out, rendered); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	if code := r.code(); code != exitOK {
		return codeError(code)
	}
	return nil
}

// printedPage prints a report as a page for a browser.
func printedPage(out io.Writer, r report) error {
	p, is := r.(interface{ webpage() ([]byte, error) })
	if !is {
		return fmt.Errorf("--output: %s is not supported here", outputHTML)
	}
	rendered, err := p.webpage()
	if err != nil {
		return err
	}
	return write(out, string(rendered), r)
}

// columns prints rows in aligned columns, as kubectl does. No line ends in spaces: on a narrow screen, they would wrap
// to an empty line.
func columns(out io.Writer, rows ...[]string) {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 6, 4, 3, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // into memory
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n"))
	}
}

// oneLine returns a text from the guest as one cell of a table, without control characters.
func oneLine(theirs string) string { return text.Line(theirs, longestCell) }

// longestCell is the maximum size of a cell in a table, in bytes. The longest useful text, the differences of two CRDs,
// is shorter.
const longestCell = 64 << 10

// table prints the report as a table for people.
func (r crdReport) table(out io.Writer) {
	rows := append(make([][]string, 0, 1+len(r.CRDs)), []string{"CRD", "OWNER", "INSTALLED", "WANTED", "VERDICT", "NEXT STEP"})
	var why [][]string
	for _, line := range r.CRDs {
		rows = append(rows, []string{
			line.Name, line.Owner.short(), line.installed(), line.Wanted.String(), line.Verdict, orNothing(line.NextStep),
		})
		left := line.Content == different || line.Reason == string(crds.IsLeftAbsent)
		if line.stuck() || line.Verdict == string(crds.Wait) || line.Verdict == string(crds.Keep) && left {
			why = append(why, []string{"  " + line.Name, line.Message})
		}
	}
	columns(out, rows...)
	if r.ManagementMode != string(crds.Managed) {
		fmt.Fprintf(out, "\nThe management mode is %s: hypergate does not change CRDs, and removes istiod and its webhooks.\n",
			oneLine(r.ManagementMode))
	}
	if len(why) > 0 {
		fmt.Fprintln(out, "\nReasons:")
		columns(out, why...)
	}
	r.printIgnored(out)
}

// printIgnored prints the objects and the kinds that istiod ignores, with the next steps.
func (r crdReport) printIgnored(out io.Writer) {
	if len(r.ObjectsInUse) > 0 {
		fmt.Fprintf(out, "\nObjects that use fields or kinds that istiod %s ignores:\n", r.IstioVersion)
		columns(out, objectRows(r.ObjectsInUse)...)
		printMore(out, r.ObjectsNotListed, r.cut...)
		step := "remove these fields and objects"
		if r.couldServe() {
			step += ", or let istiod serve their kinds (see below)"
		}
		fmt.Fprintf(out, "  Next step: %s\n", step)
	}
	if len(r.UnknownKinds) > 0 {
		fmt.Fprintf(out, "\nServed kinds that istiod %s ignores: %s\n", r.IstioVersion, oneLine(strings.Join(r.UnknownKinds, ", ")))
		fmt.Fprintf(out, "  Next step: list their objects with the guest's kubeconfig: %s\n", listing(r.UnknownKinds))
		if r.couldServe() {
			fmt.Fprintln(out, "  istiod serves a kind that it knows only if the CRD serves the version that istiod reads, "+
				"and, for kinds of Istio, if --istio-resources names the kind.")
		}
	}
}

// printMore prints how many objects are not listed, and the command that lists all objects of the kinds that are cut.
func printMore(out io.Writer, objects int, kinds ...string) {
	if objects > 0 {
		fmt.Fprintf(out, "  and %d more\n", objects)
	}
	if objects > 0 && len(kinds) > 0 {
		fmt.Fprintf(out, "  To list all objects of the kinds that are cut, with the guest's kubeconfig: %s\n", listing(kinds))
	}
}

// listing returns the command of kubectl that lists all objects of kinds. The name of a CRD is <resource>.<group>. A
// name that kube-apiserver would not accept is left out, because it could begin another command.
func listing(kinds []string) string {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return !model.IsName(kind) })
	return "kubectl get " + strings.Join(kinds, ",") + " -A"
}

// objectRows returns the rows of a list of objects, with one row for each field.
func objectRows(list []objectLine) [][]string {
	var rows [][]string
	for _, o := range list {
		name := "  " + o.CRD + " " + strings.TrimPrefix(o.Namespace+"/", "/") + o.Name
		if len(o.Fields) == 0 {
			rows = append(rows, []string{name, "the whole object"})
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

// table prints the report as a list for people.
func (r takeoverReport) table(out io.Writer) {
	if len(r.Takeovers) == 0 {
		fmt.Fprintln(out, "No CRDs to take over: each CRD belongs to hypergate or does not exist.")
		return
	}
	if r.ManagementMode != string(crds.Managed) {
		fmt.Fprintf(out, "The management mode is %s: this report shows what would happen in mode Managed.\n", oneLine(r.ManagementMode))
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
		fmt.Fprintln(out, "  The installed and the wanted CRD are equivalent for every client.")
	}
	if len(t.ObjectsInUse)+t.ObjectsNotListed > 0 {
		fmt.Fprintln(out, "  Objects that use fields that would be removed:")
		columns(out, objectRows(t.ObjectsInUse)...)
		printMore(out, t.ObjectsNotListed, t.Name)
	}
}

func fieldTexts(list []fieldLine) []string {
	out := make([]string, 0, len(list))
	for _, f := range list {
		out = append(out, f.String())
	}
	return out
}

// String returns the field with its versions, and a mark if the field may restrict access.
func (f fieldLine) String() string {
	text := crds.Field{Path: f.Path, Versions: f.Versions}.String()
	if f.Security != "" {
		text += " [security]"
	}
	return text
}

// String returns the owner as text for people.
func (o ownerLine) String() string {
	if o.Kind == "none" {
		return orNothing("")
	}
	return crds.Owner{Kind: crds.OwnerKind(o.Kind), Name: o.Name, Namespace: o.Namespace}.String()
}

// short returns the owner as a cell of a table. It omits the name of an unknown owner, because that is a sentence.
func (o ownerLine) short() string {
	if o.Kind == string(crds.Unknown) {
		return o.Kind
	}
	return o.String()
}

// String returns the version and the channel.
func (r releaseLine) String() string {
	if r.Version == "" && r.Channel == "" {
		return "no version"
	}
	return strings.TrimSpace(r.Version + " " + r.Channel)
}

// String returns the answer as text for people.
func (a answer) String() string {
	switch a.Result {
	case accepted:
		return "accepts the takeover"
	case refused:
		return "rejects the takeover: " + a.Message
	default:
		return "not asked: " + a.Message
	}
}

// installed returns the version of the installed CRD. It adds "modified" if the CRD claims the wanted version, but has
// other content.
func (l crdLine) installed() string {
	switch l.Content {
	case "Absent":
		return orNothing("")
	case different:
		if l.Installed == l.Wanted {
			return l.Installed.String() + ", modified"
		}
	}
	return l.Installed.String()
}

// orNothing returns a text, or <none> for an empty text, as kubectl prints it.
func orNothing(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}
