package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestRenderShowsWhatRunApplies checks that hypergate applies exactly what the command render prints for the
// HostedControlPlane of the cluster: the same objects on the management side, and each printed field. Values that only
// a cluster has are placeholders in the output.
func TestRenderShowsWhatRunApplies(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	w.createControlPlane("guest1", `, infraID: guest1-abcde, labels: {team: a}, nodeSelector: {role: infra}, `+
		`tolerations: [{key: k, operator: Exists}]`)
	w.publishAPIServer(`{"type":"NodePort","nodePort":{"address":"192.0.2.7"}}`)
	w.cfg.XDS, w.cfg.Publish = model.HostPort{}, model.Publish{Strategy: model.PublishAuto}
	w.run()
	w.install("demo")
	w.settle()
	file := filepath.Join(t.TempDir(), "plane.json")
	data, err := w.plane("guest1").MarshalJSON()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(os.WriteFile(file, data, 0o600)).To(gomega.Succeed())
	rendered := w.render(file, fmt.Sprintf("--published-host=:%d", w.xdsService().Spec.Ports[0].NodePort))
	got := make([]string, 0, len(rendered))
	for _, u := range rendered {
		got = append(got, w.liveMgmt(u))
	}
	var want []string
	for _, member := range w.members() {
		if path, is := strings.CutPrefix(member, string(model.SideMgmt)); is {
			want = append(want, path)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-applied +rendered:\n%s", diff)
	}
}

// render returns what the command render prints for the management side.
func (w *harness) render(file string, more ...string) []*unstructured.Unstructured {
	w.Helper()
	var out, errOut bytes.Buffer
	code := app.Execute(w.Context(), append([]string{
		"render", "-f", file, "--side=management", "-o=json", "--gateway-class=demo", "--guest-namespace=" + w.cfg.GuestNamespace,
		"--revision=" + w.cfg.Revision, "--controller-name=" + w.cfg.ControllerName, "--pilot-image=" + w.cfg.PilotImage,
		"--proxy-image=" + w.cfg.ProxyImage,
	}, more...), &out, &errOut)
	w.Expect(code).To(gomega.BeZero(), errOut.String())
	var list unstructured.UnstructuredList
	w.Expect(json.Unmarshal(out.Bytes(), &list)).To(gomega.Succeed())
	all := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// liveMgmt compares a rendered object with the one of the management side, and returns the path of that.
func (w *harness) liveMgmt(u *unstructured.Unstructured) string {
	w.Helper()
	i := slices.IndexFunc(model.MgmtKinds(), func(k model.Kind) bool { return k.GVK == u.GroupVersionKind() })
	w.Expect(i).To(gomega.BeNumerically(">=", 0), "the kind of %s", u.GetKind())
	resource := model.MgmtKinds()[i].GVK.GroupVersion().WithResource(model.MgmtKinds()[i].Resource)
	live, err := dynamic.NewForConfigOrDie(w.pair.Mgmt.Config).Resource(resource).Namespace(w.cfg.MgmtNamespace).
		Get(context.Background(), u.GetName(), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	// The keys, the token, and the address of the guest's API server exist only in a cluster.
	if u.GetKind() == "Secret" {
		delete(u.Object, "data")
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	for _, hash := range []string{"guest-api-hash", "ca-root-hash"} {
		unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "annotations", "gateway.hypergate.dev/"+hash)
	}
	if missing := missingIn(live.Object, u.Object, u.GetKind()); len(missing) > 0 {
		w.Errorf("%s %s differs from what render prints: %q", u.GetKind(), u.GetName(), missing)
	}
	return pathOf(resource, live)
}

// pathOf returns the path of an object as members has it.
func pathOf(resource schema.GroupVersionResource, u *unstructured.Unstructured) string {
	prefix := "/apis/" + resource.Group + "/"
	if resource.Group == "" {
		prefix = "/api/"
	}
	return prefix + resource.Version + "/" + resource.Resource + "/" + u.GetNamespace() + "/" + u.GetName()
}

// missingIn returns the paths of the values of want that an object does not have. An object has more values: those
// that an API server adds.
func missingIn(object, want any, path string) []string {
	switch want := want.(type) {
	case map[string]any:
		have, _ := object.(map[string]any)
		var out []string
		for key, value := range want {
			out = append(out, missingIn(have[key], value, path+"."+key)...)
		}
		return out
	case []any:
		have, _ := object.([]any)
		if len(have) != len(want) {
			return []string{path}
		}
		var out []string
		for i := range want {
			out = append(out, missingIn(have[i], want[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
		return out
	}
	if object == nil && want == "" {
		return nil // an API server stores no empty value
	}
	if fmt.Sprint(object) != fmt.Sprint(want) {
		return []string{fmt.Sprintf("%s: %v, not %v", path, object, want)}
	}
	return nil
}
