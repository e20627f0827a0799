package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Request is one line of an audit log.
type Request struct {
	User string
	// At is when the API server received it.
	At                                                  time.Time
	Verb, Namespace, Group, Resource, Subresource, Name string
	Code                                                int32
}

// Read reads the requests of some users, by name, from the log of a server that may still be writing it.
func Read(log string, users ...string) ([]Request, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("reading an audit log: %w", err)
	}
	complete := data[:bytes.LastIndexByte(data, '\n')+1] // the API server may be writing the next line
	var out []Request
	for line := range bytes.Lines(complete) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading audit log %s: %w", log, err)
		}
		if e.ObjectRef == nil || e.ResponseStatus == nil || !slices.Contains(users, e.User.Username) {
			continue
		}
		o := e.ObjectRef
		out = append(out, Request{
			User: e.User.Username, At: e.RequestReceivedTimestamp.Time, Verb: e.Verb, Namespace: o.Namespace, Group: o.APIGroup,
			Resource: o.Resource, Subresource: o.Subresource, Name: o.Name, Code: e.ResponseStatus.Code,
		})
	}
	return out, nil
}

// String is the request in one line.
func (r Request) String() string {
	return fmt.Sprintf("%d: %s %s.%s %s/%s", r.Code, r.Verb, r.resource(), r.Group, r.Namespace, r.Name)
}

func (r Request) resource() string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

// verbs are what the request needed to be allowed. A server-side apply that makes an object needs the verb create beside patch (apiserver
// pkg/endpoints/handlers/patch.go); the log tells it by the code 201.
func (r Request) verbs() []string {
	if r.Verb == "patch" && r.Code == http.StatusCreated {
		return []string{"patch", "create"}
	}
	return []string{r.Verb}
}

// Forbidden says whether the request was refused for want of a permission.
func (r Request) Forbidden() bool { return r.Code == http.StatusForbidden }

func (r Request) refused() bool { return r.Forbidden() || r.Code == http.StatusUnauthorized }

// Used says whether the permission was of use to the request.
func (r Request) Used(p Permission) bool {
	return !r.refused() && slices.ContainsFunc(r.verbs(), func(verb string) bool { return r.allowed(p, verb) })
}

// Needed is Used by a stricter measure: a permission that holds everywhere is needed only by a request about everywhere. For one about a
// namespace, a Role would do.
func (r Request) Needed(p Permission) bool { return r.Used(p) && r.Namespace == p.Namespace }

func (r Request) allowed(p Permission, verb string) bool {
	return p.Verb == verb && p.Group == r.Group && p.Resource == r.resource() &&
		(p.Namespace == "" || p.Namespace == r.Namespace) && (p.Name == "" || p.Name == r.Name)
}

// Unused are the permissions that served no request, by one of the two measures: Request.Used or Request.Needed.
func Unused(roles []Role, requests []Request, served func(Request, Permission) bool) []Permission {
	return slices.DeleteFunc(Permissions(roles), func(p Permission) bool {
		return slices.ContainsFunc(requests, func(r Request) bool { return served(r, p) })
	})
}

// Beyond are the requests that the roles do not allow, sorted and each once: refused ones, and ones that some other role allowed.
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
