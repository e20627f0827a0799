package controller

import (
	"context"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

const (
	// warningLimit is how much of a warning is logged, in bytes.
	warningLimit = 512
	// warningCode is the only code that Kubernetes uses.
	warningCode = 299
)

// warnings logs the warning headers of one side's API server. Its admin and its webhooks decide what a warning says, so
// the text is a field. client-go would log it as a message, which looks like hypergate's own words.
type warnings struct{ side model.Side }

var _ rest.WarningHandlerWithContext = warnings{}

// HandleWarningHeaderWithContext logs a warning. Package logs limits the number of these lines for each side.
func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, message string) {
	if code == warningCode && message != "" {
		log := klog.FromContext(ctx).WithValues("cluster", string(w.side))
		log.Info("The API server sent a warning", "warning", text.Line(message, warningLimit))
	}
}
