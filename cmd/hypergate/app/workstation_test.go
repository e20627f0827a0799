package app

import (
	"regexp"
	"testing"
)

// TestHelpNeedsNoExec checks that no help text shows a command that runs in a pod, or reads its log. Many management
// clusters allow neither.
func TestHelpNeedsNoExec(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`kubectl\b.* (exec|logs|port-forward)\b|hypergate's log\b`)
	for _, cmd := range allCommands(newRoot()) {
		if found := forbidden.FindString(cmd.Long + "\n" + cmd.Example); found != "" {
			t.Errorf("%s: %q", cmd.CommandPath(), found)
		}
	}
}
