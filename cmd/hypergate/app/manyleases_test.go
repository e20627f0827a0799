package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/hang"
)

// leasesServer is an API server that has only Leases. It returns them by pages, and by namespace. The first lists, of
// which there are empty, are from before a Lease exists.
type leasesServer struct {
	leases       []coordinationv1.Lease
	lists, empty atomic.Int32
}

// serveLeases starts a server, and returns a kubeconfig for it.
func serveLeases(t *testing.T, leases ...coordinationv1.Lease) (*leasesServer, string) {
	t.Helper()
	s := &leasesServer{leases: leases}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, kubeconfigOf(t, server.URL)
}

// ServeHTTP answers lists of Leases. Nothing else exists.
func (s *leasesServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, isList := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/")
	if !isList || !strings.HasSuffix(path, "leases") {
		http.NotFound(w, r)
		return
	}
	isEmpty := s.lists.Add(1) <= s.empty.Load()
	found := s.leases
	if namespace := strings.TrimSuffix(strings.TrimPrefix(path, "namespaces/"), "/leases"); namespace != "leases" {
		found = nil
		for i := range s.leases {
			if s.leases[i].Namespace == namespace {
				found = append(found, s.leases[i])
			}
		}
	}
	if isEmpty {
		found = nil
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	list := coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
	list.Items = found[min(from, len(found)):min(from+limit, len(found))]
	if from+limit < len(found) {
		list.Continue = strconv.Itoa(from + limit)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client has hung up
}

// leaseWith returns hypergate's Lease in a namespace, acquired a minute ago and renewed now, with a summary.
func leaseWith(namespace, annotation string) coordinationv1.Lease {
	holder, now := "hypergate-1", metav1.NowMicro()
	acquired := metav1.NewMicroTime(now.Add(-time.Minute))
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "hypergate-openshift-gateway", Annotations: map[string]string{summary.Annotation: annotation},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(137)), RenewTime: &now, AcquireTime: &acquired,
		},
	}
}

// good returns the summary of an installation where everything is as planned.
func good(t *testing.T, guest string) string {
	t.Helper()
	s := summary.Summary{
		Time: time.Now(), Holder: "hypergate-1", Hypergate: "v0.3.0", Istio: "1.2.3", Guest: guest, Lifecycle: summary.Active,
	}
	for kind, status := range map[string]string{
		summary.Available: summary.True, summary.Progressing: summary.False, summary.Degraded: summary.False,
		summary.Upgradeable: summary.True,
	} {
		s.Conditions = append(s.Conditions, summary.Condition{Type: kind, Status: status, Reason: "AsExpected", Since: time.Now()})
	}
	out, err := summary.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFiveThousandInstallations checks that a large management cluster is read by pages, and that one hosted cluster of
// it is found.
func TestFiveThousandInstallations(t *testing.T) {
	t.Parallel()
	const many = 5000
	leases := make([]coordinationv1.Lease, 0, many)
	for i := range many {
		leases = append(leases, leaseWith(fmt.Sprintf("clusters-guest%d", i), good(t, fmt.Sprintf("guest%d", i))))
	}
	server, kubeconfig := serveLeases(t, leases...)
	begun := time.Now()
	r := execute(t, "fleet", "--kubeconfig="+kubeconfig)
	t.Logf("%d lists, %s", server.lists.Load(), time.Since(begun).Round(time.Millisecond))
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != 0 || len(lines) < many || lines[0] != "5000 installations: 5000 ok" || server.lists.Load() != many/500 {
		t.Errorf("code %d, %d lists, %d lines, first %q, error %q", r.code, server.lists.Load(), len(lines), lines[0], r.errOut)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "-A", "guest4999"}, "guest4999   ok"},
		{[]string{"status", "-n", "clusters-guest4321"}, "guest4321   ok"},
		{[]string{"fleet", "-o", "json", "--only=degraded"}, `"ok": 5000`},
		{[]string{"fleet", "-o", "html"}, "<!DOCTYPE html>"},
	} {
		if r := execute(t, append(tc.args, "--kubeconfig="+kubeconfig)...); r.code != 0 || !strings.Contains(r.out, tc.want) {
			t.Errorf("%q: code %d, error %q, output %.300q", tc.args, r.code, r.errOut, r.out)
		}
	}
	r = execute(t, "status", "-A", "nothere", "--kubeconfig="+kubeconfig)
	if r.code != 1 || strings.Count(r.errOut, "\n") != 1 || len(r.errOut) > 600 || !strings.Contains(r.errOut, "and 4990 others") {
		t.Errorf("an unknown guest: code %d, error %q", r.code, r.errOut)
	}
}

// TestWaitingForTheFirstInstallation checks that --wait also waits for the first Lease.
func TestWaitingForTheFirstInstallation(t *testing.T) {
	t.Parallel()
	const want = "waiting although there is an error: no Lease of hypergate"
	for _, command := range []string{"fleet", "status"} {
		var r result
		lists := int32(0)
		// The second list comes when the time is over. On a busy machine, it is over with the first one.
		for wait := time.Second; wait < hang.Deadline && lists != 2; wait *= 2 {
			server, kubeconfig := serveLeases(t, leaseWith("clusters-guest1", good(t, "guest1")))
			server.empty.Store(1)
			r = execute(t, command, "--wait="+wait.String(), "--kubeconfig="+kubeconfig)
			lists = server.lists.Load()
		}
		if r.code != 0 || lists != 2 || !strings.Contains(r.errOut, want) {
			t.Errorf("%s: code %d after %d lists, error %q", command, r.code, lists, r.errOut)
		}
	}
}

// TestBadLeases checks that Leases that another client forged, or that another version wrote, are shown with a reason,
// on a screen of 40 columns too, without control characters, and with the exit code for a required action.
func TestBadLeases(t *testing.T) {
	t.Setenv("COLUMNS", "40")
	t.Setenv("NO_COLOR", "1")
	for name, tc := range map[string]struct{ annotation, want string }{
		"a later schema":     {`{"schema":2,"guest":"guest1"}`, "schema 2, and this command reads"},
		"no schema":          {`{"guest":"guest1"}`, "it has no schema"},
		"an earlier one":     {`{"schema":0}`, "it has no schema"},
		"a negative one":     {`{"schema":-1}`, "it has no schema"},
		"not JSON":           {"ok", "is not a summary of hypergate"},
		"another type":       {`{"schema":1,"guest":["guest1"]}`, "is not a summary of hypergate"},
		"a list":             {`[{"schema":1}]`, "is not a summary of hypergate"},
		"colors":             {"\x1b[2J\x1b[31mok", "is not a summary of hypergate"},
		"too long":           {`{"schema":1,"guest":"` + strings.Repeat("a", 3000) + `"}`, "the limit is 2048"},
		"nested":             {`{"schema":` + strings.Repeat("[", 1500) + strings.Repeat("]", 500), "is not a summary of hypergate"},
		"right to left":      {`{"schema":1,"holder":"hypergate-1","guest":"\u202eguest\u001b[2J1"}`, ""},
		"numbers out of int": {`{"schema":1,"classes":99999999999999999999}`, "is not a summary of hypergate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, kubeconfig := serveLeases(t, leaseWith("clusters-guest1", tc.annotation))
			for _, command := range [][]string{
				{"status", "-n", "clusters-guest1"}, {"fleet"}, {"fleet", "-o", "wide"}, {"status", "-A", "-o", "html"},
			} {
				checkBadLease(t, kubeconfig, tc.want, command)
			}
		})
	}
}

// checkBadLease runs a command for a Lease that cannot be read, or that has no conditions if there is no reason.
func checkBadLease(t *testing.T, kubeconfig, reason string, command []string) {
	t.Helper()
	r, code := execute(t, append(command, "--kubeconfig="+kubeconfig)...), 2
	if reason == "" {
		code = 3
	}
	if r.errOut != "" || r.code != code {
		t.Errorf("%q: code %d, error %q", command, r.code, r.errOut)
	}
	if strings.ContainsFunc(r.out, func(c rune) bool { return c != '\n' && (unicode.IsControl(c) || c == '\u202e') }) {
		t.Errorf("%q: control characters: %q", command, r.out)
	}
	if slices.Contains(command, "html") {
		return
	}
	for line := range strings.Lines(r.out) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 40 {
			t.Errorf("%q: a line of more than 40 columns: %q", command, line)
		}
	}
	if text := strings.Join(strings.Fields(r.out), " "); command[0] == "status" && !strings.Contains(text, reason) {
		t.Errorf("%q: no %q in\n%s", command, reason, r.out)
	}
}

// TestAClosedPipe checks that a reader that is gone, such as head, ends a command with one line and code 1.
func TestAClosedPipe(t *testing.T) {
	t.Parallel()
	_, kubeconfig := serveLeases(t, leaseWith("clusters-guest1", good(t, "guest1")))
	for _, args := range [][]string{
		{"status", "-n", "clusters-guest1"},
		{"status", "-n", "clusters-guest1", "-o", "html"},
		{"fleet"},
		{"fleet", "-o", "json"},
		{"version"},
	} {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		var errOut strings.Builder
		if args[0] != "version" {
			args = append(args, "--kubeconfig="+kubeconfig)
		}
		code := executeTo(t, writer, &errOut, args...)
		if code != 1 || strings.Count(errOut.String(), "\n") != 1 || !strings.Contains(errOut.String(), "broken pipe") {
			t.Errorf("%q: code %d, error %q", args, code, errOut.String())
		}
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	}
}
