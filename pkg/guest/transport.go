package guest

import (
	"net/http"

	"github.com/hypergate/hypergate/pkg/answer"
)

// Limit wraps the transports of a guest's clients. The guest's admin decides what the API server answers, and must
// not be able to exhaust this process's memory.
func Limit() func(http.RoundTripper) http.RoundTripper { return answer.Limit("the guest's API server") }
