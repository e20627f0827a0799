package integration_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/tunnel"
	"github.com/hypergate/hypergate/test/audit"
)

// TestAForbiddenTunnelIsNamed checks a guest whose API server answers 403 to each request for a relay, although
// hypergate's Role grants it: an admission policy of the guest refuses them. A condition names it. The pauses between
// attempts grow. Without a restart, hypergate sees that the policy has gone. Here there are no relay pods, so the
// answer is 404 then.
func TestAForbiddenTunnelIsNamed(t *testing.T) {
	const unreached = "(guest side: no relay of the tunnel can be reached: "
	w := newHarness(t)
	clock := &movedClock{}
	w.clock, w.probe = clock, controller.Probe{}
	w.byTunnel()
	allow := w.refuseProxies()
	w.run()
	w.createClass("demo")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.tunnelObjects).Should(gomega.HaveLen(9))
	begin := time.Now()
	w.relaysAreReady()
	w.Eventually(w.installedText("demo")).Should(gomega.ContainSubstring(unreached + string(tunnel.Forbidden)))
	for relay, times := range w.forbidden() {
		for i, at := range times {
			if earliest := 500 * time.Millisecond * (1<<i - 1); at.Sub(begin) < earliest {
				t.Errorf("request %d for %s was sent after %s, and not after %s or more", i+1, relay, at.Sub(begin), earliest)
			}
		}
	}

	t.Log("the policy goes, and the next attempt sees it")
	allow()
	clock.move(30 * time.Second)
	w.stir("allowed")
	w.Eventually(w.installedText("demo")).Should(gomega.ContainSubstring(unreached + string(tunnel.NoRelay)))
}

// forbidden returns when the guest's API server forbade the sidecar's account a request for a relay, by relay.
func (w *harness) forbidden() map[string][]time.Time {
	w.Helper()
	requests, err := audit.Read(w.pair.Guest.AuditLog, "system:serviceaccount:"+w.cfg.GuestNamespace+":"+model.TunnelAccountName)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	out := map[string][]time.Time{}
	for _, r := range requests {
		if r.Subresource == "proxy" && r.Forbidden() {
			out[r.Name] = append(out[r.Name], r.At)
		}
	}
	w.Expect(out).To(gomega.HaveLen(len(model.RelayPodNames())))
	return out
}

// refuseProxies creates an admission policy of the guest that refuses all requests for pods/proxy, and waits until it
// is in force. The returned function removes it, and waits until it is not.
func (w *harness) refuseProxies() (remove func()) {
	w.Helper()
	end := w.enforce(guestPolicy{
		name:       w.cfg.Revision + "-proxies",
		operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
		rule: admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/proxy"},
		},
		validation: admissionregistrationv1.Validation{Expression: "false", Reason: new(metav1.StatusReasonForbidden)},
	})
	answer := func() int {
		var code int
		w.guest.CoreV1().RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("pods").Name("http:none:1").SubResource("proxy").
			Do(w.Context()).StatusCode(&code)
		return code
	}
	w.Eventually(answer).Should(gomega.Equal(http.StatusForbidden))
	return func() {
		end()
		w.Eventually(answer).Should(gomega.Equal(http.StatusNotFound))
	}
}
