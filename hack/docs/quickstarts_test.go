package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	preflightBlock = regexp.MustCompile("(?s)\n```(\\w*)\n(hypergate preflight .*?)\n```\n")
	// chosenValue matches the values of a quickstart that hypergate preflight needs as flags.
	chosenValue = regexp.MustCompile(`(?m)^(?:pilotImage|proxyImage|guestApiPeers|xdsPeers): (.+)$|^extraArgs: \[--publish=(\w+)\]$`)
)

// TestQuickstartsAreChecked checks that each quickstart has a command that checks its own values, and requires that no
// other controller serves the gateways. test/e2e runs the blocks in the language sh, and not this command.
func TestQuickstartsAreChecked(t *testing.T) {
	for name, values := range map[string]int{"hypershift": 2, "cluster-api": 5, "standalone": 2} {
		page := read(t, filepath.Join(root, "docs/quickstart-"+name+".md"))
		if !strings.Contains(page, "\n- No other controller serves the ") {
			t.Errorf("%s does not require that no other controller serves the gateways", name)
		}
		found := preflightBlock.FindAllStringSubmatch(page, -1)
		if len(found) != 1 || found[0][1] != "" {
			t.Errorf("%s: the commands are %q, want one that is in no language", name, found)
			continue
		}
		chosen := chosenValue.FindAllStringSubmatch(page, -1)
		for _, value := range chosen {
			if !strings.Contains(found[0][2]+" ", " "+value[1]+value[2]+" ") {
				t.Errorf("%s: %q lacks the value of %s", name, found[0][2], value[0])
			}
		}
		if len(chosen) != values {
			t.Errorf("%s has %d values, want %d: %q", name, len(chosen), values, chosen)
		}
	}
}
