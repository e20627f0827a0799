package controller

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestVersionFor checks to which version of a class its conditions are written.
func TestVersionFor(t *testing.T) {
	class := model.GatewayClass{Name: "a", UID: "1", Generation: 2}
	shown := func(uid types.UID, version string, generation int64) guest.ClassStatus {
		return guest.ClassStatus{UID: uid, ResourceVersion: version, Generation: generation}
	}
	for name, tc := range map[string]struct {
		changes int
		shown   guest.ClassStatus
		version string
		known   bool
	}{
		"the version that the watch shows":       {0, shown("1", "7", 2), "7", true},
		"another spec: the next pass decides":    {0, shown("1", "8", 3), "", false},
		"it is gone":                             {0, guest.ClassStatus{}, "", false},
		"it is gone, after changes":              {mostChanges, guest.ClassStatus{}, "", false},
		"another one has its name":               {0, shown("2", "9", 2), "", false},
		"it keeps changing, still a few times":   {mostChanges - 1, shown("1", "8", 3), "", false},
		"it keeps changing: any version":         {mostChanges, shown("1", "8", 3), "", true},
		"its status keeps changing: any version": {mostChanges, shown("1", "8", 2), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			all := newClasses()
			written := all.get("a")
			written.changes = tc.changes
			if version, known := written.versionFor(class, tc.shown); version != tc.version || known != tc.known {
				t.Errorf("version %q, known %t; want %q, %t", version, known, tc.version, tc.known)
			}
		})
	}
}

// TestNoteAnswer checks that only changes in a row are counted.
func TestNoteAnswer(t *testing.T) {
	all, counts := newClasses(), []int{}
	written := all.get("a")
	changed := guest.ClassChangedError{}
	for _, err := range []error{changed, changed, nil, changed, errors.New("no answer")} {
		if _, want := errors.AsType[guest.ClassChangedError](err); written.noteAnswer(err, false) != want {
			t.Errorf("%v: want %t", err, want)
		}
		counts = append(counts, written.changes)
	}
	for i, want := range []int{1, 2, 0, 1, 0} {
		if counts[i] != want {
			t.Fatalf("changes in a row: %v", counts)
		}
	}
}
