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
		clock:  testingclock.NewFakePassiveClock(start), ownership: newOwnership(),
	}
}

// TestClaimsAreMadeOnceInAWhile: without a turn the guest is asked for nothing; here there is none that could be.
func TestClaimsAreMadeOnceInAWhile(t *testing.T) {
	r := claimant()
	for range claimBurst {
		if !r.ownership.acquiring.turns.AllowN(r.clock.Now(), 1) || !r.ownership.releasing.turns.AllowN(r.clock.Now(), 1) {
			t.Fatal("it ends too soon")
		}
	}
	for range 3 { // who asks too often does not wait the longer
		p := &pass{}
		contested, is := errors.AsType[desired.ContestedError](r.acquire(t.Context(), p, desired.Plan{}, r.config.OwnershipLeases()))
		if !is || len(contested.Missing) != 2 || contested.Namespace != "openshift-ingress" {
			t.Fatalf("got %v", contested)
		}
		if p.next != claimEvery {
			t.Errorf("again in %s", p.next)
		}
		p = &pass{mgmt: desired.ManagementObservation{NamespaceUID: "6a9e"}}
		p.guest.Leases.Held = []desired.HeldLease{{Name: r.config.OwnershipLeases()[0].Name, Holder: p.mgmt.Holders(r.config)[0]}}
		if r.release(t.Context(), p); p.next != claimEvery {
			t.Errorf("given back again in %s", p.next)
		}
	}
	p := &pass{}
	if r.release(t.Context(), p); p.next != 0 {
		t.Errorf("there is nothing to give back, and it comes again in %s", p.next)
	}
}

func TestWhoseTokenIsRenewed(t *testing.T) {
	asked := pass{guest: desired.GuestObservation{Classes: []desired.GatewayClass{{Name: "a"}}}}
	unmanaged := asked
	unmanaged.guest.Mode = crds.Unmanaged
	for name, test := range map[string]struct {
		pass    pass
		refused error
		want    bool
	}{
		"claims cannot be listed":    {asked, desired.OwnershipError{Verb: "list", Err: errors.New("no")}, true},
		"nobody wants it":            {unmanaged, desired.OwnershipError{Verb: "list", Err: errors.New("no")}, false},
		"a rival":                    {asked, desired.ConflictError{}, true},
		"another's claim":            {asked, desired.OwnedByOtherError{}, false},
		"another's claim, and more":  {unmanaged, errors.Join(desired.OwnedByOtherError{}, errors.New("no")), false},
		"claims that are taken away": {asked, desired.ContestedError{}, true},
		"another cause":              {asked, errors.New("no"), true},
	} {
		if got := claimant().keepsCredential(&test.pass, test.refused); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
