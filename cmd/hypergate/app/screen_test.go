package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
)

// TestColumns checks the width of characters, and that a line with wide ones is cut to the width of the screen.
func TestColumns(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"": 0, "guest": 5, "客户机": 6, "e\u0301": 1, "ｇ": 2, "…": 1,
	} {
		if got := widthOf(line); got != want {
			t.Errorf("%q has %d columns, want %d", line, got, want)
		}
	}
	for _, tc := range []struct {
		line  string
		width int
		want  string
	}{
		{"客户机关闭", 10, "客户机关闭"},
		{"客户机关闭", 9, "客户机..."},
		{"客户机关闭", 8, "客户..."},
		{"客户", 2, ".."},
	} {
		if got := (screen{width: tc.width}).cut(tc.line, 0); got != tc.want || widthOf(got) > tc.width {
			t.Errorf("%s in %d columns: %q, want %q", tc.line, tc.width, got, tc.want)
		}
	}
	if got := padded("客户", 6) + "|"; got != "客户  |" {
		t.Errorf("%q", got)
	}
}

// TestColorsAndWidth checks the environment variables on which a table depends. A new pseudoterminal is a terminal.
func TestColorsAndWidth(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudoterminal:", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	for _, tc := range []struct {
		out              io.Writer
		noColor, columns string
		term             string
		want             screen
	}{
		{terminal, "", "", "xterm", screen{color: true}},
		{terminal, "1", "", "xterm", screen{}},
		{terminal, "", "", "dumb", screen{}},
		{terminal, "", "40", "xterm", screen{width: 40, color: true}},
		{terminal, "1", "3", "xterm", screen{width: narrowest}},
		{&bytes.Buffer{}, "", "", "xterm", screen{}},
		{&bytes.Buffer{}, "", "40", "xterm", screen{width: 40}},
		{&bytes.Buffer{}, "", "-1", "xterm", screen{}},
	} {
		t.Setenv("NO_COLOR", tc.noColor)
		t.Setenv("COLUMNS", tc.columns)
		t.Setenv("TERM", tc.term)
		if got := screenOf(tc.out); got != tc.want {
			t.Errorf("NO_COLOR=%q COLUMNS=%q TERM=%q: %+v, want %+v", tc.noColor, tc.columns, tc.term, got, tc.want)
		}
	}
}

// TestWaitingPrintsEachNewReason checks the errors and reasons that are printed while a command waits.
func TestWaitingPrintsEachNewReason(t *testing.T) {
	t.Parallel()
	type result struct {
		why string
		err error
	}
	away, refused := errors.New("no answer"), errors.New("not allowed")
	results := []result{
		{"", away},
		{"", away},
		{"", nil},
		{"", refused},
		{"", refused},
		{"", away},
		{"istiod starts", nil},
		{"istiod starts", nil},
		{"a gateway rolls", nil},
		{"", nil},
	}
	o := waitOptions{wait: time.Minute}
	var printed bytes.Buffer
	err := o.until(t.Context(), time.Nanosecond, &printed, func(context.Context) (summary.Outcome, string, error) {
		one := results[0]
		if results = results[1:]; len(results) == 0 {
			return summary.Well, "", nil
		}
		return summary.UnderWay, one.why, one.err
	})
	want := []string{
		"an error: no answer", "an error: not allowed", "an error: no answer", "waiting: istiod starts", "waiting: a gateway rolls",
	}
	lines := strings.Split(strings.TrimSpace(printed.String()), "\n")
	if err != nil || len(lines) != len(want) {
		t.Fatalf("%v:\n%s", err, printed.String())
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, want[i]) {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
}
