package controller

import (
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
)

// deniedWrites is the last denial of a write of a migration, and how many were denied in a row.
type deniedWrites struct {
	last  migration.Denial
	times int
}

// enoughDenials is how many denials in a row count. A single one can be an accident, such as a webhook that restarts.
const enoughDenials = 2

// add adds what became of a write. Without any answer, nothing changes.
func (d *deniedWrites) add(write migration.Write, did patched) {
	switch {
	case did.failure != "" && d.last.Write == write:
		d.last.Cause = did.failure
		d.times++
	case did.failure != "":
		*d = deniedWrites{migration.Denial{Write: write, Cause: did.failure}, 1}
	case len(did.succeeded) > 0:
		*d = deniedWrites{}
	}
}

// denial returns the denial, if there were enough. Otherwise, it returns the zero value.
func (d *deniedWrites) denial() migration.Denial {
	if d.times < enoughDenials {
		return migration.Denial{}
	}
	return d.last
}

// wrote remembers what became of a write. One that the guest denies again and again is repeated after longer and longer
// pauses: each try reads the guest, and a cause that changes is a write to the management side.
func (m *migrationMemory) wrote(write migration.Write, did patched, now time.Time) {
	m.denied.add(write, did)
	if over := m.denied.times - enoughDenials; did.failure != "" && over >= 0 {
		m.next = now.Add(min(time.Duration(over+1)*migrationWaiting, migrationStopped))
	}
}
