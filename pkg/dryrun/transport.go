package dryrun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/hypergate/hypergate/pkg/answer"
)

// bodyLimit is the most that is read of the body of a write, in bytes. A CRD of the Gateway API has less than a tenth.
// Package answer limits the bodies of responses.
const bodyLimit = 8 << 20

// Recorder records writes. The zero value is ready to use, and safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	writes map[string]Write
}

// Writes returns what was recorded, sorted by side and object. Of several writes to one object, it is the last one.
func (r *Recorder) Writes() []Write {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Write, 0, len(r.writes))
	for _, w := range r.writes {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Write) int { return strings.Compare(a.key(), b.key()) })
	return out
}

func (r *Recorder) record(w Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writes == nil {
		r.writes = map[string]Write{}
	}
	r.writes[w.key()] = w
}

// creates reports whether a recorded write would create a namespace.
func (r *Recorder) creates(side, namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, recorded := r.writes[Write{Side: side, Resource: "namespaces", Name: namespace}.key()]
	return recorded && w.Verb == Create && w.Refusal == ""
}

// Wrap returns a wrapper for the transport of a side's clients. It limits what it reads itself, because the limits of a
// client are outside of its wrappers.
func (r *Recorder) Wrap(side string) func(http.RoundTripper) http.RoundTripper {
	limit := answer.LimitWhole("the " + side + " API server")
	return func(next http.RoundTripper) http.RoundTripper { return transport{limit(next), r, side} }
}

type transport struct {
	next     http.RoundTripper
	recorder *Recorder
	side     string
}

var _ net.RoundTripperWrapper = transport{}

// WrappedRoundTripper returns the inner transport. client-go uses it to close idle connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a read as it is, and a write as a dry run.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return t.next.RoundTrip(r)
	}
	target, err := parse(r.URL.Path)
	if err != nil {
		return nil, err
	}
	if target.isReview() || r.URL.Query().Get("dryRun") == "All" {
		return t.next.RoundTrip(r) // it changes nothing
	}
	if target.subresource == "token" {
		t.recorder.record(Write{
			Side: t.side, Verb: Create, Resource: "serviceaccounts/token", Namespace: target.namespace, Name: target.name,
		})
		return placeholder(r), nil
	}
	return t.write(r, target)
}

// write sends a write as a dry run, and records it. A caller that wants only the metadata of the result gets a response
// of its own.
func (t transport) write(r *http.Request, target target) (*http.Response, error) {
	dry, body, err := asDryRun(r)
	if err != nil {
		return nil, err
	}
	before, err := t.read(r, target)
	if err != nil {
		return nil, err
	}
	whole := withBody(dry, body)
	whole.Header.Set("Accept", "application/json")
	response, err := t.next.RoundTrip(whole)
	if err != nil {
		return nil, err
	}
	after, err := content(response)
	if err != nil {
		return nil, err
	}
	if t.inNewNamespace(r, target, response.StatusCode, after) {
		if answer := created(r, target, body); answer != nil {
			t.recorder.record(Write{
				Side: t.side, Verb: Create, Resource: target.whole(), Namespace: target.namespace, Name: target.name, Later: true,
			})
			return answer, nil
		}
	}
	gone := r.Method == http.MethodDelete && response.StatusCode == http.StatusNotFound
	if !gone && !isOutdated(response.StatusCode, body) {
		t.recorder.record(writeOf(t.side, r.Method, target, before, response.StatusCode, after))
	}
	if !strings.Contains(r.Header.Get("Accept"), "as=") {
		return response, nil
	}
	return t.next.RoundTrip(withBody(dry, body))
}

// isOutdated reports whether a write names the version of its object, and the object has changed since. The client
// writes again, to the next version.
func isOutdated(status int, body []byte) bool {
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	return status == http.StatusConflict && json.Unmarshal(body, &object) == nil && object.Metadata.ResourceVersion != ""
}

// inNewNamespace reports whether the API server refuses to apply an object because of a missing namespace that an
// earlier write of this recording creates. A dry run creates no namespace, so each dry run in it fails. The same write
// would succeed after the namespace is created. The API server has checked the permission then, because it does so
// first. It has not validated the object, see Write.Later.
func (t transport) inNewNamespace(r *http.Request, target target, status int, answer map[string]any) bool {
	details, _ := answer["details"].(map[string]any)
	return status == http.StatusNotFound && r.Method == http.MethodPatch && target.namespace != "" &&
		details["kind"] == "namespaces" && details["name"] == target.namespace && t.recorder.creates(t.side, target.namespace)
}

// created returns the response to an apply that creates an object, from the body of the request: the API server has
// none. Clients expect metadata of an existing object. Nil: the body is not an object.
func created(r *http.Request, target target, body []byte) *http.Response {
	object := map[string]any{}
	if err := json.Unmarshal(body, &object); err != nil {
		return nil
	}
	metadata, _ := object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	delete(metadata, "resourceVersion") // the API server's answer to a dry run that creates has none
	metadata["name"], metadata["namespace"] = target.name, target.namespace
	metadata["uid"], metadata["creationTimestamp"] = uuid.NewUUID(), time.Now().UTC().Format(time.RFC3339)
	object["metadata"] = metadata
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	return answered(r, encoded)
}

// withBody returns a copy of a request with a body.
func withBody(r *http.Request, body []byte) *http.Request {
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	if len(body) == 0 {
		out.Body, out.GetBody = http.NoBody, nil
	}
	return out
}

// placeholder answers a request for a token, because each request to the API server would make one. The token is not
// valid anywhere.
func placeholder(r *http.Request) *http.Response {
	const body = `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"audiences":[]},` +
		`"status":{"token":"dry-run","expirationTimestamp":"9999-12-31T23:59:59Z"}}`
	return answered(r, []byte(body))
}

// answered returns a response that did not come from the API server.
func answered(r *http.Request, body []byte) *http.Response {
	return &http.Response{
		Status: "201 Created", StatusCode: http.StatusCreated, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}
}

// asDryRun returns a write as a dry run, and its body. The options of a deletion are in its body, and an API server
// then ignores those of the URL.
func asDryRun(r *http.Request) (dry *http.Request, body []byte, err error) {
	if r.Method != http.MethodPost && r.Method != http.MethodPatch && r.Method != http.MethodPut && r.Method != http.MethodDelete {
		return nil, nil, fmt.Errorf("a dry run does not send %s %s", r.Method, r.URL.Path)
	}
	if r.Body != nil {
		if body, err = io.ReadAll(io.LimitReader(r.Body, bodyLimit)); err != nil {
			return nil, nil, fmt.Errorf("reading the body of a write: %w", err)
		}
		_ = r.Body.Close()
	}
	dry = r.Clone(r.Context())
	query := dry.URL.Query()
	query.Set("dryRun", "All")
	dry.URL.RawQuery = query.Encode()
	if r.Method != http.MethodDelete || len(body) == 0 {
		return dry, body, nil
	}
	options := map[string]any{}
	if err := json.Unmarshal(body, &options); err != nil {
		return nil, nil, fmt.Errorf("a dry run does not send a deletion whose options are not JSON: %w", err)
	}
	options["dryRun"] = []string{"All"}
	if body, err = json.Marshal(options); err != nil {
		return nil, nil, fmt.Errorf("encoding the options of a deletion: %w", err)
	}
	return dry, body, nil
}

// read returns the object of a request as it is now. Empty: it does not exist, or the request creates it. The object
// has its status. Of a resource whose status hypergate writes, its roles allow list and watch, but not get.
func (t transport) read(r *http.Request, target target) (map[string]any, error) {
	if r.Method == http.MethodPost {
		return map[string]any{}, nil
	}
	get := r.Clone(r.Context())
	get.Method, get.URL.RawQuery = http.MethodGet, ""
	if target.subresource == "status" {
		get.URL.Path = path.Dir(strings.TrimSuffix(get.URL.Path, "/status"))
		get.URL.RawQuery = url.Values{"fieldSelector": {"metadata.name=" + target.name}}.Encode()
	}
	get.Body, get.GetBody, get.ContentLength = http.NoBody, nil, 0
	get.Header.Set("Accept", "application/json")
	get.Header.Del("Content-Type")
	response, err := t.next.RoundTrip(get)
	if err != nil {
		return nil, err
	}
	object, err := content(response)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusNotFound:
		return map[string]any{}, nil
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("reading %s: the API server answers %s", r.URL.Path, response.Status)
	case target.subresource == "status":
		return only(object), nil
	default:
		return object, nil
	}
}

// only returns the first object of a list. Without one, it returns an empty object.
func only(list map[string]any) map[string]any {
	items, _ := list["items"].([]any)
	if len(items) == 0 {
		return map[string]any{}
	}
	object, _ := items[0].(map[string]any)
	return object
}

// content returns the body of a response as an object, and puts the body back. An empty result means that it is not
// JSON.
func content(response *http.Response) (map[string]any, error) {
	data, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading a response: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(data))
	object := map[string]any{}
	_ = json.Unmarshal(data, &object)
	return object, nil
}

// target is the object of a request.
type target struct{ group, resource, namespace, name, subresource string }

// whole returns the resource with its group and its subresource, see Write.Resource.
func (t target) whole() string {
	out := t.resource
	if t.group != "" {
		out += "." + t.group
	}
	if t.subresource != "" {
		out += "/" + t.subresource
	}
	return out
}

// isReview reports whether a request only asks a question.
func (t target) isReview() bool {
	return t.group == "authorization.k8s.io" || t.group == "authentication.k8s.io"
}

// parse reads the path of a request to an API server: /api/<version>/... or /apis/<group>/<version>/...
func parse(path string) (target, error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var t target
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		t.group, parts = parts[1], parts[3:]
	default:
		return t, fmt.Errorf("a dry run does not send a write to %s", path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	for i, field := range []*string{&t.resource, &t.name, &t.subresource} {
		if i < len(parts) {
			unescaped, err := url.PathUnescape(parts[i])
			if err != nil {
				return t, fmt.Errorf("a dry run does not send a write to %s: %w", path, err)
			}
			*field = unescaped
		}
	}
	return t, nil
}
