package crds_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/golden"
)

// cell is the input of one decision, by name. The order of the dimensions is the order of the questions in the golden
// file.
type cell map[string]string

// dimension is one input of a decision, with its possible values.
type dimension struct {
	name   string
	values []string
}

func dimensions() []dimension {
	return []dimension{
		{"mode", []string{"Managed", "Unmanaged", "of tomorrow"}},
		{"owner", []string{
			"none", "ours", "ours, changed by others", "live OLM", "orphaned OLM", "ingress-operator", "third party", "unknown",
		}},
		{"phase", []string{"lasting", "terminating"}},
		{"annotation", []string{"none", "true", "false", "invalid"}},
		{"content", []string{"unread", "unreadable", "same", "adds", "changes", "loses fields", "loses stored versions", "other scope"}},
		{"claim", []string{"no version", "garbage", "older", "equal", "newer"}},
		{"channel", []string{"ours", "experimental", "none"}},
		{"policy", []string{"ask", "adopt", "refuse"}},
		{"use", []string{"unsearched", "unused", "used"}},
	}
}

// parts maps the values of the dimensions to inputs.
type parts struct {
	content  map[string]crds.Fact
	owner    map[string]crds.Owner
	use      map[string]crds.Use
	phase    map[string]crds.DeletionState
	consent  map[string]crds.Consent
	version  map[string]string
	channel  map[string]string
	mode     map[string]crds.Mode
	byPolicy map[string]crds.Consent
	author   map[string]crds.Authorship
}

// partsFor returns the parts for the wanted CRD ours.
func partsFor(ours crds.Wanted) parts {
	field := []crds.Field{{Path: "spec.retry", Versions: []string{"v1"}}}
	return parts{
		content: map[string]crds.Fact{
			"unread":                {},
			"unreadable":            {Content: crds.Unreadable, Why: "it has no versions"},
			"same":                  {Content: crds.Read},
			"adds":                  {Content: crds.Read, Difference: crds.Difference{Gained: field}},
			"changes":               {Content: crds.Read, Difference: crds.Difference{Gained: field, Changed: field}},
			"loses fields":          {Content: crds.Read, Difference: crds.Difference{Lost: field, Changed: field}},
			"loses stored versions": {Content: crds.Read, Difference: crds.Difference{Lost: field, Unkept: []string{"v1alpha2"}}},
			"other scope": {
				Content:    crds.Read,
				Difference: crds.Difference{Fixed: []string{"its scope is Cluster, but hypergate's is Namespaced"}},
			},
		},
		owner: map[string]crds.Owner{
			"none": {}, "ours": {Kind: crds.Ours}, "ours, changed by others": {Kind: crds.Ours},
			"live OLM":     {Kind: crds.LiveOLM, Name: "Subscription servicemesh", Namespace: "operators"},
			"orphaned OLM": {Kind: crds.OrphanedOLM, Name: "servicemesh.operators"}, "ingress-operator": {Kind: crds.IngressOperator},
			"third party": {Kind: crds.ThirdParty, Name: "helm"},
			"unknown":     {Kind: crds.Unknown, Name: "whether OLM's servicemesh.operators is installed"},
		},
		use:   map[string]crds.Use{"unsearched": crds.Unsearched, "unused": crds.Unused, "used": crds.Used},
		phase: map[string]crds.DeletionState{"lasting": crds.NotDeleting, "terminating": crds.Terminating},
		consent: map[string]crds.Consent{
			"none": crds.Unasked, "true": crds.Given, "false": crds.Refused, "invalid": crds.InvalidAnnotation,
		},
		version:  map[string]string{"garbage": "banana", "older": "v1.3.0", "equal": ours.Version, "newer": "v1.100.0"},
		channel:  map[string]string{"ours": ours.Channel, "experimental": "experimental"},
		mode:     map[string]crds.Mode{"Managed": crds.Managed, "Unmanaged": crds.Unmanaged, "of tomorrow": "Paused"},
		author:   map[string]crds.Authorship{"ours": crds.Author},
		byPolicy: map[string]crds.Consent{"ask": crds.Unasked, "adopt": crds.Given, "refuse": crds.Refused},
	}
}

// facts converts a cell to the input of Decide.
func (p parts) facts(c cell) (crds.Fact, crds.Policy) {
	fact := p.content[c["content"]]
	fact.Owner, fact.Use = p.owner[c["owner"]], p.use[c["use"]]
	fact.Metadata = crds.Metadata{
		Deletion: p.phase[c["phase"]], Consent: p.consent[c["annotation"]], Version: p.version[c["claim"]],
		Channel: p.channel[c["channel"]], Authorship: p.author[c["owner"]],
	}
	return fact, crds.Policy{Mode: p.mode[c["mode"]], Consent: p.byPolicy[c["policy"]]}
}

// is reports whether a dimension has one of the values.
func (c cell) is(dimension string, values ...string) bool {
	return slices.Contains(values, c[dimension])
}

func (c cell) isOurs() bool { return c.is("owner", "ours", "ours, changed by others") }

// wanted returns the wanted CRDs: one of the Gateway API, and one of Istio, which has no channel.
func wanted() map[string]crds.Wanted {
	return map[string]crds.Wanted{
		"gateway-api": {Version: crds.GatewayAPI().Version(), Channel: crds.GatewayAPI().Channel()},
		"istio":       {Version: "1.20.3"},
	}
}

// TestDecisionMatrix decides every cell. Each decision must satisfy the invariants. The decisions are in a golden file
// for review.
func TestDecisionMatrix(t *testing.T) {
	for name, ours := range wanted() {
		t.Run(name, func(t *testing.T) {
			cells, parts, said := 0, partsFor(ours), map[string]bool{}
			decide := func(c cell) string {
				cells++
				fact, policy := parts.facts(c)
				crd := crds.CRD{
					Name: "httproutes.gateway.networking.k8s.io", Fact: fact,
					Decision: crds.Decide(fact, ours, policy), Wanted: ours,
				}
				broken := brokenRules(c, ours, crd)
				if words := c["owner"] + c["content"] + c["claim"] + c["channel"] + string(crd.Reason); !said[words] {
					said[words] = true
					broken = append(broken, brokenWords(crd)...)
				}
				if len(broken) > 0 && !t.Failed() {
					t.Errorf("%v: %s %s: %q", c, crd.Verdict, crd.Reason, broken)
				}
				return string(crd.Verdict) + " (" + string(crd.Reason) + ")"
			}
			lines := tree(cell{}, dimensions(), decide)
			if want := 3 * 8 * 2 * 4 * 8 * 5 * 3 * 3 * 3; cells != want {
				t.Errorf("decided %d cells, want %d", cells, want)
			}
			golden.Equal(t, filepath.Join("testdata", "decisions-"+name+".txt"), strings.Join(lines, "\n")+"\n")
		})
	}
}

// tree returns the decisions as a tree of questions. It omits a question that makes no difference, and groups values
// with the same decisions.
func tree(fixed cell, rest []dimension, decide func(cell) string) []string {
	if len(rest) == 0 {
		return []string{decide(fixed)}
	}
	asked := rest[0]
	var branches [][]string
	values := map[string][]string{}
	for _, value := range asked.values {
		c := maps.Clone(fixed)
		c[asked.name] = value
		branch := tree(c, rest[1:], decide)
		key := strings.Join(branch, "\n")
		if values[key] == nil {
			branches = append(branches, branch)
		}
		values[key] = append(values[key], value)
	}
	if len(branches) == 1 {
		return branches[0]
	}
	var lines []string
	for _, branch := range branches {
		question := asked.name + " " + strings.Join(values[strings.Join(branch, "\n")], " | ") + ":"
		if len(branch) == 1 {
			lines = append(lines, question+" "+branch[0])
			continue
		}
		lines = append(lines, question)
		for _, line := range branch {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

// brokenRules returns the invariants of this package that a decision violates. The rules here are independent of the
// code of Decide.
func brokenRules(c cell, ours crds.Wanted, crd crds.CRD) []string {
	var broken []string
	must := func(holds bool, promise string) {
		if !holds {
			broken = append(broken, promise)
		}
	}
	writes, there := crd.Verdict.Applies(), !c.is("owner", "none")
	overwrites := writes && there
	consent := c.is("annotation", "true") || c.is("annotation", "none") && c.is("policy", "adopt")
	otherChannel := ours.Channel != "" && c.is("channel", "experimental")
	loses := c.is("content", "loses fields", "loses stored versions")

	must(!writes || c.is("mode", "Managed"), "nothing is written unless managed")
	must(!overwrites || !c.is("owner", "unknown", "live OLM"), "nothing of an unknown or a live owner's is written")
	must(!overwrites || !c.is("annotation", "false", "invalid"), "nothing is written against what the annotation says")
	must(!overwrites || !c.is("phase", "terminating"), "nothing is written that is being deleted")
	must(!overwrites || consent || c.isOurs() || c.is("owner", "orphaned OLM"), "nothing of others is written without consent")
	must(!overwrites || c.isOurs() || !c.is("content", "unread", "unreadable"), "nothing of others is written unread")
	must(!overwrites || !c.is("content", "loses stored versions", "other scope"), "nothing is written that the API server must refuse")
	must(!overwrites || !c.is("claim", "newer") || c.is("content", "same", "adds"), "no version is lowered")
	must(!overwrites || !loses || !c.is("use", "used"), "no field that is used is taken away")
	must(
		!overwrites || !loses || c.is("use", "unused") || c.isOurs() && !otherChannel,
		"of others, no field is taken away before it is known that it is unused",
	)
	must(!overwrites || !loses || c.isOurs() || !c.is("claim", "no version", "garbage"), "what may be newer is not replaced")
	must(
		!overwrites || !otherChannel || consent || c.is("owner", "orphaned OLM") || c.is("content", "same", "adds"),
		"another channel is not replaced without consent",
	)
	must(ours.Channel != "experimental", "the experimental channel is never wanted")

	must((crd.Verdict == crds.Install) == (writes && !there), "what is not there is installed, and nothing else is")
	updates := crd.Verdict == crds.Update || crd.Verdict == crds.UpToDate
	must(!updates || c.isOurs(), "only what is ours is updated")
	equal := c.is("content", "same") && c.is("claim", "equal") && (ours.Channel == "" || c.is("channel", "ours"))
	must(!updates || (crd.Verdict == crds.UpToDate) == equal, "what is as wanted is up to date, and nothing else is")
	must(crd.Verdict != crds.Adopt || there && !c.isOurs(), "only what is others' is adopted")
	must(!c.is("mode", "Managed") || there || crd.Verdict == crds.Install, "what is not there is installed")

	restores := c.isOurs() && c.is("mode", "Managed") && c.is("phase", "lasting") &&
		c.is("annotation", "none", "true") && !c.is("claim", "newer") && !otherChannel &&
		!c.is("content", "loses stored versions", "other scope") && (!loses || !c.is("use", "used"))
	must(!restores || updates, "a manual change of an owned CRD is reverted")
	later := c.is("owner", "ours") && c.is("claim", "newer") && c.is("content", "changes", "loses fields", "loses stored versions")
	must(!later || crd.Verdict != crds.Blocked, "a later CRD that hypergate wrote is not a problem")
	must(crd.Reason != crds.IsLater || later, "only such a CRD is kept for this reason")
	return broken
}

// brokenWords returns what is missing in the description of a decision.
func brokenWords(crd crds.CRD) []string {
	var broken []string
	reason, next := crd.Explain(), crd.NextStep()
	if reason == "" || reason == string(crd.Reason) {
		broken = append(broken, "there is no reason in words")
	}
	for _, text := range []string{reason, next} {
		if strings.Contains(text, "%!") || strings.Contains(text, "  ") || strings.HasSuffix(text, ": ") || strings.HasSuffix(text, " ") {
			broken = append(broken, fmt.Sprintf("%q is not a sentence", text))
		}
	}
	noAction := crd.Reason == crds.IsUnread || crd.Reason == crds.LooksForUse
	if waits := crd.Verdict == crds.Blocked || crd.Verdict == crds.Undetermined; waits && !noAction && next == "" {
		broken = append(broken, "there is no next step")
	}
	return broken
}
