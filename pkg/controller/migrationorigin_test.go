package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// conflictCase is a guest, as its watches and a reading show it. conflicts reports whether nothing may be installed
// beside it (ownership.Conflicts), and origin whether a migration can replace it (OriginFacts.Kind).
type conflictCase struct {
	name              string
	controller        string
	foreign           model.ForeignInstallations
	facts             migration.OriginFacts
	conflicts, origin bool
}

// conflictCases has the inputs of both rules. The revision is r.
func conflictCases() []conflictCase {
	const openshift = "openshift.io/gateway-controller/v1"
	istiod := func(owner string) model.ForeignInstallations {
		return model.ForeignInstallations{Istiods: []model.ForeignDeployment{{Name: "istiod-r", Owner: owner}}}
	}
	istios := func(names ...string) model.ForeignInstallations { return model.ForeignInstallations{Istios: names} }
	finalized := model.ForeignInstallations{Finalized: []string{"a"}}
	return []conflictCase{
		{"nothing", "example.com/c", model.ForeignInstallations{}, migration.OriginFacts{}, false, false},
		{"a finalizer", "example.com/c", finalized, migration.OriginFacts{Finalized: []string{"a"}}, true, true},
		{"an Istio of the revision", "example.com/c", istios("r"), migration.OriginFacts{Istio: "r"}, true, true},
		{"an Istio of another revision", "example.com/c", istios("mesh"), migration.OriginFacts{}, false, false},
		{"OpenShift's Istio", "example.com/c", istios("openshift-gateway"), migration.OriginFacts{}, false, false},
		{"OpenShift's Istio, and controller name", openshift, istios("openshift-gateway"), migration.OriginFacts{}, true, false},
		{"a Deployment", "example.com/c", istiod(""), migration.OriginFacts{Deployment: &migration.OriginDeployment{}}, true, true},
		{"a Deployment of another hypergate", "example.com/c", istiod("r.guest"), migration.OriginFacts{}, true, false},
		{"not readable", "example.com/c", istiod(""), migration.OriginFacts{NotReadable: true}, true, true},
	}
}

// TestAConflictThatIsNoOrigin compares the two rules for what the guest has. Beside a conflict, no step installs an
// istiod without elections: that would be refused, and decided again in each pass. Without a hosted istiod, a migration
// stops.
func TestAConflictThatIsNoOrigin(t *testing.T) {
	for _, c := range conflictCases() {
		d := newTestDecider(t)
		d.config.ControllerName = c.controller
		if got := len(ownership.Conflicts(d.config, c.foreign)) > 0; got != c.conflicts {
			t.Errorf("%s: conflicts %t", c.name, got)
		}
		if got := c.facts.Kind() != migration.NoOrigin; got != c.origin {
			t.Errorf("%s: origin %t", c.name, got)
		}
		for _, goal := range []migration.Goal{migration.Forward, migration.Retired} {
			for _, mode := range []model.IstiodMode{model.IstiodNone, model.IstiodLeading} {
				step := d.decideMigration(d.observed(func(o *observation) { c.show(o, goal, mode) })).step
				act, _ := step.(migration.Act)
				if alone := act.Action == (migration.SetHosted{Mode: migration.HostedAlone}); alone == c.conflicts {
					t.Errorf("%s, %s, mode %q: %#v", c.name, goal, mode, step)
				}
				stop, stops := step.(migration.Stop)
				stops = stops && stop.Phase == migration.Check && stop.Why == migration.Blocked
				if c.conflicts && !c.origin && mode == model.IstiodNone && (!stops || stop.Findings[0].Code != migration.OriginMissing) {
					t.Errorf("%s, %s: %#v", c.name, goal, step)
				}
			}
		}
	}
}

// show changes an observation to one of the guest, without Gateways, and with an istiod in a mode.
func (c conflictCase) show(o *observation, goal migration.Goal, mode model.IstiodMode) {
	besideOrigin(goal)(o)
	if o.guest.Foreign = c.foreign; mode != model.IstiodNone {
		deployed(mode)(o)
	}
	inventory := migration.Inventory{Revision: "r", Namespace: "openshift-ingress", Origin: c.facts}
	o.migration.reading = &migrationReading{
		facts:   guest.MigrationFacts{Trusted: true, Leader: model.HostedIdentity + "istiod-r-9", Inventory: inventory},
		checked: inventory, connected: map[types.UID]int64{},
	}
}

// TestARollbackBesideAConflict checks that what is not an origin keeps no rollback from its end.
func TestARollbackBesideAConflict(t *testing.T) {
	for _, c := range conflictCases() {
		d := newTestDecider(t)
		d.config.ControllerName = c.controller
		step := d.decideMigration(d.observed(func(o *observation) { c.show(o, migration.Backward, model.IstiodNone) })).step
		want := migration.Step(migration.Rest{Phase: migration.Check, Why: migration.RolledBack})
		if diff := cmp.Diff(want, step); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestAConflictThatStaysIsNamed checks that a migration that retires waits for what is left once the origin is removed.
// It names that.
func TestAConflictThatStaysIsNamed(t *testing.T) {
	named := map[string]string{
		"OpenShift's Istio, and controller name": "istios.sailoperator.io openshift-gateway",
		"a Deployment of another hypergate":      "Deployment openshift-ingress/istiod-r",
	}
	for _, c := range conflictCases() {
		if !c.conflicts {
			continue
		}
		d := newTestDecider(t)
		d.config.ControllerName = c.controller
		got := d.decideMigration(d.observed(func(o *observation) { c.show(o, migration.Retired, model.IstiodLeading) })).report
		what, _ := got.Explain()
		object, isOther := named[c.name]
		if isOther == c.origin || isOther && (got.Why != migration.ConflictExists || !strings.HasSuffix(what, ": "+object)) {
			t.Errorf("%s: %s: %s", c.name, got.Why, what)
		}
		if c.origin && got.Why == migration.ConflictExists {
			t.Errorf("%s: the origin exists: %s", c.name, what)
		}
	}
}
