package app

import (
	"cmp"
	"slices"

	"github.com/hypergate/hypergate/pkg/crds"
)

// crdFindings are what is known of a guest's CRDs: what the reports are made from.
type crdFindings struct {
	istio    string
	mode     crds.Mode
	crds     []crds.CRD
	unserved []string
	inUse    []crds.InUse
}

// crdReport is what crds prints. Its JSON is an interface: fields may be added, and none is renamed or removed.
type crdReport struct {
	// ManagementMode is Managed or Unmanaged.
	ManagementMode string `json:"managementMode"`
	// IstioVersion is that of the istiod which ignores what is listed below.
	IstioVersion string `json:"istioVersion"`
	// CRDs are all that hypergate might install, sorted by name.
	CRDs []crdLine `json:"crds"`
	// ObjectsInUse are objects that use what is served and istiod ignores, what may be relevant to security first; at most a hundred.
	ObjectsInUse []objectLine `json:"objectsInUse"`
	// UnknownKinds are the CRDs of the Gateway API's groups that are served and that istiod does not know.
	UnknownKinds []string `json:"unknownKinds"`
}

// crdLine is one CRD.
type crdLine struct {
	Name  string    `json:"name"`
	Owner ownerLine `json:"owner"`
	// Installed and Wanted are the versions and channels; the installed ones are what the CRD claims to be.
	Installed releaseLine `json:"installed"`
	Wanted    releaseLine `json:"wanted"`
	// Content is how the installed CRD compares with the wanted one: Absent, Same, Different, Unread or Unreadable.
	Content string `json:"content"`
	// NotServed is why the API server does not serve it, and will not before somebody acts; empty where it does.
	NotServed string `json:"notServed,omitempty"`
	// Verdict and Reason are the decision: see docs/crds.md.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	// Message is the same in words, and NextStep what a person can do about it, a command where there is one.
	Message  string `json:"message"`
	NextStep string `json:"nextStep,omitempty"`
}

// ownerLine is the owner of a CRD: its kind is none, hypergate, OLM, OLM (gone), ingress-operator, third party or unknown.
type ownerLine struct {
	Kind      string `json:"kind"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

type releaseLine struct {
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// objectLine is an object, and which of its fields istiod ignores; without fields it ignores the whole object.
type objectLine struct {
	CRD       string      `json:"crd"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name"`
	Fields    []fieldLine `json:"fields,omitempty"`
}

type fieldLine struct {
	Path     string   `json:"path"`
	Versions []string `json:"versions"`
	// Security is Relevant where a field may be what keeps somebody out.
	Security string `json:"security,omitempty"`
}

// takeoverReport is what crds --dry-run adopt prints; for its JSON the same holds.
type takeoverReport struct {
	ManagementMode string `json:"managementMode"`
	IstioVersion   string `json:"istioVersion"`
	// Takeovers are the CRDs that are there and not hypergate's, sorted by name.
	Takeovers []takeover `json:"takeovers"`
}

// takeover is what putting hypergate's CRD in the place of one would mean.
type takeover struct {
	crdLine
	// Lost are the fields that would vanish, Gained those that would come, Changed those that would have other rules.
	Lost    []fieldLine `json:"lost"`
	Gained  []fieldLine `json:"gained"`
	Changed []fieldLine `json:"changed"`
	// Other is what else differs: names, the version in which objects are stored, subresources, versions that are not served. Unchangeable is what
	// differs and what the API server lets nobody change.
	Other        []string `json:"other"`
	Unchangeable []string `json:"unchangeable"`
	// StoredVersionsLost are versions in which objects may be stored and that hypergate's CRD does not have.
	StoredVersionsLost []string `json:"storedVersionsLost"`
	// ObjectsInUse are the objects that use what would vanish.
	ObjectsInUse []objectLine `json:"objectsInUse"`
	// APIServer is what the guest's API server says to it.
	APIServer answer `json:"apiServer"`
}

// answer is that of a dry run: the result is Accepted, Refused, or NotAsked.
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
	out := crdReport{ManagementMode: string(f.mode), IstioVersion: f.istio, CRDs: []crdLine{}, ObjectsInUse: objectLines(f.inUse), UnknownKinds: append([]string{}, f.unserved...)}
	for _, crd := range f.crds {
		out.CRDs = append(out.CRDs, lineOf(crd))
	}
	return out
}

// takeovers decides about each CRD that is there and not ours as if everybody who was not asked had consented.
func (f crdFindings) takeovers() takeoverReport {
	out := takeoverReport{ManagementMode: string(f.mode), IstioVersion: f.istio, Takeovers: []takeover{}}
	for _, crd := range f.crds {
		if crd.Owner.Kind == crds.Unowned || crd.Owner.Kind == crds.Ours {
			continue
		}
		crd.Decision = crds.Decide(crd.Fact, crd.Wanted, crds.Policy{Mode: crds.Managed, Consent: crds.Given})
		line := lineOf(crd)
		if crd.Verdict == crds.Adopt {
			line.Message, line.NextStep = "nothing stands in its way", "kubectl annotate --overwrite crd "+crd.Name+" "+crds.ManageAnnotation+"=true"
			if crd.Reason == crds.HasNoOwner || crd.Metadata.Consent == crds.Given {
				line.Message, line.NextStep = "hypergate run does it by itself: "+crd.Explain(), ""
			}
		}
		out.Takeovers = append(out.Takeovers, takeover{
			crdLine: line, Lost: fieldLines(crd.Difference.Lost), Gained: fieldLines(crd.Difference.Gained), Changed: fieldLines(crd.Difference.Changed),
			Other: append([]string{}, crd.Difference.Other...), Unchangeable: append([]string{}, crd.Difference.Fixed...),
			StoredVersionsLost: append([]string{}, crd.Difference.Unkept...),
			ObjectsInUse:       objectLines(slices.DeleteFunc(slices.Clone(f.inUse), func(use crds.InUse) bool { return use.CRD != crd.Name })),
			APIServer:          unasked(crd.Verdict),
		})
	}
	return out
}

// unasked is the answer of an API server that was not asked.
func unasked(verdict crds.Verdict) answer {
	if verdict == crds.Adopt {
		return answer{Result: notAsked, Message: "there was no time"}
	}
	return answer{Result: notAsked, Message: "hypergate would not try"}
}

func lineOf(crd crds.CRD) crdLine {
	reason := crd.Explain()
	if crd.Verdict == crds.Keep && contentOf(crd) == different {
		reason += ", and another one than ours: " + crd.Difference.String()
	}
	notServed := ""
	if crd.Definition.State == crds.Rejected {
		notServed = cmp.Or(crd.Definition.Why, "its names are not accepted")
	}
	return crdLine{
		NotServed: notServed,
		Name:      crd.Name, Owner: ownerLine{cmp.Or(string(crd.Owner.Kind), "none"), crd.Owner.Name, crd.Owner.Namespace},
		Installed: releaseLine{crd.Metadata.Version, crd.Metadata.Channel}, Wanted: releaseLine{crd.Wanted.Version, crd.Wanted.Channel}, Content: contentOf(crd),
		Verdict: string(crd.Verdict), Reason: string(crd.Reason), Message: reason, NextStep: crd.NextStep(),
	}
}

// different is the content of a CRD that is there, and another one.
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

// code is the exit code that a report asks for.
func (r crdReport) code() int {
	if slices.ContainsFunc(r.CRDs, crdLine.stuck) {
		return exitAct
	}
	return exitOK
}

func (r takeoverReport) code() int {
	if slices.ContainsFunc(r.Takeovers, func(t takeover) bool { return t.Verdict != string(crds.Adopt) || t.APIServer.Result == refused }) {
		return exitAct
	}
	return exitOK
}

// stuck says that somebody must act.
func (l crdLine) stuck() bool {
	return l.Verdict == string(crds.Blocked) || l.Verdict == string(crds.Undetermined) || l.NotServed != ""
}
