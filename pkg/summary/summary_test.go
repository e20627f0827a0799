package summary_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/golden"
)

func isNotPrintable(r rune) bool { return !unicode.IsPrint(r) }

func noon() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) }

// installed returns the summary of an installation without problems.
func installed() summary.Summary {
	at := noon().Add(-3 * time.Hour)
	return summary.Summary{
		Time: noon().Add(-time.Minute), Holder: "hypergate-7c9d8f-x2x4z", Hypergate: "v0.3.0", Istio: "1.28.3", Topology: "hosted",
		Guest: "guest1", Lifecycle: summary.Active,
		Conditions: []summary.Condition{
			{summary.Available, summary.True, "AsExpected", at, "istiod 1.28.3 has been serving since 2026-11-23T09:00:00Z"},
			{summary.Progressing, summary.False, "AsExpected", at, "everything is up to date"},
			{summary.Degraded, summary.False, "AsExpected", at, "no action required"},
			{summary.Upgradeable, summary.True, "AsExpected", at, "another version can be installed"},
		},
		Classes: 1, Class: "openshift-default", Owner: summary.OwnerOurs,
		GuestAPI: summary.GuestAPI{State: summary.APIAnswers, Millis: 12},
		Istiod:   summary.Istiod{State: summary.IstiodServing, Since: at, Version: "1.28.3", Ready: 1, Wanted: 2},
		Published: summary.Published{
			Strategy: "route", Address: "istiod-guest1.apps.example.com:443", State: summary.PublishedReached,
		},
		Token:           summary.Validity{From: noon().Add(-12 * time.Minute), Until: noon().Add(48 * time.Minute)},
		GuestCredential: summary.Validity{From: noon().Add(-time.Hour), Until: noon().Add(23 * time.Hour)},
		CA:              summary.CA{Expires: noon().AddDate(5, 0, 0), Phase: summary.PhaseSteady},
		Webhook:         summary.Webhook{Policy: summary.WebhookFail, Since: at},
		CRDs:            summary.CRDs{Ours: 9}, Writes: 41,
	}
}

func encode(tb testing.TB, s summary.Summary) string {
	tb.Helper()
	encoded, err := summary.Encode(s)
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}

// TestTheSchema keeps the annotation: a reader of another version depends on the names of the fields.
func TestTheSchema(t *testing.T) {
	t.Parallel()
	encoded := encode(t, installed())
	if strings.ContainsAny(encoded, "\n\r") || len(encoded) > summary.MaxSize {
		t.Errorf("%d bytes: %s", len(encoded), encoded)
	}
	golden.Equal(t, "testdata/summary.json", strings.ReplaceAll(encoded, `,"`, ",\n\"")+"\n")
	encoded = encode(t, edited(func(s *summary.Summary) {
		s.Gateways = summary.Gateways{State: summary.GatewaysRolling, Done: 3, Total: 12, Gateway: "shop/web"}
	}))
	golden.Equal(t, "testdata/summary-rollout.json", strings.ReplaceAll(encoded, `,"`, ",\n\"")+"\n")
	encoded = encode(t, edited(func(s *summary.Summary) {
		s.Lifecycle, s.PausedSince, s.PausedUntil = summary.Paused, noon().Add(-2*time.Hour), noon().Add(time.Hour)
	}))
	golden.Equal(t, "testdata/summary-paused.json", strings.ReplaceAll(encoded, `,"`, ",\n\"")+"\n")
}

func TestWhatIsEncodedIsParsed(t *testing.T) {
	t.Parallel()
	want := installed()
	want.Gateways = summary.Gateways{State: summary.GatewaysStopped, Done: 3, Total: 12, Gateway: "shop/web"}
	want.Published.ByOther, want.Published.Probe, want.GuestCredentialRenewed = true, "192.0.2.7:8443", true
	got, err := summary.Parse(encode(t, want))
	want.Schema = summary.Schema
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// TestEncodeFits encodes the longest possible summary, with characters that JSON escapes. Messages are cut, first those
// that matter less, and never more than necessary.
func TestEncodeFits(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]string{
		"letters": strings.Repeat("a", 9000), "quotes": strings.Repeat(`"`, 9000), "backslashes": strings.Repeat(`\`, 9000),
		"control characters": strings.Repeat("\x01", 9000), "HTML": strings.Repeat("<", 9000), "é": strings.Repeat("é", 9000),
		"not UTF-8": strings.Repeat("\xff", 9000), "line separators": strings.Repeat("\u2028", 9000),
	} {
		s := summary.Summary{
			Holder: long, Hypergate: long, Istio: long, Topology: long, Guest: long, Lifecycle: summary.Lifecycle(long),
			PausedUntil: noon(), PausedSince: noon(), Classes: 1 << 40, Class: long, Owner: long, GuestAPI: summary.GuestAPI{long, 1 << 40},
			Istiod: summary.Istiod{long, noon(), long, 1 << 40, 1 << 40}, Published: summary.Published{long, long, long, true, long},
			Token: summary.Validity{noon(), noon()}, GuestCredential: summary.Validity{noon(), noon()}, GuestCredentialRenewed: true,
			// A CA of another party has no request, which is shorter.
			CA: summary.CA{noon(), long, long, false}, Webhook: summary.Webhook{long, noon()},
			CRDs:     summary.CRDs{1 << 40, 1 << 40, 1 << 40, 1 << 40},
			Gateways: summary.Gateways{long, 1 << 40, 1 << 40, long}, Writes: 1 << 60, Repairs: 1 << 60,
		}
		for _, c := range []string{summary.Upgradeable, summary.Degraded, summary.Available, summary.Progressing, "Other"} {
			s.Conditions = append(s.Conditions, summary.Condition{c, summary.True, long, noon(), long})
		}
		encoded := encode(t, s)
		if len(encoded) > summary.MaxSize || strings.ContainsFunc(encoded, isNotPrintable) {
			t.Errorf("%s: %d bytes: %s", name, len(encoded), encoded)
		}
		if parsed, err := summary.Parse(encoded); err != nil || len(parsed.Conditions) != 4 {
			t.Errorf("%s: %v: %+v", name, err, parsed)
		}
	}
	t.Run("the next step of Degraded stays", func(t *testing.T) {
		t.Parallel()
		s, message := installed(), strings.Repeat("why ", 150)+"[the next step]"
		for i := range s.Conditions {
			s.Conditions[i].Message = message
			s.Conditions[i].Status = summary.True
		}
		parsed, err := summary.Parse(encode(t, s))
		got := parsed.Condition(summary.Degraded).Message
		if err != nil || !strings.HasSuffix(got, "... [the next step]") || len(got) < 500 {
			t.Errorf("%v: %d bytes: %s", err, len(got), got)
		}
		if got := parsed.Condition(summary.Available).Message; !strings.HasSuffix(got, "... [the next step]") || len(got) < 60 {
			t.Errorf("%d bytes: %s", len(got), got)
		}
	})
}

// TestTexts checks the words for what a summary has.
func TestTexts(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0":                     summary.Summary{}.ClassesText(),
		"2":                     summary.Summary{Classes: 2}.ClassesText(),
		"unknown":               summary.Summary{GuestUnobserved: true}.ClassesText(),
		"1: demo":               summary.Summary{Classes: 1, Class: "demo"}.ClassesText(),
		"3, the oldest is demo": summary.Summary{Classes: 3, Class: "demo"}.ClassesText(),
		"":                      summary.GuestAPI{}.Text(),
		"answers":               summary.GuestAPI{State: summary.APIAnswers}.Text(),
		"answers in 12 ms":      summary.GuestAPI{State: summary.APIAnswers, Millis: 12}.Text(),
		"answers with errors":   summary.GuestAPI{State: summary.APIFails, Millis: 12}.Text(),
		"does not answer":       summary.GuestAPI{State: summary.APISilent, Millis: 12}.Text(),
		"unavailable":           summary.Published{State: summary.PublishedUnavailable}.Text(),
		"by route, pending":     summary.Published{Strategy: "route", State: summary.PublishedPending}.Text(),
		"by --xds-address at a:1, reached": summary.Published{
			Strategy: summary.PublishedAddress, Address: "a:1", State: summary.PublishedReached,
		}.Text(),
		"by tunnel at a:1, unreached at the probe's address": summary.Published{
			Strategy: "tunnel", Address: "a:1", State: summary.PublishedUnreached, ByOther: true,
		}.Text(),
		"by route at a:1, unreached at the probe's address": summary.Published{
			Strategy: "route", Address: "a:1", State: summary.PublishedUnreached, ByOther: true, Probe: "b:2",
		}.Text(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestParse checks forged, earlier and later summaries.
func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"nothing":          {"", "has no summary"},
		"too large":        {strings.Repeat(" ", summary.MaxSize) + "{}", "it has 2050 bytes, and the limit is 2048"},
		"not JSON":         {"hello", "is not a summary of hypergate: invalid character"},
		"a list":           {"[]", "is not a summary"},
		"cut":              {encode(t, installed())[:200], "is not a summary"},
		"two":              {`{"schema":1}{"schema":1}`, "is not a summary"},
		"no schema":        {`{"guest":"guest1"}`, "it has no schema"},
		"schema 0":         {`{"schema":0}`, "it has no schema"},
		"a negative one":   {`{"schema":-3}`, "it has no schema"},
		"a later schema":   {`{"schema":2,"conditions":"another form"}`, "the summary has schema 2, and this command reads schema 1"},
		"another type":     {`{"schema":1,"guest":{}}`, "is not a summary"},
		"not a time":       {`{"schema":1,"time":"yesterday"}`, "is not a summary"},
		"escapes in error": {`{"schema":1,"time":"` + `\u001b[31m` + `"}`, "is not a summary"},
		"deep":             {strings.Repeat("[", 2000), "is not a summary"},
	} {
		_, err := summary.Parse(tc.in)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.ContainsFunc(err.Error(), isNotPrintable) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	t.Run("unknown fields", func(t *testing.T) {
		t.Parallel()
		got, err := summary.Parse(`{"schema":1,"guest":"guest1","future":{"a":[1]},"conditions":[{"type":"Future","status":"True"},` +
			`{"type":"Available","status":"Perhaps","more":1}],"crds":{"ours":-5}}`)
		want := summary.Summary{
			Schema: 1, Guest: "guest1", Conditions: []summary.Condition{{Type: summary.Available, Status: summary.Unknown}},
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
	})
	t.Run("terminal escapes", func(t *testing.T) {
		t.Parallel()
		got, err := summary.Parse(`{"schema":1,"guest":"a\u001b[31mb\nc\u202ed","holder":"\u0007"}`)
		if err != nil || got.Guest != "a [31mb c d" || got.Holder != " " {
			t.Errorf("%v: %+v", err, got)
		}
	})
}

// TestWhatWasNotObservedHasNoValue checks the fields of a guest that was not observed: a forged summary has no values
// there. A reader of an earlier version ignores the mark.
func TestWhatWasNotObservedHasNoValue(t *testing.T) {
	t.Parallel()
	s := installed()
	s.GuestUnobserved, s.Gateways = true, summary.Gateways{State: summary.GatewaysStopped, Total: 3}
	got, err := summary.Parse(encode(t, s))
	want := installed()
	want.Schema, want.GuestUnobserved, want.Classes, want.Class, want.Owner, want.CRDs = summary.Schema, true, 0, "", "", summary.CRDs{}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if got, err := summary.Parse(`{"schema":1,"guestUnobserved":true,"classes":3}`); err != nil || got.Classes != 0 {
		t.Errorf("%v: %+v", err, got)
	}
	if strings.Contains(encode(t, installed()), "guestUnobserved") {
		t.Error("a guest that was observed has the mark")
	}
}

// FuzzParse checks for any annotation that the result is printable and small, that it is stable when it is encoded
// again, and that an error is one of the three.
func FuzzParse(f *testing.F) {
	f.Add(encode(f, installed()))
	for _, seed := range []string{
		"", "{}", `{"schema":2}`, `{"schema":1,"time":"9999-12-31T23:59:59.9+23:59"}`, `{"schema":1e0}`,
		`{"schema":1,"conditions":[{"type":"Available","reason":"\"\\\u2028"}],"guest":"\ud800"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		parsed, err := summary.Parse(annotation)
		if err != nil {
			_, invalid := errors.AsType[summary.InvalidError](err)
			_, newer := errors.AsType[summary.NewerError](err)
			if !invalid && !newer && !errors.Is(err, summary.ErrNone) {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		printed := fmt.Sprintf("%+v", parsed)
		if strings.ContainsFunc(printed, isNotPrintable) || len(printed) > 4*summary.MaxSize {
			t.Errorf("%q is printed as %q", annotation, printed)
		}
		encoded := encode(t, parsed)
		again, err := summary.Parse(encoded)
		if err != nil || len(encoded) > summary.MaxSize || !json.Valid([]byte(encoded)) {
			t.Fatalf("%q is encoded as %q: %v", annotation, encoded, err)
		}
		if twice := encode(t, again); twice != encoded {
			t.Errorf("%q is encoded as %q, and then as %q", annotation, encoded, twice)
		}
	})
}

// TestTheCAOfAnotherPartyHasNoRequest checks what a summary has of a CA that hypergate does not rotate.
func TestTheCAOfAnotherPartyHasNoRequest(t *testing.T) {
	t.Parallel()
	got := encode(t, summary.Summary{CA: summary.CA{Expires: noon(), Phase: summary.PhaseSteady, Request: "r", ByOther: true}})
	if !strings.Contains(got, `"phase":"steady","byOther":true`) {
		t.Error(got)
	}
}
