package model_test

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// FuzzToken checks that istiod's credential never lives longer than requested and is renewed before it expires, for any
// token and any times in the guest's response.
func FuzzToken(f *testing.F) {
	f.Add("e30.eyJpYXQiOjEsImV4cCI6MzYwMX0.x", int64(3600), int64(3600))
	f.Add("e30.eyJpYXQiOi05MjIzMzcyMDM2ODU0Nzc1ODA4LCJleHAiOjkyMjMzNzIwMzY4NTQ3NzU4MDd9.x", int64(1)<<62, int64(600))
	f.Add("a.b", int64(-1), int64(3600))
	f.Add("..", int64(0), int64(86400))
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, token string, granted, asked int64) {
		asked = max(600, asked%(365*86400))
		lifetime := time.Duration(asked) * time.Second
		c := model.NewCredential(model.GuestAPI{Server: "https://a", CABundle: []byte("ca")}, token, time.Unix(granted, 0), lifetime, now)
		if c.Lifetime() < 0 || c.Lifetime() > lifetime {
			t.Errorf("it lives for %s, and %s was asked for", c.Lifetime(), lifetime)
		}
		if at := c.RenewAt(); at.Before(c.Issued) || at.After(c.Expires) {
			t.Errorf("it lives from %s to %s, and is renewed at %s", c.Issued, c.Expires, at)
		}
		_ = c.Account()
	})
}
