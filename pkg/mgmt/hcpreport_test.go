package mgmt_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

// patched is a fake API server that also accepts patches. It records them, and answers the first ones with conflicts.
type patched struct {
	*fixture
	conflicts, refusal atomic.Int32
	paths, bodies      []string
}

func startPatched(t *testing.T, planes ...string) *patched {
	t.Helper()
	p := &patched{fixture: &fixture{T: t, Gomega: hang.Gomega(t), api: fakeapi.New(t)}}
	p.api.Put(theDeployments)
	p.api.Put(theSecrets)
	p.api.Put(theNamespaces, ofUser)
	p.api.Put(theControlPlanes, planes...)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch {
			p.api.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			p.Error(err)
		}
		p.paths, p.bodies = append(p.paths, r.URL.Path+"?"+r.URL.RawQuery+" "+r.Header.Get("Content-Type")), append(p.bodies, string(body))
		code := int(p.refusal.Load())
		if p.conflicts.Add(-1) >= 0 {
			code = http.StatusConflict
		}
		w.Header().Set("Content-Type", "application/json")
		if code == 0 {
			_, _ = io.WriteString(w, `{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedControlPlane"}`)
			return
		}
		w.WriteHeader(code)
		reason := map[int]metav1.StatusReason{
			http.StatusConflict: metav1.StatusReasonConflict, http.StatusForbidden: metav1.StatusReasonForbidden,
		}[code]
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		})
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	var err error
	p.mgmt, err = mgmt.New(&rest.Config{Host: server.URL, QPS: -1}, config())
	p.Expect(err).NotTo(gomega.HaveOccurred())
	p.Expect(p.mgmt.Start(klog.NewContext(t.Context(), logr.Discard()), func() {})).To(gomega.Succeed())
	p.observed()
	return p
}

const (
	foreign = `{type: Available, status: 'True', reason: AsExpected, message: '', lastTransitionTime: ` +
		`'2026-11-21T10:00:00Z', newer: {field: [1]}}`
	apiUp = `{type: KubeAPIServerAvailable, status: 'True', reason: AsExpected, message: '', lastTransitionTime: '2026-11-21T10:00:00Z'}`
	mine  = `{type: gateway.hypergate.dev/Available, status: 'True', reason: AsExpected, message: it serves, ` +
		`lastTransitionTime: '2026-11-21T10:00:00Z'}`
)

// reporting returns the YAML of a HostedControlPlane with conditions.
func reporting(name string, conditions ...string) string {
	return strings.TrimSuffix(controlPlane(name, "", ""), "}") +
		", status: {ready: true, conditions: [" + strings.Join(conditions, ", ") + "]}}"
}

func say(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		{
			Type: "gateway.hypergate.dev/Available", Status: metav1.ConditionTrue, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)),
		},
	}
}

func TestStatusTargets(t *testing.T) {
	p := startPatched(t,
		controlPlane("guest2", ", deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [a/b]", ""),
		reporting("guest1", foreign, apiUp, mine),
		controlPlane("guest3", "", ", pausedUntil: {year: 2027}"))
	var got []string
	for _, a := range p.mgmt.StatusTargets() {
		line := a.Name + " " + string(a.UID) + " " + string(a.APIServer)
		if a.Deleting {
			line += " deleting"
		}
		for _, c := range a.Conditions {
			line += " " + c.Type
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(
		[]string{"guest1 uid-guest1 True gateway.hypergate.dev/Available", "guest2 uid-guest2  deleting", "guest3 uid-guest3 "},
		got,
	); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
}

// TestAReportKeepsForeignConditions checks that a report keeps the conditions of others. It also checks that a report
// depends on the HostedControlPlane at the time of the write.
func TestAReportKeepsForeignConditions(t *testing.T) {
	p := startPatched(t, reporting("guest1", foreign, mine, apiUp))
	to := p.mgmt.StatusTargets()[0]
	p.Expect(p.mgmt.ReportConditions(t.Context(), to, say("AsExpected", "it serves"))).To(gomega.Succeed())
	p.Expect(p.bodies).To(gomega.BeEmpty(), "that is there already")

	p.conflicts.Store(2)
	p.Expect(p.mgmt.ReportConditions(t.Context(), to, append(say("AsExpected", "it still serves"),
		metav1.Condition{
			Type: "gateway.hypergate.dev/Degraded", Status: metav1.ConditionFalse, Reason: "AsExpected",
		}))).To(gomega.Succeed())
	p.Expect(p.paths).To(gomega.HaveLen(3), "conflicts are tried again")
	p.Expect(p.paths[2]).To(gomega.Equal(theControlPlanes.Path + "/guest1/status?fieldManager=hypergate application/merge-patch+json"))
	var patch struct {
		Metadata map[string]any `json:"metadata"`
		Status   struct {
			Conditions []map[string]any `json:"conditions"`
		} `json:"status"`
	}
	p.Expect(json.Unmarshal([]byte(p.bodies[2]), &patch)).To(gomega.Succeed())
	p.Expect(patch.Metadata).To(gomega.And(gomega.HaveLen(1), gomega.HaveKeyWithValue("resourceVersion", gomega.Not(gomega.BeEmpty()))))
	p.Expect(strings.Count(p.bodies[2], "status\":{")).To(gomega.Equal(1), "nothing of the status but the conditions: %s", p.bodies[2])
	types := make([]any, 0, len(patch.Status.Conditions))
	for _, c := range patch.Status.Conditions {
		types = append(types, c["type"])
	}
	p.Expect(types).To(gomega.Equal([]any{
		"Available", "gateway.hypergate.dev/Available", "KubeAPIServerAvailable", "gateway.hypergate.dev/Degraded",
	}))
	p.Expect(patch.Status.Conditions[0]).To(gomega.HaveKey("newer"), "what is not known is kept")
	p.Expect(patch.Status.Conditions[1]).To(gomega.And(
		gomega.HaveKeyWithValue("message", "it still serves"),
		gomega.HaveKeyWithValue("lastTransitionTime", "2026-11-21T10:00:00Z"),
	))

	p.conflicts.Store(100)
	p.Expect(p.mgmt.ReportConditions(t.Context(), to, say("Other", ""))).To(gomega.MatchError(
		gomega.ContainSubstring("reporting to HostedControlPlane guest1: "),
	))
	p.Expect(len(p.paths)).To(gomega.Equal(8), "not for ever")
	p.conflicts.Store(0)
	p.refusal.Store(http.StatusForbidden)
	p.Expect(p.mgmt.ReportConditions(t.Context(), to, say("Other", ""))).To(gomega.HaveOccurred())
	p.Expect(len(p.paths)).To(gomega.Equal(9), "what is refused is not tried again at once")
}

// TestNoReportToAReplacedControlPlane checks that nothing is reported to a HostedControlPlane that is gone, replaced or
// being deleted. The watch possibly does not show this yet.
func TestNoReportToAReplacedControlPlane(t *testing.T) {
	p := startPatched(t, reporting("guest1"))
	to := p.mgmt.StatusTargets()[0]
	for _, now := range [][]string{
		nil,
		{strings.Replace(reporting("guest1"), "uid-guest1", "uid-again", 1)},
		{controlPlane("guest1", ", deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [a/b]", "")},
	} {
		p.api.Put(theControlPlanes, now...)
		p.Expect(p.mgmt.ReportConditions(t.Context(), to, say("Other", ""))).To(gomega.Succeed())
	}
	p.Expect(p.bodies).To(gomega.BeEmpty())
}
