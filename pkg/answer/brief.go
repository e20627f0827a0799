package answer

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/text"
)

// Limits for the parts of an error that are kept.
const (
	// messageKept is how many bytes of the error text are kept. Conditions show 512 bytes, and a log line has 4 KiB.
	messageKept = 1 << 10
	// causesKept is how many causes of a Status are kept. causeKept is how many bytes of each text in them are kept.
	// Messages name three fields.
	causesKept = 16
	causeKept  = 256
)

// Brief returns an error of limited size, whatever an API server put into err. It keeps the text on one line and cut,
// the Status cut, and whether a context ended the request. A short error is returned unchanged.
func Brief(err error) error {
	if err == nil {
		return nil
	}
	status, isStatus := errors.AsType[*apierrors.StatusError](err)
	message := err.Error()
	if !isStatus {
		if len(message) <= messageKept {
			return err
		}
		return &briefError{text: text.Line(message, messageKept), is: contextError(err)}
	}
	if isBrief(status.ErrStatus) && len(message) <= 2*messageKept {
		return err
	}
	cut := &apierrors.StatusError{ErrStatus: BriefStatus(status.ErrStatus)}
	if err == error(status) { //nolint:errorlint // whether it is the Status itself, and not what wraps it
		return cut
	}
	return &briefError{text: text.Line(message, 2*messageKept), is: cut}
}

// BriefStatus returns a Status of limited size. A watch sends a Status in an event of type ERROR.
func BriefStatus(s metav1.Status) metav1.Status {
	if isBrief(s) {
		return s
	}
	short := func(s string) string { return text.Line(s, causeKept) }
	out := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   short(s.Status), Message: text.Line(s.Message, messageKept),
		Reason: metav1.StatusReason(short(string(s.Reason))), Code: s.Code,
	}
	if s.Details == nil {
		return out
	}
	out.Details = &metav1.StatusDetails{
		Name: short(s.Details.Name), Group: short(s.Details.Group), Kind: short(s.Details.Kind),
		RetryAfterSeconds: s.Details.RetryAfterSeconds,
	}
	for _, c := range s.Details.Causes[:min(len(s.Details.Causes), causesKept)] {
		out.Details.Causes = append(out.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(short(string(c.Type))), Message: short(c.Message), Field: short(c.Field),
		})
	}
	return out
}

// isBrief reports whether the Status is small enough to stay as it is.
func isBrief(s metav1.Status) bool { return s.Size() <= messageKept }

// contextError returns the context error that ended the request, or nil.
func contextError(err error) error {
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, ended) {
			return ended
		}
	}
	return nil
}

// briefError is the part of a long error that is kept.
type briefError struct {
	text string
	is   error
}

// Error returns the beginning of the error text.
func (e *briefError) Error() string { return e.text }

// Unwrap returns the cut Status or the context error, or nil if the error was neither.
func (e *briefError) Unwrap() error { return e.is }
