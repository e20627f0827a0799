package guest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestForeignCRDsKeepLittleMemory checks the memory for foreign CRDs. A guest can have hundreds of them, each with
// whole manifests in its annotations.
func TestForeignCRDsKeepLittleMemory(t *testing.T) {
	const foreign, atMost = 500, 1 << 20
	view := &crdView{wanted: map[string]bool{}, identity: crds.Identity{}}
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	before := heap()
	for i := range foreign {
		small, err := view.transform(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("things%03d.a-rather-long-group-name.example.com", i),
			UID:             types.UID(fmt.Sprintf("5f0bc8a2-0000-4000-8000-%012d", i)),
			ResourceVersion: fmt.Sprint(100000 + i), Annotations: map[string]string{"a": strings.Repeat("x", 10<<10)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Add(small); err != nil {
			t.Fatal(err)
		}
	}
	cost := heap() - before
	t.Logf("%d KiB for %d CRDs", cost>>10, len(store.List()))
	if cost > atMost {
		t.Errorf("%d bytes for %d foreign CRDs, want at most %d", cost, foreign, atMost)
	}
	runtime.KeepAlive(store)
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// keepLittle checks that what is kept of 200 objects takes at most 1 MiB.
func keepLittle(t *testing.T, keep func(i int) any) {
	t.Helper()
	const many, atMost = 200, 1 << 20
	var kept []any
	before := heap()
	for i := range many {
		kept = append(kept, keep(i))
	}
	cost := heap() - before
	t.Logf("%d KiB for %d objects", cost>>10, len(kept))
	if cost > atMost {
		t.Errorf("%d bytes for %d objects, want at most %d", cost, many, atMost)
	}
	runtime.KeepAlive(kept)
}

// TestVersionAnnotationsKeepLittleMemory checks the memory for annotations of CRDs in the Gateway API's groups, of
// which the values are kept. An annotation can have 256 KiB.
func TestVersionAnnotationsKeepLittleMemory(t *testing.T) {
	view := &crdView{wanted: map[string]bool{}, identity: crds.Identity{}}
	keepLittle(t, func(i int) any {
		small, err := view.transform(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("xthings%03d.gateway.networking.x-k8s.io", i),
			Annotations: map[string]string{"gateway.networking.k8s.io/bundle-version": strings.Repeat("9", 200<<10)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return small
	})
}

// TestClassDefaultsKeepLittleMemory checks the memory for ConfigMaps with hypergate's label, of which the proxy is kept
// without its last entry. That entry is not limited: it can be the host of istiod.
func TestClassDefaultsKeepLittleMemory(t *testing.T) {
	proxy := model.Proxy{No: "a.example.com"}
	keepLittle(t, func(i int) any {
		small, err := defaultsOnly("r")(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("m", i), Labels: map[string]string{model.OwnerLabel: "r"},
				Annotations: map[string]string{model.SettingsAnnotation: proxy.Hash()},
			},
			Data: map[string]string{"deployment": "spec: {template: {spec: {containers: [{name: istio-proxy, " +
				"env: [{name: NO_PROXY, value: '" + proxy.No + "," + strings.Repeat("l", 60<<10) + "'}]}]}}}"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if item, is := small.(*defaultsItem); !is || item.settings.Proxy != proxy {
			t.Fatalf("kept %v", small)
		}
		return small
	})
}

// TestLargeObjectsAreNotCopied checks the memory for large objects that a watch shows, while it finds what is kept of
// them. The limit of a message counts each object once.
func TestLargeObjectsAreNotCopied(t *testing.T) {
	const atMost = 1 << 20
	large := slices.Repeat([]any{map[string]any{"a": "b"}}, 50_000) // a copy has 17 MiB
	object := func(kind string, content map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion("gateway.networking.k8s.io/v1")
		u.SetKind(kind)
		return u
	}
	for name, tc := range map[string]struct {
		of   *unstructured.Unstructured
		keep func(u *unstructured.Unstructured)
	}{
		"the template of a Deployment": {
			object("Deployment", map[string]any{"spec": map[string]any{"replicas": int64(2), "template": map[string]any{"x": large}}}),
			func(u *unstructured.Unstructured) {
				if got := rolledDeploymentOf(u); got.Wanted != 2 {
					t.Errorf("%+v", got)
				}
			},
		},
		"the parents of a route": {
			object("HTTPRoute", map[string]any{"spec": map[string]any{"parentRefs": large}}),
			func(u *unstructured.Unstructured) { _ = parentsOf(u) },
		},
		"the parent of a ListenerSet": {
			object("ListenerSet", map[string]any{"spec": map[string]any{"parentRef": map[string]any{"name": "g", "x": large}}}),
			func(u *unstructured.Unstructured) { _ = parentsOf(u) },
		},
		"the conditions of a ListenerSet": {
			object("ListenerSet", map[string]any{"status": map[string]any{"conditions": large}}),
			func(u *unstructured.Unstructured) { (&usage{}).noteRefusal(u) },
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tc.keep(tc.of)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > atMost {
			t.Errorf("%s: %d KiB were allocated, want at most %d", name, took>>10, atMost>>10)
		}
	}
}
