//go:build chaos

package integration_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/test/audit"
)

const (
	// timeBeside is how long hypergate runs beside the ingress operator. passEvery is the time between two passes of
	// the operator. A real one reconciles less often.
	timeBeside = 10 * time.Minute
	passEvery  = 2 * time.Second
	// In each tenth pass an administrator changes the class and a Gateway. In each fiftieth pass, hypergate is
	// restarted.
	changeEvery, restartEvery = 10, 50
)

// TestTenMinutesBesideTheIngressOperator reads in the guest's audit log what hypergate and the ingress operator wrote
// in ten minutes, for each release. They have users of their own. No field has two writers, and hypergate writes
// nothing but the class.
func TestTenMinutesBesideTheIngressOperator(t *testing.T) {
	for _, release := range cioReleases() {
		t.Run(release.name, func(t *testing.T) {
			w := newHarness(t)
			w.cfg.ControllerName, w.cfg.Revision, w.cfg.IstioResources = "openshift.io/gateway-controller/v1", cioRevision, nil
			w.cfg.WebhookHost = w.cfg.WebhookService()
			w.haveCRDs()
			w.createNamespace(w.guest, w.cfg.GuestNamespace)
			users := map[string]*dynamic.DynamicClient{}
			for _, name := range []string{"hypergate", "ingress-operator"} {
				config, err := w.pair.Guest.ClientCertificate(name, "system:masters", time.Now().Add(time.Hour))
				w.Expect(err).NotTo(gomega.HaveOccurred())
				users[name] = dynamic.NewForConfigOrDie(config)
				if name == "hypergate" {
					w.guestConfig = counted(config, w.guestRequests)
				}
			}
			began := time.Now()
			cio := newCIO(w, users["ingress-operator"], release)
			w.tenMinutes(cio)
			w.writersOf(began)
			cio.uninstall(w.Context())
			w.deleteClass(cioClass)
			w.settle()
			cio.removeRest(w.Context())
		})
	}
}

// tenMinutes runs hypergate beside the operator, with changes of an administrator and restarts.
func (w *harness) tenMinutes(cio *cio) {
	w.Helper()
	w.Expect(cio.pass(w.Context())).To(gomega.Succeed())
	stop := w.run()
	w.settle()
	written := cio.writes.Load()
	ticks := time.NewTicker(passEvery)
	defer ticks.Stop()
	for i, end := 1, time.Now().Add(timeBeside); time.Now().Before(end); i++ {
		<-ticks.C // the story is about this time
		w.Expect(cio.pass(w.Context())).To(gomega.Succeed())
		if i%changeEvery == 0 {
			w.changeAsAdmin(i)
		}
		if i%restartEvery == 0 {
			stop()
			stop = w.run()
		}
	}
	w.settle()
	stop()
	w.Expect(cio.writes.Load()).To(gomega.Equal(written), "the operator had to restore something")
}

// changeAsAdmin changes the specification of the class, and a Gateway. hypergate's conditions of the class follow.
func (w *harness) changeAsAdmin(i int) {
	w.Helper()
	ofClass := fmt.Appendf(nil, `{"spec":{"description":"change %d"}}`, i)
	changed, err := w.gateway.GatewayClasses().Patch(w.Context(), cioClass, types.MergePatchType, ofClass, metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	ofGateway := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/changed":"%d"}}}`, i)
	_, err = w.gateway.Gateways(w.cfg.GuestNamespace).Patch(w.Context(), "edge", types.MergePatchType, ofGateway, metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(func() *metav1.Condition { return w.condition(cioClass, "SupportedVersion") }).
		Should(gomega.HaveField("ObservedGeneration", changed.Generation))
}

// writersOf checks the audit log since a time.
func (w *harness) writersOf(began time.Time) {
	w.Helper()
	requests, err := audit.Read(w.pair.Guest.AuditLog)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	requests = slices.DeleteFunc(requests, func(r audit.Request) bool {
		return r.At.Before(began) || !r.IsWrite() || !r.Succeeded()
	})
	changes, err := audit.Changes(requests)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	writes := map[string]map[string]int{}
	count := func(user, line string) {
		if writes[user] == nil {
			writes[user] = map[string]int{}
		}
		writes[user][line]++
	}
	own := func(r audit.Request) bool { return r.User == "hypergate" }
	for _, r := range requests {
		if own(r) {
			w.Expect(r.Resource+"/"+r.Subresource+" "+r.Name).To(gomega.Equal("gatewayclasses/status "+cioClass), r.String())
		}
		if own(r) || r.User == "ingress-operator" {
			count(r.User, r.String())
		}
	}
	for _, c := range changes {
		count(c.User+", changes", c.String())
	}
	for _, user := range slices.Sorted(maps.Keys(writes)) {
		for _, line := range slices.Sorted(maps.Keys(writes[user])) {
			w.Logf("%s: %d times %s", user, writes[user][line], line)
		}
	}
	const changed = int(timeBeside / passEvery / changeEvery)
	w.Expect(sum(writes["hypergate, changes"])).To(gomega.BeNumerically(">=", changed-1), "hypergate follows each change of the class")
	w.Expect(sum(writes["hypergate"])).To(gomega.BeNumerically("<", 3*changed), "hypergate writes when something changes")
	w.Expect(writes["ingress-operator"]).NotTo(gomega.BeEmpty())
	w.Expect(audit.Shared(changes, "hypergate", "ingress-operator")).To(gomega.BeEmpty(), "fields with two writers")
}

func sum(counts map[string]int) (out int) {
	for _, n := range counts {
		out += n
	}
	return out
}
