package apply

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/answer"
)

type settings struct{}

func (settings) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}
func (settings) Key() types.NamespacedName { return tracked }
func (settings) JSON() []byte {
	return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"owner":"us"},"name":"x","namespace":"ns"}}`)
}

// TestAnOversizedObjectIsNamed checks that the failure lasts, and that the object is not sent again
// before it has changed.
func TestAnOversizedObjectIsNamed(t *testing.T) {
	t.Parallel()
	var patches, annotation atomic.Int64
	annotation.Store(300 << 10)
	c := newGrown(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,`+
				`"details":{"name":"x"}}`)
			return
		}
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x","namespace":"ns","uid":"u",`+
			`"resourceVersion":"%d","annotations":{"a":"%s"}}}`,
			10*patches.Add(1), strings.Repeat("x", int(annotation.Load())))
	})
	notified := 0
	c.tracker.start(func() { notified++ }, func() uint64 { return 0 })
	try := func(wantPatches int64, want Verdict) {
		t.Helper()
		report := Apply(t.Context(), c, []settings{{}})
		o := report.Outcomes()[0]
		if o.Verdict() != want || patches.Load() != wantPatches {
			t.Fatalf("%s after %d writes, want %s after %d: %v", o.Verdict(), patches.Load(), want, wantPatches, o.Err())
		}
		refused := o.Cause().Class() == Enlarged && strings.Contains(o.Err().Error(),
			"applying ConfigMap ns/x to the guest cluster: the object in the response has more than 256 KiB: ")
		if want == VerdictFailed && (!refused || report.RetryAfter() != 0 || report.Complete()) {
			t.Fatalf("%s: %v, again in %s", o.Cause().Class(), o.Err(), report.RetryAfter())
		}
	}
	try(1, VerdictFailed)
	for range 100 {
		try(1, VerdictFailed) // nothing is sent
	}

	t.Log("the event of our own write changes nothing")
	c.tracker.saw(source{}, tracked, sighting{state: present, rv: "10", uid: "u"})
	try(1, VerdictFailed)
	if notified != 0 {
		t.Errorf("%d notifications for nothing", notified)
	}

	t.Log("another client changes it: this notifies, and the object is sent once more")
	c.tracker.saw(source{}, tracked, sighting{state: present, rv: "12", uid: "u"})
	if notified != 1 {
		t.Errorf("%d notifications of the change, want 1", notified)
	}
	try(2, VerdictFailed)
	try(2, VerdictFailed)

	t.Log("the webhook is gone")
	annotation.Store(10)
	c.tracker.saw(source{}, tracked, sighting{state: present, rv: "22", uid: "u"})
	try(3, VerdictApplied)
	try(3, VerdictUnchanged)
}

// TestAnAnswerToAWriteThatIsTooLong checks the cause, and that an object that is itself too large is not sent again
// before it has changed. If only the answer is too long, the object is sent again.
func TestAnAnswerToAWriteThatIsTooLong(t *testing.T) {
	t.Parallel()
	annotation := `,"annotations":{"a":"` + strings.Repeat("x", 600<<10) + `"}`
	elements := `,"managedFields":[` + strings.Repeat("{},", 10<<10) + `{}]`
	for name, tc := range map[string]struct {
		written, stored, most string
		patches               int64
	}{
		"a large object":      {annotation, annotation, "512 KiB", 1},
		"only a large answer": {annotation, "", "512 KiB", 3},
		"many elements":       {elements, annotation, "2048 KiB once it is decoded", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var patches atomic.Int64
			c := newGrown(t, func(w http.ResponseWriter, r *http.Request) {
				more := tc.written
				if r.Method == http.MethodGet {
					more = tc.stored
				} else {
					patches.Add(1)
				}
				_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`+
					`"metadata":{"name":"x","namespace":"ns","uid":"u","resourceVersion":"10","labels":{"owner":"us"}`+more+`}}`)
			})
			for range 3 {
				o := Apply(t.Context(), c, []settings{{}}).Outcomes()[0]
				want := "the API server's answer is longer than " + tc.most + ": a mutating webhook may have enlarged it"
				if o.Verdict() != VerdictFailed || o.Cause().Class() != Enlarged || o.Cause().String() != want {
					t.Errorf("%s, %s: %q, want %q", o.Verdict(), o.Cause().Class(), o.Cause(), want)
				}
				if strings.Contains(o.Err().Error(), "the size of the objects") {
					t.Errorf("%v", o.Err())
				}
			}
			if patches.Load() != tc.patches {
				t.Errorf("%d writes, want %d", patches.Load(), tc.patches)
			}
		})
	}
}

// TestALongIdentityIsNotKept checks that nothing is kept of an object whose resourceVersion or UID is too long, also if
// the object is too large. It is sent again: nothing shows that the next answer has them, too.
func TestALongIdentityIsNotKept(t *testing.T) {
	t.Parallel()
	digits := func(n int) string { return strings.Repeat("9", n) }
	large := `,"annotations":{"a":"` + strings.Repeat("x", 300<<10) + `"}`
	for name, tc := range map[string]struct{ version, uid, more, want string }{
		"at the limits":            {version: digits(256), uid: digits(64)},
		"a version":                {digits(257), "u", "", "the resourceVersion in the response has more than 256 bytes"},
		"a UID":                    {"10", digits(65), "", "the UID in the response has more than 64 bytes"},
		"a version of a large one": {digits(257), "u", large, "the resourceVersion in the response has more than 256 bytes"},
		"a UID of one that is longer": {"10", digits(600 << 10), "", "the API server's answer is longer than 512 KiB: " +
			"a mutating webhook may have enlarged it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newGrown(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x",`+
					`"namespace":"ns","labels":{"owner":"us"},"uid":"`+tc.uid+`","resourceVersion":"`+tc.version+`"`+tc.more+`}}`)
			})
			for range 2 {
				o := Apply(t.Context(), c, []settings{{}}).Outcomes()[0]
				if o.Cause().String() != tc.want || o.Verdict() == VerdictFailed != (tc.want != "") {
					t.Errorf("%s: %q, want %q", o.Verdict(), o.Cause(), tc.want)
				}
			}
			if kept := c.tracker.record(0, tracked).memo; kept.exists() != (tc.want == "") {
				t.Errorf("%d bytes of the version are kept, and %d of the UID", len(kept.rv), len(kept.uid))
			}
		})
	}
}

// newGrown returns the cluster of an API server that answers in JSON.
func newGrown(t *testing.T, handle http.HandlerFunc) *Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	config.Wrap(answer.Limit("the guest's API server"))
	c, err := New(config, Options{
		Name: "guest", FieldManager: "us", OwnerKey: "owner", OwnerValue: "us",
		Kinds: []Kind{{GVK: settings{}.GVK(), Resource: "configmaps", Namespaced: true, Prune: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFailuresKeepLittleMemory checks that the kept size is small, whatever the API server responds. It checks the
// cause, the error, and all errors of a call.
func TestFailuresKeepLittleMemory(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long\n\u202e ", 8<<10)
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonConflict, Message: long,
		Details: &metav1.StatusDetails{},
	}
	for range 1000 {
		status.Details.Causes = append(status.Details.Causes,
			metav1.StatusCause{
				Type:  metav1.CauseTypeFieldManagerConflict,
				Field: long[:1000], Message: `conflict with "` + long[:1000] + `"`,
			})
	}
	webhook := status
	webhook.Code, webhook.Message = 403, `admission webhook "`+long+`" denied the request: `+long
	var all []Outcome
	for i, err := range []error{
		&apierrors.StatusError{ErrStatus: status}, fmt.Errorf("doing: %w", &apierrors.StatusError{ErrStatus: webhook}), errors.New(long),
	} {
		cause := Classify(err, "patch", schema.GroupResource{Resource: "configmaps"})
		o := Failed(ID{}, cause, err)
		if n := len(cause.String()) + len(cause.Detail()) + len(o.Err().Error()); n > 4<<10 ||
			strings.ContainsAny(cause.String()+cause.Detail(), "\n\u202e") {
			t.Errorf("%d: %d bytes are kept: %q", i, n, cause)
		}
		for range 500 {
			all = append(all, o)
		}
	}
	if n := len(ReportOf(all...).Err().Error()); n > 32<<10 {
		t.Errorf("1500 errors have %d bytes", n)
	}
}
