package app

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/golden"
)

func noon() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) }

// summaryOf returns the summary of an installation without problems.
func summaryOf(guest string) summary.Summary {
	at := noon().Add(-3 * time.Hour)
	return summary.Summary{
		Time: noon().Add(-5 * time.Minute), Holder: "hypergate-7c9d8f-x2x4z", Hypergate: "v0.3.0", Istio: "1.28.3", Topology: "hosted",
		Guest: guest, Lifecycle: summary.Active,
		Conditions: []summary.Condition{
			{Type: summary.Available, Status: summary.True, Reason: "AsExpected", Since: at, Message: "istiod serves"},
			{Type: summary.Progressing, Status: summary.False, Reason: "AsExpected", Since: at, Message: "everything is up to date"},
			{Type: summary.Degraded, Status: summary.False, Reason: "AsExpected", Since: at, Message: "no action required"},
			{Type: summary.Upgradeable, Status: summary.True, Reason: "AsExpected", Since: at, Message: "another version can be installed"},
		},
		Classes: 1, Class: "openshift-default", Owner: summary.OwnerOurs,
		GuestAPI: summary.GuestAPI{State: summary.APIAnswers, Millis: 12},
		Istiod:   summary.Istiod{State: summary.IstiodServing, Since: at, Version: "1.28.3", Ready: 2, Wanted: 2},
		Published: summary.Published{
			Strategy: "route", Address: "istiod-guest1.apps.example.com:443", State: summary.PublishedReached,
		},
		Token:           summary.Validity{From: noon().Add(-12 * time.Minute), Until: noon().Add(48 * time.Minute)},
		GuestCredential: summary.Validity{From: noon().Add(-time.Hour), Until: noon().Add(23 * time.Hour)},
		CA:              summary.CA{Expires: noon().AddDate(5, 0, 0), Phase: summary.PhaseSteady},
		Webhook:         summary.Webhook{Policy: summary.WebhookFail, Since: at},
		CRDs:            summary.CRDs{Ours: 9}, Writes: 41, Repairs: 2,
	}
}

// degradedSummary returns the summary of an installation that needs an action, and whose credential expires.
func degradedSummary(guest string) summary.Summary {
	s, at := summaryOf(guest), noon().Add(-14*time.Minute)
	problem := "applying Service clusters-" + guest + "/istiod-openshift-gateway on the management side: not allowed to patch " +
		"services (RBAC) [grant this permission to hypergate's service account (roles in deploy/rbac)]"
	s.Conditions[1] = summary.Condition{
		Type: summary.Progressing, Status: summary.False, Reason: "Blocked", Since: at,
		Message: "Blocked: " + problem + " (everything else is up to date)",
	}
	s.Conditions[2] = summary.Condition{
		Type: summary.Degraded, Status: summary.True, Reason: "Forbidden", Since: at, Message: problem,
	}
	s.GuestCredential = summary.Validity{From: noon().Add(-19 * time.Hour), Until: noon().Add(5 * time.Hour)}
	s.CRDs = summary.CRDs{Ours: 7, Others: 2, Blocked: 1, Undetermined: 1}
	return s
}

// pausedSummary returns the summary of a paused control plane.
func pausedSummary(guest string) summary.Summary {
	s := summaryOf(guest)
	s.Lifecycle, s.PausedSince, s.PausedUntil = summary.Paused, noon().Add(-2*time.Hour), noon().AddDate(0, 0, 1)
	s.Conditions[1].Reason, s.Conditions[1].Message = "ReconciliationPaused", "reconciliation is paused by "+
		"spec.pausedUntil of the HostedControlPlane "+
		"until 2026-11-24T12:00:00Z: hypergate changes nothing in the guest or in the control plane namespace, and istiod keeps "+
		"serving with its current token; the other conditions are from before the pause "+
		"[if the pause is not intended, end it: runbook HypergatePaused]"
	return s
}

// readingOf returns what a Lease with an annotation shows.
func readingOf(namespace, annotation, holder string, ago time.Duration) summary.Reading {
	return summary.Read(leaseOf(namespace, annotation, holder, ago), noon())
}

// leaseOf returns a Lease with an annotation that its holder renewed some time ago.
func leaseOf(namespace, annotation, holder string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "hypergate-openshift-gateway", Annotations: map[string]string{summary.Annotation: annotation},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(137)), RenewTime: &metav1.MicroTime{Time: noon().Add(-ago)},
		},
	}
}

func renewed(t *testing.T, s summary.Summary) summary.Reading {
	t.Helper()
	encoded, err := summary.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return readingOf("clusters-"+s.Guest, encoded, s.Holder, 3*time.Second)
}

// restartedReading returns what the Lease of a pod shows that has just restarted, with the summary of before.
func restartedReading(t *testing.T, s summary.Summary) summary.Reading {
	t.Helper()
	encoded, err := summary.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	lease := leaseOf("clusters-"+s.Guest, encoded, s.Holder, 3*time.Second)
	lease.Spec.AcquireTime = &metav1.MicroTime{Time: noon().Add(-time.Minute)}
	return summary.Read(lease, noon())
}

// endsWith reports whether an error ends the process with a code.
func endsWith(err error, code int) bool {
	got, is := errors.AsType[codeError](err)
	return is && int(got) == code || err == nil && code == exitOK
}

// screens are the screens of the golden files.
func screens() map[string]screen {
	return map[string]screen{"": {}, "-100": {width: 100}, "-40": {width: 40}, "-color": {width: 100, color: true}}
}

// checkFits checks that no line is wider than a screen, not counting colors.
func checkFits(t *testing.T, name string, s screen, output string) {
	t.Helper()
	plain := strings.NewReplacer("\x1b[32m", "", "\x1b[33m", "", "\x1b[1;31m", "", "\x1b[0m", "").Replace(output)
	if s.color == (plain == output) {
		t.Errorf("%s: colors: %v", name, !s.color)
	}
	for line := range strings.Lines(plain) {
		line = strings.TrimSuffix(line, "\n")
		if s.width > 0 && utf8.RuneCountInString(line) > s.width || strings.HasSuffix(line, " ") {
			t.Errorf("%s: line of %d columns: %q", name, utf8.RuneCountInString(line), line)
		}
	}
}

// TestStatusOutput checks the output of the command status on several screens.
func TestStatusOutput(t *testing.T) {
	none := summaryOf("guest1")
	none.Published, none.Token, none.CA = summary.Published{}, summary.Validity{}, summary.CA{}
	none.Webhook, none.Istiod = summary.Webhook{}, summary.Istiod{State: summary.IstiodAbsent}
	unobserved := none
	unobserved.GuestUnobserved, unobserved.GuestAPI, unobserved.Istiod = true, summary.GuestAPI{State: summary.APISilent}, summary.Istiod{}
	restarted := pausedSummary("guest1") // during the pause, and the guest does not answer
	restarted.GuestAPI, restarted.Istiod, restarted.CA = unobserved.GuestAPI, summary.Istiod{Version: "1.28.3"}, summary.CA{}
	rolling := summaryOf("guest1")
	rolling.Gateways = summary.Gateways{State: summary.GatewaysRolling, Done: 3, Total: 12, Gateway: "shop/web"}
	rolling.Conditions[1] = summary.Condition{
		Type: summary.Progressing, Status: summary.True, Reason: "GatewayRollout", Since: noon().Add(-4 * time.Minute),
		Message: "gateways roll one by one: 3 of 12 Gateways have rolled; waiting up to 15 minutes for the new pods of shop/web " +
			"[to see them, run kubectl -n shop get deployments,pods -l gateway.networking.k8s.io/gateway-name=web in the guest]",
	}
	expiring := degradedSummary("guest1")
	expiring.Conditions, expiring.GuestCredentialRenewed = summaryOf("guest1").Conditions, true
	expiring.Published = summary.Published{
		Strategy: summary.PublishedAddress, Address: "istiod.example.com:443", State: summary.PublishedReached, ByOther: true,
		Probe: "router.example.com:8443",
	}
	for name, reading := range map[string]summary.Reading{
		"expiring": renewed(t, expiring), "unobserved": renewed(t, unobserved),
		"ok": renewed(t, summaryOf("guest1")), "degraded": renewed(t, degradedSummary("guest1")), "empty": renewed(t, none),
		"rolling": renewed(t, rolling), "paused": renewed(t, pausedSummary("guest1")),
		"paused-restarted": renewed(t, restarted),
		"silent":           readingOf("clusters-guest1", "", "", 3*time.Hour), "forged": readingOf("clusters-guest1", "\x1b[2Jok", "x", 0),
	} {
		for suffix, screen := range screens() {
			report := statusReport{Installations: []summary.Reading{reading}, screen: screen, now: noon(), wide: suffix == ""}
			var out strings.Builder
			if err := printed(&out, outputTable, report); !endsWith(err, report.code()) {
				t.Fatal(err)
			}
			checkFits(t, name+suffix, screen, out.String())
			golden.Equal(t, "testdata/status-"+name+suffix+".table", out.String())
		}
	}
	for _, format := range []string{outputJSON, outputYAML, outputHTML} {
		var out strings.Builder
		err := printed(&out, format, statusReport{Installations: []summary.Reading{renewed(t, degradedSummary("guest1"))}, now: noon()})
		if !endsWith(err, exitAct) {
			t.Error(err)
		}
		golden.Equal(t, "testdata/status-degraded."+format, out.String())
	}
}

// TestGatewaysLine checks the line of the command status about a rollout of gateways in each of its states.
func TestGatewaysLine(t *testing.T) {
	for want, gateways := range map[string]summary.Gateways{
		"":                                       {},
		"5 of 12 held, istiod changes next":      {State: summary.GatewaysHolding, Done: 5, Total: 12},
		"0 of 12 rolled":                         {State: summary.GatewaysRolling, Total: 12},
		"3 of 12 rolled, waiting for shop/web":   {State: summary.GatewaysRolling, Done: 3, Total: 12, Gateway: "shop/web"},
		"3 of 12 rolled, stopped at shop/web":    {State: summary.GatewaysStopped, Done: 3, Total: 12, Gateway: "shop/web"},
		"1 of 2 rolled, waiting for a/of-future": {State: "future", Done: 1, Total: 2, Gateway: "a/of-future"},
	} {
		if got := gateways.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestFleetOutput checks the output of the command fleet on several screens.
func TestFleetOutput(t *testing.T) {
	old := summaryOf("guest2")
	old.Hypergate = "v0.2.9"
	found := fleet.Fleet{Now: noon(), Installations: []summary.Reading{
		renewed(t, summaryOf("guest1")), renewed(t, old), renewed(t, pausedSummary("guest3")), renewed(t, degradedSummary("guest4")),
		readingOf("clusters-guest5", "", "", 3*time.Hour), readingOf("clusters-guest6", "\x1b[2Jok", "x", 0),
		readingOf("clusters-guest7", "", "x", 0), renewed(t, summaryOf("a-guest-with-a-name-that-is-rather-long")),
	}, Without: []fleet.Cluster{{Kind: "HostedControlPlane", Namespace: "clusters-guest8", Name: "guest8"}}}
	for name, o := range map[string]fleetOptions{
		"": {sort: "state"}, "-since": {sort: "since"}, "-name": {sort: "name"}, "-old": {sort: "state", only: []string{onlyOld}},
		"-act":  {sort: "state", only: []string{"silent", "degraded"}},
		"-wide": {sort: "state", waitOptions: waitOptions{output: outputWide}},
	} {
		for suffix, screen := range screens() {
			if name != "" && suffix != "" {
				continue
			}
			report := o.report(found, screen)
			var out strings.Builder
			if err := printed(&out, outputTable, report); !endsWith(err, exitAct) {
				t.Error(err)
			}
			checkFits(t, name+suffix, screen, out.String())
			golden.Equal(t, "testdata/fleet"+name+suffix+".table", out.String())
		}
	}
	for _, format := range []string{outputJSON, outputYAML, outputHTML} {
		o := fleetOptions{sort: "state", only: []string{"degraded"}}
		var out strings.Builder
		if err := printed(&out, format, o.report(found, screen{})); !endsWith(err, exitAct) {
			t.Error(err)
		}
		golden.Equal(t, "testdata/fleet."+format, out.String())
	}
}

// TestGoals checks what --for makes of the states.
func TestGoals(t *testing.T) {
	ok, degraded := renewed(t, summaryOf("guest1")), renewed(t, degradedSummary("guest1"))
	upgradeable := func(status, reason string) summary.Reading {
		s := summaryOf("guest1")
		s.Conditions[3].Status, s.Conditions[3].Reason = status, reason
		return renewed(t, s)
	}
	silent := readingOf("clusters-guest1", "", "", time.Hour)
	restarted := restartedReading(t, summaryOf("guest1"))
	onHold := summaryOf("guest1")
	onHold.Lifecycle = summary.Paused
	paused := renewed(t, onHold)
	for _, tc := range []struct {
		aim     string
		reading summary.Reading
		want    int
	}{
		{"well", ok, exitOK},
		{"well", degraded, exitAct},
		{"well", silent, exitAct},
		{"available", ok, exitOK},
		{"Available=true", degraded, exitOK},
		{"available", silent, exitAct},
		{"available=false", ok, exitUnderWay},
		{"degraded=false", degraded, exitAct},
		{"degraded", degraded, exitOK},
		{"degraded", ok, exitUnderWay},
		{"progressing=false", ok, exitOK},
		{"upgradeable", ok, exitOK},
		{"upgradeable", restarted, exitUnderWay}, // the condition is from before the restart
		{"upgradeable", upgradeable(summary.False, "FieldsWouldBeDropped"), exitAct},
		{"upgradeable", upgradeable(summary.False, "CARotation"), exitUnderWay},
		{"upgradeable", upgradeable(summary.Unknown, "CRDsNotRead"), exitUnderWay},
		{"upgradeable", paused, exitUnderWay}, // the condition is from before the pause
		{"available", paused, exitOK},
		{"upgradeable=unknown", upgradeable(summary.Unknown, "CRDsNotRead"), exitOK},
	} {
		g, err := parseGoal(tc.aim)
		if got := exitCode(g.outcome(tc.reading)); err != nil || got != tc.want {
			t.Errorf("--for=%s of a state %s: %d, want %d: %v", tc.aim, tc.reading.State, got, tc.want, err)
		}
	}
	for _, bad := range []string{"", "ready", "available=yes", "well=true", "available=true=true"} {
		if _, err := parseGoal(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("--for: unsupported value %q", bad)) {
			t.Errorf("--for=%s: %v", bad, err)
		}
	}
}

// TestEachConditionIsAGoal checks that --for supports each condition of a summary, and that its help and its error text
// name all of them.
func TestEachConditionIsAGoal(t *testing.T) {
	t.Parallel()
	_, refused := parseGoal("ready")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&waitOptions{}).addFlags(flags, "")
	if list := "One of: (" + strings.Join(goals(), ", ") + ")"; !strings.Contains(flags.Lookup("for").Usage, list) {
		t.Errorf("the help of --for is %q, without %q", flags.Lookup("for").Usage, list)
	}
	for _, name := range goals() {
		if _, err := parseGoal(name); err != nil || !strings.Contains(refused.Error(), name) {
			t.Errorf("--for=%s: %v, and the error text is %q", name, err, refused)
		}
	}
}

// TestReasonsToWait checks what is printed of the installation with the worst outcome.
func TestReasonsToWait(t *testing.T) {
	ok, silent := renewed(t, summaryOf("guest1")), readingOf("clusters-guest1", "", "", time.Hour)
	onHold := summaryOf("guest1")
	onHold.Lifecycle, onHold.Conditions[3].Message = summary.Paused, "another version can be installed"
	paused := renewed(t, onHold)
	paused.Why = ""
	withoutWhy := silent
	withoutWhy.Why = ""
	for _, tc := range []struct {
		aim      string
		readings []summary.Reading
		want     string
	}{
		{"well", []summary.Reading{ok}, ""},
		{"well", nil, ""},
		{"well", []summary.Reading{ok, silent}, "clusters-guest1 is silent: no pod renews the Lease"},
		{"well", []summary.Reading{withoutWhy}, "clusters-guest1 is silent"},
		{"upgradeable", []summary.Reading{ok, paused}, "clusters-guest1 is paused: Upgradeable is True: "},
	} {
		g, err := parseGoal(tc.aim)
		got := g.why(tc.readings)
		if err != nil || !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" || strings.HasSuffix(got, ": ") {
			t.Errorf("--for=%s: %q, want %q: %v", tc.aim, got, tc.want, err)
		}
	}
}

// TestLatestVersion checks which version counts as the latest.
func TestLatestVersion(t *testing.T) {
	for want, all := range map[string][]string{
		"v0.10.0":        {"v0.9.1", "v0.10.0", "dev"},
		"v1.0.0":         {"v1.0.0", "v1.0.0-rc.1"},
		"v0.3.0-rc.10":   {"v0.3.0-rc.10", "v0.3.0-rc.9", "v0.2.9"},
		"v0.4.0+build.2": {"v0.4.0+build.1", "v0.4.0+build.2", "v0.4.0"},
		"v2.0":           {"v2.0", "v1.9.0", "v1"},
		"":               {"v0.1.0"},
	} {
		counts := map[string]int{}
		for _, v := range all {
			counts[v]++
		}
		for range 20 { // the order of a map is random
			if got := latestVersion(counts); got != want {
				t.Fatalf("%q: %q, want %q", all, got, want)
			}
		}
	}
}

// TestOfGuest checks which installations of a namespace the name of a guest selects.
func TestOfGuest(t *testing.T) {
	known, other := renewed(t, summaryOf("guest1")), renewed(t, summaryOf("guest2"))
	forged, none := readingOf("clusters-guest1", "forged", "x", 0), readingOf("clusters-guest1", "", "x", 0)
	unseen := summaryOf("")
	unseen.Conditions = []summary.Condition{{Type: summary.Available, Status: summary.Unknown, Reason: "GuestUnreachable", Since: noon()}}
	unknown := renewed(t, unseen)
	for name, tc := range map[string]struct {
		all, want []summary.Reading
	}{
		"its own":                    {[]summary.Reading{known, other}, []summary.Reading{known}},
		"an unreadable summary":      {[]summary.Reading{forged}, []summary.Reading{forged}},
		"no summary":                 {[]summary.Reading{none, other}, []summary.Reading{none}},
		"its own and an unreadable":  {[]summary.Reading{known, forged}, []summary.Reading{known, forged}},
		"one whose state is unknown": {[]summary.Reading{unknown, other}, []summary.Reading{unknown}},
	} {
		got, err := ofGuest(tc.all, "clusters-guest1", "guest1")
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ofGuest([]summary.Reading{other}, "clusters-guest1", "guest1"); err == nil || !strings.Contains(err.Error(), "guest2") {
		t.Error(err)
	}
	// A script that waits for a guest must not go on because of an installation without one.
	nameless := renewed(t, summaryOf(""))
	if got, err := ofGuest([]summary.Reading{nameless}, nameless.Namespace, "guest1"); err == nil ||
		!strings.Contains(err.Error(), `no installation for a guest "guest1"`) {
		t.Errorf("without a guest: %v, %v", got, err)
	}
}
