package controller

import (
	"context"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

func requestedStart() migration.Intent { return migration.Intent{Goal: migration.Forward} }

// deniedFor returns patches of which the first ones are denied, for a cause.
func deniedFor(cause string, of ...types.UID) patched {
	out := patched{denied: map[types.UID]string{}, first: denied{of: of[0], cause: cause}}
	for _, uid := range of {
		out.denied[uid] = cause
	}
	return out
}

// TestTheFormerPodsCannotBeRestored checks that a Gateway that has failed is reported with the cause for which it keeps
// its new pods. A request without an answer is not a cause.
func TestTheFormerPodsCannotBeRestored(t *testing.T) {
	t.Parallel()
	restore := migration.RestoreTemplate{Gateway: model.ForeignObject{UID: "gateway"}}
	deployment := model.ForeignObject{UID: "deployment"}
	missing := guest.NoTemplateError{Deployment: types.NamespacedName{Namespace: "shop", Name: "web"}}
	for err, cause := range map[error]string{
		missing:                  "the Deployment shop/web has no ReplicaSet of the istiod in the guest",
		context.DeadlineExceeded: "",
	} {
		got := denialOf(restore, unrestored(deployment, err))
		if want := (migration.Denial{Write: migration.WriteTemplate, Of: "gateway", Cause: cause, Unsent: cause != ""}); got != want {
			t.Errorf("%v: %+v, want %+v", err, got, want)
		}
	}
}

// TestDenialsOfAMigration checks from when on a denial is reported, with which cause, and when the guest is read again.
func TestDenialsOfAMigration(t *testing.T) {
	t.Parallel()
	hold := migration.HoldGateways{Gateways: []model.ForeignObject{{UID: "a"}, {UID: "b"}}}
	release := migration.ReleaseGateways(hold)
	down, up := migration.ScaleOrigin{Replicas: 0}, migration.ScaleOrigin{Replicas: 2}
	restore := migration.RestoreTemplate{Gateway: model.ForeignObject{UID: "a"}}
	type write struct {
		after time.Duration // since the write before
		of    migration.Action
		did   patched
	}
	relax := migration.RelaxWebhook{}
	no, done := deniedFor("no", "a"), patched{succeeded: []types.UID{"a"}}
	known := migration.Denial{Write: migration.WriteHold, Of: "a", Cause: "no"}
	long := migrationDenied
	for name, tc := range map[string]struct {
		writes []write
		want   migration.Denial
	}{
		"none":                    {nil, migration.Denial{}},
		"one":                     {[]write{{0, hold, no}}, migration.Denial{}},
		"a webhook that restarts": {[]write{{0, hold, no}, {time.Second, hold, no}, {time.Second, hold, no}}, migration.Denial{}},
		"it lasts":                {[]write{{0, hold, no}, {long, hold, no}}, known},
		"no patch was sent":       {[]write{{0, hold, no}, {long, hold, no}, {0, hold, patched{}}}, known},
		"it succeeds":             {[]write{{0, hold, no}, {long, hold, no}, {0, hold, done}}, migration.Denial{}},
		"another one succeeds":    {[]write{{0, hold, no}, {long, hold, no}, {0, release, done}}, known},
		"two different ones":      {[]write{{0, release, no}, {long, hold, no}}, migration.Denial{}},
		"in turns": {
			[]write{{0, relax, no}, {long, release, no}}, migration.Denial{Write: migration.WriteWebhook, Of: "a", Cause: "no"},
		},
		"in turns, and one succeeds": {
			[]write{{0, relax, no}, {long, relax, no}, {0, release, done}},
			migration.Denial{Write: migration.WriteWebhook, Of: "a", Cause: "no"},
		},
		"in turns for a minute": {
			[]write{{0, relax, no}, {migrationCause, release, no}}, migration.Denial{Write: migration.WriteRelease, Of: "a", Cause: "no"},
		},
		"another cause": {[]write{{0, hold, no}, {long, hold, deniedFor("never", "a")}}, known},
		"another cause for a minute": {
			[]write{{0, hold, no}, {migrationCause, hold, deniedFor("never", "a")}},
			migration.Denial{Write: migration.WriteHold, Of: "a", Cause: "never"},
		},
		"another object first": {[]write{{0, hold, no}, {long, hold, deniedFor("never", "b", "a")}}, known},
		"objects in turns":     {[]write{{0, hold, no}, {long, hold, deniedFor("never", "b")}}, known},
		"another object alone": {
			[]write{{0, hold, no}, {long, hold, patched{succeeded: done.succeeded, first: denied{of: "b", cause: "never"}}}},
			migration.Denial{Write: migration.WriteHold, Of: "b", Cause: "never"},
		},
		"the origin gets the pods that it has": {
			[]write{{0, down, no}, {long, down, no}, {long, up, done}},
			migration.Denial{Write: migration.WriteReplicas, Of: "a", Cause: "no"},
		},
		"a Deployment's template": {
			[]write{{0, restore, deniedFor("no", "deployment")}, {long, restore, deniedFor("never", "deployment")}},
			migration.Denial{Write: migration.WriteTemplate, Of: "a", Cause: "no"},
		},
	} {
		m, now := migrationMemory{}, time.Unix(1000, 0)
		for _, w := range tc.writes {
			now = now.Add(w.after)
			m.wrote(requestedStart(), w.of, w.did, now)
		}
		if diff := cmp.Diff(tc.want, m.denied.denial(now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := m.denied.since(migration.Intent{Goal: migration.Backward}).denial(now.Add(time.Hour)); got.Cause != "" {
			t.Errorf("%s: another request has the denial %+v", name, got)
		}
	}
}

// TestDeniedGatewaysComeLast: a pass patches only the first Gateways.
func TestDeniedGatewaysComeLast(t *testing.T) {
	t.Parallel()
	all := []model.ForeignObject{{UID: "a"}, {UID: "b"}, {UID: "c"}}
	m := migrationMemory{}
	m.wrote(requestedStart(), migration.HoldGateways{Gateways: all}, deniedFor("no", "a", "b"), time.Unix(1000, 0))
	want := []model.ForeignObject{{UID: "c"}, {UID: "a"}, {UID: "b"}}
	if diff := cmp.Diff(want, m.denied.deniedLast(all)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDeniedGatewaysAreForgotten: a guest that denies writes can replace its Gateways and Deployments without end.
func TestDeniedGatewaysAreForgotten(t *testing.T) {
	t.Parallel()
	m, now := migrationMemory{}, time.Unix(1000, 0)
	for i := range 100 {
		of := types.UID(strconv.Itoa(i))
		m.take(migrationReading{facts: originFacts(func(f *guest.MigrationFacts) {
			f.Inventory.Gateways = []migration.InventoryGateway{{}, {}}
			f.Inventory.Gateways[0].UID, f.Inventory.Gateways[1].UID = of, "stays"
		})}, now)
		hold := migration.HoldGateways{Gateways: []model.ForeignObject{{UID: of}, {UID: "stays"}}}
		m.wrote(requestedStart(), hold, deniedFor("no", of, "stays"), now)
		if want := map[types.UID]bool{of: true, "stays": true}; !maps.Equal(m.denied.gateways, want) {
			t.Fatalf("after %d Gateways: %v", i+1, m.denied.gateways)
		}
	}
	for i := range 100 {
		m.wrote(requestedStart(), migration.ScaleOrigin{}, deniedFor("no", types.UID(strconv.Itoa(i))), now)
	}
	if len(m.denied.gateways) != 0 {
		t.Errorf("Deployments count as Gateways: %v", m.denied.gateways)
	}
}

// TestADeniedWriteIsRepeatedAfterPauses: the first pause is that after each step, and the next ones are longer.
func TestADeniedWriteIsRepeatedAfterPauses(t *testing.T) {
	t.Parallel()
	m, now := migrationMemory{}, time.Unix(1000, 0)
	for i, want := range []time.Duration{0, migrationWaiting, 2 * migrationWaiting} {
		m.next = now
		if m.wrote(requestedStart(), migration.RelaxWebhook{}, deniedFor("no", "w"), now); !m.next.Equal(now.Add(want)) {
			t.Errorf("denial %d: the guest is read again at %s, want a pause of %s", i+1, m.next, want)
		}
	}
	for range 50 {
		m.wrote(requestedStart(), migration.RelaxWebhook{}, deniedFor("no", "w"), now)
		m.wrote(requestedStart(), migration.ReleaseGateways{}, deniedFor("no", "g"), now) // in turns
	}
	if want := now.Add(migrationStopped); !m.next.Equal(want) {
		t.Errorf("after 100 denials, the guest is read again at %s, want %s", m.next, want)
	}
	if m.wrote(requestedStart(), migration.ScaleOrigin{Replicas: 2}, deniedFor("no", "o"), now); m.denied.times != 1 {
		t.Errorf("the denials of another action count: %d", m.denied.times)
	}
	for range 100 {
		m.wrote(requestedStart(), migration.ScaleOrigin{Replicas: 2}, deniedFor("no", "o"), now)
	}
	if want := now.Add(migrationWaiting); !m.next.Equal(want) {
		t.Errorf("while proxies wait for the origin, the guest is read again at %s, want %s", m.next, want)
	}
	m.next = now
	if m.wrote(requestedStart(), migration.RelaxWebhook{}, patched{succeeded: []types.UID{"w"}}, now); !m.next.Equal(now) {
		t.Errorf("after a success, the guest is read again at %s, want no longer pause", m.next)
	}
}
