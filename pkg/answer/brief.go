package answer

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/text"
)

// What is kept of an error.
const (
	// messageKept is how much of its text is kept. Conditions show 512 bytes, and a log line has 4 KiB.
	messageKept = 1 << 10
	// causesKept is how many causes of a Status are kept, and causeKept how much of each text in them. Messages name three fields.
	causesKept = 16
	causeKept  = 256
)

// Brief is an error of which little is kept, whatever an API server has put into it: its text in one line and cut, its Status cut, and
// whether a context ended it. An error that is short already stays what it is.
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

// BriefStatus is a Status of which little is kept. A watch shows one in an event of type ERROR.
func BriefStatus(s metav1.Status) metav1.Status {
	if isBrief(s) {
		return s
	}
	short := func(s string) string { return text.Line(s, causeKept) }
	out := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   short(s.Status), Message: text.Line(s.Message, messageKept), Reason: metav1.StatusReason(short(string(s.Reason))), Code: s.Code,
	}
	if s.Details == nil {
		return out
	}
	out.Details = &metav1.StatusDetails{
		Name: short(s.Details.Name), Group: short(s.Details.Group), Kind: short(s.Details.Kind), RetryAfterSeconds: s.Details.RetryAfterSeconds,
	}
	for _, c := range s.Details.Causes[:min(len(s.Details.Causes), causesKept)] {
		out.Details.Causes = append(out.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(short(string(c.Type))), Message: short(c.Message), Field: short(c.Field),
		})
	}
	return out
}

// isBrief reports whether there is nothing to cut.
func isBrief(s metav1.Status) bool { return s.Size() <= messageKept }

// contextError is what ended the request, if that was a context.
func contextError(err error) error {
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, ended) {
			return ended
		}
	}
	return nil
}

// briefError is what is kept of a long error.
type briefError struct {
	text string
	is   error
}

// Error is the beginning of its text.
func (e *briefError) Error() string { return e.text }

// Unwrap is what it is by its kind: a Status, or the end of a context; nil if neither.
func (e *briefError) Unwrap() error { return e.is }
