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
// with the permissions of deploy/rbac/gateway-rollout and deploy/rbac/migration. A row about a subresource needs no
// permission for the object: it is in deploy/rbac/guest.
func TestForeignWritesAreDocumented(t *testing.T) {
	g := NewWithT(t)
	var want, resources, inMigration []string
	for _, w := range model.ForeignWrites() {
		want = append(want, fmt.Sprintf("%s | `%s` | %s | %s", w.GVK.Kind, w.Field, w.Reason, w.Effect))
		if w.Subresource != "" {
			continue
		}
		inMigration = append(inMigration, w.GVR().GroupResource().String())
		if !w.InMigration {
			resources = append(resources, w.GVR().GroupResource().String())
		}
	}
	g.Expect(foreignRows(t)).To(Equal(want), "docs/security.md")
	for file, want := range map[string][]string{
		"deploy/rbac/gateway-rollout/clusterrole.yaml": resources, "deploy/rbac/migration/writes.yaml": inMigration,
	} {
		slices.Sort(want)
		written, others := patchRules(t, file)
		g.Expect(written).To(Equal(slices.Compact(want)), "%s: resources that may be patched", file)
		g.Expect(others).To(BeEmpty(), "%s: other verbs than get, list, watch and patch", file)
	}
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

// patchRules returns the resources that a role permits to patch, and the verbs that it should not have.
func patchRules(t *testing.T, file string) (patched, others []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
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
				case "get", "list", "watch":
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
