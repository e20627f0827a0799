package hack_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBusyNeedsALoad checks that busy.sh fails if stress-ng is missing or ends, because the tests then ran on a machine
// that was not busy.
func TestBusyNeedsALoad(t *testing.T) {
	const load = "echo $$ > \"$LOAD\"; exec sleep 600"
	for name, test := range map[string]struct {
		stress, target, want string
		runs                 int
	}{
		"all is well": {load, "exit 0", "", 12},
		"it ends during a target": {
			load, `kill "$(cat "$LOAD")"; while kill -0 "$(cat "$LOAD")"; do sleep 0.01; done`, "stress-ng has ended", 1,
		},
		"it ends at once": {`echo 1 > "$LOAD"; exit 1`, "exit 0", "stress-ng has ended", -1},
		"a target fails":  {load, "exit 3", "failed: unit unit unit unit unit integration", 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ready := `while ! test -s "$LOAD"; do sleep 0.01; done; `
			for program, script := range map[string]string{"stress-ng": test.stress, "make": ready + test.target} {
				writeScript(t, filepath.Join(dir, program), script)
			}
			command := exec.CommandContext(t.Context(), "./busy.sh")
			command.Env = append(os.Environ(), "LOAD="+filepath.Join(dir, "load"), "MAKE="+filepath.Join(dir, "make"),
				"PATH="+dir+":"+os.Getenv("PATH"))
			out, err := command.CombinedOutput()
			exit, failed := errors.AsType[*exec.ExitError](err)
			if failed != (test.want != "") || failed && exit.ExitCode() != 1 || !strings.Contains(string(out), test.want) {
				t.Errorf("%v, want %q:\n%s", err, test.want, out)
			}
			if runs := strings.Count(string(out), "==> "); test.runs >= 0 && runs != test.runs {
				t.Errorf("%d targets ran, want %d", runs, test.runs)
			}
		})
	}
}
