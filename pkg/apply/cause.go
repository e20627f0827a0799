package apply

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Class is the kind of a cause, ordered from what heals by itself to what somebody must put right.
type Class int

const (
	// NoCause is the class of the zero Cause.
	NoCause Class = iota
	// Cancelled: the caller's context ended while the request ran.
	Cancelled
	// Unreachable: no answer, or one that says that the API server cannot answer now (5xx, 429).
	Unreachable
	// NamespaceTerminating: the object's namespace is being deleted.
	NamespaceTerminating
	// NamespaceMissing: the object's namespace does not exist.
	NamespaceMissing
	// NotServed: the API server does not know the kind.
	NotServed
	// Conflict: an object of this name, or a field of it, is somebody else's.
	Conflict
	// Denied: an admission webhook or policy refused the object, or could not be called.
	Denied
	// Invalid: the API server does not accept the object's content.
	Invalid
	// Forbidden: RBAC does not allow the request.
	Forbidden
	// Unauthorized: the API server does not accept our credentials.
	Unauthorized
	// Refused: the object must not be applied here; nothing was sent.
	Refused
	// Other: none of these.
	Other
)

// String is the class's name in CamelCase, fit for a condition's reason.
func (c Class) String() string {
	names := []string{"NoCause", "Cancelled", "Unreachable", "NamespaceTerminating", "NamespaceMissing", "NotServed", "Conflict", "Denied",
		"Invalid", "Forbidden", "Unauthorized", "Refused", "Other"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class%d", int(c))
	}
	return names[c]
}

// Cause is why an object could not be applied, deleted or watched. What it says names no host, object, namespace or user, so that anybody
// may read it; the error beside it is for logs.
type Cause struct {
	class    Class
	verb     string
	resource schema.GroupResource
	by       string   // webhook or policy
	managers []string // of the fields in conflict
	fields   []string // in conflict, or invalid
	whole    bool     // the conflict is about the whole object
	network  string
	detail   string
}

// Class says what kind of cause it is.
func (c Cause) Class() Class { return c.class }

// Verb is the RBAC verb of the request. For Forbidden it is the one that is missing.
func (c Cause) Verb() string { return c.verb }

// Resource is what the verb was to be done to.
func (c Cause) Resource() schema.GroupResource { return c.resource }

// Managers are the field managers that a Conflict is with, sorted.
func (c Cause) Managers() []string { return slices.Clone(c.managers) }

// Fields are the paths that a Conflict or an Invalid is about, sorted; none when it is about the whole object.
func (c Cause) Fields() []string { return slices.Clone(c.fields) }

// By is the webhook or policy of a Denied; empty when another admission plugin denied it.
func (c Cause) By() string { return c.by }

// Detail is what the API server said. Unlike the rest of a Cause it may name objects.
func (c Cause) Detail() string { return c.detail }

// String is one sentence without a full stop, such as "may not create deployments.apps".
func (c Cause) String() string {
	switch c.class {
	case NoCause:
		return "no cause"
	case Cancelled:
		return "stopped before there was an answer"
	case Unreachable:
		return "the API server cannot be reached: " + c.network
	case NamespaceTerminating:
		return "the namespace is being deleted"
	case NamespaceMissing:
		return "the namespace does not exist"
	case NotServed:
		return "the API server does not serve " + c.resource.String()
	case Conflict:
		return c.conflict()
	case Denied:
		if c.by == "" {
			return "denied by admission"
		}
		return "denied by " + c.by
	case Invalid:
		return strings.TrimSuffix("not accepted as valid: "+some(c.fields), ": ")
	case Forbidden:
		return fmt.Sprintf("may not %s %s", c.verb, c.resource)
	case Unauthorized:
		return "the API server does not accept the credentials"
	case Refused:
		return "refused before anything was sent"
	case Other:
		return fmt.Sprintf("%s %s failed", c.verb, c.resource)
	}
	return c.class.String()
}

func (c Cause) conflict() string {
	switch {
	case len(c.fields) > 0:
		return fmt.Sprintf("%s is managed by %s", some(c.fields), some(c.managers))
	case c.whole && len(c.managers) > 0:
		return "an object of this name exists and is managed by " + some(c.managers)
	case c.whole:
		return "an object of this name exists"
	default:
		return "the object was changed by somebody else at the same time"
	}
}

// some lists a few strings: a condition's message has an end.
func some(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}

// causedError is an error whose cause is known.
type causedError struct {
	cause Cause
	err   error
}

func (e *causedError) Error() string { return e.err.Error() }
func (e *causedError) Unwrap() error { return e.err }

// foreign says that an object of the name exists and is not ours.
func foreign(k Kind, managers []string) error {
	managers = tidy(managers)
	return &causedError{
		Cause{class: Conflict, verb: "patch", resource: k.gvr().GroupResource(), managers: managers, whole: true},
		fmt.Errorf("an object of this name exists and is not ours (its field managers: %q): delete it, and it will be made anew", managers),
	}
}

// classify finds the cause of an error that a request ended with. verb is the RBAC verb that the request began with.
func classify(err error, verb string, k Kind) Cause {
	if caused, ok := errors.AsType[*causedError](err); ok {
		return caused.cause
	}
	cause := Cause{class: Other, verb: verb, resource: k.gvr().GroupResource(), detail: err.Error()}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return classifyStatus(cause, status.ErrStatus)
	}
	if errors.Is(err, context.Canceled) {
		cause.class = Cancelled
	} else if reason := unreachable(err); reason != "" {
		cause.class, cause.network = Unreachable, reason
	}
	return cause
}

// unreachable says why a request got no answer, without naming hosts; empty when that is not what happened.
func unreachable(err error) string {
	_, isURL := errors.AsType[*url.Error](err)
	netErr, isNet := errors.AsType[net.Error](err)
	_, isDNS := errors.AsType[*net.DNSError](err)
	_, isTLS := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case isDNS:
		return "its name does not resolve"
	case isTLS:
		return "its certificate is not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "connection closed"
	case errors.Is(err, context.DeadlineExceeded), isNet && netErr.Timeout():
		return "timed out"
	case isURL, isNet:
		return "no connection"
	default:
		return ""
	}
}

// The API server tells who denied a request, and what RBAC lacks, only in words: apiserver pkg/admission/plugin/webhook/errors/statuserror.go,
// pkg/util/webhook/error.go, pkg/admission/plugin/policy (validating/dispatcher.go and generic/policy_dispatcher.go) and
// pkg/endpoints/handlers/responsewriters/errors.go.
var (
	webhookDenied   = regexp.MustCompile(`admission webhook "([^"]+)" (?:denied the request|does not support)`)
	webhookFailed   = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	policyDenied    = regexp.MustCompile(`(?i)policy ['"]([^'"]+)['"](?: with binding ['"][^'"]+['"])? denied request`)
	rbacDenied      = regexp.MustCompile(`cannot (\S+) resource "([^"]+)" in API group "([^"]*)"`)
	conflictManager = regexp.MustCompile(`^conflict with "((?:[^"\\]|\\.)*)"`)
)

const (
	// namespaceTerminating is k8s.io/api/core/v1.NamespaceTerminatingCause.
	namespaceTerminating = metav1.CauseType("NamespaceTerminating")
	// rbacEscalation is from kubernetes pkg/registry/rbac/validation: who writes a role must hold its permissions, or the verbs escalate or bind.
	rbacEscalation = "attempting to grant RBAC permissions not currently held"
	// typedPatch begins the plain error that the API server answers with 500 when an applied object does not fit its kind's schema.
	typedPatch = "failed to create typed patch object"
)

func classifyStatus(cause Cause, s metav1.Status) Cause {
	cause.detail = s.Message
	if class, by := admission(s.Message); class != NoCause {
		cause.class, cause.by = class, by
		return cause
	}
	switch code := int(s.Code); {
	case code == http.StatusUnauthorized:
		cause.class = Unauthorized
	case code == http.StatusForbidden:
		return forbidden(cause, s)
	case code == http.StatusNotFound:
		cause.class = notFound(cause, s)
	case code == http.StatusConflict:
		return conflict(cause, s)
	case code == http.StatusUnprocessableEntity, code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge,
		strings.Contains(s.Message, typedPatch):
		cause.class = Invalid
		for _, c := range causesOf(s) {
			cause.fields = append(cause.fields, c.Field)
		}
		cause.fields = tidy(cause.fields)
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		cause.class = Unreachable
		cause.network = strings.ToLower(fmt.Sprintf("it answered %d %s", code, http.StatusText(code)))
	}
	return cause
}

// notFound tells what is missing. An apply creates what is not there, so it is never the object itself: it may be the namespace, the kind,
// or something that the object refers to, such as the role of a binding.
func notFound(cause Cause, s metav1.Status) Class {
	switch {
	case s.Details != nil && s.Details.Kind == "namespaces" && cause.resource.Resource != "namespaces":
		return NamespaceMissing
	case s.Details == nil || s.Details.Name == "" || slices.ContainsFunc(causesOf(s), isUnexpected):
		return NotServed
	default:
		return Other
	}
}

// isUnexpected is the mark that the client puts on an answer that is not the API's own, such as "404 page not found".
func isUnexpected(c metav1.StatusCause) bool {
	return c.Type == metav1.CauseTypeUnexpectedServerResponse
}

// admission finds the webhook or the policy that denied a request or could not be called.
func admission(message string) (Class, string) {
	for _, who := range []struct {
		pattern *regexp.Regexp
		format  string
	}{
		{webhookDenied, "the admission webhook %s"},
		{webhookFailed, "the admission webhook %s, which could not be called"},
		{policyDenied, "the admission policy %s"},
	} {
		if m := who.pattern.FindStringSubmatch(message); m != nil {
			return Denied, fmt.Sprintf(who.format, m[1])
		}
	}
	return NoCause, ""
}

func forbidden(cause Cause, s metav1.Status) Cause {
	m := rbacDenied.FindStringSubmatch(s.Message)
	switch {
	case slices.ContainsFunc(causesOf(s), func(c metav1.StatusCause) bool { return c.Type == namespaceTerminating }):
		cause.class = NamespaceTerminating
	case m != nil:
		cause.class, cause.verb, cause.resource = Forbidden, m[1], schema.GroupResource{Group: m[3], Resource: m[2]}
	case strings.Contains(s.Message, rbacEscalation):
		cause.class, cause.verb = Forbidden, "escalate"
		if strings.Contains(cause.resource.Resource, "binding") {
			cause.verb = "bind"
		}
	default:
		cause.class = Denied
	}
	return cause
}

// fieldConflict says whether an apply failed because fields are somebody else's.
func fieldConflict(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && slices.ContainsFunc(causesOf(status.ErrStatus), isFieldConflict)
}

func isFieldConflict(c metav1.StatusCause) bool {
	return c.Type == metav1.CauseTypeFieldManagerConflict
}

func conflict(cause Cause, s metav1.Status) Cause {
	cause.class = Conflict
	for _, c := range causesOf(s) {
		if !isFieldConflict(c) {
			continue
		}
		cause.fields = append(cause.fields, c.Field)
		if m := conflictManager.FindStringSubmatch(c.Message); m != nil {
			cause.managers = append(cause.managers, m[1])
		}
	}
	cause.fields, cause.managers = tidy(cause.fields), tidy(cause.managers)
	return cause
}

func causesOf(s metav1.Status) []metav1.StatusCause {
	if s.Details == nil {
		return nil
	}
	return s.Details.Causes
}

// tidy sorts a list and leaves out what is empty or there twice.
func tidy(list []string) []string {
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	slices.Sort(list)
	return slices.Compact(list)
}
