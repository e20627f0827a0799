package golden_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/test/golden"
)

// recorder is a test that records its errors and does not fail.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestEqual(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "golden.txt")
	mustRecord := func(got string, want ...string) {
		t.Helper()
		r := &recorder{TB: t}
		golden.Equal(r, path, got)
		if len(r.errors) != min(1, len(want)) {
			t.Fatalf("errors = %q, want one with %q", r.errors, want)
		}
		for _, part := range want {
			if !strings.Contains(r.errors[0], part) {
				t.Errorf("the error is %q, want %q in it", r.errors[0], part)
			}
		}
	}

	t.Setenv("UPDATE", "")
	mustRecord("a\n", path, "UPDATE=1")

	t.Setenv("UPDATE", "1")
	mustRecord("a\n")

	t.Setenv("UPDATE", "")
	mustRecord("a\n")
	mustRecord("b\n", path, "UPDATE=1", `"a`, `"b`)
	if data, err := os.ReadFile(path); err != nil || string(data) != "a\n" {
		t.Errorf("the golden file contains %q (%v)", data, err)
	}
	golden.Equal(t, path, []byte("a\n"))
}
