package app

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/dryrun"
	"github.com/hypergate/hypergate/pkg/proxies"
)

// Texts that are wider than a narrow screen, and one that would clear it.
const (
	longResource = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	longName     = "hypergate-istio-validator-openshift-gateway-openshift-ingress"
	longProxy    = "a-gateway-with-a-long-name-openshift-default-7d9c5b8f4-x2x4z.shop"
	longReason   = "not allowed to patch services: grant this permission to hypergate's service account"
	clearing     = "\x1b[2J\x1b[31mred\x1b[0m"
)

// TestNarrowScreens checks the tables that are the same for each width: on a screen of 40 columns, with and without
// colors, they have all texts, no escape sequence, and no line that ends in spaces, which would wrap to an empty one.
func TestNarrowScreens(t *testing.T) {
	write := dryrun.Write{
		Side: "management", Verb: dryrun.Update, Resource: longResource, Namespace: "clusters-guest1", Name: longName,
		Fields: []string{"spec.template.spec.containers[0].env[12].value", clearing}, More: 7,
	}
	refused := write
	refused.Refusal = longReason + clearing
	clusters := preflightReport{}.with("management cluster", "Kubernetes 1.33.1", nil)
	proxy := func(name, version, problem string, state proxies.State) proxies.Proxy {
		return proxies.Proxy{Name: name, Version: version, Types: []proxies.Type{{Name: "Listener", State: state, Error: problem}}}
	}
	for name, tc := range map[string]struct {
		report report
		want   []string
	}{
		"diff": {
			newDiffReport(controller.Previewed{Writes: []dryrun.Write{write, refused}}),
			[]string{longResource + " clusters-guest1/" + longName, write.Fields[0], "and 7 more fields", longReason, "2 writes"},
		},
		"diff, nothing": {newDiffReport(controller.Previewed{}), []string{"Nothing would change."}},
		"diff, no plan": {newDiffReport(controller.Previewed{Refusal: errors.New(longReason + clearing)}), []string{longReason}},
		"diff, no Lease": {
			newDiffReport(controller.Previewed{Unread: errors.New(longReason + clearing)}),
			[]string{"Warning: ", longReason, "shown as changed"},
		},
		"diff, on hold": {newDiffReport(controller.Previewed{OnHold: true}), []string{"nothing would be written"}},
		"preflight": {
			clusters.previewed(controller.Previewed{Writes: []dryrun.Write{write, refused}}, nil),
			[]string{"Kubernetes 1.33.1", longResource + " clusters-guest1/" + longName, longReason, "1 of 2 accepted"},
		},
		"preflight, no answer": {clusters.with("guest", "", errors.New(longReason+clearing)), []string{"FAILED", longReason}},
		"proxies": {
			proxiesReport{Proxies: []proxies.Proxy{
				proxy(longProxy, "1.28.3", "", proxies.Synced), proxy("b."+clearing, clearing, longReason+clearing, proxies.Rejected),
				proxy(strings.Repeat("客户机", 20), "", "", proxies.Stale),
			}},
			[]string{longProxy, "synced", "1.28.3", "rejected", longReason, strings.Repeat("客户机", 20), "stale", "<none>"},
		},
		"proxies, none": {proxiesReport{}, []string{"No proxy is connected"}},
	} {
		for _, noColor := range []string{"", "1"} {
			t.Setenv("COLUMNS", "40")
			t.Setenv("NO_COLOR", noColor)
			t.Setenv("TERM", "xterm")
			var out strings.Builder
			if err := printed(&out, outputTable, tc.report); !endsWith(err, tc.report.code()) {
				t.Errorf("%s: %v", name, err)
			}
			checkIsWhole(t, name+", NO_COLOR="+noColor, out.String(), tc.want)
		}
	}
}

// checkIsWhole checks that a table has texts, in lines or across lines, and neither control characters nor lines that
// end in spaces.
func checkIsWhole(t *testing.T, name, table string, want []string) {
	t.Helper()
	words := strings.Join(strings.Fields(table), " ")
	for _, text := range want {
		if !strings.Contains(words, text) {
			t.Errorf("%s: no %q in\n%s", name, text, table)
		}
	}
	if strings.ContainsFunc(table, func(c rune) bool { return c != '\n' && unicode.IsControl(c) }) {
		t.Errorf("%s: control characters: %q", name, table)
	}
	for line := range strings.Lines(table) {
		if strings.HasSuffix(strings.TrimSuffix(line, "\n"), " ") {
			t.Errorf("%s: a line ends in spaces: %q", name, line)
		}
	}
}
