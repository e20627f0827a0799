package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/deploy"
)

// placeholder is the registry of all images in deploy/.
const placeholder = "registry.example.com/"

// rendered returns the folders of deploy/ that a release also has as one file each, by the file's name. hosted and
// cluster-api have the names of the example, and monitoring-guest has no namespace. The others can be applied as they
// are.
func rendered() map[string]string {
	return map[string]string{
		"hosted": "hosted/example", "cluster-api": "cluster-api/example", "guest": "hosted/guest",
		"standalone": "standalone", "standalone-own-namespace": "standalone-own-namespace",
		"fleet": "fleet", "migration-operator": "migration-operator",
		"renewal-guest": "renewal/guest", "sidecar-injection": "sidecar-injection", "istio-resources": "istio-resources",
		"monitoring-hosted": "monitoring/hosted", "monitoring-cluster-api": "monitoring/cluster-api",
		"monitoring-standalone": "monitoring/standalone", "monitoring-guest": "monitoring/guest",
	}
}

// writeManifests writes an archive of deploy/ with the names of the release, and the rendered manifests.
func (r release) writeManifests() error {
	files, err := filesOf(filepath.Join(r.root, "deploy"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "hypergate-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // the files of the release are elsewhere
	names := r.names()
	kept := files[:0]
	for _, f := range files {
		if strings.HasPrefix(f.name, "chart/") || strings.HasPrefix(f.name, "cpo/") || f.name == "Containerfile" {
			continue // the chart is a file of its own; the others are for developers
		}
		f.data = []byte(names.Replace(string(f.data)))
		if strings.HasSuffix(f.name, ".yaml") && bytes.Contains(f.data, []byte(placeholder)) {
			return fmt.Errorf("deploy/%s has a name that no rule replaces", f.name)
		}
		kept = append(kept, f)
		target := filepath.Join(work, f.name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, f.data, 0o600); err != nil {
			return err
		}
	}
	if err := writeArchive(filepath.Join(r.out, r.prefix()+"deploy.tar.gz"), "deploy", kept); err != nil {
		return err
	}
	return r.render(work)
}

// names returns the replacements of the names in deploy/.
func (r release) names() *strings.Replacer {
	tag := strings.LastIndexByte(r.image, ':')
	return strings.NewReplacer(
		placeholder+"hypergate:dev", r.image, placeholder+"hypergate", r.image[:tag], "newTag: dev", "newTag: "+r.image[tag+1:],
		placeholder+"pilot:"+charts.EmbeddedVersion, r.pilot, placeholder+"proxyv2:"+charts.EmbeddedVersion, r.proxy,
	)
}

// render writes the rendered manifests of a folder deploy/.
func (r release) render(folder string) error {
	for name, part := range rendered() {
		objects, err := deploy.RenderFrom(folder, part)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		fmt.Fprintf(&out, "# hypergate %s: deploy/%s\n", r.version, part)
		for _, o := range objects {
			data, err := yaml.Marshal(o.Object)
			if err != nil {
				return err
			}
			out.WriteString("---\n")
			out.Write(data)
		}
		if err := os.WriteFile(filepath.Join(r.out, r.prefix()+name+".yaml"), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
