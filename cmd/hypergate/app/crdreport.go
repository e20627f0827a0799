package app

import (
	"cmp"
	"slices"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// crdFindings is what is known about a guest's CRDs. The reports are made from it.
type crdFindings struct {
	istio    string
	mode     crds.Mode
	crds     []crds.CRD
	unserved []string
	// inUse are the first objects in use, and totals has the number of all of them by CRD.
	inUse  []crds.InUse
	totals map[string]int
}

// crdReport is the output of the command crds. Its JSON is an interface: fields can be added, but existing fields are
// never renamed or removed.
type crdReport struct {
	// ManagementMode is Managed or Unmanaged.
	ManagementMode string `json:"managementMode"`
	// IstioVersion is the version of the istiod that ignores ObjectsInUse and UnknownKinds.
	IstioVersion string `json:"istioVersion"`
	// CRDs lists all CRDs that hypergate can install, sorted by name.
	CRDs []crdLine `json:"crds"`
	// ObjectsInUse lists objects that use served fields or kinds that istiod ignores, at most 100. Objects whose
	// fields may be relevant to security come first.
	ObjectsInUse []objectLine `json:"objectsInUse"`
	// ObjectsNotListed is the number of further such objects.
	ObjectsNotListed int `json:"objectsNotListed"`
	// UnknownKinds lists the served CRDs of the Gateway API's and Istio's groups that istiod does not serve, or whose
	// objects it cannot read, because the CRD does not serve the version that it reads.
	UnknownKinds []string `json:"unknownKinds"`
	// cut has the CRDs of the objects that are not listed, sorted.
	cut []string
}

// crdLine is one CRD in a report.
type crdLine struct {
	Name  string    `json:"name"`
	Owner ownerLine `json:"owner"`
	// Installed and Wanted are the versions and channels. Installed is what the CRD claims to be.
	Installed releaseLine `json:"installed"`
	Wanted    releaseLine `json:"wanted"`
	// Content compares the installed CRD with the wanted one: Absent, Same, Different, Unread or Unreadable.
	Content string `json:"content"`
	// NotServed is the reason why the API server does not serve the CRD until an action is taken. It is empty if the
	// API server serves the CRD.
	NotServed string `json:"notServed,omitempty"`
	// Verdict and Reason are the decision: see docs/crds.md.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	// Message is the decision as text. NextStep is what a person can do: a command if there is one.
	Message  string `json:"message"`
	NextStep string `json:"nextStep,omitempty"`
}

// ownerLine is the owner of a CRD. Its kind is none, hypergate, OLM, OLM (gone), ingress-operator, third party or
// unknown.
type ownerLine struct {
	Kind      string `json:"kind"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

type releaseLine struct {
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// objectLine is an object with the fields that istiod ignores. Without fields, istiod ignores the whole object.
type objectLine struct {
	CRD       string      `json:"crd"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name"`
	Fields    []fieldLine `json:"fields,omitempty"`
}

type fieldLine struct {
	Path     string   `json:"path"`
	Versions []string `json:"versions"`
	// Security is Relevant if the field may restrict access.
	Security string `json:"security,omitempty"`
}

// takeoverReport is the output of crds --dry-run adopt. Its JSON is an interface, like that of crdReport.
type takeoverReport struct {
	ManagementMode string `json:"managementMode"`
	IstioVersion   string `json:"istioVersion"`
	// Takeovers lists the existing CRDs that do not belong to hypergate, sorted by name.
	Takeovers []takeover `json:"takeovers"`
}

// takeover is the effect of replacing a CRD with hypergate's.
type takeover struct {
	crdLine
	// Lost lists the fields that would be removed, Gained the fields that would be added, and Changed the fields whose
	// rules would change.
	Lost    []fieldLine `json:"lost"`
	Gained  []fieldLine `json:"gained"`
	Changed []fieldLine `json:"changed"`
	// Other lists all other differences: names, the storage version, subresources, versions that are not served.
	// Unchangeable lists differences that the API server does not allow any client to change.
	Other        []string `json:"other"`
	Unchangeable []string `json:"unchangeable"`
	// StoredVersionsLost lists versions in which objects may be stored and that hypergate's CRD does not have.
	StoredVersionsLost []string `json:"storedVersionsLost"`
	// ObjectsInUse lists the objects that use fields that would be removed.
	// ObjectsNotListed is the number of further such objects: all takeovers together list at most 100.
	ObjectsInUse     []objectLine `json:"objectsInUse"`
	ObjectsNotListed int          `json:"objectsNotListed"`
	// APIServer is the response of the guest's API server to a dry run.
	APIServer answer `json:"apiServer"`
}

// answer is the response of an API server to a dry run. Result is Accepted, Refused or NotAsked.
type answer struct {
	Result  string `json:"result"`
	Message string `json:"message,omitempty"`
}

// Results of an answer.
const (
	accepted = "Accepted"
	refused  = "Refused"
	notAsked = "NotAsked"
)

func (f crdFindings) report() crdReport {
	out := crdReport{
		ManagementMode: string(f.mode), IstioVersion: f.istio, CRDs: []crdLine{},
		ObjectsInUse: objectLines(f.wholes()), UnknownKinds: append([]string{}, f.unserved...),
	}
	for _, crd := range f.crds {
		out.CRDs = append(out.CRDs, lineOf(crd))
	}
	listed := map[string]int{}
	for _, use := range f.inUse {
		listed[use.CRD]++
	}
	for crd, total := range f.totals {
		out.ObjectsNotListed += total
		if total > listed[crd] {
			out.cut = append(out.cut, crd)
		}
	}
	slices.Sort(out.cut)
	out.ObjectsNotListed = max(0, out.ObjectsNotListed-len(f.inUse))
	return out
}

// couldServe reports whether istiod knows one of the kinds that it ignores.
func (r crdReport) couldServe() bool { return len(model.ReadKindsOf(r.UnknownKinds)) > 0 }

// wholes returns the objects in use. Those of kinds that istiod ignores have no fields.
func (f crdFindings) wholes() []crds.InUse {
	out := slices.Clone(f.inUse)
	for i := range out {
		if slices.Contains(f.unserved, out[i].CRD) {
			out[i].Fields = nil
		}
	}
	return out
}

// takeovers decides on each existing CRD that does not belong to hypergate. It assumes consent for each CRD without a
// setting of its own.
func (f crdFindings) takeovers() takeoverReport {
	out := takeoverReport{ManagementMode: string(f.mode), IstioVersion: f.istio, Takeovers: []takeover{}}
	for _, crd := range f.crds {
		if crd.Owner.Kind == crds.Unowned || crd.Owner.Kind == crds.Ours {
			continue
		}
		crd.Decision = crds.Decide(crd.Fact, crd.Wanted, crds.Policy{Mode: crds.Managed, Consent: crds.Given})
		line := lineOf(crd)
		if crd.Verdict == crds.Adopt {
			line.Message = "possible with consent"
			line.NextStep = "kubectl annotate --overwrite crd " + crd.Name + " " + crds.ManageAnnotation + "=true"
			if crd.Reason == crds.HasNoOwner || crd.Metadata.Consent == crds.Given {
				line.Message, line.NextStep = "hypergate run does it automatically: "+crd.Explain(), ""
			}
		}
		inUse := slices.DeleteFunc(slices.Clone(f.inUse), func(use crds.InUse) bool { return use.CRD != crd.Name })
		out.Takeovers = append(out.Takeovers, takeover{
			crdLine: line,
			Lost:    fieldLines(crd.Difference.Lost), Gained: fieldLines(crd.Difference.Gained),
			Changed: fieldLines(crd.Difference.Changed), Other: append([]string{}, crd.Difference.Other...),
			Unchangeable:       append([]string{}, crd.Difference.Fixed...),
			StoredVersionsLost: append([]string{}, crd.Difference.Unkept...),
			ObjectsInUse:       objectLines(inUse),
			ObjectsNotListed:   max(0, f.totals[crd.Name]-len(inUse)),
			APIServer:          unasked(crd.Verdict),
		})
	}
	return out
}

// unasked returns the answer for a CRD for which no dry run was sent.
func unasked(verdict crds.Verdict) answer {
	if verdict == crds.Adopt {
		return answer{Result: notAsked, Message: "no time was left for a dry run"}
	}
	return answer{Result: notAsked, Message: "hypergate would not try"}
}

func lineOf(crd crds.CRD) crdLine {
	reason := crd.Explain()
	if crd.Verdict == crds.Keep && contentOf(crd) == different {
		reason += ", and its content differs from hypergate's: " + crd.Difference.String()
	}
	notServed := ""
	if crd.Definition.State == crds.Rejected {
		notServed = cmp.Or(crd.Definition.Why, "the API server does not accept its names")
	}
	return crdLine{
		NotServed: notServed,
		Name:      crd.Name, Owner: ownerLine{cmp.Or(string(crd.Owner.Kind), "none"), crd.Owner.Name, crd.Owner.Namespace},
		Installed: releaseLine{crd.Metadata.Version, crd.Metadata.Channel}, Wanted: releaseLine{crd.Wanted.Version, crd.Wanted.Channel},
		Content: contentOf(crd), Verdict: string(crd.Verdict), Reason: string(crd.Reason), Message: reason, NextStep: crd.NextStep(),
	}
}

// different is the Content of an installed CRD that differs from the wanted one.
const different = "Different"

func contentOf(crd crds.CRD) string {
	switch {
	case crd.Owner.Kind == crds.Unowned:
		return "Absent"
	case crd.Content == crds.Unread:
		return "Unread"
	case crd.Content == crds.Unreadable:
		return "Unreadable"
	case crd.Same():
		return "Same"
	default:
		return different
	}
}

func objectLines(list []crds.InUse) []objectLine {
	out := make([]objectLine, 0, len(list))
	for _, use := range list {
		line := objectLine{CRD: use.CRD, Namespace: use.Namespace, Name: use.Name}
		if len(use.Fields) > 0 {
			line.Fields = fieldLines(use.Fields)
		}
		out = append(out, line)
	}
	return out
}

func fieldLines(list []crds.Field) []fieldLine {
	out := make([]fieldLine, 0, len(list))
	for _, f := range list {
		line := fieldLine{Path: f.Path, Versions: f.Versions}
		if f.Secures() {
			line.Security = "Relevant"
		}
		out = append(out, line)
	}
	return out
}

// code returns the exit code of a report.
func (r crdReport) code() int {
	if slices.ContainsFunc(r.CRDs, crdLine.stuck) {
		return exitAct
	}
	return exitOK
}

func (r takeoverReport) code() int {
	fails := func(t takeover) bool { return t.Verdict != string(crds.Adopt) || t.APIServer.Result == refused }
	if slices.ContainsFunc(r.Takeovers, fails) {
		return exitAct
	}
	return exitOK
}

// stuck reports whether the CRD requires an action.
func (l crdLine) stuck() bool {
	return l.Verdict == string(crds.Blocked) || l.Verdict == string(crds.Undetermined) || l.NotServed != ""
}
