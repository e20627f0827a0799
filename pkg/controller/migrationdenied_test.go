package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
)

// TestDenialsOfAMigration checks from when on a denial is reported, and when the guest is read again. The first retry
// follows at once: the reading after the step decides when.
func TestDenialsOfAMigration(t *testing.T) {
	t.Parallel()
	const cause = "shop/a: denied by the admission policy freeze"
	hold, release := migration.WriteHold, migration.WriteRelease
	denied, done, unsent := patched{failure: cause}, patched{succeeded: []types.UID{"a"}}, patched{}
	some := patched{succeeded: done.succeeded, failure: cause}
	type write struct {
		kind migration.Write
		did  patched
	}
	known := migration.Denial{Write: hold, Cause: cause}
	for name, tc := range map[string]struct {
		writes []write
		want   migration.Denial
		pause  time.Duration
	}{
		"none":                      {nil, migration.Denial{}, 0},
		"one, which is an accident": {[]write{{hold, denied}}, migration.Denial{}, 0},
		"two in a row":              {[]write{{hold, denied}, {hold, denied}}, known, migrationWaiting},
		"three in a row":            {[]write{{hold, denied}, {hold, denied}, {hold, denied}}, known, 2 * migrationWaiting},
		"no patch was sent":         {[]write{{hold, denied}, {hold, denied}, {hold, unsent}}, known, migrationWaiting},
		"some are denied":           {[]write{{hold, denied}, {hold, some}}, known, migrationWaiting},
		"it succeeds":               {[]write{{hold, denied}, {hold, denied}, {hold, done}}, migration.Denial{}, migrationWaiting},
		"two different ones":        {[]write{{release, denied}, {hold, denied}}, migration.Denial{}, 0},
		"the other one succeeds":    {[]write{{hold, denied}, {hold, denied}, {release, done}}, migration.Denial{}, migrationWaiting},
	} {
		m, now := migrationMemory{}, time.Unix(1, 0)
		for _, w := range tc.writes {
			m.wrote(w.kind, w.did, now)
		}
		if diff := cmp.Diff(tc.want, m.denied.denial()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := m.next; tc.pause == 0 && !got.IsZero() || tc.pause > 0 && !got.Equal(now.Add(tc.pause)) {
			t.Errorf("%s: the guest is read again at %s, want a pause of %s", name, got, tc.pause)
		}
	}
	m, now := migrationMemory{}, time.Unix(1, 0)
	for range 100 {
		m.wrote(hold, denied, now)
	}
	if want := now.Add(migrationStopped); !m.next.Equal(want) {
		t.Errorf("after 100 denials, the guest is read again at %s, want %s", m.next, want)
	}
}
