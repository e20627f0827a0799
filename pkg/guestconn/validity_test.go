package guestconn

import (
	"encoding/base64"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/pki"
)

// TestValidity checks what is known of the life of a credential: of a service account's token, and of a certificate.
func TestValidity(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}
	until, err := ca.Expires()
	if err != nil {
		t.Fatal(err)
	}
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, tc := range map[string]struct {
		config      rest.Config
		from, until time.Time
	}{
		"token": {
			rest.Config{BearerToken: jwt(`{"iat":1795430400,"exp":1795434000.5,"sub":"system:serviceaccount:a:b"}`)},
			time.Unix(1795430400, 0), time.Unix(1795434000, 0),
		},
		"certificate":       {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: ca.Cert}}, now.Add(-5 * time.Minute), until},
		"no times":          {rest.Config{BearerToken: jwt(`{}`)}, time.Time{}, time.Time{}},
		"not a JWT":         {rest.Config{BearerToken: "abc"}, time.Time{}, time.Time{}},
		"not base64":        {rest.Config{BearerToken: "a.!.c"}, time.Time{}, time.Time{}},
		"not JSON":          {rest.Config{BearerToken: jwt("{")}, time.Time{}, time.Time{}},
		"a year of 40,000":  {rest.Config{BearerToken: jwt(`{"exp":1e12}`)}, time.Time{}, time.Time{}},
		"before 1970":       {rest.Config{BearerToken: jwt(`{"exp":-5}`)}, time.Time{}, time.Time{}},
		"a bad certificate": {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("-----")}}, time.Time{}, time.Time{}},
		"nothing":           {rest.Config{}, time.Time{}, time.Time{}},
	} {
		from, until := validityOf(&tc.config)
		if !from.Equal(tc.from) || !until.Equal(tc.until) {
			t.Errorf("%s: from %s until %s, want %s and %s", name, from.UTC(), until.UTC(), tc.from.UTC(), tc.until.UTC())
		}
	}
}
