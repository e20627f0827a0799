package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Request is one request in an audit log.
type Request struct {
	User string
	// At is the time at which the API server received the request.
	At                                                  time.Time
	Verb, Namespace, Group, Resource, Subresource, Name string
	Code                                                int32
	// Manager is the field manager of a write, or empty. Without one in the URL, it is the first part of the user
	// agent.
	Manager string
	// Object is the object after a write, as JSON, if the log has it.
	Object []byte
}

// IsWrite reports whether the request can change an object.
func (r Request) IsWrite() bool { return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) }

// Succeeded reports whether the API server did what was asked.
func (r Request) Succeeded() bool { return r.Code < http.StatusBadRequest }

// Read returns the requests of the named users from an audit log, or of all users without a name. The server may
// still be writing the log. A long request, such as a watch or one for a proxy, has a line when its response starts,
// and another one when the response is complete. It is returned once.
func Read(log string, users ...string) ([]Request, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("reading an audit log: %w", err)
	}
	complete := data[:bytes.LastIndexByte(data, '\n')+1] // the API server may be writing the next line
	var out []Request
	known := map[types.UID]bool{}
	for line := range bytes.Lines(complete) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading audit log %s: %w", log, err)
		}
		if e.ObjectRef == nil || e.ResponseStatus == nil || len(users) > 0 && !slices.Contains(users, e.User.Username) {
			continue
		}
		if known[e.AuditID] {
			continue
		}
		known[e.AuditID] = e.AuditID != ""
		o := e.ObjectRef
		r := Request{
			User: e.User.Username, At: e.RequestReceivedTimestamp.Time, Verb: e.Verb, Namespace: o.Namespace, Group: o.APIGroup,
			Resource: o.Resource, Subresource: o.Subresource, Name: o.Name, Code: e.ResponseStatus.Code,
		}
		if r.IsWrite() {
			r.Manager = manager(&e)
			if e.ResponseObject != nil {
				r.Object = e.ResponseObject.Raw
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// manager returns the field manager of a write (apiserver pkg/endpoints/handlers/create.go, managerOrUserAgent).
func manager(e *auditv1.Event) string {
	if u, err := url.Parse(e.RequestURI); err == nil && u.Query().Get("fieldManager") != "" {
		return u.Query().Get("fieldManager")
	}
	agent, _, _ := strings.Cut(e.UserAgent, "/")
	return agent
}

// String returns the request in one line.
func (r Request) String() string {
	return fmt.Sprintf("%d: %s %s.%s %s/%s", r.Code, r.Verb, r.resource(), r.Group, r.Namespace, r.Name)
}

func (r Request) resource() string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

// verbs returns the verbs that the request required. A server-side apply that creates an object requires create in
// addition to patch (apiserver pkg/endpoints/handlers/patch.go). In the log it has the code 201.
func (r Request) verbs() []string {
	if r.Verb == "patch" && r.Code == http.StatusCreated {
		return []string{"patch", "create"}
	}
	return []string{r.Verb}
}

// Forbidden reports whether the request was refused because of a missing permission.
func (r Request) Forbidden() bool { return r.Code == http.StatusForbidden }

func (r Request) refused() bool { return r.Forbidden() || r.Code == http.StatusUnauthorized }

// Used reports whether the request used the permission.
func (r Request) Used(p Permission) bool {
	return !r.refused() && slices.ContainsFunc(r.verbs(), func(verb string) bool { return r.allowed(p, verb) })
}

// Needed is stricter than Used. A cluster-wide permission is needed only for a cluster-wide request. For a request in
// a namespace, a Role would be sufficient.
func (r Request) Needed(p Permission) bool { return r.Used(p) && r.Namespace == p.Namespace }

func (r Request) allowed(p Permission, verb string) bool {
	return p.Verb == verb && p.Group == r.Group && p.Resource == r.resource() &&
		(p.Namespace == "" || p.Namespace == r.Namespace) && (p.Name == "" || p.Name == r.Name)
}

// Unused returns the permissions that no request needed. The argument served is Request.Used or Request.Needed.
func Unused(roles []Role, requests []Request, served func(Request, Permission) bool) []Permission {
	return slices.DeleteFunc(Permissions(roles), func(p Permission) bool {
		return slices.ContainsFunc(requests, func(r Request) bool { return served(r, p) })
	})
}

// Beyond returns the requests that the roles do not allow: refused requests, and requests that another role allowed.
// The result is sorted and without duplicates.
func Beyond(roles []Role, requests []Request) []string {
	given := Permissions(roles)
	var out []string
	for _, r := range requests {
		for _, verb := range r.verbs() {
			if r.refused() || !slices.ContainsFunc(given, func(p Permission) bool { return r.allowed(p, verb) }) {
				out = append(out, r.String())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
