package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
)

// manyFlags are the commands whose flags are in groups.
func manyFlags() []string { return []string{"run", "render", "preflight", "diff"} }

// TestHelpHasGroups checks that the flags of commands with many are in groups, and that lines fit.
func TestHelpHasGroups(t *testing.T) {
	t.Setenv("COLUMNS", "")
	for _, verb := range manyFlags() {
		help := execute(t, verb, "--help").out
		_, flags, _ := strings.Cut(help, "\nClusters:\n")
		for _, want := range []string{"--namespace", "\nPublishing istiod:\n", "\nWhat is installed:\n", "\nFlags:\n", "--help"} {
			if !strings.Contains(flags, want) {
				t.Errorf("%s --help has no %q:\n%s", verb, want, help)
			}
		}
		for line := range strings.Lines(flags) {
			if len(line) > 101 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s --help has a line of %d columns: %s", verb, len(line), line)
			}
		}
	}
	_, general, _ := strings.Cut(execute(t, "run", "--help").out, "\nFlags:\n")
	if n := strings.Count(general, "--"); n != 1 {
		t.Errorf("%d flags of run have no group:\n%s", n, general)
	}
}

// TestHelpOnANarrowScreen checks that the lines of flags fit. Names of flags, and words, are not cut.
func TestHelpOnANarrowScreen(t *testing.T) {
	t.Setenv("COLUMNS", "40")
	for verb, title := range map[string]string{"run": "Clusters", "status": "Flags", "bundle": "Flags"} {
		help := execute(t, verb, "--help").out
		_, flags, _ := strings.Cut(help, "\n"+title+":\n")
		for line := range strings.Lines(flags) {
			words := strings.TrimSpace(line)
			if len(strings.TrimRight(line, "\n")) > 40 && strings.Contains(words, " ") && !strings.HasPrefix(words, "-") {
				t.Errorf("%s --help has a line of %d columns: %s", verb, len(line), line)
			}
		}
		if text := strings.Join(strings.Fields(flags), " "); !strings.Contains(text, "defaults to the environment variable KUBECONFIG") &&
			!strings.Contains(text, "The environment variable KUBECONFIG is ignored") {
			t.Errorf("%s --help lacks a text:\n%s", verb, flags)
		}
	}
}

// TestAnInterruption checks the error of a command that a signal ends.
func TestAnInterruption(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	code := app.Execute(ctx, []string{"fleet", "--wait", "--kubeconfig=" + kubeconfigOf(t, "https://127.0.0.1:1")}, &out, &errOut)
	if got := errOut.String(); code != 1 || !strings.HasSuffix(got, "interrupted\n") {
		t.Errorf("%d: %s", code, got)
	}
}

// TestHelpOfOtherCommands checks that each command shows its flags and examples once.
func TestHelpOfOtherCommands(t *testing.T) {
	for line := range strings.Lines(execute(t, "--help").out) {
		verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		others := []string{"", "*", "hypergate", "completion"}
		if !strings.HasPrefix(line, "  ") || strings.HasPrefix(verb, "-") || slices.Contains(others, verb) {
			continue
		}
		help := execute(t, verb, "--help").out
		if strings.Count(help, "  -h, --help ") != 1 || strings.Count(help, "Usage:\n  hypergate "+verb) != 1 ||
			verb != "help" && !strings.Contains(help, "\nExamples:\n") {
			t.Errorf("%s --help:\n%s", verb, help)
		}
	}
}

// TestVersions checks the formats of the version.
func TestVersions(t *testing.T) {
	if r := execute(t, "--version"); r.code != 0 || r.out != "hypergate version dev\n" {
		t.Errorf("%+v", r)
	}
	r := execute(t, "version", "-o", "json")
	var report map[string]string
	err := json.Unmarshal([]byte(r.out), &report)
	if err != nil || report["hypergate"] != "dev" || report["istio"] == "" || report["go"] == "" {
		t.Errorf("%+v: %v", r, err)
	}
	fails(t, []string{"version", "-o", "html"}, `--output: unsupported value "html"`)
}

// TestCompletion checks what a shell completes.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"run --publish t":                   "tlsroute tunnel",
		"run --topology ":                   "hosted standalone",
		"run --gateway-rollout ":            "OneByOne AllAtOnce",
		"run --log-format ":                 "text json",
		"render --side ":                    "management guest dropped all",
		"render -o ":                        "yaml json",
		"status -o ":                        "table wide json yaml html",
		"status --for u":                    "upgradeable",
		"fleet --only silent,un":            "silent,unreadable silent,unavailable silent,unreported",
		"fleet --sort ":                     "state since name",
		"crds --output ":                    "table json yaml",
		"diff -o ":                          "table json yaml",
		"migrate plan -o ":                  "table json yaml",
		"migrate status -o ":                "table json yaml",
		"migrate pause -o j":                "json",
		"run --istio-resources wasmplugins": "wasmplugins",
	} {
		r := execute(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		got, _, found := strings.Cut(r.out, "\n:36\n")
		if !found || strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%s: %q, want %q", line, r.out, want)
		}
	}
	t.Setenv("KUBECONFIG", kubeconfigOf(t, "https://127.0.0.1:1"))
	for line, want := range map[string]string{ // contexts, files and nothing
		"status --context ": "guest1 none :4", "crds --guest-context n": "none :4",
		"status --kubeconfig /does/not/exist --context ": ":4", "status --kubeconfig ": ":0", "bundle -o ": ":0", "render -f ": ":0",
		"status ": ":4", "status -n ": ":4", "crds --timeout ": ":4", "version ": ":4",
	} {
		r := execute(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if got := strings.Join(strings.Fields(r.out), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for _, verb := range append(manyFlags(), "status", "fleet", "crds", "version") {
		if help := execute(t, verb, "--help").out; strings.Contains(help, "flag '") {
			t.Errorf("%s: a completion is not registered", verb)
		}
	}
}

// TestErrorsNameTheHelp checks that an unknown flag, a flag without a valid value, and a surplus argument name the
// command whose help has the usage.
func TestErrorsNameTheHelp(t *testing.T) {
	fails(t, []string{"status", "--frobnicate"}, "unknown flag: --frobnicate: see hypergate status --help")
	fails(t, []string{"migrate", "plan", "--frobnicate"}, "see hypergate migrate plan --help")
	fails(t, []string{"status", "-n"}, "flag needs an argument: 'n' in -n: see hypergate status --help")
	fails(t, []string{"fleet", "--wait=x"}, `invalid argument "x" for "--wait" flag`, "see hypergate fleet --help")
	fails(t, []string{"version", "a"}, `unknown command "a" for "hypergate version": see hypergate version --help`)
	fails(t, []string{"frob"}, `unknown command "frob" for "hypergate": see hypergate --help`)
	fails(t, []string{"stat"}, `unknown command "stat" for "hypergate" (similar: status): see hypergate --help`)
	fails(t, []string{"help", "stat"}, `unknown command "stat" for "hypergate" (similar: status): see hypergate --help`)
	fails(t, []string{"completion", "ksh"}, `unknown command "ksh"`, "see hypergate completion --help")
}

// TestCommandsAreAligned checks that the descriptions of all commands start in the same column.
func TestCommandsAreAligned(t *testing.T) {
	_, commands, _ := strings.Cut(execute(t, "--help").out, "Available Commands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	columns := map[int]bool{}
	for line := range strings.Lines(commands) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		description := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), name))
		columns[strings.Index(line, description)] = true
	}
	if len(columns) != 1 {
		t.Errorf("the descriptions start in columns %v:\n%s", columns, commands)
	}
}

// TestFlagsAreCheckedFirst checks flags that were accepted, or failed after the start.
func TestFlagsAreCheckedFirst(t *testing.T) {
	fails(t, []string{"render", "--gateway-class=Bad Class"}, `--gateway-class: "Bad Class" is not a name`)
	fails(t, []string{"crds", "--timeout=-1s"}, "--timeout: -1s must be greater than 0")
	fails(t, append([]string{"run", "--log-format=xml"}, flags()...),
		`--log-format: unsupported value "xml": supported values are text, json`)
	for _, flag := range []string{"--metrics-address=8080", "--health-address=", "--metrics-address=:http"} {
		name, _, _ := strings.Cut(flag, "=")
		fails(t, append([]string{"run", flag}, flags()...), name+": ", "is not an address to listen at")
	}
}
