package logs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/logs"
)

func TestOrdinaryLinesAreUnchanged(t *testing.T) {
	t.Parallel()
	var plain, bounded bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&plain, nil), logs.Handler(&bounded, logs.Text, 0)} {
		h = h.WithAttrs([]slog.Attr{slog.String("cluster", "guest")})
		r := slog.NewRecord(time.Unix(0, 0), slog.LevelError, "It failed", 1)
		r.AddAttrs(slog.Any("err", errors.New(`he said "no"`)), slog.Int("n", 5), slog.Duration("took", time.Second),
			slog.Any("list", []string{"a", "b"}), slog.Any("nothing", nil), slog.Group("g", slog.Bool("in", true)))
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(plain.String(), bounded.String()); diff != "" {
		t.Error(diff)
	}
}

// TestJSON checks the keys and the values of a line in JSON: log collectors depend on them.
func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := logs.Handler(&out, logs.JSON, 1).WithAttrs([]slog.Attr{slog.String("cluster", "guest")})
	r := slog.NewRecord(time.Unix(0, 0).UTC(), slog.LevelError, `It "failed"`, 1)
	r.AddAttrs(slog.Any("err", errors.New("refused")), slog.Int("n", 5), slog.Duration("took", 90*time.Second),
		slog.Any("list", []string{"a", "b"}), slog.Group("g", slog.Bool("in", true)))
	if err := h.Handle(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	const want = `{"time":"1970-01-01T00:00:00Z","level":"ERROR","msg":"It \"failed\"","cluster":"guest","err":"refused","n":5,` +
		`"took":"1m30s","list":"[a b]","g.in":true}` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestLinesAreShort checks that any line begins with the time and has at most 4 KiB, in each format. It has no
// unprintable character, and one line break at its end.
func TestLinesAreShort(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", `"`, `\`, "\n", "\x1b", "\u202e", "é", "日", "=", " ", "\xff", "\u2028"}
	hostile := func(most int) string {
		var b strings.Builder
		for range rnd.IntN(most + 1) {
			b.WriteString(alphabet[rnd.IntN(len(alphabet))])
		}
		return b.String()
	}
	for i := range 120 {
		format, begins := []logs.Format{logs.Text, logs.JSON}[i%2], []string{"time=", `{"time":`}[i%2]
		var out bytes.Buffer
		log := logr.FromSlogHandler(logs.Handler(&out, format, 0))
		var pairs []any
		for range rnd.IntN(50) {
			var value any = hostile(2000)
			switch rnd.IntN(4) {
			case 0:
				value = errors.Join(errors.New(hostile(8000)), errors.New(hostile(10)))
			case 1:
				value = i
			}
			pairs = append(pairs, hostile(100), value)
		}
		log.WithName(hostile(50)).WithValues("a", hostile(5000)).Error(errors.New(hostile(9000)), hostile(1000), pairs...)
		line := out.String()
		if len(line) > logs.LineLimit || !strings.HasPrefix(line, begins) || format == logs.JSON && !json.Valid([]byte(line)) ||
			strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
			t.Fatalf("%d bytes: %q", len(line), line)
		}
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q", line)
		}
	}
}

func TestShortValuesAreUnchanged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logs.New(&out, 0).Error(errors.New(strings.Repeat("x", 1<<20)), "It failed",
		"class", strings.Repeat("c", 500), "resource", "gatewayclasses")
	line := out.String()
	if !strings.Contains(line, "class="+strings.Repeat("c", 500)) ||
		!strings.Contains(line, "resource=gatewayclasses") || !strings.Contains(line, "xxx...") {
		t.Error(line)
	}
	if len(line) < logs.LineLimit-200 {
		t.Errorf("the line has only %d bytes", len(line))
	}
}

// TestFrequentMessagesAreCounted checks the rate limit by the place in the code, for any text. Other places
// are not affected.
func TestFrequentMessagesAreCounted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := logs.Handler(&out, logs.Text, 0)
	at := time.Unix(1000, 0)
	log := func(pc uintptr, message string) {
		if err := h.Handle(context.Background(), slog.NewRecord(at, slog.LevelInfo, message, pc)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		log(1, fmt.Sprint("flood ", i))
	}
	if got := strings.Count(out.String(), "flood"); got != 60 {
		t.Errorf("logged %d lines of 1000, want 60", got)
	}
	log(2, "another")
	if !strings.Contains(out.String(), "another") {
		t.Error("another message was left out")
	}
	at = at.Add(30 * time.Second)
	log(1, "later")
	log(1, "left out")
	if got := out.String(); !strings.Contains(got, "msg=later leftOutBefore=940") || strings.Contains(got, "left out") {
		_, after, _ := strings.Cut(got, "another")
		t.Error(after)
	}
	at = at.Add(time.Hour)
	out.Reset()
	for range 1000 {
		log(1, "flood")
	}
	if got := strings.Count(out.String(), "flood"); got != 60 {
		t.Errorf("logged %d lines after an hour without lines, want 60", got)
	}
}

// TestLogLimitsOfTheSidesAreIndependent checks that the two sides have separate rate limits. They log in the same
// place, and a guest decides how often its watches fail.
func TestLogLimitsOfTheSidesAreIndependent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := logs.Handler(&out, logs.Text, 0)
	for cluster, lines := range map[string]int{"guest": 1000, "management": 1} {
		side := h.WithAttrs([]slog.Attr{slog.String("cluster", cluster)})
		for range lines {
			if err := side.Handle(t.Context(), slog.NewRecord(time.Unix(1000, 0), slog.LevelInfo, "A watch fails", 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := strings.Count(out.String(), "cluster=management"); got != 1 {
		t.Errorf("%d lines of the management side, want 1", got)
	}
}

// TestEachPartOfALineIsShort checks the limits for the message, the keys, and their number.
func TestEachPartOfALineIsShort(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		message, key string
		fields       int
		without      string
	}{
		"the message":          {strings.Repeat("m", 1000), "k", 1, strings.Repeat("m", 513)},
		"a key":                {"m", strings.Repeat("k", 100), 1, strings.Repeat("k", 65)},
		"the number of fields": {"m", "k", 40, "k33="},
	} {
		var out bytes.Buffer
		var pairs []any
		for i := range tc.fields {
			pairs = append(pairs, fmt.Sprint(tc.key, i), i)
		}
		if logs.New(&out, 0).Info(tc.message, pairs...); strings.Contains(out.String(), tc.without) {
			t.Errorf("%s is not bounded: %s", name, out.String())
		}
	}
}
