package crds_test

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/crds"
)

// TestOwnedCRDsAreReverted checks that manual changes of an owned CRD are reverted, unless the CRD claims to be an
// upgrade.
func TestOwnedCRDsAreReverted(t *testing.T) {
	ours := wanted()["gateway-api"]
	lost, changed := crds.Difference{Lost: v1("spec.mine")}, crds.Difference{Changed: v1("spec")}
	for _, tc := range []struct {
		name string
		fact crds.Fact
		want crds.Reason
	}{
		{"as it was written", crds.Fact{Content: crds.Read}, crds.IsOurs},
		{"changed, and not read yet", crds.Fact{}, crds.IsOurs},
		{"changed", crds.Fact{Content: crds.Read, Difference: changed}, crds.IsOurs},
		{"a field was added, and its use is unknown", crds.Fact{Content: crds.Read, Difference: lost}, crds.IsOurs},
		{"a field was added that is used", crds.Fact{Content: crds.Read, Difference: lost, Use: crds.Used}, crds.WouldLoseFields},
		{"spoiled", crds.Fact{Content: crds.Unreadable}, crds.IsOurs},
		{"the version annotation was removed", crds.Fact{Metadata: crds.Metadata{Version: "-"}}, crds.IsOurs},
		{"older: upgraded", crds.Fact{Metadata: crds.Metadata{Version: "v1.3.0"}, Content: crds.Read, Difference: changed}, crds.IsOurs},
		{"only a newer version annotation", crds.Fact{Metadata: crds.Metadata{Version: "v1.6.0"}, Content: crds.Read}, crds.IsOurs},
		{
			"a newer version",
			crds.Fact{Metadata: crds.Metadata{Version: "v1.6.0"}, Content: crds.Read, Difference: changed},
			crds.WouldDowngrade,
		},
		{
			"a newer version, as hypergate wrote it",
			crds.Fact{Metadata: crds.Metadata{Version: "v1.6.0", Authorship: crds.Author}, Content: crds.Read, Difference: changed},
			crds.IsLater,
		},
		{
			"a newer version in people's spelling",
			crds.Fact{Metadata: crds.Metadata{Version: "v1.6"}, Content: crds.Read, Difference: changed},
			crds.WouldDowngrade,
		},
		{
			"a development version",
			crds.Fact{Metadata: crds.Metadata{Version: "v1.5.0-dev"}, Content: crds.Read, Difference: changed},
			crds.WouldDowngrade,
		},
		{
			"a candidate of ours",
			crds.Fact{Metadata: crds.Metadata{Version: ours.Version + "-rc.1"}, Content: crds.Read, Difference: changed},
			crds.IsOurs,
		},
		{"a newer version, not read yet", crds.Fact{Metadata: crds.Metadata{Version: "v1.6.0"}}, crds.IsUnread},
		{
			"another channel",
			crds.Fact{Metadata: crds.Metadata{Channel: "experimental"}, Content: crds.Read, Difference: lost},
			crds.IsExperimental,
		},
		{"only another channel annotation", crds.Fact{Metadata: crds.Metadata{Channel: "experimental"}, Content: crds.Read}, crds.IsOurs},
	} {
		tc.fact.Owner = crds.Owner{Kind: crds.Ours}
		if tc.fact.Metadata.Version == "" {
			tc.fact.Metadata.Version = ours.Version
		}
		if got := crds.Decide(tc.fact, ours, crds.Policy{}).Reason; got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestVersions checks which versions count as newer, in all common spellings.
func TestVersions(t *testing.T) {
	for _, tc := range []struct {
		claimed, wanted string
		newer           bool
	}{
		{"1.29.7", "1.29.7", false},
		{"1.29.6", "1.29.7", false},
		{"1.29.8", "1.29.7", true},
		{"1.100.0", "1.29.7", true},
		{"1.29.7", "1.28", true}, // charts from a directory possibly have no patch version
		{"1.28", "1.28", false},
		{"1.28", "1.29.7", false},
		{"1.30", "1.29.7", true},
		{"v2", "1.29.7", false}, // not a valid version
		{"1.29.7", "latest", false},
		{"1.29.7-rc.0", "1.29.7", false},
		{"1.29.7", "1.29.7-rc.0", true},
		{"1.30.0-alpha", "1.29.7", true},
	} {
		fact := crds.Fact{
			Owner: crds.Owner{Kind: crds.Ours}, Metadata: crds.Metadata{Version: tc.claimed}, Content: crds.Read,
			Difference: crds.Difference{Changed: v1("spec")},
		}
		got := crds.Decide(fact, crds.Wanted{Version: tc.wanted}, crds.Policy{})
		if newer := got.Reason == crds.WouldDowngrade; newer != tc.newer {
			t.Errorf("%s is newer than %s: %v, want %v", tc.claimed, tc.wanted, newer, tc.newer)
		}
	}
}

// TestACRDWithoutAFactIsAbsent checks that a CRD without a fact is installed. A CRD with an unknown kind of owner is
// left alone.
func TestACRDWithoutAFactIsAbsent(t *testing.T) {
	facts := map[string]crds.Fact{}
	if got := crds.Decide(facts[routes], wanted()["gateway-api"], crds.Policy{}); got.Verdict != crds.Install {
		t.Errorf("missing CRD: %v, want it installed", got)
	}
	tomorrow := crds.Fact{Owner: crds.Owner{Kind: "of tomorrow"}, Content: crds.Read, Metadata: crds.Metadata{Consent: crds.Given}}
	if got := crds.Decide(tomorrow, wanted()["gateway-api"], crds.Policy{Consent: crds.Given}); got.Verdict != crds.Undetermined {
		t.Errorf("unknown kind of owner: %v, want it left alone", got)
	}
}

// textCase is a CRD, and parts of its reason and of its next step.
type textCase struct {
	because crds.Reason
	name    string
	fact    crds.Fact
	says    string
	next    string
}

// TestTextsOfBlockedCRDs checks the reason and the next step of a CRD that needs an action.
func TestTextsOfBlockedCRDs(t *testing.T) {
	const annotate = "kubectl annotate --overwrite crd " + routes + " gateway.hypergate.dev/manage="
	helm := crds.Owner{Kind: crds.ThirdParty, Name: "helm"}
	read := crds.Fact{Owner: helm, Content: crds.Read, Difference: crds.Difference{Lost: v1("spec.rules[].retry")}}
	checkTexts(t, []textCase{
		{
			crds.NeedsConsent, routes, read,
			"installed by third party: helm, and differs from hypergate's CRD, " +
				"so that a takeover needs consent: it also has: spec.rules.retry (v1)",
			annotate + "true",
		},
		{
			crds.WouldDowngrade, routes,
			crds.Fact{Metadata: crds.Metadata{Version: "v1.6.0"}, Difference: read.Difference},
			"it claims version v1.6.0, which is newer than hypergate's v1.4.1: it also has: spec",
			"to keep it as it is: " + annotate + "false",
		},
		{crds.MightDowngrade, routes, read, "claims no version", "gateway.networking.k8s.io/bundle-version=<version>"},
		{
			crds.MightDowngrade, filters,
			crds.Fact{Metadata: crds.Metadata{Version: "banana"}},
			`claims the version "banana"`, filters + " gateway.hypergate.dev/istio-version=<version>",
		},
		{
			crds.IsExperimental, routes,
			crds.Fact{Metadata: crds.Metadata{Channel: "experimental"}},
			"the experimental channel was installed over hypergate's CRD",
			"to return to the standard channel: " + annotate + "true",
		},
		{
			crds.IsIncompatible, routes,
			crds.Fact{Difference: crds.Difference{Fixed: []string{"its scope is Cluster"}}},
			"the API server would reject an update to hypergate's CRD: its scope is Cluster", "delete it with all of its objects",
		},
		{
			crds.WouldLoseVersions, routes,
			crds.Fact{Difference: crds.Difference{Unkept: []string{"v1alpha2"}}},
			"versions that hypergate's CRD does not have: v1alpha2", "status.storedVersions",
		},
		{
			crds.WouldLoseFields, routes, read,
			"objects use fields that hypergate's CRD does not have: spec.rules.retry (v1)", "hypergate crds --dry-run adopt",
		},
	})
}

// TestTextsOfUnchangedCRDs checks the reason and the next step of a CRD that is left unchanged.
func TestTextsOfUnchangedCRDs(t *testing.T) {
	const annotate = "kubectl annotate --overwrite crd " + routes + " gateway.hypergate.dev/manage="
	helm := crds.Owner{Kind: crds.ThirdParty, Name: "helm"}
	read := crds.Fact{Owner: helm, Content: crds.Read, Difference: crds.Difference{Lost: v1("spec.rules[].retry")}}
	checkTexts(t, []textCase{
		{
			crds.IsUnknown, routes,
			crds.Fact{Owner: crds.Owner{Kind: crds.Unknown, Name: "whether it rains"}},
			"it is unknown whether it rains", "allow hypergate to list OLM's",
		},
		{
			crds.IsUnknown, routes,
			crds.Fact{Metadata: crds.Metadata{OLM: crds.Nameless}, Owner: crds.Owner{Name: "which"}},
			"which", "kubectl label crd " + routes + " olm.managed-",
		},
		{crds.HasInvalidAnnotation, routes, crds.Fact{}, "is neither true nor false", annotate + "true (or =false)"},
		{
			crds.IsUnreadable, routes,
			crds.Fact{Why: "it has no versions"},
			"cannot be read: it has no versions", "kubectl get crd " + routes + " -o yaml",
		},
		{
			crds.IsIdentical, routes,
			crds.Fact{Owner: helm, Definition: crds.Definition{State: crds.Rejected, Why: "names taken"}},
			"the same content as hypergate's CRD; the API server does not serve it: names taken", "status.conditions",
		},
		{
			crds.IsIdentical, routes,
			crds.Fact{Owner: helm, Definition: crds.Definition{State: crds.Established, Converts: crds.ConvertsByWebhook}},
			"the same content as hypergate's CRD; a webhook converts", "",
		},
		{crds.HasConsent, routes, read, "taken over from third party: helm, with consent", ""},
		{"OfTomorrow", routes, crds.Fact{}, "OfTomorrow", ""},
	})
}

func checkTexts(t *testing.T, cases []textCase) {
	t.Helper()
	for _, tc := range cases {
		crd := crds.CRD{Name: tc.name, Fact: tc.fact, Decision: crds.Decision{Reason: tc.because}, Wanted: wanted()["gateway-api"]}
		if got := crd.Explain(); !strings.Contains(got, tc.says) {
			t.Errorf("%s: the reason is\n%q, want\n%q", tc.because, got, tc.says)
		}
		if got := crd.NextStep(); !strings.Contains(got, tc.next) || (got == "") != (tc.next == "") {
			t.Errorf("%s: the next step is\n%q, want\n%q", tc.because, got, tc.next)
		}
	}
}
