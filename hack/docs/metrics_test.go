package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/metrics"
)

// TestMetricsMatchTheCode compares the table of hypergate's metrics with the definitions: names, labels, types and
// their order.
func TestMetricsMatchTheCode(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join(root, "docs/reference/metrics.md"))
	_, section, _ := strings.Cut(page, "\n## hypergate\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, defined []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+) \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, row[1]+" "+row[2])
	}
	for _, d := range metrics.Definitions(controller.MetricValues()) {
		labels := make([]string, 0, len(d.Labels))
		for _, label := range d.Labels {
			labels = append(labels, label.Name)
		}
		name := d.Name
		if len(labels) > 0 {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		defined = append(defined, name+" "+string(d.Type))
	}
	if diff := cmp.Diff(defined, documented); diff != "" {
		t.Errorf("docs/reference/metrics.md, -code +page:\n%s", diff)
	}
}
