package webpage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hypergate/hypergate/pkg/summary"
)

// mostTiles is how many installations the page of a fleet shows. It shows the first ones.
const mostTiles = 1000

//go:embed page.html.tmpl
var pageTemplate string

//go:embed style.css
var style string

// Fleet is what the page of a fleet shows.
type Fleet struct {
	// Totals counts all installations by state, Versions by the version of hypergate.
	Totals   map[summary.State]int
	Versions map[string]int
	// Installations are those that are shown, in this order. Without is the number of hosted clusters without one.
	Installations []summary.Reading
	Without       int
	Now           time.Time
}

// page is the input of the template.
type page struct {
	// Policy is the content security policy. Style is the style sheet that it permits.
	Policy string
	Style  template.CSS

	Title, Time   string
	Installations []installation
	Fleet         *fleet
}

// installation is one installation with its picture.
type installation struct {
	Name, For, Why   string
	State            state
	Expiring         []row
	Wide, Narrow     picture
	Conditions       []condition
	Management, Rest []row
	Phases           []phase
	// AreOld reports whether the conditions other than Progressing are from before a pause.
	HasSummary, AreOld bool
}

// state is a word, and its class in the style sheet.
type state struct{ Word, Class string }

type row struct{ Name, Text string }

type condition struct {
	Type, For, Reason, Message string
	Status                     state
}

// phase is a part of the bar of a CA rotation.
type phase struct {
	Name  string
	IsNow bool
}

// fleet is what the template shows of a Fleet.
type fleet struct {
	Count    string
	Totals   []total
	Versions []row
	Without  string
	Tiles    []tile
	More     int
}

type total struct {
	State state
	N     int
}

// tile is one installation of a fleet.
type tile struct {
	Name, Namespace, For, Why, Version string
	State                              state
}

// OfInstallations returns a page with the picture of each installation.
func OfInstallations(readings []summary.Reading, now time.Time) ([]byte, error) {
	p := page{Time: now.UTC().Format(time.RFC3339), Title: "hypergate"}
	for _, r := range readings {
		p.Installations = append(p.Installations, installationOf(r, now))
	}
	if len(p.Installations) == 1 {
		p.Title += ": " + p.Installations[0].Name
	}
	return p.render()
}

// OfFleet returns a page with a tile for each installation.
func OfFleet(f Fleet) ([]byte, error) {
	p := page{Time: f.Now.UTC().Format(time.RFC3339), Title: "hypergate: fleet", Fleet: &fleet{}}
	all := 0
	for _, s := range summary.States() {
		if n := f.Totals[s]; n > 0 {
			p.Fleet.Totals = append(p.Fleet.Totals, total{stateOf(s), n})
			all += n
		}
	}
	p.Fleet.Count = counted(all, "installation")
	names := slices.SortedFunc(maps.Keys(f.Versions), func(a, b string) int {
		if f.Versions[a] != f.Versions[b] {
			return f.Versions[b] - f.Versions[a]
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		p.Fleet.Versions = append(p.Fleet.Versions, row{name, fmt.Sprint(f.Versions[name])})
	}
	if f.Without > 0 {
		p.Fleet.Without = counted(f.Without, "hosted cluster") + " without hypergate"
	}
	shown := f.Installations[:min(len(f.Installations), mostTiles)]
	p.Fleet.More = len(f.Installations) - len(shown)
	for _, r := range shown {
		one := installationOf(r, f.Now)
		t := tile{Name: one.Name, Namespace: r.Namespace, For: one.For, Why: one.Why, State: one.State}
		if r.Summary != nil {
			t.Version = r.Summary.Hypergate
		}
		p.Fleet.Tiles = append(p.Fleet.Tiles, t)
	}
	return p.render()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// render returns the page.
func (p page) render() ([]byte, error) {
	hash := sha256.Sum256([]byte(style))
	p.Style = template.CSS(style) //nolint:gosec // it is a constant of this package
	p.Policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; " +
		"form-action 'none'"
	parsed, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the page: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("making the page: %w", err)
	}
	return out.Bytes(), nil
}

// stateOf returns a state as a word, in capital letters if an action is required.
func stateOf(s summary.State) state {
	switch s.Outcome() {
	case summary.Act:
		return state{strings.ToUpper(string(s)), classAct}
	case summary.UnderWay:
		return state{string(s), classBusy}
	case summary.Well:
	}
	return state{string(s), classOK}
}

// age returns the time since a time, as kubectl shows it. It is empty if the time is not known.
func age(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(t), 0))
}

// left returns how long something is still valid. It is empty if that is not known.
func left(until, now time.Time) string {
	switch {
	case until.IsZero():
		return ""
	case !now.Before(until):
		return "expired"
	default:
		return duration.HumanDuration(until.Sub(now)) + " left"
	}
}
