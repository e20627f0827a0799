// Package logs bounds the log: each line is short and readable, and the number of lines is limited.
//
// A large part of hypergate's log consists of answers of API servers, and the other side also decides how often they
// occur. All lines pass through this package. It therefore applies the limits here, and not only at the places that
// log. See Bounded.
//
// # Workflow
//
// New and Handler build a logger with Bounded around a handler for text or JSON. Bounded first applies the rate limit
// of the message. It then cuts the message and the values, and passes the line on.
//
// # Invariants
//
//   - A line has at most LineLimit bytes, on one line, without unprintable characters.
//   - A place in the code logs at most messageBurst lines in a row for each cluster, and then one line per
//     messageEvery. The next line has the number of lines that were left out.
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

	"github.com/hypergate/hypergate/pkg/text"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// Limits for the length of a line. Each value gets a share. Short values stay whole, and long ones are cut.
const (
	// LineLimit is the maximum length of a line in bytes.
	LineLimit = 4 << 10
	// messageLimit is the maximum length of a message. Messages of hypergate are constant; those of libraries can
	// contain values.
	messageLimit = 512
	// fieldLimit is the maximum number of key-value pairs of a line. Others are left out. keyLimit is the maximum
	// length of a key.
	fieldLimit = 32
	keyLimit   = 64
	// overhead is the space for the rest of a line: time, level, and the number of lines left out.
	overhead = 128
)

// Rate limit of a message, for each place in the code that logs. A guest can cause one or two messages at a time.
// More repetitions of a line add no information beyond their number. About thirty watches can fail at once, for example
// with another permission.
const (
	// messageBurst is how many lines of one message are logged in a row.
	messageBurst = 60
	// messageEvery is the interval after that. The next line has the number of lines that were left out.
	messageEvery = 30 * time.Second
)

// Format is how a line is written.
type Format string

const (
	// Text is key=value, for people.
	Text Format = "text"
	// JSON is one object for each line, for log collectors. Durations are text, as in Text.
	JSON Format = "json"
)

// New returns a logger that writes lines of text within the limits of Bounded. verbosity 0 logs what hypergate does;
// higher values also log why.
func New(w io.Writer, verbosity int) logr.Logger {
	return logr.FromSlogHandler(Handler(w, Text, verbosity))
}

// Handler is like New, but returns a handler for package slog, which writes lines of any format.
func Handler(w io.Writer, format Format, verbosity int) slog.Handler {
	options := &slog.HandlerOptions{Level: slog.Level(-verbosity)}
	if format == JSON {
		return Bounded(slog.NewJSONHandler(w, options))
	}
	return Bounded(slog.NewTextHandler(w, options))
}

// Bounded returns a handler that passes lines on to next. It puts each text on one line, and removes unprintable
// characters. It cuts the texts so that a handler of each Format writes at most LineLimit bytes. A message that occurs
// too often is counted instead.
func Bounded(next slog.Handler) slog.Handler {
	return handler{next: next, turns: &turns{of: map[place]*turn{}}}
}

type handler struct {
	next   slog.Handler
	turns  *turns
	prefix string
	fields []slog.Attr
	// cluster is the side that the lines are about. Lines about one side do not consume the rate limit of the other.
	cluster string
}

// Enabled reports whether a level is logged.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs returns a handler that adds these key-value pairs to its lines.
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

// WithGroup returns a handler that adds a prefix to its keys.
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

// bounded returns fields with one more field. Its text is on one line, and no longer than a line. A group becomes one
// field for each of its members.
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
	case slog.KindDuration: // in JSON, it would be a number of nanoseconds
		value = slog.StringValue(value.String())
	default: // numbers and times are short
	}
	return append(fields, slog.Attr{Key: key, Value: value})
}

// written returns a value as a text handler writes it.
func written(value any) string {
	if marshaler, is := value.(encoding.TextMarshaler); is {
		if data, err := marshaler.MarshalText(); err == nil {
			return string(data)
		}
	}
	return fmt.Sprintf("%+v", value)
}

// fit cuts the values of fields so that all fields together take at most room bytes.
func fit(fields []slog.Attr, room int) []slog.Attr {
	costs := make([]int, len(fields))
	for i, f := range fields {
		costs[i] = cost(f.Value.String())
		room -= cost(f.Key) + len(" =") // as long as `,:` in JSON, whose quotation marks cost counts
	}
	share := shareOf(costs, room)
	for i, f := range fields {
		if costs[i] > share {
			fields[i].Value = slog.StringValue(withinCost(f.Value.String(), share))
		}
	}
	return fields
}

// shareOf returns the maximum cost of each value if the values together exceed room. Values with a lower cost leave
// more room for the others.
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

// cost returns the maximum length of a text in a line, in bytes. It includes the quotation marks around the text and
// the escaping of characters in it.
func cost(s string) int { return len(s) + strings.Count(s, `"`) + strings.Count(s, `\`) + len(`""`) }

// withinCost returns s on one line, cut to a cost of most bytes.
func withinCost(s string, most int) string {
	out := text.Line(s, max(most-len(`""`), 0))
	for len(out) > 0 && cost(out) > most {
		out = text.Cut(out, len(out)-(cost(out)-most+1)/2)
	}
	return out
}

// clusterKey is the key of the side that a logger's lines are about. It has few values, and a guest cannot add any.
const clusterKey = "cluster"

// turns has the rate limits of the messages, by the place in the code that logs and by the side. The number of limits
// is therefore bounded, whatever the messages contain.
type turns struct {
	mu sync.Mutex
	of map[place]*turn
}

type place struct {
	pc      uintptr
	cluster string
}

type turn struct {
	limit   throttle.Limiter
	leftOut int
}

// take reports whether a line can be logged. leftOut is the number of lines of the same place and side that were left
// out before it.
func (t *turns) take(cluster string, r slog.Record) (leftOut int, may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := place{r.PC, cluster}
	one := t.of[at]
	if one == nil {
		one = &turn{limit: throttle.NewLimiter(throttle.Rate{Burst: messageBurst, Every: messageEvery})}
		t.of[at] = one
	}
	if !one.limit.Allow(r.Time) {
		one.leftOut++
		return 0, false
	}
	leftOut, one.leftOut = one.leftOut, 0
	return leftOut, true
}
