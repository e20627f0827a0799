package guestconn

import (
	"net/http"
	"testing"
)

// TestCredentialsAreAccepted: an answer of the guest's own API server. A proxy in front of it that has no
// API server to forward to does not.
func TestCredentialsAreAccepted(t *testing.T) {
	for _, tc := range []struct {
		path              string
		codes             []int
		certain, doubtful bool
	}{
		{"/version", []int{http.StatusUnauthorized}, true, false},
		{"/version", []int{http.StatusUnauthorized, http.StatusOK}, false, false},
		{"/version", []int{http.StatusUnauthorized, http.StatusForbidden}, false, false},
		{"/version", []int{http.StatusUnauthorized, http.StatusBadGateway}, true, false},
		{"/version", []int{http.StatusUnauthorized, http.StatusServiceUnavailable}, true, false},
		{"/apis/example.com", []int{http.StatusUnauthorized}, false, true},
		{"/apis/example.com", []int{http.StatusUnauthorized, http.StatusGatewayTimeout}, false, true},
		{"/apis/example.com", []int{http.StatusUnauthorized, http.StatusNotFound}, false, false},
	} {
		c := &Conn{current: &session{}}
		for _, code := range tc.codes {
			c.answered(c.current, tc.path, code)
		}
		if c.refusal.certain != tc.certain || c.refusal.doubtful != tc.doubtful {
			t.Errorf("%s %v: certain %t, doubtful %t", tc.path, tc.codes, c.refusal.certain, c.refusal.doubtful)
		}
	}
}
