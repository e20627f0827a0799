package hostile_test

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
)

// poolMoves returns the lies about the CRD of InferencePools, which decides whether istiod serves them.
func poolMoves() []move {
	return []move{
		{"the CRD of InferencePools comes and goes, with any versions", func(w *hostileRun) func() {
			put := func() {
				if w.chance(30) {
					w.g.Delete(crdAPI, crdResource, "", model.InferencePoolCRD)
				} else {
					w.g.Put(crdAPI, crdResource, poolCRD(lies(w, poolVersions)))
				}
			}
			w.reach(poolWrites, func() { w.g.Put(crdAPI, crdResource, poolCRD("["+poolVersion("v1alpha2", true)+"]")) })
			stop := w.repeat(400*time.Millisecond, put)
			return func() {
				stop()
				w.g.Delete(crdAPI, crdResource, "", model.InferencePoolCRD)
				w.serveAll()
			}
		}},
	}
}

// poolWrites counts the writes of an istiod that ignores InferencePools. Its total shows that the move reaches istiod.
const poolWrites = "writes of an istiod without InferencePools"

// poolCRD returns the CRD of InferencePools with versions, as YAML.
func poolCRD(versions string) string {
	plural, group, _ := strings.Cut(model.InferencePoolCRD, ".")
	return "{metadata: {name: " + model.InferencePoolCRD + "}, spec: {group: " + group + ", scope: Namespaced, names: {plural: " + plural +
		", kind: InferencePool}, versions: " + versions + "}}"
}

// poolVersion returns one version of a CRD.
func poolVersion(name string, served bool) string {
	return fmt.Sprintf("{name: %q, served: %t, storage: true, schema: {openAPIV3Schema: {type: object}}}", name, served)
}

// poolVersions returns versions of a CRD, which can be wrong in any way.
func poolVersions(l *adversary.Liar) string {
	readable := poolVersion(model.InferencePoolVersion, true)
	many := []string{readable}
	for i := range 1000 {
		many = append(many, poolVersion(fmt.Sprint("v1alpha", i), true))
	}
	all := []string{
		"[" + readable + "]",
		"[" + poolVersion(model.InferencePoolVersion, false) + "]",
		"[" + poolVersion("v1alpha2", true) + "]",
		"[" + strings.Join(many, ", ") + "]",
		"[" + readable + ", " + readable + "]",
		"[{name: " + model.InferencePoolVersion + ", served: 'yes', schema: 7}]",
		"[" + poolVersion(l.Text(), true) + "]",
		fmt.Sprintf("[%s, {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {description: %q}}}]", readable, l.Long("d")),
		"7", "[]", "{}",
	}
	return all[l.IntN(len(all))]
}

// serveAll ends hypergate and starts it again, if istiod ignores a kind because of its CRD. In between, it removes the
// time at which istiod stopped serving it from istiod's Deployment. So the new process serves the kind at once, and not
// after ten minutes.
func (w *hostileRun) serveAll() {
	for _, o := range w.m.Objects() {
		if _, ignores, _ := unstructured.NestedString(o, append(podAnnotations(), model.IgnoredCRDsAnnotation)...); ignores {
			w.restartServingAll()
			return
		}
	}
}

func (w *hostileRun) restartServingAll() {
	w.stop()
	for key, o := range w.m.Objects() {
		since := append(podAnnotations(), model.IgnoredSinceAnnotation)
		if _, is, _ := unstructured.NestedString(o, since...); is {
			unstructured.RemoveNestedField(o, since...)
			resource, _, _ := strings.Cut(key, " ")
			put(w.m, resource, o)
		}
	}
	w.start()
}

func podAnnotations() []string { return []string{"spec", "template", "metadata", "annotations"} }

// hideIgnored removes from istiod's Deployment which kinds it serves. The guest's CRDs decide about it, and an honest
// guest leads to one that serves all of them.
func hideIgnored(o map[string]any) {
	template := []string{"spec", "template"}
	unstructured.RemoveNestedField(o, append(podAnnotations(), model.IgnoredCRDsAnnotation)...)
	unstructured.RemoveNestedField(o, append(podAnnotations(), model.IgnoredSinceAnnotation)...)
	containers, _, _ := unstructured.NestedFieldNoCopy(o, append(template, "spec", "containers")...)
	for _, c := range list(containers) {
		container, _ := c.(map[string]any)
		for _, e := range list(container["env"]) {
			variable, _ := e.(map[string]any)
			switch variable["name"] {
			case "ENABLE_GATEWAY_API_INFERENCE_EXTENSION", "PILOT_INCLUDE_RESOURCES":
				variable["value"] = "…"
			}
		}
	}
}
