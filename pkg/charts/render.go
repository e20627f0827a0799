package charts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// managedBy is the value of label app.kubernetes.io/managed-by on all objects. It replaces Helm, which does not
	// manage them. The chart takes it from .Release.Service.
	managedBy = "hypergate"
	// kubeMinor is the Kubernetes version 1.N that templates see on every cluster. The output must not depend on the
	// cluster.
	kubeMinor = "33"
)

// Release is one rendering of the chart istio-discovery.
type Release struct {
	// Name is the release name. It appears in labels.
	Name string
	// Namespace is the release namespace.
	Namespace string
	// Values has the types of parsed YAML: tables are map[string]any, lists are []any. They override the values of
	// the chart and of the profile. They are not changed.
	Values map[string]any
}

// Render renders the chart istio-discovery (istiod in Helm). The objects are sorted by group, version, kind,
// namespace and name. The caller can change them.
//
// An error names the release, the charts, and the value or template that is wrong.
func (s *Source) Render(r Release) ([]*unstructured.Unstructured, error) {
	objects, err := render(s.discovery, r)
	if err != nil {
		return nil, fmt.Errorf("rendering release %s from %s: chart %s: %w", r.Name, s, s.discovery.Name(), err)
	}
	return objects, nil
}

func render(c *chart.Chart, r Release) ([]*unstructured.Unstructured, error) {
	if err := checkValues(c.Values, r.Values); err != nil {
		return nil, err
	}
	top, err := renderValues(c, r)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, top)
	if err != nil {
		return nil, errors.New(reason(err.Error(), c.Name()))
	}
	return collect(files, c.Name())
}

// renderValues returns the values for the templates. They are a deep copy, because Istio's zzz_profile.yaml moves
// values in place.
func renderValues(c *chart.Chart, r Release) (chartutil.Values, error) {
	top, err := chartutil.ToRenderValues(c, r.Values,
		chartutil.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true},
		// Pass no API versions. Helm's default is the versions that are linked into the program. Istio's charts check
		// for none.
		&chartutil.Capabilities{KubeVersion: chartutil.KubeVersion{Version: "v1." + kubeMinor + ".0", Major: "1", Minor: kubeMinor}})
	if err != nil {
		return nil, fmt.Errorf("merging values: %w", err)
	}
	release, ok := top["Release"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("merging values: Helm's Release is a %T", top["Release"])
	}
	release["Service"] = managedBy
	return top, nil
}

// collect decodes and sorts the objects in the rendered files.
func collect(files map[string]string, chartName string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	templates := map[identity]string{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		template := strings.TrimPrefix(file, chartName+"/")
		found, err := decode([]byte(files[file]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", template, err)
		}
		for _, u := range found {
			id := identityOf(u)
			if first, taken := templates[id]; taken {
				return nil, fmt.Errorf(
					"%s is rendered twice, by %s and by %s: a chart must render each object once",
					id, first, template,
				)
			}
			templates[id] = template
		}
		objects = append(objects, found...)
	}
	slices.SortFunc(objects, compare)
	return objects, nil
}

// compare is a total order on objects with different identities.
func compare(a, b *unstructured.Unstructured) int {
	x, y := a.GroupVersionKind(), b.GroupVersionKind()
	return cmp.Or(
		cmp.Compare(x.Group, y.Group), cmp.Compare(x.Version, y.Version), cmp.Compare(x.Kind, y.Kind),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// reason returns Helm's error without noise: the template and line that failed, the expression, and the cause. In a
// chain of included templates it returns the outermost place, which is the file whose object is missing, and the
// innermost cause.
func reason(text, chartName string) string {
	place, cause := cutPlace(text)
	if i := strings.LastIndex(cause, ": template: "); i >= 0 {
		_, cause, _ = strings.Cut(cause[i+len(": template: "):], ": ")
	}
	if rest, found := strings.CutPrefix(cause, "executing "); found {
		if _, at, found := strings.Cut(rest, " at "); found {
			cause = "at " + at
		}
	}
	cause = strings.Join(strings.Fields(cause), " ")
	const enough = 500 // "tpl" quotes the whole text that failed
	if len(cause) > enough {
		cause = cause[:enough/2] + " … " + cause[len(cause)-enough/2:]
	}
	if place == "" {
		return cause
	}
	return strings.TrimPrefix(place, chartName+"/") + ": " + cause
}

// cutPlace splits the place off an error of Helm's engine. The place is empty if the error has none.
func cutPlace(text string) (place, cause string) {
	for _, lead := range []string{"execution error at (", "execution error in (", "parse error at (", "parse error in ("} {
		if rest, found := strings.CutPrefix(text, lead); found {
			if place, cause, found = strings.Cut(rest, "): "); found {
				return place, cause
			}
		}
	}
	if rest, found := strings.CutPrefix(text, "template: "); found {
		if place, cause, found = strings.Cut(rest, ": "); found {
			return place, cause
		}
	}
	return "", text
}
