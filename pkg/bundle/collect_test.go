package bundle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/bundle"
)

// collected returns the files of an archive of a guest that answers with handler.
func collected(t *testing.T, handler http.HandlerFunc) map[string]string {
	t.Helper()
	files, err := collect(t, handler)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// collect is collected without a permission to read anything of a side.
func collect(t *testing.T, handler http.HandlerFunc) (map[string]string, error) {
	t.Helper()
	return collectUpTo(t, 1<<20, handler)
}

// collectUpTo is collect for an archive of a size.
func collectUpTo(t *testing.T, size int64, handler http.HandlerFunc) (map[string]string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || strings.Contains(r.URL.Path, "secrets") {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	var out bytes.Buffer
	archive := bundle.New(&out, "root", noon(), size)
	side := bundle.Side{Name: "guest", Namespace: "openshift-ingress", Kinds: bundle.Guest()}
	err := bundle.Collect(t.Context(), &rest.Config{Host: server.URL}, side, archive)
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return files(t, out.Bytes()), err
}

const groups = `{"kind":"APIGroupList","groups":[{"name":"gateway.networking.k8s.io","versions":[{"version":"v1"},{"version":"v1beta1"}],
"preferredVersion":{"version":"v1"}}]}`

// status answers with an error of an API server.
func status(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: metav1.StatusReason(reason), Message: message,
	})
}

// TestCollect checks where objects go, other versions of a kind, pages, and what is missing.
func TestCollect(t *testing.T) {
	t.Parallel()
	got := collected(t, func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/apis":
			fmt.Fprint(w, groups)
		case path == "/apis/gateway.networking.k8s.io/v1/gateways" && r.URL.Query().Get("continue") == "":
			fmt.Fprint(w, `{"metadata":{"continue":"next"},"items":[{"kind":"Gateway","metadata":{"name":"a","namespace":"one"}}]}`)
		case path == "/apis/gateway.networking.k8s.io/v1/gateways":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"b","namespace":"../../two"}},{"metadata":{"name":"c","namespace":"one"}}]}`)
		case path == "/apis/gateway.networking.k8s.io/v1beta1/referencegrants":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"grant","namespace":"one","generation":1500000000}}]}`)
		case strings.HasSuffix(path, "/httproutes"):
			status(w, http.StatusForbidden, "Forbidden", "no \x1b[2J token=hunter2 for you")
		case strings.HasSuffix(path, "/gatewayclasses"):
			fmt.Fprint(w, `{"items":[{"kind":"GatewayClass"},{"metadata":{"name":"class"}}]}`)
		default:
			status(w, http.StatusNotFound, "NotFound", "not found")
		}
	})
	for file, want := range map[string]string{
		"root/guest/namespaces/one/gateway.networking.k8s.io/gateways.yaml":                 "name: c",
		"root/guest/namespaces/.._.._two/gateway.networking.k8s.io/gateways.yaml":           "name: b",
		"root/guest/namespaces/one/gateway.networking.k8s.io/referencegrants.yaml":          "generation: 1500000000",
		"root/guest/cluster-scoped-resources/gateway.networking.k8s.io/gatewayclasses.yaml": "name: class",
		"root/errors.txt": "guest: httproutes: no  [2J token=<redacted> for you",
	} {
		if !strings.Contains(got[file], want) {
			t.Errorf("%s: %q", file, got[file])
		}
	}
	problems := got["root/errors.txt"]
	if len(got) != 5 || strings.Count(problems, "\n") != 2 || !strings.Contains(problems, "has no metadata") {
		t.Errorf("%d files, problems %q", len(got), problems)
	}
}

// TestAnEndlessListIsBounded checks that an API server that always names another page ends, too.
func TestAnEndlessListIsBounded(t *testing.T) {
	t.Parallel()
	got := collected(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis" {
			fmt.Fprint(w, groups)
			return
		}
		fmt.Fprint(w, `{"metadata":{"continue":"next"},"items":[{"metadata":{"name":"a"}}]}`)
	})
	if want := "guest: gateways: only the first 100 objects are included\n"; !strings.Contains(got["root/errors.txt"], want) {
		t.Errorf("%q", got["root/errors.txt"])
	}
}

// TestLargeObjectsAreInTheArchive checks that a page that is too long is requested again with fewer objects. A tenant
// can create such objects, and must not keep the others from the archive.
func TestLargeObjectsAreInTheArchive(t *testing.T) {
	t.Parallel()
	const all = 60
	large := strings.Repeat("x ", 125<<10)
	got, err := collectUpTo(t, 64<<20, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis" {
			fmt.Fprint(w, groups)
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/gateways") {
			fmt.Fprint(w, `{"items":[]}`)
			return
		}
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		items, listed := []any{}, map[string]any{}
		for i := from; i < min(from+limit, all); i++ {
			items = append(items, map[string]any{"metadata": map[string]any{
				"namespace": "shop", "name": fmt.Sprintf("gateway-%d", i), "annotations": map[string]any{"a": large},
			}})
		}
		if from+limit < all {
			listed["continue"] = strconv.Itoa(from + limit)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items, "metadata": listed})
	})
	if err != nil {
		t.Fatal(err)
	}
	file := got["root/guest/namespaces/shop/gateway.networking.k8s.io/gateways.yaml"]
	if n := strings.Count(file, "name: gateway-"); n != all || got["root/errors.txt"] != "" {
		t.Errorf("%d of %d objects, problems %q", n, all, got["root/errors.txt"])
	}
}

// gatewaysOnly answers a list of Gateways with one page of objects, and other lists with none.
func gatewaysOnly(objects ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis":
			fmt.Fprint(w, groups)
		case strings.HasSuffix(r.URL.Path, "/gateways"):
			fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(objects, ","))
		default:
			fmt.Fprint(w, `{"items":[]}`)
		}
	}
}

// TestDeepObjectsAreLeftOut checks that the indentation of YAML does not fill the memory, and that other objects of the
// same file stay.
func TestDeepObjectsAreLeftOut(t *testing.T) {
	t.Parallel()
	const deep = 9000
	of := func(name, spec string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"shop","name":%q},"spec":%s}`, name, spec)
	}
	nested := strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep)
	wide := strings.Repeat(`{"a":`, 90) + `"` + strings.Repeat("x ", 30_000) + `"` + strings.Repeat("}", 90)
	got, err := collectUpTo(t, 64<<20, gatewaysOnly(of("deep", nested), of("deeper", nested), of("wide", wide), of("plain", `{"a":1}`)))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range got {
		if len(content) > 1<<20 {
			t.Errorf("%s has %d bytes", name, len(content))
		}
	}
	if want := "guest: gateways: 2 left out (shop/deep is the first): an object is nested more than 100 levels deep\n" +
		"guest: gateways: 1 left out (shop/wide is the first): an object has more than 4 MiB in YAML\n"; got["root/errors.txt"] != want {
		t.Errorf("%q, want %q", got["root/errors.txt"], want)
	}
	file := got["root/guest/namespaces/shop/gateway.networking.k8s.io/gateways.yaml"]
	if !strings.Contains(file, "name: plain") || strings.Contains(file, "deep") {
		t.Errorf("%s", file)
	}
}

// TestAFullArchiveEndsAList checks that no more objects are kept than the archive has room for.
func TestAFullArchiveEndsAList(t *testing.T) {
	t.Parallel()
	requests := 0
	got, err := collectUpTo(t, 1<<20, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/gateways") {
			gatewaysOnly()(w, r)
			return
		}
		requests++
		fmt.Fprintf(w, `{"metadata":{"continue":"next"},"items":[{"metadata":{"namespace":"n%d","name":"a","annotations":{"a":%q}}}]}`,
			requests, strings.Repeat("x ", 30<<10))
	})
	if err != nil {
		t.Fatal(err)
	}
	const fit = 15
	want := fmt.Sprintf("guest: gateways: only the objects before %d are included, because the archive has reached its size limit\n", fit+1)
	if len(got) != fit+1 || requests != fit+1 || got["root/errors.txt"] != want {
		t.Errorf("%d files after %d requests, %q", len(got), requests, got["root/errors.txt"])
	}
}

// TestObjectsOfManyMapsEndAList checks that the memory of the objects of a kind is limited, whatever their YAML has.
func TestObjectsOfManyMapsEndAList(t *testing.T) {
	t.Parallel()
	requests := 0
	maps := strings.Repeat("{},", 16<<10) + "{}"
	got, err := collectUpTo(t, 64<<20, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/gateways") {
			gatewaysOnly()(w, r)
			return
		}
		requests++
		next := "next"
		if requests == 40 {
			next = ""
		}
		fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[{"metadata":{"namespace":"n%d","name":"a"},"spec":[%s]}]}`,
			next, requests, maps)
	})
	if err != nil {
		t.Fatal(err)
	}
	const fit = 24 // of 5.25 MiB each
	want := fmt.Sprintf("guest: gateways: only the objects before %d are included, because they take more than 128 MiB of memory\n", fit+1)
	if len(got) != fit+1 || requests != fit+1 || got["root/errors.txt"] != want {
		t.Errorf("%d files after %d requests, %q", len(got), requests, got["root/errors.txt"])
	}
}

// TestASideThatDoesNotAnswer checks that the rest of an archive is written, and that the caller knows.
func TestASideThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	got, err := collect(t, func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusUnauthorized, "Unauthorized", "the server has asked for the client to provide credentials")
	})
	if unread, is := errors.AsType[bundle.UnreadError](err); !is || unread.Side != "guest" {
		t.Errorf("%v", err)
	}
	if len(got) != 1 || got["root/errors.txt"] != "guest: API groups: the server has asked for the client to provide credentials\n" {
		t.Errorf("%q", got)
	}
}

// TestASideThatRefusesEachKind checks that a user who may list nothing of a side has nothing of it, also if the API
// groups are readable, as they are for all users. One kind that can be listed is enough.
func TestASideThatRefusesEachKind(t *testing.T) {
	t.Parallel()
	for allowed, unread := range map[string]bool{"": true, "/pods": false} {
		got, err := collect(t, func(w http.ResponseWriter, r *http.Request) {
			switch path := r.URL.Path; {
			case path == "/apis":
				fmt.Fprint(w, groups)
			case allowed != "" && strings.HasSuffix(path, allowed):
				fmt.Fprint(w, `{"items":[]}`)
			case strings.HasSuffix(path, "/referencegrants"):
				status(w, http.StatusNotFound, "NotFound", "not found")
			default:
				status(w, http.StatusForbidden, "Forbidden", "not for you")
			}
		})
		problem, is := errors.AsType[bundle.UnreadError](err)
		if is != unread || unread && (problem.Side != "guest" || !apierrors.IsForbidden(err)) {
			t.Errorf("%q allowed: %v", allowed, err)
		}
		if !strings.Contains(got["root/errors.txt"], "guest: gateways: not for you") {
			t.Errorf("%q", got)
		}
	}
}
