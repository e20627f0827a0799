package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestPagesNeedNoExec checks that no page shows a command that runs in a pod, reads its log, or forwards a port. Many
// management clusters allow none of these.
func TestPagesNeedNoExec(t *testing.T) {
	forbidden := regexp.MustCompile("\\b(kubectl|oc)\\b[^`\n]* (exec|logs|port-forward)\\b")
	for _, page := range pages(t) {
		// A command can be continued on the next line.
		if found := forbidden.FindString(strings.ReplaceAll(read(t, page), "\\\n", " ")); found != "" {
			t.Errorf("%s: %q", page, found)
		}
	}
}
