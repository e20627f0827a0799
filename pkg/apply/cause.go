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

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/text"
	"github.com/hypergate/hypergate/pkg/watch"
)

// ErrorClass is the class of a cause. The classes are ordered: transient ones come first, those that need an action
// last.
type ErrorClass int

const (
	// NoCause is the class of the zero Cause.
	NoCause ErrorClass = iota
	// Cancelled means that the caller's context ended during the request.
	Cancelled
	// Unreachable means that the API server did not answer, or answered that it cannot serve the request now (5xx,
	// 429).
	Unreachable
	// NamespaceTerminating means that the object's namespace is being deleted.
	NamespaceTerminating
	// NamespaceMissing means that the object's namespace does not exist.
	NamespaceMissing
	// NotServed means that the API server does not serve the kind.
	NotServed
	// DeletionBlocked means that the object is being deleted and does not go, usually because of a finalizer.
	DeletionBlocked
	// Conflict means that the object, or a field of it, belongs to another client.
	Conflict
	// Denied means that an admission webhook or policy denied the request or reverted its change, or that the webhook
	// could not be called.
	Denied
	// Invalid means that the API server does not accept the object's content.
	Invalid
	// Forbidden means that RBAC does not allow the request.
	Forbidden
	// Unauthorized means that the API server does not accept hypergate's credentials.
	Unauthorized
	// Refused means that hypergate is not allowed to apply the object here. No request was sent.
	Refused
	// Oversized means that the API server sends more than hypergate reads.
	Oversized
	// Enlarged means that a write returned more than hypergate accepts: by a mutating webhook, or an APIService.
	Enlarged
	// UnknownError is any other cause, such as a binding whose role does not exist.
	UnknownError
)

// String returns the class's name in CamelCase, which is a valid reason of a condition.
func (c ErrorClass) String() string {
	names := []string{
		"NoCause", "Cancelled", "Unreachable", "NamespaceTerminating", "NamespaceMissing", "NotServed", "DeletionBlocked",
		"Conflict", "Denied", "Invalid", "Forbidden", "Unauthorized", "Refused", "Oversized", "Enlarged", "UnknownError",
	}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class%d", int(c))
	}
	return names[c]
}

// ErrorClasses returns all classes of causes, without NoCause.
func ErrorClasses() []ErrorClass {
	out := make([]ErrorClass, 0, UnknownError)
	for class := Cancelled; class <= UnknownError; class++ {
		out = append(out, class)
	}
	return out
}

// IsTransient reports whether a cause usually ends without an action.
func (c ErrorClass) IsTransient() bool {
	switch c {
	case NoCause, Cancelled, Unreachable, NamespaceTerminating, Unauthorized:
		return true
	case NamespaceMissing, NotServed, DeletionBlocked, Conflict, Denied, Invalid, Forbidden, Refused, Oversized, Enlarged, UnknownError:
		return false
	default:
		return false
	}
}

// Limits of what is kept of a cause, in bytes. The API server decides how long its answer is, and one cause is kept
// for each object that fails.
const (
	// sentenceLimit is the longest sentence of a cause.
	sentenceLimit = 512
	// nameLimit is the longest name in that sentence.
	nameLimit = 128
	// detailLimit is how much of the API server's answer is kept. Conditions show the first 512 bytes.
	detailLimit = 1 << 10
)

// Cause is why an object could not be applied, deleted or watched. Its sentence names no host, object, namespace or
// user, so that it can be shown to every reader. The error that comes with it is for logs only.
type Cause struct {
	class    ErrorClass
	text     string
	verb     string
	resource schema.GroupResource
	detail   string
}

// as returns the cause with the given class and sentence.
func (c Cause) as(class ErrorClass, format string, args ...any) Cause {
	c.class, c.text = class, text.Line(fmt.Sprintf(format, args...), sentenceLimit)
	return c
}

// Class returns the class of the cause.
func (c Cause) Class() ErrorClass { return c.class }

// Detail returns the API server's answer. Unlike the rest of a Cause, it can name objects.
func (c Cause) Detail() string { return c.detail }

// String returns one sentence without a full stop, such as "not allowed to create deployments.apps (RBAC)". It
// returns an empty string for the zero Cause.
func (c Cause) String() string { return c.text }

// some returns the first three strings as a list, and how many more there are. This bounds the length of a
// condition's message.
func some(list []string) string {
	const few = 3
	names := make([]string, 0, few)
	for _, name := range list[:min(len(list), few)] {
		names = append(names, text.Line(name, nameLimit))
	}
	if more := len(list) - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}

// causedError is an error with a known cause.
type causedError struct {
	cause Cause
	err   error
}

func (e *causedError) Error() string { return e.err.Error() }
func (e *causedError) Unwrap() error { return e.err }

// foreign returns the error for an object that exists and that hypergate does not own. fields are its managed fields.
func foreign(k Kind, fields []metav1.ManagedFieldsEntry) error {
	cause := Cause{verb: "patch", resource: k.resource()}.as(Conflict, "an object of this name already exists")
	managers := make([]string, 0, len(fields))
	for _, e := range fields {
		managers = append(managers, e.Manager)
	}
	if managers = tidy(managers); len(managers) > 0 {
		cause.text += " and is managed by " + some(managers)
	}
	return &causedError{cause, fmt.Errorf("%s; hypergate does not own it: delete it, and hypergate creates its own", cause)}
}

// TooLarge returns the error for an object that the API server returned larger than hypergate accepts. limit is in
// bytes. The text does not contain the size: it can be another one with each attempt, and conditions must be stable.
func TooLarge(what string, limit int) error {
	cause := Cause{}.as(Enlarged, "%s has more than %d KiB: a mutating webhook may have enlarged it", what, limit>>10)
	return &causedError{cause, errors.New(cause.text)}
}

// Reverted returns the error for a request that the API server accepted, and whose change is not in the object that it
// returned.
func Reverted() error {
	cause := Cause{}.as(Denied, "a mutating webhook or policy reverts the change")
	return &causedError{cause, errors.New(cause.text)}
}

// refusal returns the cause for an object that hypergate is not allowed to apply.
func refusal(err error) Cause {
	return Cause{detail: text.Line(err.Error(), detailLimit)}.as(Refused, "refused by hypergate, no request was sent")
}

// Classify returns the cause of an error that a request to an API server returned. verb is the RBAC verb of the
// request and resource its resource. Classify returns the zero Cause for a nil error.
func Classify(err error, verb string, resource schema.GroupResource) Cause {
	if err == nil {
		return Cause{}
	}
	if caused, ok := errors.AsType[*causedError](err); ok {
		return caused.cause
	}
	cause := Cause{verb: verb, resource: resource, detail: text.Line(err.Error(), detailLimit)}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return classifyStatus(cause, status.ErrStatus)
	}
	if over, is := errors.AsType[*watch.LimitError](err); is {
		return cause.as(Oversized, "%s", over.Cause())
	}
	if errors.Is(err, context.Canceled) {
		return cause.as(Cancelled, "cancelled before the API server answered")
	}
	if tooLong, is := errors.AsType[*answer.TooLongError](err); is {
		return cause.tooLong(tooLong.Most())
	}
	if reason := unreachable(err); reason != "" {
		return cause.as(Unreachable, "the API server cannot be reached: %s", reason)
	}
	return cause.other()
}

// tooLong returns the cause for a response that exceeds its limit. The response to a read, or to a deletion, is as long
// as the objects. Mutating webhooks decide how long the response to a write is.
func (c Cause) tooLong(limit string) Cause {
	switch c.verb {
	case "patch", "create", "update":
		return c.as(Enlarged, "the API server's answer is longer than %s: a mutating webhook may have enlarged it", limit)
	default:
		return c.as(Oversized, "the API server's answer is longer than %s", limit)
	}
}

func (c Cause) other() Cause { return c.as(UnknownError, "%s %s failed", c.verb, c.resource) }

// unreachable returns why a request got no answer, without naming a host. It returns an empty string for any other
// error.
func unreachable(err error) string {
	_, isURL := errors.AsType[*url.Error](err)
	netErr, isNet := errors.AsType[net.Error](err)
	_, isDNS := errors.AsType[*net.DNSError](err)
	_, isTLS := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case isDNS:
		return "its host name does not resolve"
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

// The API server names the webhook or policy that denied a request, and the missing RBAC permission, only in its
// message. The patterns follow these files of k8s.io/apiserver: pkg/admission/plugin/webhook/errors/statuserror.go,
// pkg/util/webhook/error.go, pkg/admission/plugin/policy (validating/dispatcher.go and generic/policy_dispatcher.go)
// and pkg/endpoints/handlers/responsewriters/errors.go.
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
	// rbacEscalation is from kubernetes pkg/registry/rbac/validation: the writer of a role must hold its
	// permissions, or the verb escalate or bind.
	rbacEscalation = "attempting to grant RBAC permissions not currently held"
	// typedPatch begins the API server's plain error, with code 500, for an applied object that does not match its
	// kind's schema.
	typedPatch = "failed to create typed patch object"
)

func classifyStatus(cause Cause, s metav1.Status) Cause {
	cause.detail = text.Line(s.Message, detailLimit)
	if by := admission(s.Message); by != "" {
		return cause.as(Denied, "denied by %s", by)
	}
	switch code := int(s.Code); {
	case code == http.StatusUnauthorized:
		return cause.as(Unauthorized, "the API server does not accept the credentials")
	case code == http.StatusForbidden:
		return forbidden(cause, s)
	case code == http.StatusNotFound:
		return notFound(cause, s)
	case code == http.StatusConflict:
		return conflict(cause, s)
	case code == http.StatusUnprocessableEntity, code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge,
		strings.Contains(s.Message, typedPatch):
		return invalid(cause, s)
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return cause.as(Unreachable, "the API server is unavailable: it answered %d %s", code, strings.ToLower(http.StatusText(code)))
	}
	return cause.other()
}

// admission returns the webhook or the policy that denied a request, or the webhook that could not be called. It
// returns an empty string if the message names neither.
func admission(message string) string {
	for _, plugin := range []struct {
		pattern *regexp.Regexp
		format  string
	}{
		{webhookDenied, "the admission webhook %s"},
		{webhookFailed, "the admission webhook %s, which could not be called"},
		{policyDenied, "the admission policy %s"},
	} {
		if m := plugin.pattern.FindStringSubmatch(message); m != nil {
			return fmt.Sprintf(plugin.format, text.Line(m[1], nameLimit))
		}
	}
	return ""
}

func forbidden(cause Cause, s metav1.Status) Cause {
	if hasCause(s, namespaceTerminating) {
		return cause.as(NamespaceTerminating, "the namespace is being deleted")
	}
	m := rbacDenied.FindStringSubmatch(s.Message)
	escalation := strings.Contains(s.Message, rbacEscalation)
	switch {
	case m != nil:
		cause.verb, cause.resource = m[1], schema.GroupResource{Group: m[3], Resource: m[2]}
	case escalation && strings.HasSuffix(cause.resource.Resource, "bindings"):
		cause.verb = "bind"
	case escalation:
		cause.verb = "escalate"
	default:
		return cause.as(Denied, "denied by admission")
	}
	return cause.as(Forbidden, "not allowed to %s %s (RBAC)", cause.verb, cause.resource)
}

// notFound returns the cause with what is missing. An apply creates a missing object, so the object itself is never
// the cause. It is the namespace, the kind, or an object that is referenced, such as the role of a binding.
func notFound(cause Cause, s metav1.Status) Cause {
	switch {
	case s.Details != nil && s.Details.Kind == "namespaces" && cause.resource.Resource != "namespaces":
		return cause.as(NamespaceMissing, "the namespace does not exist")
	case s.Details == nil, s.Details.Name == "", hasCause(s, metav1.CauseTypeUnexpectedServerResponse):
		return cause.as(NotServed, "the API server does not serve %s", cause.resource)
	default:
		return cause.other()
	}
}

func invalid(cause Cause, s metav1.Status) Cause {
	var fields []string
	for _, c := range causesOf(s) {
		fields = append(fields, c.Field)
	}
	if fields = tidy(fields); len(fields) > 0 {
		return cause.as(Invalid, "rejected as invalid: %s", some(fields))
	}
	return cause.as(Invalid, "rejected as invalid")
}

func conflict(cause Cause, s metav1.Status) Cause {
	var fields, managers []string
	for _, c := range causesOf(s) {
		if m := conflictManager.FindStringSubmatch(c.Message); m != nil && c.Type == metav1.CauseTypeFieldManagerConflict {
			fields, managers = append(fields, c.Field), append(managers, m[1])
		}
	}
	if fields = tidy(fields); len(fields) == 0 {
		return cause.as(Conflict, "another client changed the object at the same time")
	}
	return cause.as(Conflict, "%s is managed by %s", some(fields), some(tidy(managers)))
}

// fieldConflict reports whether an apply failed because another field manager owns fields of the object.
func fieldConflict(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && hasCause(status.ErrStatus, metav1.CauseTypeFieldManagerConflict)
}

func hasCause(s metav1.Status, t metav1.CauseType) bool {
	return slices.ContainsFunc(causesOf(s), func(c metav1.StatusCause) bool { return c.Type == t })
}

func causesOf(s metav1.Status) []metav1.StatusCause {
	if s.Details == nil {
		return nil
	}
	return s.Details.Causes
}

// tidy returns the list sorted, without empty strings and duplicates.
func tidy(list []string) []string {
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	slices.Sort(list)
	return slices.Compact(list)
}
