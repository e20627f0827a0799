package migration_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// inventory is that of a guest that can be migrated: origin B with two Gateways of two pods.
func inventory() migration.Inventory {
	out := migration.Inventory{
		Revision: "openshift-gateway", Namespace: "openshift-ingress", Ours: migration.Version{Major: 1, Minor: 29, Patch: 5},
		Origin: migration.OriginFacts{
			Finalized: []string{"openshift-default"},
			Deployment: &migration.OriginDeployment{
				Labels:  map[string]string{migration.ManagedByLabel: "sail-library", migration.HelmLabel: "Helm"},
				Version: migration.Version{Major: 1, Minor: 28, Patch: 5}, Wanted: 1, Ready: 1, Existing: 1,
			},
		},
	}
	for _, name := range []string{"a", "b"} {
		g := migration.InventoryGateway{
			Gateway: gateway(name, model.Free, migration.OfOrigin), Class: "openshift-default", Root: "openshift-gw-ca-root-cert",
			Address: "istiod-openshift-gateway.openshift-ingress.svc:15012",
		}
		g.Deployment.Wanted = 2
		out.Gateways = append(out.Gateways, g)
	}
	return out
}

// rowsAlone returns an inventory for each code whose row can apply alone.
func rowsAlone() map[migration.Code]func(*migration.Inventory) {
	object := []migration.Object{{Kind: "AuthorizationPolicy", Namespace: "shop", Name: "deny"}}
	version := func(minor int) func(*migration.Inventory) {
		return func(i *migration.Inventory) { i.Origin.Deployment.Version.Minor = minor }
	}
	return map[migration.Code]func(*migration.Inventory){
		migration.OneNamespace:      func(i *migration.Inventory) { i.OneNamespace = true },
		migration.AddressNotAsked:   func(i *migration.Inventory) { i.AddressNotAsked = true },
		migration.OriginMissing:     func(i *migration.Inventory) { i.Origin = migration.OriginFacts{} },
		migration.OriginChanging:    func(i *migration.Inventory) { i.Origin.IstioRevision = "openshift-gateway" },
		migration.OriginUnknown:     func(i *migration.Inventory) { i.Origin.Finalized, i.Origin.Deployment.Labels = nil, nil },
		migration.VersionUnknown:    func(i *migration.Inventory) { i.Origin.Deployment.Version = migration.Version{} },
		migration.OriginNewer:       version(30),
		migration.OriginUntested:    version(27),
		migration.IgnoredResources:  func(i *migration.Inventory) { i.Foreign = object },
		migration.SidecarsInUse:     func(i *migration.Inventory) { i.Sidecars = object },
		migration.OtherRoot:         func(i *migration.Inventory) { i.Gateways[1].Root = "openshift-gateway-ca-cert" },
		migration.OtherAddress:      func(i *migration.Inventory) { i.Gateways[1].Address = "istiod.mesh:15012" },
		migration.ProxyLost:         func(i *migration.Inventory) { i.Gateways[1].Proxied = true },
		migration.ForeignHold:       func(i *migration.Inventory) { i.Gateways[1].Hold = model.HeldByOther },
		migration.SecondDeployment:  func(i *migration.Inventory) { i.Gateways[1].Second = []string{"b-former"} },
		migration.InvalidAnnotation: func(i *migration.Inventory) { i.Gateways[1].Invalid = "a=b" },
		migration.TooManyGateways: func(i *migration.Inventory) {
			i.Gateways = slices.Repeat(i.Gateways[:1], model.MaxGateways+1)
		},
		migration.MissingPermissions: func(i *migration.Inventory) { i.Unread = []string{"list proxies.config.openshift.io"} },
		migration.OriginRolling:      func(i *migration.Inventory) { i.Origin.Deployment.Rolling = true },
		migration.OriginNotServed:    func(i *migration.Inventory) { i.Origin.Deployment.Ready = 0 },
		migration.ClassMissing:       func(i *migration.Inventory) { i.ClassMissing = "example.com/controller" },
		migration.CAPluggedIn:        func(i *migration.Inventory) { i.PluggedInCA = true },
		migration.SinglePod:          func(i *migration.Inventory) { i.Gateways[1].Deployment.Wanted = 1 },
		migration.GatewayNotReady:    func(i *migration.Inventory) { i.Gateways[1].Programmed = false },
		migration.GatewaySkipped:     func(i *migration.Inventory) { i.Gateways[1].Skip = true },
	}
}

// TestEachRowOfTheCheck plays one inventory for each code of rowsAlone. Each row must apply to its own alone.
func TestEachRowOfTheCheck(t *testing.T) {
	t.Parallel()
	for code, edit := range rowsAlone() {
		i := inventory()
		edit(&i)
		if got := codes(migration.Run(i, migration.Waivers{})); !slices.Equal(got, []migration.Code{code}) {
			t.Errorf("%s: the findings are %v", code, got)
		}
		for _, f := range migration.Run(i, migration.Waivers{}) {
			if f.Message == "" || f.NextStep == "" || f.Object.Kind == "" || f.Object.Name == "" || strings.Contains(f.Message, "%!") {
				t.Errorf("%s: a part is missing: %+v", code, f)
			}
		}
	}
	if got := migration.Run(inventory(), migration.Waivers{}); len(got) > 0 {
		t.Errorf("a guest that can be migrated: %+v", got)
	}
}

// foundTogether is an inventory to which more than one row applies, and what a person accepts of it.
type foundTogether struct {
	of       migration.Inventory
	accepted migration.Waivers
	want     []migration.Code
}

// rowsTogether returns the rows that apply to old and to new versions, and what a person can accept.
func rowsTogether() []foundTogether {
	old, newer := inventory(), inventory()
	old.Origin.Deployment.Version.Minor = 26
	skipped := old
	skipped.Gateways = slices.Clone(old.Gateways)
	skipped.Gateways[0].Skip = true
	newer.Origin.Deployment.Version.Minor = 30
	newer.Alpha = []migration.Object{{Kind: "TLSRoute", Namespace: "shop", Name: "db"}}
	return []foundTogether{
		{old, migration.Waivers{}, []migration.Code{migration.OriginUntested, migration.StatusLockMoved}},
		{old, migration.Waivers{Untested: true}, []migration.Code{migration.StatusLockMoved}},
		{skipped, migration.Waivers{Untested: true}, []migration.Code{
			migration.SkipImpossible, migration.StatusLockMoved, migration.GatewaySkipped,
		}},
		{newer, migration.Waivers{}, []migration.Code{migration.OriginNewer, migration.AlphaResources}},
		{newer, migration.Waivers{Downgrade: true}, []migration.Code{migration.AlphaResources}},
	}
}

func TestRowsThatComeTogether(t *testing.T) {
	t.Parallel()
	for _, c := range rowsTogether() {
		if got := codes(migration.Run(c.of, c.accepted)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: the findings are %v, want %v", c.accepted, got, c.want)
		}
	}
	for _, patch := range []int{0, 9} { // versions are compared by minor
		same := inventory()
		same.Origin.Deployment.Version = migration.Version{Major: 1, Minor: 29, Patch: patch}
		if got := migration.Run(same, migration.Waivers{}); len(got) > 0 {
			t.Errorf("1.29.%d to 1.29.5: %+v", patch, got)
		}
	}
}

// TestAGatewayThatHasMovedBlocksNothing checks that the owner of a Gateway cannot stop the migration of the others with
// an annotation, after it has moved, or before it has pods.
func TestAGatewayThatHasMovedBlocksNothing(t *testing.T) {
	t.Parallel()
	for name, annotate := range map[string]func(*migration.InventoryGateway){
		"held":    func(g *migration.InventoryGateway) { g.Hold = model.HeldByOther },
		"skipped": func(g *migration.InventoryGateway) { g.Skip = true },
		"invalid": func(g *migration.InventoryGateway) { g.Invalid = "a=b" },
		"away":    func(g *migration.InventoryGateway) { g.Address, g.Programmed = "istiod.mesh:15012", false },
	} {
		for of, blocks := range map[migration.Istiod]bool{
			migration.OfOrigin: true, migration.OfOther: true, migration.OfHosted: false, migration.OfNone: false,
		} {
			i := inventory()
			i.Origin.Deployment.Version.Minor = 26
			i.Gateways[1].Of = of
			annotate(&i.Gateways[1])
			found := slices.ContainsFunc(migration.Run(i, migration.Waivers{Untested: true}), func(f migration.Finding) bool {
				return f.Object.Kind == "Gateway" && f.Severity == migration.Blocker
			})
			if found != blocks {
				t.Errorf("%s, %q: blocks %t", name, of, found)
			}
		}
	}
}

// TestAnOriginWithTheRootsOfTheHostedIstiod checks that an origin that has not deployed a Gateway blocks, too, if it
// publishes its roots in the ConfigMap of the hosted istiod.
func TestAnOriginWithTheRootsOfTheHostedIstiod(t *testing.T) {
	t.Parallel()
	for root, want := range map[string][]migration.Code{
		"": nil, "openshift-gw-ca-root-cert": nil, "openshift-gateway-ca-cert": {migration.OtherRoot},
	} {
		i := inventory()
		i.Gateways, i.Origin.Deployment.Root = nil, root
		findings := migration.Run(i, migration.Waivers{})
		if got := codes(findings); !slices.Equal(got, want) {
			t.Errorf("%q: %v", root, got)
		}
		for _, f := range findings {
			if f.Object.Kind != "Deployment" || !strings.HasSuffix(f.Message, root) {
				t.Errorf("%q: %+v", root, f)
			}
		}
	}
}

// TestEveryCodeIsTested checks that each code of check.go has an inventory above.
func TestEveryCodeIsTested(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("check.go")
	if err != nil {
		t.Fatal(err)
	}
	tested := slices.Collect(maps.Keys(rowsAlone()))
	for _, c := range rowsTogether() {
		tested = append(tested, c.want...)
	}
	declared := regexp.MustCompile(`(?m)^\t\w+ +Code = "(\w+)"$`).FindAllSubmatch(source, -1)
	if len(declared) < 20 {
		t.Fatalf("check.go declares %d codes: the expression does not find them", len(declared))
	}
	for _, found := range declared {
		if code := migration.Code(found[1]); !slices.Contains(tested, code) {
			t.Errorf("no inventory has the finding %s", code)
		}
	}
}

func codes(findings []migration.Finding) (out []migration.Code) {
	for _, f := range findings {
		out = append(out, f.Code)
	}
	return out
}

// TestKindsOfOrigins checks that evidence decides, and no version of a platform.
func TestKindsOfOrigins(t *testing.T) {
	t.Parallel()
	deployment := func(managedBy, helm string) *migration.OriginDeployment {
		return &migration.OriginDeployment{Labels: map[string]string{migration.ManagedByLabel: managedBy, migration.HelmLabel: helm}}
	}
	for _, c := range []struct {
		of   migration.OriginFacts
		want migration.OriginKind
	}{
		{migration.OriginFacts{}, migration.NoOrigin},
		{migration.OriginFacts{NotReadable: true}, migration.NotReadable},
		{migration.OriginFacts{Subscription: "servicemeshoperator3"}, migration.NoOrigin}, // others use the operator, too
		{migration.OriginFacts{Istio: "openshift-gateway"}, migration.OLM},
		{migration.OriginFacts{Istio: "openshift-gateway", Deployment: deployment("sail-operator", "Helm")}, migration.OLM},
		{migration.OriginFacts{Finalized: []string{"a"}}, migration.SailLibrary},
		{migration.OriginFacts{Deployment: deployment("sail-library", "Helm")}, migration.SailLibrary},
		{migration.OriginFacts{Finalized: []string{"a"}, Deployment: deployment("sail-operator", "Helm")}, migration.Changing},
		{migration.OriginFacts{Istio: "openshift-gateway", Finalized: []string{"a"}}, migration.Changing},
		{migration.OriginFacts{Deployment: deployment("", "Helm")}, migration.Helm},
		{migration.OriginFacts{Deployment: deployment("", "")}, migration.OtherOrigin},
	} {
		if got := c.of.Kind(); got != c.want {
			t.Errorf("%+v is %s, want %s", c.of, got, c.want)
		}
	}
}

// TestVersions checks the texts in which versions are found.
func TestVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1.28.5": "1.28.5", "v1.28.5": "1.28.5", "istiod-1.28.5": "1.28.5", "1.30": "1.30.0", "1.26.2-ossm.1": "1.26.2",
		"quay.io/sail-dev/pilot:1.29.7-debug":             "1.29.7",
		"registry.example.com:5000/istio/pilot:1.29.7":    "1.29.7",
		"10.20.30.40:5000/istio/pilot:1.29.7":             "1.29.7",
		"registry.redhat.io/pilot@sha256:0123456789abcde": "unknown",
		"latest": "unknown", "": "unknown", "1": "unknown",
	} {
		if got := migration.ParseVersion(text).String(); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// TestOrder checks the order in which Gateways move.
func TestOrder(t *testing.T) {
	t.Parallel()
	i := inventory()
	small, broken, first := i.Gateways[0], i.Gateways[0], i.Gateways[0]
	small.Key.Name, small.UID, small.Deployment.Wanted = "small", "s", 1
	broken.Key.Name, broken.UID, broken.Deployment.State, broken.Deployment.Wanted = "broken", "x", model.DeploymentStuck, 1
	first.Key.Name, first.UID, first.Order, first.Deployment.Wanted = "first", "f", -1, 9
	i.Gateways = append(i.Gateways, small, broken, first)
	var got []string
	for _, g := range i.Ordered() {
		got = append(got, g.Key.Name)
	}
	if diff := cmp.Diff([]string{"first", "small", "a", "b", "broken"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnnotationsOfAMove checks that a value that is not supported is named, and does not count as none.
func TestAnnotationsOfAMove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		skip, order string
		leftOut     bool
		at          int
		invalid     string
	}{
		{"", "", false, 0, ""},
		{"true", "-7", true, -7, ""},
		{"false", "+3", false, 3, ""},
		{"True", "1", false, 1, migration.SkipAnnotation + "=True"},
		{"yes", "first", false, 0, migration.OrderAnnotation + "=first"},
		{"true", "1.5", true, 0, migration.OrderAnnotation + "=1.5"},
		{"", "9999999999", false, 0, migration.OrderAnnotation + "=9999999999"},
	} {
		skip, order, invalid := migration.ParseMove(map[string]string{migration.SkipAnnotation: c.skip, migration.OrderAnnotation: c.order})
		if skip != c.leftOut || order != c.at || invalid != c.invalid {
			t.Errorf("%q, %q: skip %t, order %d, invalid %q", c.skip, c.order, skip, order, invalid)
		}
	}
	_, _, invalid := migration.ParseMove(map[string]string{migration.SkipAnnotation: strings.Repeat("[x\n", 1<<16)})
	if len(invalid) > 200 || strings.ContainsAny(invalid, "[\n") {
		t.Errorf("%d bytes: %.80q", len(invalid), invalid)
	}
}

// TestPlannedWritesArePermitted checks that a plan names only writes of the table, in the order of the phases. It names
// each kind.
func TestPlannedWritesArePermitted(t *testing.T) {
	t.Parallel()
	last := 0
	for _, w := range inventory().Writes() {
		if !slices.Contains(migration.Permitted(w.Phase), w.Write) {
			t.Errorf("the phase %s does not permit: %s", w.Phase, w.Write)
		}
		at := slices.Index(migration.Phases(), w.Phase)
		if at < last {
			t.Errorf("%s comes too late", w.Phase)
		}
		last = at
	}
	for _, phase := range migration.Phases() {
		for _, kind := range migration.Permitted(phase) {
			isPlanned := slices.ContainsFunc(inventory().Writes(), func(w migration.PlannedWrite) bool { return w.Write == kind })
			if !isPlanned {
				t.Errorf("a plan does not name the writes of: %s", kind)
			}
		}
	}
	if got := (migration.Inventory{}).Writes(); len(got) > 0 {
		t.Errorf("without an origin: %+v", got)
	}
}

// TestThePlanOfASkippedGateway checks that a plan holds a Gateway that is skipped, too, and ends before the phase Park:
// the origin keeps its pods.
func TestThePlanOfASkippedGateway(t *testing.T) {
	t.Parallel()
	i := inventory()
	i.Gateways[1].Skip = true
	held, released := "", ""
	for _, w := range i.Writes() {
		switch {
		case w.Phase == migration.Park, w.Phase == migration.Done:
			t.Errorf("a plan with a skipped Gateway reaches %s: %+v", w.Phase, w)
		case w.Phase == migration.Hold:
			held = w.Object
		case w.Write == migration.WriteRelease:
			released = w.Object
		}
	}
	if held != "2 Gateways" || released != "1 Gateway" {
		t.Errorf("holds %q, releases %q", held, released)
	}
}

// TestSkippedGatewaysKeepTheOthersHeld checks that only a migration to the hosted istiod, which then does not reach the
// phase Park, says that all Gateways stay held.
func TestSkippedGatewaysKeepTheOthersHeld(t *testing.T) {
	t.Parallel()
	for goal, want := range map[migration.Goal]bool{migration.Forward: true, migration.Retired: true, migration.Backward: false} {
		what, next := migration.Report{Why: migration.Skipped, Intent: migration.Intent{Goal: goal}}.Explain()
		if strings.Contains(what, "stay held") != want || next == "" {
			t.Errorf("%s: %s [%s]", goal, what, next)
		}
	}
}

// TestALostProxyConcernsGatewaysThatMove checks that the row is only about Gateways whose pods are still to be replaced
// in the migration.
func TestALostProxyConcernsGatewaysThatMove(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*migration.InventoryGateway){
		"it has moved":  func(g *migration.InventoryGateway) { g.Of = migration.OfHosted },
		"it is skipped": func(g *migration.InventoryGateway) { g.Skip = true },
	} {
		i := inventory()
		i.Gateways[0].Proxied = true
		edit(&i.Gateways[0])
		if got := codes(migration.Run(i, migration.Waivers{})); slices.Contains(got, migration.ProxyLost) {
			t.Errorf("%s: %v", name, got)
		}
	}
	i := inventory()
	i.Gateways[0].Proxied = true
	if got := migration.Run(i, migration.Waivers{ProxyLoss: true}); len(got) > 0 {
		t.Errorf("accepted: %+v", got)
	}
}

// TestTheEmbeddedMinorIsTested checks that a guest with an istiod of the embedded minor can migrate. It fails after a
// move to a next minor, until testedMinors has that one.
func TestTheEmbeddedMinorIsTested(t *testing.T) {
	embedded := migration.ParseVersion(charts.EmbeddedVersion)
	i := inventory()
	i.Ours, i.Origin.Deployment.Version = embedded, embedded
	got := codes(migration.Run(i, migration.Waivers{}))
	if slices.Contains(got, migration.OriginUntested) || embedded == (migration.Version{}) {
		t.Errorf("istiod %v: %v", embedded, got)
	}
}

// TestNextStepsFollowTheVersions checks that the next step of OriginUntested names exactly the minors that have no such
// finding, and that the one of AlphaResources names no version, which the hosted istiod may have by now.
func TestNextStepsFollowTheVersions(t *testing.T) {
	step, tested := "", []string{}
	for minor := 20; minor < 50; minor++ {
		i := inventory()
		i.Origin.Deployment.Version = migration.Version{Major: 1, Minor: minor}
		i.Ours = migration.Version{Major: 1, Minor: 49}
		i.Alpha = []migration.Object{{Kind: "TLSRoute", Name: "a"}}
		untested := false
		for _, finding := range migration.Run(i, migration.Waivers{}) {
			if finding.Code == migration.OriginUntested {
				untested, step = true, finding.NextStep
			}
			if finding.Code == migration.AlphaResources && strings.ContainsAny(finding.NextStep, "0123456789") {
				t.Errorf("1.%d: %s", minor, finding.NextStep)
			}
		}
		if !untested {
			tested = append(tested, fmt.Sprintf("1.%d", minor))
		}
	}
	if expected := "upgrade the guest's istiod to " + strings.Join(tested, " or ") + " first"; !strings.HasPrefix(step, expected) {
		t.Errorf("%q does not begin with %q", step, expected)
	}
}

// TestFindingsOfAMigrationThatHasBegun checks which blockers no longer block once the hosted istiod serves. An origin
// of an unknown kind blocks unless its Deployment is gone.
func TestFindingsOfAMigrationThatHasBegun(t *testing.T) {
	t.Parallel()
	onlyAtFirst := []migration.Code{migration.OriginMissing, migration.ProxyLost, migration.AddressNotAsked}
	for code, change := range rowsAlone() {
		i := inventory()
		change(&i)
		stays := slices.Contains(codes(i.AfterBegin(migration.Run(i, migration.Waivers{}))), code)
		if stays == slices.Contains(onlyAtFirst, code) {
			t.Errorf("%s: stays %t", code, stays)
		}
	}
	i := inventory()
	i.Origin.Deployment = nil
	if all := migration.Run(i, migration.Waivers{}); !slices.Contains(codes(all), migration.OriginUnknown) ||
		slices.Contains(codes(i.AfterBegin(all)), migration.OriginUnknown) {
		t.Errorf("without the Deployment: %v", codes(i.AfterBegin(all)))
	}
}
