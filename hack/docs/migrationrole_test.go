package docs

import (
	"bytes"
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

// TestTheMigrationRoleReads checks that the ClusterRole of deploy/rbac/migration has reads only, none of a Secret, and
// all kinds of Istio's API. Its writes are in a file of their own.
func TestTheMigrationRoleReads(t *testing.T) {
	g := NewWithT(t)
	data, err := os.ReadFile(filepath.Join(root, "deploy/rbac/migration/clusterrole.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var listed []string
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		g.Expect(yaml.Unmarshal(document, &role)).To(Succeed())
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				g.Expect(verb).To(Or(Equal("get"), Equal("list")))
			}
			g.Expect(rule.Resources).NotTo(Or(ContainElement("secrets"), ContainElement("*")))
			if slices.Contains(rule.Verbs, "get") {
				g.Expect(rule.ResourceNames).NotTo(BeEmpty(), "get of any %s", strings.Join(rule.Resources, ", "))
			}
			for _, resource := range rule.Resources {
				listed = append(listed, resource+"."+rule.APIGroups[0])
			}
		}
	}
	for _, r := range model.KnownIstioResources() {
		g.Expect(listed).To(ContainElement(r.CRD()))
	}
}
