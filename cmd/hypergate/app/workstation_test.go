package app

import (
	"regexp"
	"strings"
	"testing"
)

// TestHelpNeedsNoExec checks that no help text shows a command that runs in a pod, or reads its log. Many management
// clusters allow neither.
func TestHelpNeedsNoExec(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`\b(kubectl|oc)\b.* (exec|logs|port-forward)\b|hypergate's log\b`)
	for _, cmd := range allCommands(newRoot()) {
		if found := forbidden.FindString(strings.ReplaceAll(cmd.Long+"\n"+cmd.Example, "\\\n", " ")); found != "" {
			t.Errorf("%s: %q", cmd.CommandPath(), found)
		}
	}
}
