package app

import (
	"bytes"
	"context"
	"errors"
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

// TestWaitingPrintsEachNewError checks the errors that are printed while a command waits.
func TestWaitingPrintsEachNewError(t *testing.T) {
	t.Parallel()
	away, refused := errors.New("no answer"), errors.New("not allowed")
	results := []error{away, away, nil, refused, refused, away, nil}
	o := waitOptions{wait: time.Minute}
	var printed bytes.Buffer
	err := o.until(t.Context(), time.Nanosecond, &printed, func(context.Context) (summary.Outcome, error) {
		err := results[0]
		if results = results[1:]; len(results) == 0 {
			return summary.Well, nil
		}
		return summary.UnderWay, err
	})
	want := []string{"no answer", "not allowed", "no answer"}
	lines := strings.Split(strings.TrimSpace(printed.String()), "\n")
	if err != nil || len(lines) != len(want) {
		t.Fatalf("%v:\n%s", err, printed.String())
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, ": "+want[i]) {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
}
