package app_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAnErrorCannotPassForAnotherLine checks that a text of an API server does not begin a line of its own: in the
// error of a command, and in what it prints while it waits.
func TestAnErrorCannotPassForAnotherLine(t *testing.T) {
	t.Parallel()
	const theirs = "hypergate: all Gateways were released"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		failure(w, http.StatusForbidden, "x\n"+theirs)
	}))
	t.Cleanup(server.Close)
	config := kubeconfigOf(t, server.URL)
	for name, args := range map[string][]string{
		"an error":   {"release", "--guest-kubeconfig=" + config, "--guest-context=guest1"},
		"a wait":     {"status", "-n=ns", "--wait=1s", "--kubeconfig=" + config},
		"an archive": {"bundle", "-n=ns", "--kubeconfig=" + config, "-o=" + t.TempDir() + "/archive"},
	} {
		r := execute(t, args...)
		if !strings.Contains(r.errOut, "\n  "+theirs) {
			t.Errorf("%s: the text is not there: %+v", name, r)
		}
		for line := range strings.Lines(r.errOut) {
			if strings.HasPrefix(line, theirs) {
				t.Errorf("%s:\n%s", name, r.errOut)
			}
		}
	}
}
