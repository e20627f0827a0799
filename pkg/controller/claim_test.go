package controller

import (
	"errors"
	"testing"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
)

func claimant() *Reconciler {
	return &Reconciler{
		config: desired.Config{Topology: desired.TopologyHosted, GuestNamespace: "openshift-ingress", Revision: "r", ControllerName: "example.com/c"},
		clock:  testingclock.NewFakePassiveClock(start), claims: newClaims(),
	}
}

// TestClaimsAreMadeOnceInAWhile: without a turn the guest is asked for nothing; here there is none that could be.
func TestClaimsAreMadeOnceInAWhile(t *testing.T) {
	r := claimant()
	for range claimBurst {
		if !r.claims.taking.turns.AllowN(r.clock.Now(), 1) || !r.claims.giving.turns.AllowN(r.clock.Now(), 1) {
			t.Fatal("it ends too soon")
		}
	}
	for range 3 { // who asks too often does not wait the longer
		p := &pass{}
		contested, is := errors.AsType[desired.ContestedError](r.claim(t.Context(), p, desired.State{}, r.config.Claims()))
		if !is || len(contested.Missing) != 2 || contested.Namespace != "openshift-ingress" {
			t.Fatalf("got %v", contested)
		}
		if p.next != claimEvery {
			t.Errorf("again in %s", p.next)
		}
		p = &pass{hosted: desired.Hosted{NamespaceUID: "6a9e"}}
		p.seen.Claims.Held = []desired.HeldClaim{{Lease: r.config.Claims()[0].Lease, Holder: p.hosted.Holders(r.config)[0]}}
		if r.disclaim(t.Context(), p); p.next != claimEvery {
			t.Errorf("given back again in %s", p.next)
		}
	}
	p := &pass{}
	if r.disclaim(t.Context(), p); p.next != 0 {
		t.Errorf("there is nothing to give back, and it comes again in %s", p.next)
	}
}

func TestWhoseTokenIsRenewed(t *testing.T) {
	asked := pass{seen: desired.Guest{Classes: []desired.GatewayClass{{Name: "a"}}}}
	unmanaged := asked
	unmanaged.seen.Mode = crds.Unmanaged
	for name, test := range map[string]struct {
		pass    pass
		refused error
		want    bool
	}{
		"claims cannot be listed":    {asked, desired.ClaimError{Verb: "list", Err: errors.New("no")}, true},
		"nobody wants it":            {unmanaged, desired.ClaimError{Verb: "list", Err: errors.New("no")}, false},
		"a rival":                    {asked, desired.RivalError{}, true},
		"another's claim":            {asked, desired.TakenError{}, false},
		"another's claim, and more":  {unmanaged, errors.Join(desired.TakenError{}, errors.New("no")), false},
		"claims that are taken away": {asked, desired.ContestedError{}, true},
		"another cause":              {asked, errors.New("no"), true},
	} {
		if got := claimant().livesOn(&test.pass, test.refused); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
