package app

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/golden"
)

// findings returns the findings of a guest in which almost everything is wrong.
func findings() crdFindings {
	fields := func(paths ...string) []crds.Field {
		var out []crds.Field
		for _, path := range paths {
			out = append(out, crds.Field{Path: path, Versions: []string{"v1", "v1beta1"}})
		}
		return out
	}
	decided := func(name string, wanted crds.Wanted, fact crds.Fact) crds.CRD {
		return crds.CRD{Name: name, Fact: fact, Wanted: wanted, Decision: crds.Decide(fact, wanted, crds.Policy{Mode: crds.Managed})}
	}
	standard := crds.Wanted{Version: "v1.4.1", Channel: "standard"}
	marks := crds.Metadata{Version: "v1.4.1", Channel: "standard"}
	served := crds.Definition{State: crds.Established}
	third := crds.Owner{Kind: crds.ThirdParty, Name: "argocd-controller"}
	return crdFindings{
		istio: "1.20.3", mode: crds.Managed,
		crds: []crds.CRD{
			decided("backendtlspolicies.gateway.networking.k8s.io", standard, crds.Fact{}),
			decided("destinationrules.networking.istio.io", crds.Wanted{Version: "1.20.3"}, crds.Fact{
				Owner:   crds.Owner{Kind: crds.LiveOLM, Name: "Subscription servicemesh", Namespace: "openshift-operators"},
				Content: crds.Read, Definition: served,
				Difference: crds.Difference{Gained: fields("spec.trafficPolicy.retryBudget")},
			}),
			decided("envoyfilters.networking.istio.io", crds.Wanted{Version: "1.20.3"}, crds.Fact{
				Owner: crds.Owner{Kind: crds.OrphanedOLM, Name: "servicemesh.openshift-operators"}, Content: crds.Read, Definition: served,
			}),
			decided("gatewayclasses.gateway.networking.k8s.io", standard, crds.Fact{
				Owner:    crds.Owner{Kind: crds.Ours},
				Metadata: crds.Metadata{Version: "v1.4.1", Channel: "standard", Membership: crds.Member},
				Content:  crds.Read, Definition: served,
			}),
			decided("gateways.gateway.networking.k8s.io", standard, crds.Fact{
				Owner: third, Metadata: marks, Content: crds.Read, Definition: served,
			}),
			decided("grpcroutes.gateway.networking.k8s.io", standard, crds.Fact{
				Owner: third, Metadata: marks, Content: crds.Read, Definition: served, Use: crds.Unused,
				Difference: crds.Difference{
					Lost: fields("spec.rules[].retry"), Changed: fields("spec.rules"), Other: []string{"spec.names.shortNames"},
				},
			}),
			decided("httproutes.gateway.networking.k8s.io", standard, crds.Fact{
				Owner: third, Metadata: crds.Metadata{Version: "v1.4.0", Channel: "experimental"},
				Content: crds.Read, Definition: served, Use: crds.Used,
				Difference: crds.Difference{
					Lost:   fields("spec.rules[].filters[].externalAuth", "spec.rules[].retry"),
					Gained: fields("spec.new"), Changed: fields("spec.rules"),
					Fixed: []string{"spec.scope"}, Unkept: []string{"v1alpha2"},
				},
			}),
			decided("referencegrants.gateway.networking.k8s.io", standard, crds.Fact{
				Owner: crds.Owner{
					Kind: crds.Unknown,
					Name: "whether OLM's mesh.operators is installed: cannot list subscriptions.operators.coreos.com",
				},
				Content: crds.Read, Definition: served,
			}),
		},
		unserved: []string{"xmeshes.gateway.networking.x-k8s.io"},
		inUse: []crds.InUse{
			{
				CRD: "httproutes.gateway.networking.k8s.io", Namespace: "demo", Name: "login",
				Fields: fields("spec.rules[].filters[].externalAuth", "spec.rules[].retry"),
			},
			{CRD: "xmeshes.gateway.networking.x-k8s.io", Name: "mesh"},
		},
		totals: map[string]int{"httproutes.gateway.networking.k8s.io": 201, "xmeshes.gateway.networking.x-k8s.io": 1},
	}
}

// clean returns the findings of a guest in which no action is required.
func clean() crdFindings {
	out := findings()
	out.crds, out.unserved, out.inUse, out.totals = out.crds[3:5], nil, nil, nil
	return out
}

func TestCRDReports(t *testing.T) {
	answered := findings().takeovers()
	answered.Takeovers[1].APIServer = answer{Result: accepted}
	unmanaged := clean()
	unmanaged.mode = crds.Unmanaged
	for name, tc := range map[string]struct {
		report report
		code   int
	}{
		"everything": {findings().report(), 2},
		"clean":      {clean().report(), 0},
		"unmanaged":  {unmanaged.report(), 0},
		"adopt":      {answered, 2},
		"nothing":    {crdFindings{istio: "1.20.3", mode: crds.Managed, crds: findings().crds[:1]}.takeovers(), 0},
	} {
		for _, format := range []string{"table", "json", "yaml"} {
			t.Run(name+"."+format, func(t *testing.T) {
				var out strings.Builder
				err := printed(&out, format, tc.report)
				code, _ := errors.AsType[codeError](err)
				if (err != nil) != (tc.code != 0) || int(code) != tc.code {
					t.Errorf("it ends with %v, want code %d", err, tc.code)
				}
				golden.Equal(t, filepath.Join("testdata", "crds-"+name+"."+format), out.String())
			})
		}
	}
}

// TestExitCodes checks that the exit code is 2 if an action is required, and only then.
func TestExitCodes(t *testing.T) {
	for verdict, want := range map[crds.Verdict]int{
		crds.Install: 0, crds.Update: 0, crds.UpToDate: 0, crds.Adopt: 0, crds.Wait: 0, crds.Keep: 0, crds.Blocked: 2, crds.Undetermined: 2,
	} {
		if got := (crdReport{CRDs: []crdLine{{Verdict: string(verdict)}}}).code(); got != want {
			t.Errorf("%s: code %d, want %d", verdict, got, want)
		}
	}
	adopted := func(result string) takeoverReport {
		return takeoverReport{Takeovers: []takeover{{crdLine: crdLine{Verdict: string(crds.Adopt)}, APIServer: answer{Result: result}}}}
	}
	for result, want := range map[string]int{accepted: 0, notAsked: 0, refused: 2} {
		if got := adopted(result).code(); got != want {
			t.Errorf("%s: code %d, want %d", result, got, want)
		}
	}
}

// TestGuestTextHasNoControlCharacters checks that a table contains no control characters from the guest.
func TestGuestTextHasNoControlCharacters(t *testing.T) {
	evil := crdFindings{crds: []crds.CRD{{Name: "a", Fact: crds.Fact{
		Owner: crds.Owner{Kind: crds.ThirdParty, Name: "me\x1b[2J\nb"}, Metadata: crds.Metadata{Version: "v1\t\u009b1"},
	}, Decision: crds.Decision{Verdict: crds.Blocked, Reason: crds.NeedsConsent}}}}
	for _, r := range []report{evil.report(), evil.takeovers()} {
		var out strings.Builder
		r.table(&out)
		if strings.ContainsAny(out.String(), "\x1b\u009b\t") || strings.Contains(out.String(), "\nb") {
			t.Errorf("%q", out.String())
		}
	}
}

func TestUnknownCRDsAreReported(t *testing.T) {
	lost := crds.Difference{Lost: []crds.Field{{Path: "a"}}}
	owner := crds.Owner{Kind: crds.ThirdParty}
	unread, unsure := unknownCRDs([]crds.CRD{
		{Name: "absent"},
		{Name: "unread", Fact: crds.Fact{Owner: owner}},
		{Name: "unreadable", Fact: crds.Fact{Owner: owner, Content: crds.Unreadable}},
		{Name: "read", Fact: crds.Fact{Owner: owner, Content: crds.Read}},
		{Name: "searched", Fact: crds.Fact{Owner: owner, Content: crds.Read, Difference: lost, Use: crds.Unused}},
		{Name: "unsearched", Fact: crds.Fact{Owner: owner, Content: crds.Read, Difference: lost}},
		{
			Name: "looked for",
			Fact: crds.Fact{Owner: crds.Owner{Kind: crds.Unknown, Name: "whether OLM's a.b is installed"}, Content: crds.Read},
		},
		{
			Name: "looked for in vain",
			Fact: crds.Fact{Owner: crds.Owner{Kind: crds.Unknown, Name: "whether OLM's a.b is installed: forbidden"}, Content: crds.Read},
		},
	})
	if diff := cmp.Diff([][]string{{"unread"}, {"unsearched", "looked for"}}, [][]string{unread, unsure}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestGuestTextIsPrintable checks that names, versions and paths from the guest contain only printable
// characters in all output formats, so that they cannot control a terminal.
func TestGuestTextIsPrintable(t *testing.T) {
	t.Parallel()
	const evil = "x\x1b]0;title\x07\r\n\u202egnp\u2066\u200b\u0085"
	fields := []crds.Field{{Path: evil, Versions: []string{evil}}}
	owner := crds.Owner{Kind: crds.ThirdParty, Name: evil, Namespace: evil}
	fact := crds.Fact{
		Owner: owner, Metadata: crds.Metadata{Version: evil, Channel: evil, Writers: []string{evil}}, Content: crds.Read, Why: evil,
		Definition: crds.Definition{State: crds.Rejected, Why: evil}, Difference: crds.Difference{
			Lost: fields, Gained: fields, Changed: fields, Other: []string{evil}, Unkept: []string{evil}, Fixed: []string{evil},
		},
	}
	found := crdFindings{
		istio: "1.20.3", mode: crds.Mode(evil), unserved: []string{evil},
		inUse: []crds.InUse{{CRD: evil, Namespace: evil, Name: evil, Fields: fields}},
	}
	decision := crds.Decide(fact, crds.Wanted{}, crds.Policy{Mode: crds.Managed})
	found.crds = []crds.CRD{{Name: "httproutes.gateway.networking.k8s.io", Fact: fact, Decision: decision}}
	takeovers := found.takeovers()
	takeovers.Takeovers[0].APIServer = answer{Result: refused, Message: evil}
	for _, format := range []string{"table", "json", "yaml"} {
		for _, r := range []report{found.report(), takeovers} {
			var out strings.Builder
			if err := printed(&out, format, r); err != nil && !errors.As(err, new(codeError)) {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%s of %T: %q", format, r, out.String()[max(0, i-20):i+5])
			}
			if format == "json" && !json.Valid([]byte(out.String())) {
				t.Errorf("%T is not JSON:\n%s", r, out.String())
			}
		}
	}
}

// TestErrorsAreShortAndPrintable checks that errors are short and printable for any arguments.
func TestErrorsAreShortAndPrintable(t *testing.T) {
	t.Parallel()
	var errOut strings.Builder
	if code := Execute(t.Context(), []string{"run", "--x\u202e\x1b" + strings.Repeat("y", 1<<20)}, io.Discard, &errOut); code == 0 {
		t.Error("it succeeds")
	}
	if errOut.Len() > longestError+20 || strings.ContainsAny(errOut.String(), "\u202e\x1b") {
		t.Errorf("%d bytes: %.100q", errOut.Len(), errOut.String())
	}
	if n := len(oneLine(strings.Repeat("z", 1<<20))); n > longestCell {
		t.Errorf("a cell of %d bytes", n)
	}
}

// TestTheReasonOfACRDThatIsLeftAbsentIsPrinted checks that the table explains why a CRD is not installed.
func TestTheReasonOfACRDThatIsLeftAbsentIsPrinted(t *testing.T) {
	wanted := crds.Wanted{Version: "v1.4.1", Channel: "standard"}
	for leave, want := range map[bool]string{true: "because the guest's ingress operator manages these CRDs", false: ""} {
		decision := crds.Decide(crds.Fact{}, wanted, crds.Policy{LeaveAbsent: leave})
		crd := crds.CRD{Name: "backendtlspolicies.gateway.networking.k8s.io", Wanted: wanted, Decision: decision}
		out := &strings.Builder{}
		crdFindings{mode: crds.Managed, crds: []crds.CRD{crd}}.report().table(out)
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "Reasons:") != leave {
			t.Errorf("%v:\n%s", leave, got)
		}
	}
}

// TestObjectsThatIstiodCannotReadAreListedWhole checks that no field is listed of an object whose kind istiod ignores.
// A takeover of its CRD removes only fields, so they are listed there.
func TestObjectsThatIstiodCannotReadAreListedWhole(t *testing.T) {
	t.Parallel()
	const rules = "destinationrules.networking.istio.io"
	found := crdFindings{
		unserved: []string{rules},
		crds:     []crds.CRD{{Name: rules, Fact: crds.Fact{Owner: crds.Owner{Kind: crds.ThirdParty}, Content: crds.Read}}},
		inUse:    []crds.InUse{{CRD: rules, Namespace: "app", Name: "a", Fields: []crds.Field{{Path: "spec.retry"}}}},
	}
	want := []objectLine{{CRD: rules, Namespace: "app", Name: "a"}}
	if diff := cmp.Diff(want, found.report().ObjectsInUse); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// Without the totals, what is listed is all there is.
	if got := found.report().ObjectsNotListed; got != 0 {
		t.Errorf("%d more", got)
	}
	if got := found.takeovers().Takeovers[0].ObjectsInUse; len(got) != 1 || len(got[0].Fields) != 1 {
		t.Errorf("a takeover lists %+v", got)
	}
}

// TestKindsThatAreCutHaveACommand checks that the table ends each list with a next step, and names a command for the
// objects that it does not list.
func TestKindsThatAreCutHaveACommand(t *testing.T) {
	t.Parallel()
	const policies, routes = "authorizationpolicies.security.istio.io", "tlsroutes.gateway.networking.k8s.io"
	const mesh, known = "xmeshes.gateway.networking.x-k8s.io", "istiod serves a kind that it knows only if"
	const remove, list = "  Next step: remove these fields and objects", "  Next step: list their objects with the guest's kubeconfig: "
	found := crdFindings{
		istio: "1.20.3", mode: crds.Managed, unserved: []string{policies, routes, mesh},
		inUse:  []crds.InUse{{CRD: policies, Namespace: "app", Name: "a"}, {CRD: mesh, Name: "b"}},
		totals: map[string]int{routes: 30, policies: 2, mesh: 1},
	}
	for name, tc := range map[string]struct {
		unserved []string
		want     []string
		without  string
	}{
		"a kind that istiod knows": {found.unserved, []string{
			"  and 31 more\n  To list all objects of the kinds that are cut, with the guest's kubeconfig: " +
				"kubectl get " + policies + "," + routes + " -A\n" + remove + ", or let istiod serve their kinds (see below)\n",
			list + "kubectl get " + policies + "," + routes + "," + mesh + " -A\n  " + known,
		}, "\n\n\n"},
		"only kinds that it does not know": {
			[]string{routes, mesh}, []string{remove + "\n", list + "kubectl get " + routes + "," + mesh + " -A\n"}, known,
		},
	} {
		found.unserved = tc.unserved
		var out strings.Builder
		found.report().table(&out)
		for _, want := range tc.want {
			if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, tc.without) {
				t.Errorf("%s: want %q, without %q:\n%s", name, want, tc.without, got)
			}
		}
	}
}
