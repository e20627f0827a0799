package answer_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/answer"
)

// server starts a server with the given handler. It returns a config for it with the limit.
func server(t *testing.T, answers http.HandlerFunc) *rest.Config {
	t.Helper()
	s := httptest.NewTLSServer(answers)
	t.Cleanup(s.Close)
	config := &rest.Config{Host: s.URL, QPS: -1}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	config.Wrap(answer.Limit("the guest's API server"))
	return config
}

// status returns a failure in the field order of kube-apiserver. Long fields come before the ones that are needed.
func status(code int, message string, causes int) string {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: message, Reason: metav1.StatusReasonConflict,
		Details: &metav1.StatusDetails{Name: "x"}, Code: int32(code),
	}
	for i := range causes {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: fmt.Sprintf(`conflict with "m%d"`, i), Field: ".spec.f" + strconv.Itoa(i),
		})
	}
	out, _ := json.Marshal(s)
	return string(out)
}

func configMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

// TestFailuresAreTruncatedAndReadable checks that the code and the beginning of the message are kept, for any length of
// the message and any position of the cut.
func TestFailuresAreTruncatedAndReadable(t *testing.T) {
	t.Parallel()
	const said = `admission webhook "evil.example.com" denied the request: `
	for name, tc := range map[string]struct {
		contentType, body string
		causes            int // -1: any
		reason            metav1.StatusReason
		message           string
	}{
		"short":               {"application/json", status(409, said, 2), 2, metav1.StatusReasonConflict, said},
		"a long message":      {"application/json", status(409, said+strings.Repeat("z", 40<<10), 2), 2, metav1.StatusReasonConflict, said},
		"a very long message": {"application/json", status(409, said+strings.Repeat("z", 1<<20), 2), -1, "", said},
		"escapes":             {"application/json", status(409, said+strings.Repeat("\x01\"\\\n<", 64<<10), 2), -1, "", said},
		"all escapes": {
			"application/json", status(409, said+strings.Repeat("\x01", 5000), 2), 2, metav1.StatusReasonConflict, said,
		},
		"many causes": {"application/json", status(409, said, 1<<13), -1, metav1.StatusReasonConflict, said},
		"endless brackets": {
			"application/json", `{"kind":"Status","details":` + strings.Repeat("[", 1<<20), -1, metav1.StatusReasonConflict, "",
		},
		"no end": {
			"application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + said[:9], -1, "", said[:9],
		},
		"text": {"text/plain", strings.Repeat("y", 1<<20), -1, metav1.StatusReasonConflict, ""},
		"protobuf": {
			"application/vnd.kubernetes.protobuf", "k8s\x00" + strings.Repeat("y", 1<<20), -1, metav1.StatusReasonConflict, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := server(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.Header.Get("Accept"), "protobuf") {
					t.Errorf("the request accepts protobuf: %s", r.Header.Get("Accept"))
				}
				w.Header().Set("Content-Type", tc.contentType)
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, tc.body)
			})
			client, err := metadata.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Resource(configMaps()).Namespace("n").
				Patch(t.Context(), "x", types.ApplyPatchType, []byte("{}"), metav1.PatchOptions{FieldManager: "me"})
			got, is := errors.AsType[*apierrors.StatusError](err)
			if !is {
				t.Fatal(err)
			}
			s := got.ErrStatus
			if !strings.HasPrefix(s.Message, tc.message) || len(s.Message) > 3<<10 || s.Size() > 20<<10 {
				t.Errorf("the message has %d bytes, the Status %d: %.200s", len(s.Message), s.Size(), s.Message)
			}
			if !apierrors.IsConflict(err) || tc.reason != "" && s.Reason != tc.reason {
				t.Errorf("reason %q, code %d", s.Reason, s.Code)
			}
			if tc.causes >= 0 && len(s.Details.Causes) != tc.causes {
				t.Errorf("%d causes, want %d", len(s.Details.Causes), tc.causes)
			}
		})
	}
}

// TestAnEndlessFailureIsReadOnlyInPart checks that only little of an endless response is read, and that the rest is not
// sent.
func TestAnEndlessFailureIsReadOnlyInPart(t *testing.T) {
	t.Parallel()
	ended := make(chan int, 1)
	config := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		sent, block := 0, []byte(strings.Repeat("z", 64<<10))
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`)
		for r.Context().Err() == nil {
			n, err := w.Write(block)
			if sent += n; err != nil {
				break
			}
		}
		ended <- sent
	})
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ConfigMaps("n").Get(t.Context(), "x", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || len(err.Error()) > 3<<10 {
		t.Errorf("%d bytes: %.100s", len(err.Error()), err)
	}
	if sent := <-ended; sent > 32<<20 {
		t.Errorf("%d MiB were sent", sent>>20)
	}
}

// TestSuccessfulResponsesAreLimitedByRequest checks that one byte beyond the limit is a TooLongError.
func TestSuccessfulResponsesAreLimitedByRequest(t *testing.T) {
	t.Parallel()
	size := func(n int) string {
		const frame = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x","annotations":{"a":""}}}`
		return strings.Replace(frame, `"a":""`, `"a":"`+strings.Repeat("x", n-len(frame))+`"`, 1)
	}
	for name, tc := range map[string]struct {
		limit int
		send  func(context.Context, *rest.Config) error
	}{
		"what is applied": {512 << 10, func(ctx context.Context, c *rest.Config) error {
			client, err := metadata.NewForConfig(c)
			if err == nil {
				_, err = client.Resource(configMaps()).Namespace("n").
					Patch(ctx, "x", types.ApplyPatchType, []byte("{}"), metav1.PatchOptions{FieldManager: "me"})
			}
			return err
		}},
		"an object": {2 << 20, func(ctx context.Context, c *rest.Config) error {
			client, err := coreclient.NewForConfig(c)
			if err == nil {
				_, err = client.RESTClient().Get().AbsPath("/prefix/api/v1/namespaces/n/configmaps/x").DoRaw(ctx)
			}
			return err
		}},
		"a list": {8 << 20, func(ctx context.Context, c *rest.Config) error {
			client, err := coreclient.NewForConfig(c)
			if err == nil {
				_, err = client.RESTClient().Get().AbsPath("/apis/apps/v1/namespaces/n/deployments").DoRaw(ctx)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, more := range []int{0, 1, 1000} {
				config := server(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, size(tc.limit+more))
				})
				err := tc.send(t.Context(), config)
				want := fmt.Sprintf("with more than %d KiB", tc.limit>>10)
				if more == 0 && err != nil || more > 0 && (!answer.IsTooLong(err) || !strings.Contains(err.Error(), want)) {
					t.Errorf("%d more: %v", more, err)
				}
			}
		})
	}
}

// TestResponsesAreLimitedByDecodedSize checks the limit for the decoded size, which can be a hundred times the size of
// the response.
func TestResponsesAreLimitedByDecodedSize(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method, path string
		memory       int
	}{
		"a write":   {http.MethodPatch, "/api/v1/namespaces/n/configmaps/x", 2 << 20},
		"an object": {http.MethodGet, "/api/v1/namespaces/n/configmaps/x", 16 << 20},
		"a list":    {http.MethodGet, "/api/v1/namespaces", 16 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for tooMuch, elements := range map[bool]int{false: tc.memory / 400, true: tc.memory / 380} {
				config := server(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"metadata":{"managedFields":[`+strings.Repeat("{},", elements)+`{}]}}`)
				})
				client, err := coreclient.NewForConfig(config)
				if err != nil {
					t.Fatal(err)
				}
				_, err = client.RESTClient().Verb(tc.method).AbsPath(tc.path).DoRaw(t.Context())
				if answer.IsTooLong(err) != tooMuch || tooMuch && !strings.Contains(err.Error(), "once it is decoded") {
					t.Errorf("%d elements: %v", elements, err)
				}
			}
		})
	}
}

// TestOnlyJSONIsDecoded checks that other formats are rejected, because their decoded size cannot be estimated.
func TestOnlyJSONIsDecoded(t *testing.T) {
	t.Parallel()
	for contentType, refused := range map[string]bool{
		"application/json":                    false,
		"application/json; charset=utf-8":     false,
		"application/vnd.kubernetes.protobuf": true,
		"application/cbor":                    true,
		"application/yaml":                    true,
		"text/plain":                          true,
		"":                                    true,
		";":                                   true,
	} {
		config := server(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept"); got != "application/json" {
				t.Errorf("Accept = %s", got)
			}
			w.Header()["Content-Type"] = []string{contentType}
			_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1"}`)
		})
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		client, err := coreclient.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.ConfigMaps("n").Get(t.Context(), "x", metav1.GetOptions{})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "with a content type other than application/json") {
			t.Errorf("%q: %v", contentType, err)
		}
	}
}

// TestWatchesAreNotLimited checks that a watch is not limited, because it has no end. A watch with any other code
// than 200 is limited like a failure.
func TestWatchesAreNotLimited(t *testing.T) {
	t.Parallel()
	const long = 20 << 20
	for _, test := range []struct {
		code        int
		contentType string
		want        int
	}{
		{http.StatusOK, "application/json;stream=watch", long},
		{http.StatusAccepted, "text/plain", 2 << 10},
		{http.StatusInternalServerError, "text/plain", 2 << 10},
	} {
		config := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.contentType)
			w.WriteHeader(test.code)
			_, _ = io.WriteString(w, strings.Repeat("x", long))
		})
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if int(n) != test.want || err != nil {
			t.Errorf("%d: %d bytes, %v, want %d", test.code, n, err, test.want)
		}
	}
}

func TestBriefMessages(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x\n", 1<<20)
	short := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("why"))
	big := &apierrors.StatusError{}
	if err := json.Unmarshal([]byte(status(409, long, 1000)), &big.ErrStatus); err != nil {
		t.Fatal(err)
	}
	wrapped := fmt.Errorf("applying: %w", short)
	for _, same := range []error{nil, errors.New("short"), short, wrapped} {
		if got := answer.Brief(same); got != same { //nolint:errorlint // the identical error
			t.Errorf("%v became %v", same, got)
		}
	}
	for name, tc := range map[string]struct {
		err, is  error
		conflict bool
	}{
		"a Status":          {err: big, conflict: true},
		"a Status, wrapped": {err: fmt.Errorf("applying: %w", big), conflict: true},
		"wrapped by a lot":  {err: fmt.Errorf("%s: %w", long, short), conflict: true},
		"a text":            {err: errors.New(long)},
		"a deadline":        {err: fmt.Errorf("%s: %w", long, context.DeadlineExceeded), is: context.DeadlineExceeded},
	} {
		got := answer.Brief(tc.err)
		if len(got.Error()) > 2<<10 || strings.Contains(got.Error(), "\n") {
			t.Errorf("%s: %d bytes", name, len(got.Error()))
		}
		if apierrors.IsConflict(got) != tc.conflict || tc.is != nil && !errors.Is(got, tc.is) {
			t.Errorf("%s: the kind of error changed", name)
		}
		if s, is := errors.AsType[*apierrors.StatusError](got); is && s.ErrStatus.Size() > 16<<10 {
			t.Errorf("%s: %d bytes are kept", name, s.ErrStatus.Size())
		}
	}
	causes := metav1.Status{Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: long, Field: long}}}}
	if c := answer.BriefStatus(causes).Details.Causes[0]; len(c.Message) > 256 || len(c.Field) > 256 {
		t.Errorf("a cause keeps %d and %d bytes", len(c.Message), len(c.Field))
	}
	cut := answer.BriefStatus(big.ErrStatus)
	if diff := cmp.Diff(big.ErrStatus.Details.Causes[:16], cut.Details.Causes); diff != "" || cut.Code != 409 {
		t.Errorf("code %d: %s", cut.Code, diff)
	}
}

// FuzzFailure checks that the result is short for any failure, and that short and valid JSON stays unchanged.
func FuzzFailure(f *testing.F) {
	f.Add(status(403, "denied", 2), "application/json")
	f.Add(`{"message":"`+strings.Repeat(`\u202e`, 9000), "application/json")
	f.Add(`]]}}"\`, "application/json;charset=utf-8")
	f.Add("plain", "text/plain")
	f.Fuzz(func(t *testing.T, body, contentType string) {
		transport := answer.Limit("it")(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: 403, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		}))
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://guest/api/v1/pods", nil)
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		got, err := io.ReadAll(response.Body)
		if err != nil || len(got) > 40<<10 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if len(body) < 2<<10 && json.Valid([]byte(body)) && string(got) != body {
			t.Errorf("%q became %q", body, got)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRedirectsAreNotFollowed checks that a redirect is the answer: its target would get the credential.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	config := server(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusTemporaryRedirect || requests.Load() != 1 {
		t.Errorf("the answer is %d after %d requests", response.StatusCode, requests.Load())
	}
}
