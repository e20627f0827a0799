package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// refusing answers each deletion with 16 KiB, and with other fields for each object. accepts has the names of the
// objects that can be deleted.
type refusing struct {
	mu      sync.Mutex
	deletes int
	asked   map[string]bool
	deleted []string
	accepts map[string]bool
}

func (s *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	name := path.Base(r.URL.Path)
	s.mu.Lock()
	s.deletes++
	if s.asked == nil {
		s.asked = map[string]bool{}
	}
	s.asked[name] = true
	accepted := s.accepts[name]
	if accepted {
		s.deleted = append(s.deleted, name)
	}
	s.mu.Unlock()
	code, status := http.StatusOK, metav1.Status{Status: metav1.StatusSuccess}
	if !accepted {
		code = http.StatusUnprocessableEntity
		status = metav1.Status{
			Status: metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReasonInvalid, Message: strings.Repeat("m", 1<<10),
			Details: &metav1.StatusDetails{},
		}
		for i := range 16 {
			status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{
				Type: metav1.CauseType(strings.Repeat("t", 300)), Message: strings.Repeat("m", 300),
				Field: fmt.Sprint(name, i, strings.Repeat("f", 300)),
			})
		}
	}
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, err
}

// withMembers returns a cluster whose watches have shown members of two kinds: many ConfigMaps, and one Secret. Secrets
// are pruned after ConfigMaps.
func withMembers(t *testing.T, server http.RoundTripper, n int) (*Cluster, *clocktesting.FakePassiveClock) {
	t.Helper()
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	kind := func(name, resource string) Kind {
		return Kind{GVK: schema.GroupVersionKind{Version: "v1", Kind: name}, Resource: resource, Namespaced: true, Prune: true}
	}
	c, err := New(&rest.Config{Host: "http://api", Transport: server}, Options{
		Name: "guest", FieldManager: "us", OwnerKey: "owner", OwnerValue: "us", Clock: now,
		Kinds: []Kind{kind("Secret", "secrets"), kind("ConfigMap", "configmaps")},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[types.NamespacedName]sighting{}
	for i := range n {
		name := fmt.Sprintf("x%05d", i)
		seen[types.NamespacedName{Namespace: "ns", Name: name}] = sighting{state: present, rv: "5", uid: types.UID(name), fields: 1}
	}
	c.tracker.listed(source{kind: 1}, seen, "6")
	ours := types.NamespacedName{Namespace: "ns", Name: "ours"}
	c.tracker.listed(source{kind: 0}, map[types.NamespacedName]sighting{ours: {state: present, rv: "5", uid: "ours", fields: 1}}, "6")
	return c, now
}

// TestManyMembersThatCannotBeDeleted checks the bounds of Prune if any number of objects look like ours and cannot be
// deleted: memory, requests, and outcomes. Objects of other kinds are deleted nevertheless, and the failures that are
// reported stay the same.
func TestManyMembersThatCannotBeDeleted(t *testing.T) {
	const members, seconds = 20_000, 30
	server := &refusing{accepts: map[string]bool{"ours": true}}
	c, now := withMembers(t, server, members)
	heap := func() int {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	before := heap()
	var first []ID
	var report Report
	for range seconds {
		sent := server.deletes
		report = c.Prune(t.Context())
		sent = server.deletes - sent
		failed := report.Failures()
		ids := make([]ID, 0, len(failed))
		for _, o := range failed {
			ids = append(ids, o.ID())
		}
		if first == nil {
			first = ids
		}
		if len(ids) != failuresKept || !slices.Equal(ids, first) {
			t.Fatalf("%d failures are reported, want the same %d in each call", len(ids), failuresKept)
		}
		if n, wait := len(report.Outcomes()), report.RetryAfter(); report.Complete() || n > 2*pruneLimit || wait <= 0 || wait > pruneLater {
			t.Fatalf("%s: %d outcomes, again after %s", report, n, wait)
		}
		if sent > pruneLimit || sent != report.Writes() {
			t.Fatalf("%d deletions in one call, %d are reported, want at most %d", sent, report.Writes(), pruneLimit)
		}
		now.SetTime(now.Now().Add(time.Second))
	}
	if grown := heap() - before; grown > 32<<20 {
		t.Errorf("%d MiB are kept", grown>>20)
	}
	if most := deletionBurst + seconds*int(time.Second/deletionEvery); server.deletes > most || server.deletes < most*9/10 {
		t.Errorf("%d deletions in %d seconds, want about %d", server.deletes, seconds, most)
	}
	if len(server.asked) != server.deletes {
		t.Errorf("%d deletions of %d objects: some are tried again before the others", server.deletes, len(server.asked))
	}
	if !slices.Equal(server.deleted, []string{"ours"}) {
		t.Errorf("deleted %q, want the object that can be deleted", server.deleted)
	}
	runtime.KeepAlive(report)
	runtime.KeepAlive(c)
}

// TestManyMembersAreDeletedSoon checks an uninstallation with the largest number of classes: each call deletes its part
// at once, and all of them together stay within the burst.
func TestManyMembersAreDeletedSoon(t *testing.T) {
	t.Parallel()
	const members = 300
	server := &refusing{accepts: map[string]bool{"ours": true}}
	for i := range members {
		server.accepts[fmt.Sprintf("x%05d", i)] = true
	}
	c, now := withMembers(t, server, members)
	report := c.Prune(t.Context())
	if report.Complete() || report.Count(VerdictDeleted) != pruneLimit || report.RetryAfter() != pruneAgain || report.Err() != nil {
		t.Errorf("%s, again after %s: %v", report, report.RetryAfter(), report.Err())
	}
	now.SetTime(now.Now().Add(pruneAgain))
	report = c.Prune(t.Context())
	if !report.Complete() || report.Count(VerdictDeleted) != members+1-pruneLimit || len(c.Prune(t.Context()).Outcomes()) != 0 {
		t.Errorf("the second call: %s, again after %s: %v", report, report.RetryAfter(), report.Err())
	}
}

// TestManyFailuresKeepLittle checks that only the first failures of a call, and none of those that the rate limiter
// remembers, keep the details of the API server's answer.
func TestManyFailuresKeepLittle(t *testing.T) {
	t.Parallel()
	server := &refusing{}
	c, _ := withMembers(t, server, 0)
	objects := make([]named, 0, 2*failuresKept)
	for i := range 2 * failuresKept {
		objects = append(objects, named(fmt.Sprint("x", i)))
	}
	size := func(o Outcome) int {
		n := len(o.Err().Error())
		if status, is := o.Err().(interface{ Unwrap() error }); is && n > 0 {
			n += len(fmt.Sprintf("%+v", status.Unwrap()))
		}
		return n
	}
	for range repairBurst + 1 {
		report := Apply(t.Context(), c, objects)
		if len(report.Failures()) != len(objects) {
			t.Fatal(report)
		}
		for i, o := range report.Failures() {
			long := size(o) > 1<<10 || Classify(o.Err(), "", schema.GroupResource{}) != o.Cause()
			if i >= failuresKept && long || o.Cause().Class() != Invalid {
				t.Fatalf("failure %d: %s, %d bytes: %v", i, o.Cause(), size(o), o.Err())
			}
		}
	}
	for _, b := range c.tracker.limiter.buckets {
		if size(*b.failure) > 1<<10 {
			t.Fatalf("%d bytes are remembered", size(*b.failure))
		}
	}
}
