package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEachAlertHasARunbook checks the labels and annotations of alerts, and the pages that they name. A page without an
// alert is an error as well.
func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	const pages = "https://github.com/hypergate/hypergate/blob/main/docs/runbooks/"
	_, rules := ruleFile(t)
	alerts := 0
	for _, rule := range rules {
		if rule.Alert == "" {
			continue
		}
		alerts++
		if url := rule.Annotations["runbook_url"]; url != pages+rule.Alert+".md" {
			t.Errorf("%s: its runbook_url is %q", rule.Alert, url)
		}
		page := file(t, "docs/runbooks", rule.Alert+".md")
		headings := regexp.MustCompile("(?m)^#+ .*$").FindAllString(page, -1)
		want := []string{"# " + rule.Alert, "## Meaning", "## Impact", "## Diagnosis", "## Mitigation", "## Verification"}
		if !slices.Equal(headings, want) {
			t.Errorf("%s: its page has the headings %q, want %q", rule.Alert, headings, want)
		}
		for _, forbidden := range []string{"kubectl exec", "kubectl logs", "port-forward", " exec "} {
			if strings.Contains(page, forbidden) {
				t.Errorf("%s: its page needs %q, which many management clusters do not allow", rule.Alert, forbidden)
			}
		}
		for _, annotation := range []string{"summary", "description"} {
			if rule.Annotations[annotation] == "" {
				t.Errorf("%s: it has no %s", rule.Alert, annotation)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s: its severity is %q", rule.Alert, rule.Labels["severity"])
		}
	}
	if alerts < 13 {
		t.Errorf("there are only %d alerts", alerts)
	}
}

// TestRulesReadKnownMetrics checks each metric of each rule.
func TestRulesReadKnownMetrics(t *testing.T) {
	t.Parallel()
	exists := known(t)
	_, rules := ruleFile(t)
	for _, rule := range rules {
		for _, metric := range metricsOf(t, rule.Alert+rule.Record, rule.Expr) {
			if !exists(metric) {
				t.Errorf("%s%s reads %s, which does not exist", rule.Alert, rule.Record, metric)
			}
		}
	}
}
