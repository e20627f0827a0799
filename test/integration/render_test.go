package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
)

// TestRenderShowsWhatRunApplies checks that hypergate applies exactly what the command render prints for the
// HostedControlPlane of the cluster: the same objects on both sides, and each printed field. Values that only a
// cluster has are placeholders in the output.
//
// Each case has its own pair, because hypergate leaves the CRDs of another test's revision as they are.
func TestRenderShowsWhatRunApplies(t *testing.T) {
	needsServers(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		publish func(*harness)
		flags   func(*harness) []string
	}{
		"at a port of the nodes": {
			func(w *harness) {
				w.publishAPIServer(`{"type":"NodePort","nodePort":{"address":"192.0.2.7"}}`)
				w.cfg.XDS, w.cfg.Publish = model.HostPort{}, model.Publish{Strategy: model.PublishAuto}
			},
			func(w *harness) []string {
				return []string{fmt.Sprintf("--published-host=:%d", w.xdsService().Spec.Ports[0].NodePort)}
			},
		},
		"by the tunnel": {
			(*harness).byTunnel,
			func(w *harness) []string {
				return []string{"--publish=tunnel", "--relay-image=" + w.cfg.Publish.RelayImage}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			own, err := planes.Start(t.Context(), planes.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := own.Stop(); err != nil {
					t.Error(err)
				}
			})
			w := newWorldOn(t, own)
			w.serveHyperShift()
			w.createControlPlane("guest1", `, infraID: guest1-abcde, labels: {team: a}, nodeSelector: {role: infra}, `+
				`tolerations: [{key: k, operator: Exists}]`)
			tc.publish(w)
			w.run()
			w.install("demo")
			w.settle()
			file := filepath.Join(t.TempDir(), "plane.json")
			data, err := w.plane("guest1").MarshalJSON()
			w.Expect(err).NotTo(gomega.HaveOccurred())
			w.Expect(os.WriteFile(file, data, 0o600)).To(gomega.Succeed())
			var got []string
			for _, side := range []model.Side{model.SideMgmt, model.SideGuest} {
				for _, u := range w.render(file, side, tc.flags(w)...) {
					got = append(got, w.live(side, u))
				}
			}
			want := slices.Sorted(maps.Keys(w.versions()))
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-applied +rendered:\n%s", diff)
			}
		})
	}
}

// render returns what the command render prints for a side. The mesh root is that of the cluster.
func (w *harness) render(file string, side model.Side, more ...string) []*unstructured.Unstructured {
	w.Helper()
	root := filepath.Join(w.TempDir(), "root-cert.pem")
	w.Expect(os.WriteFile(root, w.caSecret().Data["root-cert.pem"], 0o600)).To(gomega.Succeed())
	var out, errOut bytes.Buffer
	code := app.Execute(w.Context(), append([]string{
		"render", "-f", file, "--side=" + string(side), "-o=json", "--gateway-class=demo", "--guest-namespace=" + w.cfg.GuestNamespace,
		"--revision=" + w.cfg.Revision, "--controller-name=" + w.cfg.ControllerName, "--pilot-image=" + w.cfg.PilotImage,
		"--proxy-image=" + w.cfg.ProxyImage, "--ca-bundle=" + root,
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

// live compares a rendered object with the one of its side, and returns the path of that as versions has it.
func (w *harness) live(side model.Side, u *unstructured.Unstructured) string {
	w.Helper()
	kinds, config := model.MgmtKinds(), w.pair.Mgmt.Config
	if side == model.SideGuest {
		kinds, config = model.GuestKinds(), w.pair.Guest.Config
	}
	i := slices.IndexFunc(kinds, func(k model.Kind) bool { return k.GVK == u.GroupVersionKind() })
	w.Expect(i).To(gomega.BeNumerically(">=", 0), "the kind of %s", u.GetKind())
	resource := kinds[i].GVK.GroupVersion().WithResource(kinds[i].Resource)
	live, err := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(u.GetNamespace()).
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
	return string(side) + pathOf(resource, live)
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
