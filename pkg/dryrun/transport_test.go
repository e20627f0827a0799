package dryrun

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// server answers requests from a table by method and path, and records what it gets.
type server struct {
	answers map[string]string
	got     []string
	// accepted are the values of the header Accept.
	accepted []string
}

// RoundTrip answers. The status code is the beginning of an answer.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	line := r.Method + " " + r.URL.RequestURI()
	if r.Body != nil && r.Method == http.MethodDelete {
		body, _ := io.ReadAll(r.Body)
		line += " " + string(body)
	}
	s.got, s.accepted = append(s.got, line), append(s.accepted, r.Header.Get("Accept"))
	code, body, _ := strings.Cut(s.answers[r.Method], " ")
	status := map[string]int{
		"200": http.StatusOK, "201": http.StatusCreated, "403": http.StatusForbidden, "404": http.StatusNotFound,
		"409": http.StatusConflict, "": http.StatusNotFound,
	}[code]
	return &http.Response{StatusCode: status, Status: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{
		"Content-Type": {"application/json"},
	}}, nil
}

const (
	service = "/api/v1/namespaces/n/services/s"
	role    = "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"
)

// request is a row of a test: a request, the answers of the API server, what is sent to it, and what is recorded.
type request struct {
	method, path, body string
	answers            map[string]string
	sent               []string
	want               []Write
}

// TestPatchesAreDryRuns checks what reaches the API server of each patch, and what is recorded.
func TestPatchesAreDryRuns(t *testing.T) {
	t.Parallel()
	checkRequests(t, map[string]request{
		"a new object": {
			method: "PATCH", path: service + "?fieldManager=hypergate&force=true",
			answers: map[string]string{"PATCH": `201 {"metadata":{"name":"s"}}`},
			sent:    []string{"GET " + service, "PATCH " + service + "?dryRun=All&fieldManager=hypergate&force=true"},
			want:    []Write{{Side: "guest", Verb: Create, Resource: "services", Namespace: "n", Name: "s"}},
		},
		"a changed object": {
			method: "PATCH", path: role,
			answers: map[string]string{
				"GET":   `200 {"metadata":{"name":"r","resourceVersion":"1","labels":{"a":"1"}},"rules":[{"verbs":["get"]}]}`,
				"PATCH": `200 {"metadata":{"name":"r","resourceVersion":"2","labels":{"a":"2"}},"rules":[{"verbs":["list"]}],"status":{}}`,
			},
			sent: []string{"GET " + role, "PATCH " + role + "?dryRun=All"},
			want: []Write{{
				Side: "guest", Verb: Update, Resource: "clusterroles.rbac.authorization.k8s.io", Name: "r",
				Fields: []string{"metadata.labels.a", "rules[0].verbs[0]"},
			}},
		},
		"an unchanged object": {
			method: "PATCH", path: role,
			answers: map[string]string{"GET": `200 {"metadata":{"uid":"1"}}`, "PATCH": `200 {"metadata":{"uid":"2"}}`},
			sent:    []string{"GET " + role, "PATCH " + role + "?dryRun=All"},
			want:    []Write{{Side: "guest", Verb: None, Resource: "clusterroles.rbac.authorization.k8s.io", Name: "r"}},
		},
		"a status": {
			method: "PATCH", path: role + "/status",
			answers: map[string]string{"GET": `200 {"items":[{"status":{"x":1}}]}`, "PATCH": `200 {"status":{"x":2}}`},
			sent: []string{
				"GET " + strings.TrimSuffix(role, "/r") + "?fieldSelector=metadata.name%3Dr", "PATCH " + role + "/status?dryRun=All",
			},
			want: []Write{{
				Side: "guest", Verb: Update, Resource: "clusterroles.rbac.authorization.k8s.io/status", Name: "r",
				Fields: []string{"status.x"},
			}},
		},
	})
}

// TestOtherRequests checks the same of deletions, creations and reads.
func TestOtherRequests(t *testing.T) {
	t.Parallel()
	checkRequests(t, map[string]request{
		"a deletion with options": {
			method: "DELETE", path: service, body: `{"preconditions":{"uid":"1"}}`,
			answers: map[string]string{"GET": "200 {}", "DELETE": "200 {}"},
			sent: []string{
				"GET " + service,
				"DELETE " + service + `?dryRun=All {"dryRun":["All"],"preconditions":{"uid":"1"}}`,
			},
			want: []Write{{Side: "guest", Verb: Delete, Resource: "services", Namespace: "n", Name: "s"}},
		},
		"a deletion of nothing": {
			method: "DELETE", path: service, sent: []string{"GET " + service, "DELETE " + service + "?dryRun=All"}, want: []Write{},
		},
		"a refusal": {
			method: "PATCH", path: service, answers: map[string]string{"PATCH": `403 {"message":"not allowed"}`},
			sent: []string{"GET " + service, "PATCH " + service + "?dryRun=All"},
			want: []Write{{
				Side: "guest", Verb: Create, Resource: "services", Namespace: "n", Name: "s",
				Refusal: "not allowed", Status: http.StatusForbidden,
			}},
		},
		"a conflict with another field manager": {
			method: "PATCH", path: service, body: `{"metadata":{"name":"s"}}`,
			answers: map[string]string{"GET": `200 {"metadata":{}}`, "PATCH": `409 {"message":"conflict"}`},
			sent:    []string{"GET " + service, "PATCH " + service + "?dryRun=All"},
			want: []Write{{
				Side: "guest", Verb: Update, Resource: "services", Namespace: "n", Name: "s",
				Refusal: "conflict", Status: http.StatusConflict,
			}},
		},
		"an object that changed since the named version": {
			method: "PATCH", path: service, body: `{"metadata":{"name":"s","resourceVersion":"7"}}`,
			answers: map[string]string{"GET": "200 {}", "PATCH": `409 {"message":"the object has been modified"}`},
			sent:    []string{"GET " + service, "PATCH " + service + "?dryRun=All"}, want: []Write{},
		},
		"a token": {
			method: "POST", path: "/api/v1/namespaces/n/serviceaccounts/a/token",
			want: []Write{{Side: "guest", Verb: Create, Resource: "serviceaccounts/token", Namespace: "n", Name: "a"}},
		},
		"a question": {
			method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			answers: map[string]string{"POST": "201 {}"},
			sent:    []string{"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}, want: []Write{},
		},
		"a dry run": {
			method: "POST", path: "/apis/networking.istio.io/v1/namespaces/n/destinationrules?dryRun=All",
			answers: map[string]string{"POST": "403 {}"},
			sent:    []string{"POST /apis/networking.istio.io/v1/namespaces/n/destinationrules?dryRun=All"}, want: []Write{},
		},
		"a read":              {method: "GET", path: service, sent: []string{"GET " + service}, want: []Write{}},
		"an unknown method":   {method: "CONNECT", path: service, want: []Write{}},
		"an unknown path":     {method: "POST", path: "/logs/x", want: []Write{}},
		"unreadable deletion": {method: "DELETE", path: service, body: "k8s\x00", want: []Write{}},
	})
}

func checkRequests(t *testing.T, all map[string]request) {
	t.Helper()
	for name, tc := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, recorder := &server{answers: tc.answers}, &Recorder{}
			request, err := http.NewRequestWithContext(t.Context(), tc.method, "https://api"+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if tc.body == "" {
				request.Body = http.NoBody
			}
			response, err := recorder.Wrap("guest")(api).RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			} else if tc.sent != nil {
				t.Fatal(err)
			}
			for i, line := range api.got {
				api.got[i] = strings.TrimSuffix(line, " ")
			}
			if diff := cmp.Diff(tc.sent, api.got); diff != "" {
				t.Errorf("sent, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, recorder.Writes()); diff != "" {
				t.Errorf("recorded, -want +got:\n%s", diff)
			}
		})
	}
}

// exchange is a request of a test, and the API server's response to the write.
type exchange struct{ method, path, body, response string }

// TestWritesIntoANewNamespace checks writes into a namespace that does not exist. They are recorded as creations if the
// same recording creates the namespace, and as refused otherwise.
func TestWritesIntoANewNamespace(t *testing.T) {
	t.Parallel()
	const lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
	missing := func(kind, name string) string {
		return `404 {"kind":"Status","message":"not found","details":{"kind":"` + kind + `","name":"` + name + `"}}`
	}
	namespace := exchange{"PATCH", "/api/v1/namespaces/n", "{}", `201 {"metadata":{"name":"n"}}`}
	denied := exchange{"PATCH", "/api/v1/namespaces/n", "{}", `403 {"message":"denied"}`}
	apply := exchange{"PATCH", lease, `{"kind":"Lease","metadata":{"name":"l","resourceVersion":"absent"}}`, missing("namespaces", "n")}
	created := Write{Side: "guest", Verb: Create, Resource: "leases.coordination.k8s.io", Namespace: "n", Name: "l", Later: true}
	refused := Write{
		Side: "guest", Verb: Create, Resource: "leases.coordination.k8s.io", Namespace: "n", Name: "l",
		Refusal: "not found", Status: http.StatusNotFound,
	}
	other := func(response string) exchange { return exchange{apply.method, apply.path, apply.body, response} }
	for name, tc := range map[string]struct {
		sent []exchange
		want Write
	}{
		"its namespace is created":      {[]exchange{namespace, apply}, created},
		"its namespace is not created":  {[]exchange{apply}, refused},
		"its namespace is refused":      {[]exchange{denied, apply}, refused},
		"another object does not exist": {[]exchange{namespace, other(missing("roles", "n"))}, refused},
		"another namespace":             {[]exchange{namespace, other(missing("namespaces", "x"))}, refused},
		"the body is not an object":     {[]exchange{namespace, {apply.method, apply.path, "k8s\x00", apply.response}}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder, answer := &Recorder{}, map[string]any{}
			for _, e := range tc.sent {
				answer = e.send(t, recorder)
			}
			recorded := recorder.Writes()
			if got := recorded[0]; !cmp.Equal(got, tc.want) { // leases are before namespaces
				t.Errorf("recorded, -want +got:\n%s", cmp.Diff(tc.want, got))
			}
			metadata, _ := answer["metadata"].(map[string]any)
			if _, versioned := metadata["resourceVersion"]; versioned || (metadata["uid"] != nil) != tc.want.Later {
				t.Errorf("the caller gets %v", answer)
			}
		})
	}
}

// send sends the request, and returns the content of the response.
func (e exchange) send(t *testing.T, recorder *Recorder) map[string]any {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), e.method, "https://api"+e.path, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := recorder.Wrap("guest")(&server{answers: map[string]string{e.method: e.response}}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := content(response)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestACallerGetsMetadataAlone checks a write whose caller wants only the metadata of the result: the record has all
// fields nevertheless.
func TestACallerGetsMetadataAlone(t *testing.T) {
	t.Parallel()
	api := &server{answers: map[string]string{"GET": `200 {"spec":{"x":1}}`, "PATCH": `200 {"spec":{"x":2}}`}}
	recorder := &Recorder{}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://api"+service, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	response, err := recorder.Wrap("guest")(api).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	want := []string{"application/json", "application/json", r.Header.Get("Accept")} // read, recorded, answered
	if diff := cmp.Diff(want, api.accepted); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if writes := recorder.Writes(); len(writes) != 1 || !slices.Equal(writes[0].Fields, []string{"spec.x"}) {
		t.Errorf("recorded: %v", writes)
	}
}

// TestARecordHasNoValues checks that the content of a Secret is not recorded, and that the number of fields is limited.
func TestARecordHasNoValues(t *testing.T) {
	t.Parallel()
	before, after := map[string]string{}, map[string]string{}
	for i := range 30 {
		before["key"+string(rune('A'+i))], after["key"+string(rune('A'+i))] = "c2VjcmV0", "aGlkZGVu"
	}
	object := func(data map[string]string) string {
		encoded, err := json.Marshal(map[string]any{"data": data})
		if err != nil {
			t.Fatal(err)
		}
		return "200 " + string(encoded)
	}
	api, recorder := &server{answers: map[string]string{"GET": object(before), "PATCH": object(after)}}, &Recorder{}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://api/api/v1/namespaces/n/secrets/s", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := recorder.Wrap("management")(api).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	writes := recorder.Writes()
	encoded, err := json.Marshal(writes)
	if err != nil || len(writes) != 1 || len(writes[0].Fields) != mostFields || writes[0].More != 10 {
		t.Errorf("recorded: %s, %v", encoded, err)
	}
	if text := string(encoded); strings.Contains(text, "c2VjcmV0") || strings.Contains(text, "aGlkZGVu") {
		t.Errorf("the record has values: %s", text)
	}
}
