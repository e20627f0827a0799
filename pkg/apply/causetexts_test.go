package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/text"
	"github.com/hypergate/hypergate/pkg/watch"
)

// longText is longer than any limit. It has characters that must not reach a condition.
var longText = "x\n\u202e" + strings.Repeat("long ", 8<<10)

// cutName is longText as a name in a sentence.
var cutName = text.Line(longText, nameLimit)

// TestEachTextOfACauseIsCut checks each text that an API server decides: alone it must be within its own limit. The
// other texts of the same row are short.
func TestEachTextOfACauseIsCut(t *testing.T) {
	t.Parallel()
	status := func(code int32, message string, causes ...metav1.StatusCause) error {
		details := &metav1.StatusDetails{Causes: causes}
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message, Details: details}}
	}
	conflict := func(field, manager string) metav1.StatusCause {
		return metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: `conflict with "` + manager + `" using v1`,
		}
	}
	oneLine := strings.ReplaceAll(longText, "\n", " ")
	manager := schema.GroupResource{Resource: "configmaps"}
	kind := Kind{GVK: settings{}.GVK(), Resource: "configmaps"}
	for name, test := range map[string]struct {
		err      error
		sentence string
	}{
		"the message":           {status(401, longText), "the API server does not accept the credentials"},
		"an error of no status": {errors.New(longText), "patch configmaps failed"},
		"a webhook that denies": {
			status(400, `admission webhook "`+longText+`" denied the request: no`), "denied by the admission webhook " + cutName,
		},
		"a webhook that is gone": {
			status(500, `failed calling webhook "`+longText+`": no`),
			"denied by the admission webhook " + cutName + ", which could not be called",
		},
		"a policy": {status(422, `policy '`+longText+`' denied request: no`), "denied by the admission policy " + cutName},
		"RBAC: a verb": {
			status(403, `cannot `+strings.Repeat("v", 1<<10)+` resource "r" in API group ""`),
			text.Line("not allowed to "+strings.Repeat("v", 1<<10)+" r (RBAC)", sentenceLimit),
		},
		"RBAC: a resource": {
			status(403, `cannot get resource "`+longText+`" in API group ""`),
			text.Line("not allowed to get "+longText+" (RBAC)", sentenceLimit),
		},
		"an invalid field": {status(422, "no", metav1.StatusCause{Field: longText}), "rejected as invalid: " + cutName},
		"many invalid fields": {
			status(422, "no", metav1.StatusCause{Field: "a"}, metav1.StatusCause{Field: "b"}, metav1.StatusCause{Field: "c"},
				metav1.StatusCause{Field: "d"}), "rejected as invalid: a, b, c and 1 more",
		},
		"a field in conflict": {status(409, "no", conflict(longText, "m")), cutName + " is managed by m"},
		"its manager":         {status(409, "no", conflict("f", oneLine)), "f is managed by " + text.Line(oneLine, nameLimit)},
		"many managers": {
			status(409, "no", conflict("f", "a"), conflict("f", "b"), conflict("f", "c"), conflict("f", "d")),
			"f is managed by a, b, c and 1 more",
		},
		"the managers of a foreign object": {
			foreign(kind, []metav1.ManagedFieldsEntry{{Manager: longText}}),
			"an object of this name already exists and is managed by " + cutName,
		},
		"a limit of a watch": {
			&watch.LimitError{Resource: "r", Bound: longText}, text.Line("the API server sends too much of r: "+longText, sentenceLimit),
		},
		"what is too large": {
			TooLarge(longText, 1<<10), text.Line(longText+" has more than 1 KiB: a mutating webhook may have enlarged it", sentenceLimit),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cause := Classify(fmt.Errorf("doing: %w", test.err), "patch", manager)
			if cause.String() != test.sentence {
				t.Errorf("sentence of %d bytes: %q, want %q", len(cause.String()), cause, test.sentence)
			}
			if strings.ContainsAny(cause.String()+cause.Detail(), "\n\u202e") {
				t.Errorf("%q has characters that are not plain", cause)
			}
		})
	}
	want := text.Line(longText, detailLimit)
	for name, cause := range map[string]Cause{
		"a Status":      Classify(status(401, longText), "patch", manager),
		"another error": Classify(errors.New(longText), "patch", manager),
		"a refusal":     refusal(errors.New(longText)),
	} {
		if cause.Detail() != want {
			t.Errorf("%s: detail of %d bytes, want %d", name, len(cause.Detail()), len(want))
		}
	}
}
