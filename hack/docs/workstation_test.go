package docs

import (
	"regexp"
	"testing"
)

// TestPagesNeedNoExec checks that no page shows a command that runs in a pod, reads its log, or forwards a port. Many
// management clusters allow none of these.
func TestPagesNeedNoExec(t *testing.T) {
	forbidden := regexp.MustCompile(`kubectl\b.* (exec|logs|port-forward)\b`)
	for _, page := range pages(t) {
		if found := forbidden.FindString(read(t, page)); found != "" {
			t.Errorf("%s: %q", page, found)
		}
	}
}
