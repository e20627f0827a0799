package model_test

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

func token(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

// TestTokenLifetime checks that the lifetime of a credential is the lifetime in the token, measured with hypergate's
// clock. It is never longer than the requested lifetime.
func TestTokenLifetime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	times := func(from, to time.Time) string {
		return token(fmt.Sprintf(`{"iat":%d,"exp":%d}`, from.Unix(), to.Unix()))
	}
	for name, tc := range map[string]struct {
		token   string
		granted time.Time
		want    time.Duration
	}{
		"as asked for":                          {times(now, now.Add(time.Hour)), now.Add(time.Hour), time.Hour},
		"the guest's clock is two hours behind": {times(now.Add(-2*time.Hour), now.Add(-time.Hour)), now.Add(-time.Hour), time.Hour},
		"the guest's clock is a day ahead": {
			times(now.AddDate(0, 0, 1), now.AddDate(0, 0, 1).Add(time.Hour)), now.AddDate(0, 0, 1).Add(time.Hour), time.Hour,
		},
		"shorter":                     {times(now, now.Add(10*time.Minute)), now.Add(10 * time.Minute), 10 * time.Minute},
		"a year":                      {times(now, now.AddDate(1, 0, 0)), now.AddDate(1, 0, 0), time.Hour},
		"until the end of time":       {token(`{"iat":1,"exp":9223372036854775807}`), now.Add(time.Hour), time.Hour},
		"ends before it begins":       {times(now.Add(time.Hour), now), now.Add(time.Hour), time.Hour},
		"no JSON web token":           {"opaque", now.Add(20 * time.Minute), 20 * time.Minute},
		"no JSON web token, and over": {"opaque", now.Add(-time.Minute), 0},
		"spoiled":                     {"a.%%%.c", now.Add(time.Hour), time.Hour},
		"spoiled inside":              {token(`{"iat":"x"`), now.Add(time.Hour), time.Hour},
	} {
		got := model.NewCredential(model.GuestAPI{}, tc.token, tc.granted, time.Hour, now)
		if got.Lifetime() != tc.want || !got.Issued.Equal(now) {
			t.Errorf("%s: it lives for %s from %s, want %s from now", name, got.Lifetime(), got.Issued, tc.want)
		}
	}
}
