package docs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestForeignWritesAreDocumented compares the table of writes to objects of other owners with docs/security.md, and
// with the permissions of deploy/rbac/gateway-rollout.
func TestForeignWritesAreDocumented(t *testing.T) {
	g := NewWithT(t)
	var want, resources []string
	for _, w := range model.ForeignWrites() {
		want = append(want, fmt.Sprintf("%s | `%s` | %s | %s", w.GVK.Kind, w.Field(), w.Reason, w.Effect))
		resources = append(resources, w.Resource+"."+w.GVK.Group)
	}
	slices.Sort(resources)
	g.Expect(foreignRows(t)).To(Equal(want), "docs/security.md")
	written, others := gatewayRolloutRules(t)
	g.Expect(written).To(Equal(slices.Compact(resources)), "deploy/rbac/gateway-rollout: resources that may be patched")
	g.Expect(others).To(BeEmpty(), "deploy/rbac/gateway-rollout: other verbs than list, watch and patch")
}

// foreignRows returns the rows of the table in docs/security.md.
func foreignRows(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(text), "### Writes to objects of other owners\n")
	NewWithT(t).Expect(found).To(BeTrue(), "docs/security.md has no such section")
	section, _, _ = strings.Cut(section, "\n## ")
	var out []string
	for line := range strings.Lines(section) {
		if row := strings.Trim(strings.TrimSpace(line), "| "); strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|--") {
			out = append(out, row)
		}
	}
	NewWithT(t).Expect(out).NotTo(BeEmpty())
	return out[1:] // without the header
}

// gatewayRolloutRules returns the resources that the role permits to patch, and the verbs that it should not have.
func gatewayRolloutRules(t *testing.T) (patched, others []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "deploy/rbac/gateway-rollout/clusterrole.yaml"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		NewWithT(t).Expect(yaml.Unmarshal(document, &role)).To(Succeed())
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				switch verb {
				case "list", "watch":
				case "patch":
					patched = append(patched, rule.Resources[0]+"."+rule.APIGroups[0])
				default:
					others = append(others, verb)
				}
			}
			NewWithT(t).Expect(len(rule.Resources)*len(rule.APIGroups)).To(Equal(1), "one resource in each rule")
		}
	}
	slices.Sort(patched)
	return patched, others
}
