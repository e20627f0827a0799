package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// writeChart writes the Helm chart with the release's version, and with its images as the default values. Helm's own
// archives contain the time.
func (r release) writeChart() error {
	files, err := filesOf(filepath.Join(r.root, "deploy", "chart"))
	if err != nil {
		return err
	}
	number := strings.TrimPrefix(r.version, "v")
	edits := map[string][][2]string{
		"Chart.yaml": {{"\nversion: 0.0.0\n", "\nversion: " + number + "\n"}, {"\nappVersion: dev\n", "\nappVersion: " + r.version + "\n"}},
		"values.yaml": {
			{"\nimage: \"\"\n", "\nimage: " + r.image + "\n"},
			{"\npilotImage: \"\"\n", "\npilotImage: " + r.pilot + "\n"},
			{"\nproxyImage: \"\"\n", "\nproxyImage: " + r.proxy + "\n"},
		},
	}
	for i, f := range files {
		for _, edit := range edits[f.name] {
			if strings.Count(string(files[i].data), edit[0]) != 1 {
				return fmt.Errorf("%s has not exactly one line %q", f.name, strings.TrimSpace(edit[0]))
			}
			files[i].data = []byte(strings.Replace(string(files[i].data), edit[0], edit[1], 1))
		}
		delete(edits, f.name)
	}
	if len(edits) > 0 {
		return fmt.Errorf("%d files of the chart are missing", len(edits))
	}
	return writeArchive(filepath.Join(r.out, "hypergate-"+number+".tgz"), "hypergate", files)
}
