package app

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/summary"
)

// TestProgressOfARotation checks what is printed of a rotation, and what the exit code will be.
func TestProgressOfARotation(t *testing.T) {
	t.Parallel()
	const request = "2026-11-23T12:00:00Z"
	read := func(state summary.State, ca summary.CA) summary.Reading {
		return summary.Reading{Namespace: "ns", State: state, Why: "a reason", Summary: &summary.Summary{CA: ca}}
	}
	for name, tc := range map[string]struct {
		reading summary.Reading
		code    int
		text    string
		problem string
	}{
		"not begun": {
			reading: read(summary.OK, summary.CA{Phase: "steady", Request: "an older one"}), code: 3,
			text: "waiting until hypergate begins; it does not rotate a CA of your own",
		},
		"no summary": {
			reading: summary.Reading{State: summary.Unreported}, code: 3,
			text: "waiting until hypergate begins; it does not rotate a CA of your own",
		},
		"no CA": {
			reading: read(summary.OK, summary.CA{}), code: 3, text: "waiting until hypergate begins; it does not rotate a CA of your own",
			problem: "the mesh CA does not exist in namespace ns: hypergate creates it with the first GatewayClass that it serves; " +
				"its report can be half a minute old",
		},
		"spreading": {
			reading: read(summary.InProgress, summary.CA{Phase: "spreading", Request: request}), code: 3,
			text:    "spreading: the clients get the new root; the old CA issues certificates",
			problem: "a rotation is already in progress: in phase spreading",
		},
		"settling": {
			reading: read(summary.OK, summary.CA{Phase: "settling", Request: request}), code: 3,
			text:    "settling: the new CA issues certificates; the old root is still trusted",
			problem: "a rotation is already in progress: in phase settling",
		},
		"a forged phase": {
			reading: read(summary.OK, summary.CA{Phase: "x\ny", Request: request}), code: 3, text: "x y",
			problem: "a rotation is already in progress: in phase x\ny",
		},
		"degraded": {
			reading: read(summary.IsDegraded, summary.CA{Phase: "steady", Request: request}), code: 2, text: "DEGRADED: a reason",
		},
		"silent": {reading: summary.Reading{State: summary.Silent, Why: "no pod"}, code: 2, text: "SILENT: no pod"},
		"done": {
			reading: read(summary.InProgress, summary.CA{Phase: "steady", Request: request}), code: 0,
			text: "done: the old root is removed",
		},
	} {
		outcome, got := progressOf(tc.reading, request)
		if exitCode(outcome) != tc.code || got != tc.text {
			t.Errorf("%s: code %d, %q, want %d, %q", name, exitCode(outcome), got, tc.code, tc.text)
		}
		if problem := errorText(mayRotate(tc.reading)); problem != errorText(errorOf(tc.problem)) {
			t.Errorf("%s: %q, want %q", name, problem, tc.problem)
		}
	}
}

// errorOf returns an error with a text, or nil if the text is empty.
func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return stringError(text)
}

type stringError string

func (e stringError) Error() string { return string(e) }
