package hack_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fake has the fake programs that step.sh runs, and they advance a fake clock. A target named "name-N" takes N
// seconds. A target named "broken-N" fails.
var fake = map[string]string{
	"date": `cat "$CLOCK"`,
	"make": `echo "$(($(cat "$CLOCK") + ${1##*-}))" > "$CLOCK.next"; mv "$CLOCK.next" "$CLOCK"; case $1 in broken*) exit 3 ;; esac`,
}

// step runs step.sh with the fake programs, and returns its output and its exit code.
func step(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range fake {
		writeScript(t, filepath.Join(dir, name), script)
	}
	clock := filepath.Join(dir, "clock")
	if err := os.WriteFile(clock, []byte("1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "./step.sh", args...)
	command.Env = append(os.Environ(), "CLOCK="+clock, "MAKE="+filepath.Join(dir, "make"), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

func TestSteps(t *testing.T) {
	const tooLong = "step.sh: TOO LONG: "
	for name, test := range map[string]struct {
		args []string
		code int
		want []string
		not  []string
	}{
		"all is well": {
			[]string{"--within", "1", "unit-20", "e2e-40"},
			0,
			[]string{"<== unit-20: ok in 20 s", "e2e-40             ok            40 s", "total                            60 s"},
			[]string{tooLong},
		},
		"without a bound": {[]string{"unit-20", "e2e-4000"}, 0, []string{"total                          4020 s"}, []string{tooLong}},
		"too long in all": {
			[]string{"--within", "1", "unit-20", "integration-41", "e2e-5"},
			1,
			[]string{
				tooLong + "61 s when integration-41 had ended, and all targets together may take 60 s (1 minutes).",
				"unit-20            ok            20 s", "integration-41     ok            41 s", "e2e-5              not run",
			},
			[]string{"==> e2e-5"},
		},
		"the last is too long": {[]string{"--within", "1", "unit-20", "e2e-41"}, 1, []string{tooLong + "61 s when e2e-41 had ended"}, nil},
		"one fails": {
			[]string{"--within", "1", "unit-20", "broken-5", "e2e-5"},
			3,
			[]string{"<== broken-5: FAILED (exit status 3) after 5 s; run it alone with: make broken-5", "e2e-5              not run"},
			[]string{"==> e2e-5", tooLong},
		},
		"one fails, and the others go on": {
			[]string{"--keep-going", "broken-20", "e2e-5"},
			1,
			[]string{"broken-20          FAILED        20 s", "e2e-5              ok             5 s"},
			nil,
		},
		"an unknown option": {[]string{"--forever", "unit-20"}, 2, []string{"unknown option --forever"}, []string{"==> unit-20"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code := step(t, test.args...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			for _, not := range test.not {
				if strings.Contains(out, not) {
					t.Errorf("it says %q", not)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}
