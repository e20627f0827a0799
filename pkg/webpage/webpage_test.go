package webpage_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/webpage"
	"github.com/hypergate/hypergate/test/golden"
)

func noon() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) }

// installed returns an installation without problems.
func installed(guest string) summary.Reading {
	at := noon().Add(-3 * time.Hour)
	return summary.Reading{
		Namespace: "clusters-" + guest, Lease: "hypergate-openshift-gateway", State: summary.OK, Since: at,
		Holder: "hypergate-7c9d8f-x2x4z", Renewed: noon().Add(-3 * time.Second),
		Summary: &summary.Summary{
			Time: noon().Add(-5 * time.Minute), Hypergate: "v0.3.0", Istio: "1.28.3", Topology: "hosted", Guest: guest,
			Lifecycle: summary.Active,
			Conditions: []summary.Condition{
				{Type: summary.Available, Status: summary.True, Reason: "AsExpected", Since: at, Message: "istiod serves"},
				{Type: summary.Progressing, Status: summary.False, Reason: "AsExpected", Since: at, Message: "everything is up to date"},
				{Type: summary.Degraded, Status: summary.False, Reason: "AsExpected", Since: at, Message: "no action required"},
				{Type: summary.Upgradeable, Status: summary.True, Reason: "AsExpected", Since: at, Message: "another version is possible"},
			},
			Classes: 1, Class: "openshift-default", Owner: summary.OwnerOurs,
			GuestAPI: summary.GuestAPI{State: summary.APIAnswers, Millis: 12},
			Istiod:   summary.Istiod{State: summary.IstiodServing, Since: at, Version: "1.28.3"},
			Published: summary.Published{
				Strategy: "route", Address: "istiod-guest1.apps.example.com:443", State: summary.PublishedReached,
			},
			Token:           summary.Validity{From: noon().Add(-12 * time.Minute), Until: noon().Add(48 * time.Minute)},
			GuestCredential: summary.Validity{From: noon().Add(-time.Hour), Until: noon().Add(23 * time.Hour)},
			CA:              summary.CA{Expires: noon().AddDate(5, 0, 0), Phase: summary.PhaseSteady},
			Webhook:         summary.Webhook{Policy: summary.WebhookFail, Since: at}, CRDs: summary.CRDs{Ours: 9}, Writes: 41, Repairs: 2,
		},
	}
}

// degraded returns an installation that needs an action, and whose credential expires.
func degraded(guest string) summary.Reading {
	r := installed(guest)
	problem := "applying Service clusters-" + guest + "/istiod-openshift-gateway on the management side: not allowed to patch " +
		"services (RBAC) [grant this permission to hypergate's service account (roles in deploy/rbac)]"
	r.State, r.Since, r.Why = summary.IsDegraded, noon().Add(-14*time.Minute), "Forbidden: "+problem
	s := r.Summary
	s.Conditions[2] = summary.Condition{Type: summary.Degraded, Status: summary.True, Reason: "Forbidden", Since: r.Since, Message: problem}
	s.GuestCredential.Until = noon().Add(5 * time.Hour)
	r.Expiring = []summary.Expiry{{What: "hypergate's guest credential", Until: s.GuestCredential.Until}}
	s.Published.State, s.Istiod.State, s.CA.Phase = summary.PublishedUnreached, summary.IstiodRolling, "spreading"
	s.Webhook.Policy, s.CRDs = summary.WebhookIgnore, summary.CRDs{Ours: 7, Others: 2, Blocked: 1, Undetermined: 1}
	return r
}

// rolling returns an installation whose gateways get the proxies of another istiod.
func rolling(guest string) summary.Reading {
	r := installed(guest)
	r.State, r.Since = summary.InProgress, noon().Add(-4*time.Minute)
	s := r.Summary
	s.Istiod.Version, s.Istio = "1.28.3-distroless", "1.28.4"
	s.Gateways = summary.Gateways{State: summary.GatewaysRolling, Done: 3, Total: 12, Gateway: "shop/web"}
	s.Conditions[1] = summary.Condition{
		Type: summary.Progressing, Status: summary.True, Reason: "GatewayRollout", Since: r.Since, Message: "gateways roll one by one",
	}
	r.Why = "GatewayRollout: gateways roll one by one"
	return r
}

// paused returns an installation whose control plane is paused.
func paused(guest string) summary.Reading {
	r := installed(guest)
	r.State, r.Since, r.Why = summary.OnHold, noon().Add(-2*time.Hour), "ReconciliationPaused: reconciliation is paused by spec.pausedUntil"
	s := r.Summary
	s.Lifecycle, s.PausedSince, s.PausedUntil = summary.Paused, r.Since, noon().Add(time.Hour)
	s.Conditions[1].Reason, s.Conditions[1].Message = "ReconciliationPaused", "reconciliation is paused by spec.pausedUntil"
	return r
}

// silent returns an installation without a summary.
func silent() summary.Reading {
	return summary.Reading{
		Namespace: "clusters-guest5", Lease: "hypergate-openshift-gateway", State: summary.Silent, Since: noon().Add(-3 * time.Hour),
		Why: "no pod renews the Lease: check the Deployment hypergate", Renewed: noon().Add(-3 * time.Hour),
	}
}

// hostile returns an installation all of whose texts try to leave their place, and are long.
func hostile() summary.Reading {
	r := degraded("guest1")
	bad := `"'></title></text></svg></style><script>alert(1)</script><img src=x onerror=alert(1)>&lt;{{.}}` + "`${1}" +
		strings.Repeat("wide文", 60)
	r.Namespace, r.Lease, r.Holder, r.Why, r.Expiring[0].What = bad, bad, bad, bad, bad
	s := r.Summary
	s.Hypergate, s.Istio, s.Topology, s.Guest, s.Lifecycle = bad, bad, bad, bad, summary.Lifecycle(bad)
	s.Istiod.State, s.Published, s.CA.Phase, s.Webhook.Policy = bad, summary.Published{Strategy: bad, Address: bad, State: bad}, bad, bad
	for i := range s.Conditions {
		s.Conditions[i] = summary.Condition{Type: bad, Status: bad, Reason: bad, Message: bad}
	}
	return r
}

// pages returns pages of all kinds.
func pages(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	empty := installed("guest1")
	empty.Summary = &summary.Summary{Guest: "guest1", Lifecycle: summary.Starting}
	unobserved := installed("guest1")
	unobserved.Summary = &summary.Summary{
		Guest: "guest1", Lifecycle: summary.Active, GuestUnobserved: true, GuestAPI: summary.GuestAPI{State: summary.APISilent},
	}
	restarted := paused("guest1")
	restarted.Summary.Istiod, restarted.Summary.CA = summary.Istiod{Version: "1.28.3"}, summary.CA{}
	for name, readings := range map[string][]summary.Reading{
		"unobserved": {unobserved}, "paused-restarted": {restarted},
		"rolling": {rolling("guest1")}, "paused": {paused("guest1")}, "ok": {installed("guest1")},
		"degraded": {degraded("guest1")}, "silent": {silent()}, "empty": {empty},
		"hostile": {hostile()}, "two": {installed("guest1"), degraded("guest2")}, "nothing": nil,
	} {
		page, err := webpage.OfInstallations(readings, noon())
		if err != nil {
			t.Fatal(err)
		}
		out[name] = page
	}
	for name, readings := range map[string][]summary.Reading{
		"fleet": {
			silent(), degraded("guest4"), installed("guest1"), installed("a-guest-with-a-name-that-is-rather-long-and-not-broken"),
		},
		"hostile-fleet": {hostile()}, "no-fleet": nil,
	} {
		f := webpage.Fleet{Totals: map[summary.State]int{}, Versions: map[string]int{}, Installations: readings, Without: 1, Now: noon()}
		for _, r := range readings {
			f.Totals[r.State]++
			if r.Summary != nil {
				f.Versions[r.Summary.Hypergate]++
			}
		}
		page, err := webpage.OfFleet(f)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = page
	}
	return out
}

// TestPages compares the pages with golden files.
func TestPages(t *testing.T) {
	t.Parallel()
	for name, page := range pages(t) {
		golden.Equal(t, "testdata/"+name+".html", page)
	}
}

// elements are those that a page may have. None of them loads anything or runs anything.
func elements() []string {
	return strings.Fields(`article body details div footer g h1 h2 h3 head html li line main meta ol p polygon rect section span style
		summary svg table tbody td text th thead title tr tspan ul`)
}

// attributes are those that a page may have.
func attributes() []string {
	return strings.Fields(`aria-current aria-label charset class content height http-equiv lang name points role rx scope viewBox
		width x x1 x2 y y1 y2`)
}

// TestPagesAreSafe checks that no text becomes markup, and that a page runs and loads nothing.
func TestPagesAreSafe(t *testing.T) {
	t.Parallel()
	policy := regexp.MustCompile(`^default-src 'none'; style-src 'sha256-([A-Za-z0-9+/=]+)'; base-uri 'none'; form-action 'none'$`)
	for name, page := range pages(t) {
		within, styles, policies := "", 0, 0
		eachToken(t, name, page, func(token xml.Token) {
			switch token := token.(type) {
			case xml.StartElement:
				within = token.Name.Local
				if !slices.Contains(elements(), within) {
					t.Errorf("%s: element %s", name, within)
				}
				for _, a := range token.Attr {
					if !slices.Contains(attributes(), a.Name.Local) {
						t.Errorf("%s: attribute %s of %s", name, a.Name.Local, within)
					}
					if found := policy.FindStringSubmatch(a.Value); found != nil {
						policies++
						if found[1] != styleHash(page) {
							t.Errorf("%s: the policy does not permit the style sheet", name)
						}
					}
				}
			case xml.CharData:
				if within == "style" {
					styles++
					if sheet := string(token); strings.Contains(sheet, "@import") || strings.Contains(sheet, "url(") {
						t.Errorf("%s: the style sheet loads something", name)
					}
				}
			case xml.EndElement:
				within = ""
			}
		})
		if styles != 1 || policies != 1 {
			t.Errorf("%s: %d style sheets, %d policies", name, styles, policies)
		}
	}
}

// eachToken calls a function for each token of a page, which must be well-formed.
func eachToken(t *testing.T, name string, page []byte, do func(xml.Token)) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(string(page)))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		do(token)
	}
}

// styleHash returns the hash of the style sheet as a browser computes it.
func styleHash(page []byte) string {
	_, rest, _ := strings.Cut(string(page), "<style>")
	sheet, _, _ := strings.Cut(rest, "</style>")
	hash := sha256.Sum256([]byte(sheet))
	return base64.StdEncoding.EncodeToString(hash[:])
}

// TestPicturesFit checks that each text of a picture is within the picture, and each box within a frame, for texts of
// any length.
func TestPicturesFit(t *testing.T) {
	t.Parallel()
	texts := 0
	for name, page := range pages(t) {
		var width, height, x int
		var class string
		eachToken(t, name, page, func(token xml.Token) {
			switch token := token.(type) {
			case xml.StartElement:
				attribute := map[string]string{}
				for _, a := range token.Attr {
					attribute[a.Name.Local] = a.Value
				}
				number := func(name string) int { n, _ := strconv.Atoi(attribute[name]); return n }
				switch token.Name.Local {
				case "svg":
					if _, err := fmt.Sscanf(attribute["viewBox"], "0 0 %d %d", &width, &height); err != nil {
						t.Fatal(err)
					}
				case "text":
					class, x = attribute["class"], number("x")
					if number("y") > height || number("y") < 0 || x < 0 || x > width {
						t.Errorf("%s: a text at %d,%d of %dx%d", name, x, number("y"), width, height)
					}
				case "rect":
					if number("x")+number("width") > width || number("y")+number("height") > height {
						t.Errorf("%s: a rectangle leaves the picture: %v", name, attribute)
					}
				}
			case xml.CharData:
				if class != "mono" {
					return
				}
				texts++
				if end := x + columns(string(token))*73/10; end > width {
					t.Errorf("%s: a text ends at %d of %d: %s", name, end, width, token)
				}
			case xml.EndElement:
				class = ""
			}
		})
	}
	if texts < 50 {
		t.Errorf("only %d texts", texts)
	}
}

// TestWordsAboveTheArrowOfTheCredential checks that the picture has all words about hypergate's credential and about
// the guest's API server, in the wide and in the narrow form, and which of the two is overdue.
func TestWordsAboveTheArrowOfTheCredential(t *testing.T) {
	t.Parallel()
	for api, want := range map[summary.GuestAPI]string{
		{}: "", {State: summary.APIAnswers}: "API answers", {State: summary.APIAnswers, Millis: 12}: "API in 12 ms",
		{State: summary.APIFails, Millis: 12}: "API fails", {State: summary.APISilent}: "API silent",
	} {
		r := degraded("guest1")
		r.Summary.GuestAPI = api
		page, err := webpage.OfInstallations([]summary.Reading{r}, noon())
		if err != nil {
			t.Fatal(err)
		}
		wide := ">" + strings.TrimSuffix("5h left, overdue, "+want, ", ") + "<"
		for _, text := range []string{wide, ">5h left<", ">overdue<", ">" + want + "<"} {
			if !strings.Contains(string(page), text) {
				t.Errorf("%+v: the page has no %q", api, text)
			}
		}
	}
}

// columns returns how many columns a text takes.
func columns(line string) (n int) {
	for _, r := range line {
		n++
		if r >= 0x1100 {
			n++
		}
	}
	return n
}

// TestAFleetIsBounded checks how many tiles a page has.
func TestAFleetIsBounded(t *testing.T) {
	t.Parallel()
	page, err := webpage.OfFleet(webpage.Fleet{Installations: slices.Repeat([]summary.Reading{silent()}, 1003), Now: noon()})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "<article"); n != 1000 || !strings.Contains(string(page), "and 3 more") {
		t.Errorf("%d tiles", n)
	}
}
