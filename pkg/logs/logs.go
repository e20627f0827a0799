// Package logs is where log lines go: whatever they are about, each is short and readable, and there are not too many of them.
//
// A large part of what hypergate logs is what an API server answered, and how often that happens is up to the other side as well. So the
// bounds are here, where every line comes by, and not only where it is written: see Bounded.
package logs

import (
	"context"
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/hypergate/hypergate/pkg/text"
)

// How long a line is. Each value of it gets its share: what is short stays whole, what is long is cut.
const (
	// LineLimit is the longest line that is logged, in bytes.
	LineLimit = 4 << 10
	// messageLimit is the longest message. Those of hypergate are constant; those of libraries may hold values.
	messageLimit = 512
	// fieldLimit is how many key-value pairs a line has; more are left out. keyLimit is the longest key.
	fieldLimit = 32
	keyLimit   = 64
	// overhead is what a line has besides: time, level, and the count of what was left out.
	overhead = 128
)

// How often a message is logged, by the place in the code that logs it. What a guest can cause is one or two of them at a time; a line that
// comes more often says less than that it does. An outage of an API server is a line for each watch, about thirty.
const (
	// messageBurst is how many lines of one message are logged in a row.
	messageBurst = 60
	// messageEvery is the time between them afterwards. The next line has the count of those that were left out.
	messageEvery = 30 * time.Second
)

// New is a logger of lines of text, each within the bounds of Bounded. verbosity is 0 for what is done, and more for why.
func New(w io.Writer, verbosity int) logr.Logger {
	return logr.FromSlogHandler(Handler(w, verbosity))
}

// Handler is the same for package slog.
func Handler(w io.Writer, verbosity int) slog.Handler {
	return Bounded(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(-verbosity)}))
}

// Bounded hands on what is logged with all texts in one line, without characters that cannot be printed, and cut so that the line that a
// text handler makes of it has at most LineLimit bytes. A message that comes too often is counted instead.
func Bounded(next slog.Handler) slog.Handler {
	return handler{next: next, turns: &turns{of: map[place]*turn{}}}
}

type handler struct {
	next   slog.Handler
	turns  *turns
	prefix string
	fields []slog.Attr
	// cluster is the side that the lines are about: what one side causes leaves no line of the other out.
	cluster string
}

// Enabled reports whether a level is logged.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs is the handler for lines that have these key-value pairs.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.fields = slices.Clip(h.fields)
	for _, a := range attrs {
		h.fields = bounded(h.fields, h.prefix, a)
		if a.Key == clusterKey {
			h.cluster = text.Line(a.Value.String(), keyLimit)
		}
	}
	return h
}

// WithGroup is the handler for lines whose keys begin with a name.
func (h handler) WithGroup(name string) slog.Handler {
	h.prefix = text.Line(h.prefix+name+".", keyLimit)
	return h
}

// Handle logs a line, or counts it.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	leftOut, may := h.turns.take(h.cluster, r)
	if !may {
		return nil
	}
	fields := slices.Clone(h.fields)
	r.Attrs(func(a slog.Attr) bool {
		fields = bounded(fields, h.prefix, a)
		return len(fields) < fieldLimit
	})
	line := slog.NewRecord(r.Time, r.Level, withinCost(r.Message, messageLimit), r.PC)
	line.AddAttrs(fit(fields, LineLimit-overhead-cost(line.Message))...)
	if leftOut > 0 {
		line.AddAttrs(slog.Int("leftOutBefore", leftOut))
	}
	return h.next.Handle(ctx, line)
}

// bounded are fields with one more, whose text is in one line and no longer than a line. A group is as many as it has.
func bounded(fields []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	value := a.Value.Resolve()
	key := text.Line(prefix+a.Key, keyLimit)
	if len(fields) >= fieldLimit || a.Key == "" && value.Kind() == slog.KindAny && value.Any() == nil {
		return fields
	}
	switch value.Kind() {
	case slog.KindGroup:
		if a.Key != "" {
			prefix = key + "."
		}
		for _, in := range value.Group() {
			fields = bounded(fields, prefix, in)
		}
		return fields
	case slog.KindAny:
		value = slog.StringValue(text.Line(written(value.Any()), LineLimit))
	case slog.KindString:
		value = slog.StringValue(text.Line(value.String(), LineLimit))
	default: // numbers and times are short
	}
	return append(fields, slog.Attr{Key: key, Value: value})
}

// written is a value as a text handler writes it.
func written(value any) string {
	if marshaler, is := value.(encoding.TextMarshaler); is {
		if data, err := marshaler.MarshalText(); err == nil {
			return string(data)
		}
	}
	return fmt.Sprintf("%+v", value)
}

// fit are fields that take up no more than some bytes.
func fit(fields []slog.Attr, room int) []slog.Attr {
	costs := make([]int, len(fields))
	for i, f := range fields {
		costs[i] = cost(f.Value.String())
		room -= cost(f.Key) + len(" =")
	}
	share := shareOf(costs, room)
	for i, f := range fields {
		if costs[i] > share {
			fields[i].Value = slog.StringValue(withinCost(f.Value.String(), share))
		}
	}
	return fields
}

// shareOf is how much each may have where not all can have what they cost: those that cost less leave more to the others.
func shareOf(costs []int, room int) int {
	sorted := slices.Sorted(slices.Values(costs))
	for i, c := range sorted {
		share := max(room, 0) / (len(sorted) - i)
		if c > share {
			return share
		}
		room -= c
	}
	return LineLimit
}

// cost is how many bytes a text of one line takes up at most: in quotation marks, and what they escape twice.
func cost(s string) int { return len(s) + strings.Count(s, `"`) + strings.Count(s, `\`) + len(`""`) }

// withinCost is a text in one line that takes up no more than some bytes.
func withinCost(s string, most int) string {
	out := text.Line(s, max(most-len(`""`), 0))
	for len(out) > 0 && cost(out) > most {
		out = text.Cut(out, len(out)-(cost(out)-most+1)/2)
	}
	return out
}

// clusterKey is the key of the side that a logger's lines are about. It has few values, and a guest decides none of them.
const clusterKey = "cluster"

// turns are how often each message may be logged, by the place in the code where that is done and the side that it is
// about: so there are not more of them than places, whatever a message says.
type turns struct {
	mu sync.Mutex
	of map[place]*turn
}

type place struct {
	pc      uintptr
	cluster string
}

type turn struct {
	limit   *rate.Limiter
	leftOut int
}

// take reports whether a line may be logged, and how many of its kind were left out since the one before.
func (t *turns) take(cluster string, r slog.Record) (leftOut int, may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := place{r.PC, cluster}
	one := t.of[at]
	if one == nil {
		one = &turn{limit: rate.NewLimiter(rate.Every(messageEvery), messageBurst)}
		t.of[at] = one
	}
	if !one.limit.AllowN(r.Time, 1) {
		one.leftOut++
		return 0, false
	}
	leftOut, one.leftOut = one.leftOut, 0
	return leftOut, true
}
