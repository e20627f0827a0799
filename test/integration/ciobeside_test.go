//go:build chaos

package integration_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/test/audit"
)

const (
	// timeBeside is how long hypergate runs beside the ingress operator, and passEvery the time between two passes of
	// the operator, which resyncs much less often.
	timeBeside = 10 * time.Minute
	passEvery  = 2 * time.Second
	// In some passes an administrator changes the class and a Gateway, and in others hypergate is restarted.
	changeEvery, restartEvery = 10, 50
)

// TestTenMinutesBesideTheIngressOperator reads in the guest's audit log what hypergate and the ingress operator wrote
// in ten minutes: for a release with OLM and for one with the library. They have users of their own. No field has two
// writers, and hypergate writes nothing but the class.
func TestTenMinutesBesideTheIngressOperator(t *testing.T) {
	for _, release := range cioReleases() {
		if release.name != "4.21" && release.name != "4.23" {
			continue
		}
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
	change := []byte(`{"metadata":{"annotations":{"example.com/changed":"` + "%" + `"}}}`)
	ticks := time.NewTicker(passEvery)
	defer ticks.Stop()
	for i, end := 1, time.Now().Add(timeBeside); time.Now().Before(end); i++ {
		<-ticks.C // the story is about this time
		w.Expect(cio.pass(w.Context())).To(gomega.Succeed())
		if i%changeEvery == 0 {
			now := []byte(strings.Replace(string(change), "%", time.Now().String(), 1))
			_, err := w.gateway.GatewayClasses().Patch(w.Context(), cioClass, types.MergePatchType, now, metav1.PatchOptions{})
			w.Expect(err).NotTo(gomega.HaveOccurred())
			_, err = w.gateway.Gateways(w.cfg.GuestNamespace).Patch(w.Context(), "edge", types.MergePatchType, now, metav1.PatchOptions{})
			w.Expect(err).NotTo(gomega.HaveOccurred())
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

// writersOf checks the audit log since a time.
func (w *harness) writersOf(began time.Time) {
	w.Helper()
	requests, err := audit.Read(w.pair.Guest.AuditLog, "hypergate", "ingress-operator")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	requests = slices.DeleteFunc(requests, func(r audit.Request) bool {
		return r.At.Before(began) || !r.IsWrite() || !r.Succeeded()
	})
	writes := map[string]map[string]int{"hypergate": {}, "ingress-operator": {}}
	for _, r := range requests {
		writes[r.User][r.String()]++
	}
	for user, lines := range writes {
		for _, line := range slices.Sorted(maps.Keys(lines)) {
			w.Logf("%s: %d times %s", user, lines[line], line)
		}
		w.Expect(lines).NotTo(gomega.BeEmpty(), "writes of "+user)
	}
	own := func(r audit.Request) bool { return r.User == "hypergate" }
	w.Expect(audit.Shared(requests, own)).To(gomega.BeEmpty(), "fields with two writers")
	for _, r := range requests {
		if own(r) {
			w.Expect(r.Resource+"/"+r.Subresource+" "+r.Name).To(gomega.Equal("gatewayclasses/status "+cioClass), r.String())
		}
	}
}
