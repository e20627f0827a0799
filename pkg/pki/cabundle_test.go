package pki_test

import (
	"bytes"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/pki"
)

// TestOverlapOfCAs checks that istiod continues to trust the previous CA of the guest's API server until the next
// renewal of its token.
func TestOverlapOfCAs(t *testing.T) {
	now := time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)
	root := func(at time.Time) []byte {
		ca, err := pki.New(at)
		if err != nil {
			t.Fatal(err)
		}
		return ca.Root
	}
	a, b, c, expired := root(now), root(now), root(now), root(now.AddDate(-100, 0, 0))
	both := func(all ...[]byte) []byte { return bytes.Join(all, nil) }
	commented := both([]byte("# the guest's CA\n"), b)
	block, _ := pem.Decode(a)
	key := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: block.Bytes})
	for name, tc := range map[string]struct {
		before, wanted, want []byte
		reaches              bool
	}{
		"none before":                   {nil, b, b, false},
		"the same":                      {b, b, b, true},
		"the same, written another way": {b, commented, commented, true},
		"replaced":                      {a, b, both(b, a), false},
		"replaced twice":                {both(b, a), c, both(c, b, a), false},
		"the renewal after":             {both(b, a), b, b, true},
		"one added":                     {a, both(a, b), both(a, b), false},
		"one taken away":                {both(a, b), b, b, true},
		"one of two replaced":           {both(a, b), both(b, c), both(b, c, a), false},
		"back to the first":             {both(b, a), a, a, true},
		"the old one is expired":        {both(expired, a), b, both(b, a), false},
		"other data":                    {both([]byte("nonsense\n"), key, a), b, both(b, a), false},
		"broken PEM":                    {[]byte("nonsense"), b, b, false},
		"no newline at the end":         {a, bytes.TrimSpace(b), both(b, a), false},
		"the same old one twice":        {both(a, a), b, both(b, a), false},
		"nothing is wanted":             {a, nil, a, false},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(string(tc.want), string(pki.OverlapCAs(tc.before, tc.wanted, now))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := pki.HasCAs(tc.before, tc.wanted); got != tc.reaches {
				t.Errorf("HasCAs = %t", got)
			}
			once := pki.OverlapCAs(tc.before, tc.wanted, now)
			if len(tc.wanted) > 0 && !bytes.Equal(pki.OverlapCAs(once, tc.wanted, now), tc.wanted) {
				t.Error("the next renewal does not end the overlap")
			}
		})
	}
}
