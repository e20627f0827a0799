package migration_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestRequests checks each request in each state.
func TestRequests(t *testing.T) {
	t.Parallel()
	paused := migration.Intent{Goal: migration.Forward, Paused: true}
	for _, c := range []struct {
		name    string
		from    migration.Intent
		request migration.Request
		want    migration.Intent
		refused string
	}{
		{"start", migration.Intent{}, migration.RequestStart, migration.Intent{Goal: migration.Forward}, ""},
		{"start continues", paused, migration.RequestStart, migration.Intent{Goal: migration.Forward}, ""},
		{
			"pause",
			migration.Intent{Goal: migration.Backward},
			migration.RequestPause,
			migration.Intent{Goal: migration.Backward, Paused: true},
			"",
		},
		{"resume", paused, migration.RequestResume, migration.Intent{Goal: migration.Forward}, ""},
		{"roll back a paused one", paused, migration.RequestRollback, migration.Intent{Goal: migration.Backward}, ""},
		{"retire", migration.Intent{Goal: migration.Forward}, migration.RequestRetire, migration.Intent{Goal: migration.Retired}, ""},
		{
			"retire after a rollback",
			migration.Intent{Goal: migration.Backward},
			migration.RequestRetire,
			migration.Intent{},
			"start the migration first",
		},
		{"pause nothing", migration.Intent{}, migration.RequestPause, migration.Intent{}, "no migration was started"},
		{"roll back nothing", migration.Intent{}, migration.RequestRollback, migration.Intent{}, "no migration was started"},
		{"another request", migration.Intent{}, "finish", migration.Intent{}, `"finish"`},
	} {
		got, err := c.from.After(c.request, start)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", c.name, err, c.refused)
			}
			continue
		}
		c.want.At = start
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
		read, err := migration.ParseIntent(got.Annotations())
		if err != nil || read != got {
			t.Errorf("%s: read again: %+v, %v", c.name, read, err)
		}
	}
}

// TestIntentsAreRefusedByName checks annotations that a person, or GitOps, can set.
func TestIntentsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for value, annotations := range map[string]map[string]string{
		`"Start"`:   {migration.GoalAnnotation: "Start"},
		`"Park"`:    {migration.GoalAnnotation: "Park"},
		`"yes"`:     {migration.GoalAnnotation: "start", migration.PausedAnnotation: "yes"},
		`"monday"`:  {migration.GoalAnnotation: "start", migration.RequestedAtAnnotation: "monday"},
		`aaaaa..."`: {migration.GoalAnnotation: strings.Repeat("a", 1000)},
	} {
		if i, err := migration.ParseIntent(annotations); err == nil || !strings.Contains(err.Error(), value) || len(err.Error()) > 400 {
			t.Errorf("%v: %+v, %v", annotations, i, err)
		}
	}
	if i, err := migration.ParseIntent(nil); err != nil || i != (migration.Intent{}) {
		t.Errorf("without annotations: %+v, %v", i, err)
	}
}

// TestAnEarlierHypergateReadsAMemo checks the fields of a Memo on the Lease: an earlier hypergate reads no Memo with
// another one, and begins without any memory then.
func TestAnEarlierHypergateReadsAMemo(t *testing.T) {
	t.Parallel()
	memo := fullMemo()
	memo.Unstored = migration.Unstored{Unneeded: true, Stayed: true}
	encoded, err := memo.Encode()
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(encoded), &fields); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"arrived", "failed", "failedAt", "holds", "holdsSince", "lastHold", "leadFailedAt", "phase", "released", "releasedAt",
		"replicas", "routes", "scaledAt", "schema", "since", "stranded", "strandedAt",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("another field needs another schema (-want +got):\n%s", diff)
	}
}

// fullMemo has a value in each field that is on the Lease (TestAMemoHasAValueInEachField).
func fullMemo() migration.Memo {
	return migration.Memo{
		Phase: migration.Roll, Since: start, Replicas: 2, Released: "a", ReleasedAt: start.Add(time.Second), Routes: 7,
		Failed: "b", FailedAt: start.Add(time.Minute), Holds: 3, HoldsSince: start.Add(2 * time.Minute),
		LastHold: 1<<64 - 1, Stranded: []uint32{1, 1<<32 - 1}, StrandedAt: start.Add(3 * time.Minute),
		ScaledAt: start.Add(time.Hour), LeadFailedAt: start.Add(2 * time.Hour), Arrived: true,
	}
}

// TestAMemoHasAValueInEachField checks that the tests of encoding and reading see each field. A field that is not on
// the Lease belongs to Unstored.
func TestAMemoHasAValueInEachField(t *testing.T) {
	t.Parallel()
	memo := reflect.ValueOf(fullMemo())
	for i := range memo.NumField() {
		if name := memo.Type().Field(i).Name; memo.Field(i).IsZero() != (name == "Unstored") {
			t.Errorf("fullMemo has %v in the field %s", memo.Field(i), name)
		}
	}
}

// TestMemoIsReadAgain checks that nothing of a Memo is lost, and what is refused.
func TestMemoIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, want := range []migration.Memo{{}, fullMemo()} {
		encoded, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := migration.ParseMemo(encoded)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	for name, annotation := range map[string]string{
		"no schema":      `{}`,
		"a later schema": `{"schema":2}`,
		"another field":  `{"schema":1,"size":3}`,
		"another phase":  `{"schema":1,"phase":"Moving"}`,
		"no JSON":        `phase=Roll`,
		"two values":     `{"schema":1}{"schema":1}`,
		"a negative":     `{"schema":1,"replicas":-1}`,
		"too many":       `{"schema":1,"replicas":1000}`,
		"another time":   `{"schema":1,"since":-5}`,
		"a long UID":     `{"schema":1,"failed":"` + strings.Repeat("a", 65) + `"}`,
		"too long":       `{"schema":1,"failed":"` + strings.Repeat("a", migration.MaxMemo) + `"}`,
		"many stranded":  `{"schema":1,"stranded":[0` + strings.Repeat(",0", model.MaxGateways) + `]}`,
	} {
		if m, err := migration.ParseMemo(annotation); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// FuzzMemo checks that each Memo that is accepted has a bounded encoding from which it is read again.
func FuzzMemo(f *testing.F) {
	full, err := fullMemo().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full, "start", "true", "2026-01-02T03:04:05Z")
	f.Add(`{"schema":1,"since":253402300799}`, "", "", "")
	f.Fuzz(func(t *testing.T, memo, goal, paused, at string) {
		if m, err := migration.ParseMemo(memo); err == nil {
			encoded, err := m.Encode()
			if err != nil || len(encoded) > migration.MaxMemo {
				t.Fatalf("%d bytes, %v", len(encoded), err)
			}
			if again, err := migration.ParseMemo(encoded); err != nil || !cmp.Equal(again, m) {
				t.Errorf("%+v is read again as %+v, %v", m, again, err)
			}
		}
		i, err := migration.ParseIntent(map[string]string{
			migration.GoalAnnotation: goal, migration.PausedAnnotation: paused, migration.RequestedAtAnnotation: at,
		})
		if err != nil {
			return
		}
		if again, err := migration.ParseIntent(i.Annotations()); err != nil || !again.At.Equal(i.At.Truncate(time.Second)) ||
			again.Goal != i.Goal || again.Paused != i.Paused {
			t.Errorf("%+v is read again as %+v, %v", i, again, err)
		}
	})
}

// FuzzLongUIDs checks that a Memo with UIDs of any length fits, if all Gateways are stranded, and can be read.
func FuzzLongUIDs(f *testing.F) {
	f.Add("uid")
	f.Add(strings.Repeat("u", 63) + "é") // it is cut within a character
	f.Fuzz(func(t *testing.T, uid string) {
		m := fullMemo()
		m.Released, m.Failed = types.UID(uid), types.UID(uid)
		m.Stranded = slices.Repeat([]uint32{1<<32 - 1}, model.MaxGateways+1)
		if encoded, err := m.Encode(); err != nil || len(encoded) > migration.MaxMemo {
			t.Errorf("%d bytes, %v", len(encoded), err)
		} else if _, err := migration.ParseMemo(encoded); err != nil {
			t.Error(err)
		}
	})
}
