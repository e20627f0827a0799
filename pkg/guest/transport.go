package guest

import (
	"net/http"

	"github.com/hypergate/hypergate/pkg/answer"
)

// Limit is for the clients of a guest: its admin decides what the API server answers, and must not fill this process's memory with it.
func Limit() func(http.RoundTripper) http.RoundTripper { return answer.Limit("the guest's API server") }
