package main

import (
	"errors"
	"strings"
	"testing"
)

// TestVerdict checks that a missed bar makes the exit code 2 and names the row, and what does not count as missed.
func TestVerdict(t *testing.T) {
	met, missed := row{What: "a", Met: new(true)}, row{What: "  b", Bar: "<= 1", Measured: "3", Met: new(false)}
	for name, c := range map[string]struct {
		report report
		code   int
	}{
		"all met":        {report{Rows: []row{met}}, 0},
		"without a bar":  {report{Rows: []row{{What: "RSS", Bar: "reported"}}}, 0},
		"missed":         {report{Rows: []row{met, missed}}, 2},
		"missed, -quick": {report{Rows: []row{missed}, Quick: true}, 0},
	} {
		err := c.report.verdict()
		if code := exitCode(err); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		if c.code != 0 && !strings.Contains(err.Error(), "b: 3, the bar is <= 1") {
			t.Errorf("%s: the error does not name the row: %v", name, err)
		}
	}
	if code := exitCode(errors.New("no server")); code != 1 {
		t.Errorf("an error that is not a missed bar: exit code %d, want 1", code)
	}
}

// TestDriftBar checks the bar of drift: 76 of 80, and the rest explained.
func TestDriftBar(t *testing.T) {
	for _, c := range []struct {
		once, all, unexplained int
		met                    bool
	}{{80, 80, 0, true}, {76, 80, 0, true}, {75, 80, 0, false}, {79, 80, 1, false}, {152, 160, 0, true}} {
		if met := driftMet(c.once, c.all, c.unexplained); met != c.met {
			t.Errorf("%+v: met is %v", c, met)
		}
	}
}
