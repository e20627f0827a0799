package guest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
	"github.com/hypergate/hypergate/test/hang"
)

// relabelled is an API server with the CRDs of OLM. After the list, it changes the OLM labels of another CRD a thousand
// times without a pause.
type relabelled struct {
	ofTheLast atomic.Int64
}

const changesOfLabels = 1000

func (s *relabelled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	send := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	event := func(kind, name string, version int, more string) {
		send(`{"type":%q,"object":{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",`+
			`"metadata":{"name":%q,"uid":"u","resourceVersion":"%d"%s}}}`, kind, name, version, more)
	}
	labels := func(i int) string {
		var all []string
		for j := range maxPackages {
			all = append(all, fmt.Sprintf(`"%sp%d-%d.x":""`, operatorLabel, i, j))
		}
		return `,"labels":{` + strings.Join(all, ",") + "}"
	}
	lists := r.URL.Query().Get("sendInitialEvents") == "true"
	isCRDs := strings.HasSuffix(r.URL.Path, "/customresourcedefinitions")
	isOLM := strings.HasPrefix(r.URL.Path, "/apis/operators.coreos.com/")
	if !lists || !isCRDs && !isOLM {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if isOLM {
		if strings.Contains(r.URL.Query().Get("labelSelector"), fmt.Sprintf("p%d-", changesOfLabels)) {
			s.ofTheLast.Add(1)
		}
	} else {
		for _, kind := range olmKinds() {
			event("ADDED", kind.crd(), 1, "")
		}
		event("ADDED", gatewayCRD, 1, "")
	}
	event("BOOKMARK", "", 1, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	for i := 1; isCRDs && i <= changesOfLabels; i++ {
		event("MODIFIED", gatewayCRD, i+1, labels(i))
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestChangesOfCRDsAreArrangedInAPace changes the OLM labels of a CRD a thousand times. Each arrangement of other
// labels ends 24 watches and starts 24. Most changes share an arrangement, and the last change is arranged.
func TestChangesOfCRDsAreArrangedInAPace(t *testing.T) {
	t.Parallel()
	guest := &relabelled{}
	conn, err := guestconn.Fixed(apiServer(t, guest.ServeHTTP))
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(conn, model.Config{GuestNamespace: "openshift-ingress", Revision: "r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(klog.NewContext(t.Context(), logr.Discard()), func() {}); err != nil {
		t.Fatal(err)
	}
	g := hang.Gomega(t)
	watches := int64(maxPackages * len(olmKinds()))
	g.Eventually(guest.ofTheLast.Load).Should(gomega.BeNumerically(">=", watches))
	// Each arrangement counts two changes. Beyond the burst there is one in 5 s, and Eventually waits for five minutes.
	if got, most := c.inUse.changes.Load()/2, arrangeBurst+uint64(hang.Deadline/arrangeEvery); got > most {
		t.Errorf("%d arrangements for %d changes, want at most %d", got, changesOfLabels, most)
	}
}

// TestArrangementsAreLimited checks the pace: 100 ms between two arrangements, and after 50 of them one in 5 s.
func TestArrangementsAreLimited(t *testing.T) {
	t.Parallel()
	limiter, began := arrangeLimiter(), time.Unix(0, 0)
	now, arrangements := began, 0
	for now.Sub(began) < time.Minute {
		wait := limiter.Wait(now)
		if now = now.Add(wait); arrangements > 0 && wait < arrangeSpacing {
			t.Fatalf("arrangement %d waits %s", arrangements, wait)
		}
		limiter.Take(now)
		arrangements++
	}
	if arrangements < 60 || arrangements > 64 {
		t.Errorf("%d arrangements in a minute, want 60 to 64", arrangements)
	}
}

// TestLookupsOfOtherPackagesShareABurst checks that a lookup of another package makes no request while one of the same
// kind pauses. The guest can name other packages at any time.
func TestLookupsOfOtherPackagesShareABurst(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	var requests atomic.Int64
	config := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"a":"`+strings.Repeat("x", 4<<20))
	})
	config.Wrap(limitStreams)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	limits := watch.DefaultLimits()
	limits.FirstPause, limits.MaxPause = time.Hour, time.Hour
	v := newOLMView(client, watch.NewBudget(limits), func() {})
	var errs []error
	for _, name := range []string{"a", "b"} {
		lookup := v.newLookup(name)[0]
		lookup.Set(t.Context(), "uid", "1")
		g.Eventually(func() bool { return isOversized(lookup.Err()) }).Should(gomega.BeTrue())
		errs = append(errs, lookup.Err())
		lookup.Set(t.Context(), "", "")
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1; errors: %v", n, errs)
	}
}

// TestSearchesOfACRDShareABurst checks that another version or other fields of a CRD do not bring another allowance,
// and that all kinds with names of the guest's choice share one.
func TestSearchesOfACRDShareABurst(t *testing.T) {
	t.Parallel()
	nowhere := &rest.Config{Host: "https://nowhere.invalid"}
	v := newUseView(dynamic.NewForConfigOrDie(nowhere), metadata.NewForConfigOrDie(nowhere), model.Config{},
		watch.NewBudget(watch.DefaultLimits()), func() {})
	of := func(crd, version string, fields ...crds.Field) *watch.Allowance {
		gvr := schema.GroupVersionResource{Resource: crd, Version: version}
		return v.options(search{crd: crd, gvr: gvr, fields: fields}).Allowance
	}
	field := crds.Field{Path: "spec.a", Versions: []string{"v1"}}
	first := of("a", "v1", field)
	if first == nil || of("a", "v2", crds.Field{Path: "spec.b"}) != first {
		t.Error("another version of a CRD has another allowance")
	}
	if of("b", "v1", field) == first {
		t.Error("two CRDs of the plan share an allowance")
	}
	for i := range 1000 {
		if of(fmt.Sprint("x", i), "v1") != of("y", "v1") {
			t.Fatal("a kind that istiod does not know has an allowance of its own")
		}
	}
	if len(v.allowances) != 3 {
		t.Errorf("%d allowances, want 3", len(v.allowances))
	}
}
