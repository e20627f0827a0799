package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
)

// followIt is the next step while a rotation is in progress.
const followIt = `: follow it with "hypergate status --watch", or with --wait`

// TestProgressOfARotation checks what is printed of a rotation, and what the exit code will be.
func TestProgressOfARotation(t *testing.T) {
	t.Parallel()
	const request = "2026-11-23T12:00:00Z"
	read := func(state summary.State, ca summary.CA) summary.Reading {
		istiod := summary.Istiod{State: summary.IstiodAbsent}
		return summary.Reading{Namespace: "ns", State: state, Why: "a reason", Summary: &summary.Summary{Istiod: istiod, CA: ca}}
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
		"not observed": {
			reading: summary.Reading{Namespace: "ns", State: summary.OnHold, Summary: &summary.Summary{}}, code: 3,
			text: "waiting until hypergate begins; it does not rotate a CA of your own",
			problem: "hypergate has not observed the mesh CA in namespace ns since it started, for example because the guest does not " +
				"answer: try again when the command status shows the CA",
		},
		"spreading": {
			reading: read(summary.InProgress, summary.CA{Phase: "spreading", Request: request}), code: 3,
			text:    "spreading: the clients get the new root; the old CA issues certificates",
			problem: "a rotation is already in progress, in phase spreading" + followIt,
		},
		"settling": {
			reading: read(summary.OK, summary.CA{Phase: "settling", Request: request}), code: 3,
			text:    "settling: the new CA issues certificates; the old root is still trusted",
			problem: "a rotation is already in progress, in phase settling" + followIt,
		},
		"a forged phase": {
			reading: read(summary.OK, summary.CA{Phase: "x\ny", Request: request}), code: 3, text: "x y",
			problem: "a rotation is already in progress, in phase x\ny" + followIt,
		},
		"a CA that was brought": {
			reading: read(summary.OK, summary.CA{Phase: "steady", ByOther: true}), code: 3,
			text: "waiting until hypergate begins; it does not rotate a CA of your own",
			problem: "hypergate did not create the mesh CA in namespace ns, and does not rotate it: rotate it with the tool that created " +
				"the Secret cacerts",
		},
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

// TestProgressBesideAnotherProblem checks that another problem does not keep a rotation from being complete, and that
// it is named before that. An old summary shows no complete rotation.
func TestProgressBesideAnotherProblem(t *testing.T) {
	t.Parallel()
	const (
		request  = "2026-11-23T12:00:00Z"
		waiting  = "waiting until hypergate begins; it does not rotate a CA of your own"
		settling = "settling: the new CA issues certificates; the old root is still trusted"
		done     = "done: the old root is removed"
	)
	for name, tc := range map[string]struct {
		state          summary.State
		phase, request string
		code           int
		want           string
	}{
		"degraded, done":     {summary.IsDegraded, "steady", request, 0, done},
		"expiring, done":     {summary.Expiring, "steady", request, 0, done},
		"degraded, settling": {summary.IsDegraded, "settling", request, 2, settling + "; DEGRADED: a reason"},
		"degraded, waiting":  {summary.IsDegraded, "steady", "an older one", 2, waiting + "; DEGRADED: a reason"},
		"silent":             {summary.Silent, "steady", request, 2, "steady; SILENT: a reason"},
		"overdue":            {summary.Overdue, "steady", request, 2, "steady; OVERDUE: a reason"},
		"another pod's":      {summary.Unreported, "steady", request, 3, "steady"},
	} {
		reading := summary.Reading{State: tc.state, Why: "a reason"}
		reading.Summary = &summary.Summary{CA: summary.CA{Phase: tc.phase, Request: tc.request}}
		if outcome, got := progressOf(reading, request); exitCode(outcome) != tc.code || got != tc.want {
			t.Errorf("%s: code %d, %q, want %d, %q", name, exitCode(outcome), got, tc.code, tc.want)
		}
	}
	unread := summary.Reading{State: summary.Silent, Why: "no pod"}
	if outcome, got := progressOf(unread, request); exitCode(outcome) != 2 || got != waiting+"; SILENT: no pod" {
		t.Errorf("no summary: code %d, %q", exitCode(outcome), got)
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

// TestRotationsInProgress checks that the command refuses a second rotation, and with --wait follows the one in
// progress without a write.
func TestRotationsInProgress(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	text, err := summary.Encode(summary.Summary{CA: summary.CA{Phase: "spreading", Request: "r"}, Time: time.Now(), Holder: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := json.Marshal(map[string]any{
		"kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
		"metadata": map[string]any{
			"name": "hypergate-openshift-gateway", "namespace": "a", "annotations": map[string]string{summary.Annotation: text},
		},
		"spec": map[string]any{"holderIdentity": "pod", "renewTime": now, "leaseDurationSeconds": 60},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(lease)
	}))
	t.Cleanup(server.Close)
	for _, tc := range []struct {
		wait string
		code int
		want string
	}{
		{"--wait=0s", exitError, "a rotation is already in progress, in phase spreading" + followIt},
		{"--wait=1s", exitUnderWay, "lease/hypergate-openshift-gateway: following the rotation in progress\nspreading: the clients"},
	} {
		code, text := output(t, "rotate-ca", "--kubeconfig="+clusterAt(t, server.URL), "-n=a", tc.wait)
		if code != tc.code || !strings.Contains(strings.ReplaceAll(text, "\n        ", "\n"), tc.want) {
			t.Errorf("%s: %d, %s", tc.wait, code, text)
		}
	}
}
