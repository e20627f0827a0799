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

// ErrorClass is the kind of a cause, ordered from what heals by itself to what somebody must put right.
type ErrorClass int

const (
	// NoCause is the class of the zero Cause.
	NoCause ErrorClass = iota
	// Cancelled means that the caller's context ended while the request ran.
	Cancelled
	// Unreachable means no answer, or one that says that the API server cannot answer now (5xx, 429).
	Unreachable
	// NamespaceTerminating means that the object's namespace is being deleted.
	NamespaceTerminating
	// NamespaceMissing means that the object's namespace does not exist.
	NamespaceMissing
	// NotServed means that the API server does not know the kind.
	NotServed
	// Conflict means that an object of this name, or a field of it, is somebody else's.
	Conflict
	// Denied means that an admission webhook or policy refused the object, or could not be called.
	Denied
	// Invalid means that the API server does not accept the object's content.
	Invalid
	// Forbidden means that RBAC does not allow the request.
	Forbidden
	// Unauthorized means that the API server does not accept our credentials.
	Unauthorized
	// Refused means that the object must not be applied here; nothing was sent.
	Refused
	// Oversized means that the API server sends more than is read.
	Oversized
	// Enlarged means that something was made larger on its way than what is accepted, as mutating webhooks can.
	Enlarged
	// Other is none of these, such as the missing role of a binding.
	Other
)

// String is the class's name in CamelCase, fit for a condition's reason.
func (c ErrorClass) String() string {
	names := []string{
		"NoCause", "Cancelled", "Unreachable", "NamespaceTerminating", "NamespaceMissing", "NotServed", "Conflict", "Denied", "Invalid",
		"Forbidden", "Unauthorized", "Refused", "Oversized", "Enlarged", "Other",
	}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Class%d", int(c))
	}
	return names[c]
}

// IsTransient says whether a cause goes away without anybody putting it right.
func (c ErrorClass) IsTransient() bool {
	switch c {
	case NoCause, Cancelled, Unreachable, NamespaceTerminating, Unauthorized:
		return true
	case NamespaceMissing, NotServed, Conflict, Denied, Invalid, Forbidden, Refused, Oversized, Enlarged, Other:
		return false
	default:
		return false
	}
}

// How much is kept of a cause: an API server decides what it says, and one cause is kept for each object that fails.
const (
	// sentenceLimit is the longest sentence of a cause, nameLimit the longest name in it.
	sentenceLimit = 512
	nameLimit     = 128
	// detailLimit is how much is kept of what the API server said. Conditions show the first 512 bytes.
	detailLimit = 1 << 10
)

// Cause is why an object could not be applied, deleted or watched. What it says names no host, object, namespace or user, so that anybody
// may read it; the error beside it is for logs.
type Cause struct {
	class    ErrorClass
	text     string
	verb     string
	resource schema.GroupResource
	detail   string
}

// as is the cause with a class and a sentence.
func (c Cause) as(class ErrorClass, format string, args ...any) Cause {
	c.class, c.text = class, text.Line(fmt.Sprintf(format, args...), sentenceLimit)
	return c
}

// Class says what kind of cause it is.
func (c Cause) Class() ErrorClass { return c.class }

// Detail is what the API server said. Unlike the rest of a Cause it may name objects.
func (c Cause) Detail() string { return c.detail }

// String is one sentence without a full stop, such as "may not create deployments.apps". The zero Cause has none.
func (c Cause) String() string { return c.text }

// some lists a few strings: a condition's message has an end.
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

// causedError is an error whose cause is known.
type causedError struct {
	cause Cause
	err   error
}

func (e *causedError) Error() string { return e.err.Error() }
func (e *causedError) Unwrap() error { return e.err }

// foreign says that an object of the name exists and is not ours.
func foreign(k Kind, fields []metav1.ManagedFieldsEntry) error {
	cause := Cause{verb: "patch", resource: k.resource()}.as(Conflict, "an object of this name exists")
	managers := make([]string, 0, len(fields))
	for _, e := range fields {
		managers = append(managers, e.Manager)
	}
	if managers = tidy(managers); len(managers) > 0 {
		cause.text += " and is managed by " + some(managers)
	}
	return &causedError{cause, fmt.Errorf("%s, and it is not ours: delete it, and it will be made anew", cause)}
}

// TooLarge is the error of something that came back larger than what is accepted.
func TooLarge(what string, size, limit int) error {
	const sentence = "%s has %d KiB, and at most %d KiB are accepted: a mutating webhook may add to it"
	cause := Cause{}.as(Enlarged, sentence, what, (size+1<<10-1)>>10, limit>>10)
	return &causedError{cause, errors.New(cause.text)}
}

// refusal is the cause of an object that must not be applied.
func refusal(err error) Cause {
	return Cause{detail: text.Line(err.Error(), detailLimit)}.as(Refused, "refused before anything was sent")
}

// Classify finds the cause of an error that a request to an API server ended with. verb is the RBAC verb of the request, resource what it
// was about. Without an error there is no cause.
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
		return cause.as(Cancelled, "stopped before there was an answer")
	}
	if tooLong, is := errors.AsType[*answer.TooLongError](err); is {
		return cause.as(Oversized, "the API server's answer is longer than %d KiB", tooLong.Limit>>10)
	}
	if reason := unreachable(err); reason != "" {
		return cause.as(Unreachable, "the API server cannot be reached: %s", reason)
	}
	return cause.other()
}

func (c Cause) other() Cause { return c.as(Other, "%s %s failed", c.verb, c.resource) }

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
		return cause.as(Unreachable, "the API server cannot be reached: it answered %d %s", code, strings.ToLower(http.StatusText(code)))
	}
	return cause.other()
}

// admission is the webhook or the policy that denied a request or could not be called; empty when there is none.
func admission(message string) string {
	for _, who := range []struct {
		pattern *regexp.Regexp
		format  string
	}{
		{webhookDenied, "the admission webhook %s"},
		{webhookFailed, "the admission webhook %s, which could not be called"},
		{policyDenied, "the admission policy %s"},
	} {
		if m := who.pattern.FindStringSubmatch(message); m != nil {
			return fmt.Sprintf(who.format, text.Line(m[1], nameLimit))
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
	return cause.as(Forbidden, "may not %s %s", cause.verb, cause.resource)
}

// notFound tells what is missing. An apply creates what is not there, so it is never the object itself: it may be the namespace, the kind,
// or something that the object refers to, such as the role of a binding.
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
		return cause.as(Invalid, "not accepted as valid: %s", some(fields))
	}
	return cause.as(Invalid, "not accepted as valid")
}

func conflict(cause Cause, s metav1.Status) Cause {
	var fields, managers []string
	for _, c := range causesOf(s) {
		if m := conflictManager.FindStringSubmatch(c.Message); m != nil && c.Type == metav1.CauseTypeFieldManagerConflict {
			fields, managers = append(fields, c.Field), append(managers, m[1])
		}
	}
	if fields = tidy(fields); len(fields) == 0 {
		return cause.as(Conflict, "the object was changed by somebody else at the same time")
	}
	return cause.as(Conflict, "%s is managed by %s", some(fields), some(tidy(managers)))
}

// fieldConflict says whether an apply failed because fields are somebody else's.
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

// tidy sorts a list and leaves out what is empty or there twice.
func tidy(list []string) []string {
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	slices.Sort(list)
	return slices.Compact(list)
}
