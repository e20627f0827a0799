// Package ocpcrds has CRDs of OpenShift, as its API module has them.
package ocpcrds

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// Files of CRDs of config.openshift.io, as the default feature set of an OpenShift cluster has them. That of APIServers
// is of the technology preview: it has tlsAdherence.
const (
	Proxies         = "0000_03_config-operator_01_proxies.crd.yaml"
	Infrastructures = "0000_10_config-operator_01_infrastructures-Default.crd.yaml"
	APIServers      = "0000_10_config-operator_01_apiservers-TechPreviewNoUpgrade.crd.yaml"
)

// configPackage is the package beside whose Go types the API module has these files.
const configPackage = "github.com/openshift/api/config/v1"

// CRD returns the CRD in one of these files, of the version of the API module that hypergate's own module requires. For
// an older guest, it lacks the rules that this guest's API server does not know.
func CRD(ctx context.Context, file string) (*unstructured.Unstructured, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", configPackage)
	list.Dir = root
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", configPackage, err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zz_generated.crd-manifests", file))
	if err != nil {
		return nil, fmt.Errorf("reading a CRD of OpenShift: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if servers.HasOlderGuest() {
		withoutNewRules(crd.Object)
	}
	return crd, nil
}

// newFunctions are CEL's functions that an API server of Kubernetes 1.30 does not accept in a new CRD (k8s.io/apiserver
// pkg/cel/environment/base.go: those for addresses are from 1.30, those for formats from 1.31, and a CRD must also fit
// the minor before).
var newFunctions = regexp.MustCompile(`\b((isIP|isCIDR|ip|cidr)\(|format\.)`)

// withoutNewRules removes from a schema the rules with such functions.
func withoutNewRules(part any) {
	const rules = "x-kubernetes-validations"
	switch part := part.(type) {
	case map[string]any:
		if all, is := part[rules].([]any); is {
			part[rules] = slices.DeleteFunc(all, func(rule any) bool {
				fields, _ := rule.(map[string]any)
				text, _ := fields["rule"].(string)
				return newFunctions.MatchString(text)
			})
		}
		for _, value := range part {
			withoutNewRules(value)
		}
	case []any:
		for _, value := range part {
			withoutNewRules(value)
		}
	}
}
