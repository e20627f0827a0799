package watch

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sized is an object of which this many bytes are kept, in addition to keptOverhead.
type sized int

func (s sized) KeptBytes() int { return int(s) }

// TestTheLimitsOfAGuest checks each of DefaultLimits: what is at the limit passes, and what is beyond it does not.
func TestTheLimitsOfAGuest(t *testing.T) {
	t.Parallel()
	begin := func(m *Meter, lists bool) *charge {
		_, c, err := m.begin(t.Context(), lists)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	add := func(m *Meter, n, each int) {
		for range n {
			m.Adding(sized(each - keptOverhead))
		}
	}
	const large = 16 << 10 // of an object; MaxKept and MaxKeptTotal are multiples of it
	for name, tc := range map[string]struct {
		within, beyond func(b *Budget, m *Meter)
		want           string
	}{
		"bytes of a list": {
			func(_ *Budget, m *Meter) { _ = m.read(begin(m, true), 64<<20) },
			func(_ *Budget, m *Meter) { _ = m.read(m.current, 1) }, "a list has more than 64 MiB",
		},
		"bytes at once": {
			func(_ *Budget, m *Meter) { _ = m.read(begin(m, false), 128<<20) },
			func(_ *Budget, m *Meter) { _ = m.read(m.current, 1) }, "more than 128 MiB at once, and then more than 256 KiB per second",
		},
		"bytes per second": {
			func(b *Budget, m *Meter) {
				_ = m.read(begin(m, false), 128<<20)
				later := b.now().Add(time.Second)
				b.now = func() time.Time { return later }
				_ = m.read(m.current, 256<<10)
			},
			func(_ *Budget, m *Meter) { _ = m.read(m.current, 1) }, "more than 128 MiB at once, and then more than 256 KiB per second",
		},
		"objects": {
			func(_ *Budget, m *Meter) { begin(m, true); add(m, 20_000, keptOverhead) },
			func(_ *Budget, m *Meter) { add(m, 1, keptOverhead) }, "there are more than 20000 objects",
		},
		"what is kept of one object": {
			func(_ *Budget, m *Meter) { begin(m, true); add(m, 1, 56<<10) },
			func(_ *Budget, m *Meter) { add(m, 1, 56<<10+1) }, "what is kept of one object has more than 56 KiB",
		},
		"what one watch keeps": {
			func(_ *Budget, m *Meter) { begin(m, true); add(m, 8<<20/large, large) },
			func(_ *Budget, m *Meter) { add(m, 1, keptOverhead) }, "what is kept of the objects has more than 8 MiB",
		},
		"what all watches keep": {
			func(b *Budget, m *Meter) {
				other := b.Meter("others")
				begin(other, true)
				add(other, 8<<20/large, large)
				begin(m, true)
				add(m, 4<<20/large, large)
			},
			func(_ *Budget, m *Meter) { add(m, 1, keptOverhead) },
			"what is kept of all objects of this API server has more than 12 MiB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := NewBudget(DefaultLimits())
			now := time.Unix(0, 0)
			b.now = func() time.Time { return now }
			m := b.Meter("things")
			tc.within(b, m)
			if err := m.Over(); err != nil {
				t.Fatalf("at the limit: %v", err)
			}
			tc.beyond(b, m)
			if err := m.Over(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("beyond the limit: %v, want %q", err, tc.want)
			}
		})
	}
}

// TestAListOfAGuestEndsInTime checks the time that a list may take after the header of its response.
func TestAListOfAGuestEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := NewBudget(DefaultLimits()).Meter("things")
		_, c, err := m.begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		m.answered(c)
		<-time.After(2*time.Minute - time.Second)
		if err := m.Over(); err != nil {
			t.Errorf("before its time is over: %v", err)
		}
		<-time.After(2 * time.Second)
		if m.Over() == nil {
			t.Error("a list without an end continues")
		}
		_ = c.end(nil)
	})
}

// TestAMessageOfAGuestIsLimited checks the limits of one message: its bytes, its memory when decoded, and the size from
// which it waits for its turn.
func TestAMessageOfAGuestIsLimited(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}` }
	for name, tc := range map[string]struct {
		message string
		want    string
		large   bool
	}{
		"a small one":       {text(32 << 10), "", false},
		"a large one":       {text(32<<10 + 1), "", true},
		"the largest":       {text(2 << 20), "", true},
		"many small fields": {`{"a":[` + strings.Repeat("{},", 10_000) + `{}]}`, "", true},
		"one byte more":     {text(2<<20 + 1), "one message has more than 2 MiB", true},
		"much memory in little": {
			`{"a":[` + strings.Repeat("{},", 500_000) + `{}]}`, "one message takes more than 16 MiB when it is decoded", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := NewBudget(DefaultLimits()).Meter("things")
			ctx, c, err := m.begin(context.Background(), false)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.end(nil) }()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://guest/", nil)
			if err != nil {
				t.Fatal(err)
			}
			body := LimitBody(request, io.NopCloser(strings.NewReader(tc.message)))
			_, err = io.Copy(io.Discard, body)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if c.large != tc.large {
				t.Errorf("it has the turn for large messages: %t, want %t", c.large, tc.large)
			}
		})
	}
}
