package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
)

// fault is a row of the table.
type fault struct {
	name string
	// run causes the fault, waits until it has an effect, and ends it. It returns the time of the end.
	run func(*run) time.Time
	// quick faults are part of the selection that make e2e runs, in about two minutes. make test runs none.
	quick bool
	// installs is true if the fault occurs during an installation. Then istiod and the CA are new.
	installs bool
	// restartsIstiod is true if the fault ends istiod's process. Then the kubelet starts another.
	restartsIstiod bool
}

// Network faults. The first three let no request through. The others only make the network bad.
var (
	resets   = toxic{"reset_peer", map[string]any{"timeout": 100}}
	halfOpen = toxic{"timeout", map[string]any{"timeout": 0}}
	ends     = toxic{"timeout", map[string]any{"timeout": 2000}}
	far      = toxic{"latency", map[string]any{"latency": 300, "jitter": 100}}
	narrow   = toxic{"bandwidth", map[string]any{"rate": 20}}
	sliced   = toxic{"slicer", map[string]any{"average_size": 64, "size_variation": 32, "delay": 100}}
)

// faults returns all faults except the kills of hypergate, which killed returns.
func faults() []fault {
	out := []fault{
		{name: "istiod is killed", run: killIstiod, quick: true, restartsIstiod: true},
		{name: "two hypergates run, and the leader ends", run: handOver, quick: true},
		{name: "two hypergates run, and the leader is killed", run: takeOver},
		{name: "the guest's API is away for 75 s", run: longOutage},
		{name: "the guest's etcd is restored from a snapshot", run: restoreGuest, quick: true},
	}
	for _, s := range []struct {
		name string
		of   func(*chaosRun) *side
	}{{"guest", guestOf}, {"management", mgmtOf}} {
		guest := s.name == "guest"
		out = append(out,
			fault{name: "the " + s.name + " API server is killed", run: killAPI(s.of), quick: true},
			fault{name: "the " + s.name + " etcd is killed", run: killEtcd(s.of), quick: guest},
			fault{name: "the " + s.name + " API refuses connections", run: refuse(s.of)},
			fault{name: "each connection to the " + s.name + " API is reset", run: cut(s.of, resets), quick: guest},
			fault{name: "connections to the " + s.name + " API stay open and carry nothing", run: cut(s.of, halfOpen)},
			fault{name: "connections to the " + s.name + " API end after 2 s", run: cut(s.of, ends)},
			fault{name: "the " + s.name + " API is 300 ms away", run: slow(s.of, far), quick: !guest},
			fault{name: "the " + s.name + " API has 20 KB/s", run: slow(s.of, narrow)},
			fault{name: "data of the " + s.name + " API comes in pieces of 64 bytes", run: slow(s.of, sliced), quick: guest},
		)
	}
	return out
}

func guestOf(w *chaosRun) *side { return w.guest }

func mgmtOf(w *chaosRun) *side { return w.mgmt }

// killed returns kills of hypergate during an installation that has total requests. It divides the requests into n
// parts and chooses one request of each part. The kill is before the API server receives the request or after it has
// answered.
func killed(random *rand.Rand, n, total int) []fault {
	var out []fault
	for i := range n {
		at := 1 + i*total/n + random.IntN(max(1, total/n))
		answered := random.IntN(2) == 0
		what := "before the API server has it"
		if answered {
			what = "after it was answered"
		}
		out = append(out, fault{
			name: fmt.Sprintf("hypergate is killed at request %d of an installation, %s", at, what),
			run:  killAt(at, answered, i >= n*3/4), quick: i == n/4 || i == n*3/4, installs: true,
		})
	}
	return out
}

// killAt reinstalls and kills hypergate at this request. An installation may have a few requests less than another.
// Only a late kill may come after the last request.
func killAt(at int, answered, late bool) func(*run) time.Time {
	return func(r *run) time.Time {
		r.uninstall()
		r.h.Kill()
		started := make(chan *hypergate, 1)
		r.stile.arm(at, answered, func() { (<-started).Kill() })
		h := r.start(gated, r.h.hostname)
		started <- h
		r.createClass()
		r.Eventually(func() bool { return closed(h.Done()) || late && r.isAsPlanned() }).
			Should(gomega.BeTrue(), "hypergate has not sent request %d", at)
		h.Kill()
		count, last := r.stile.passed()
		r.Logf("killed at request %d of %d so far: %s", at, count, last)
		r.h = r.start(direct, h.hostname)
		return time.Now()
	}
}

func killIstiod(r *run) time.Time {
	starts := r.kubelet.started()
	r.kubelet.kill()
	r.drift(r.sides()...)
	r.Eventually(r.kubelet.started).Should(gomega.Equal(starts + 1))
	r.Eventually(func() bool { return r.kubelet.ready(r.Context()) }).Should(gomega.BeTrue())
	return time.Now()
}

// killAPI kills an API server. hypergate must notice that.
func killAPI(of func(*chaosRun) *side) func(*run) time.Time {
	return func(r *run) time.Time {
		s := of(r.chaosRun)
		s.plane.StopAPI()
		r.loses(s)
		r.Expect(s.plane.StartAPI(r.Context())).To(gomega.Succeed())
		ended := time.Now()
		r.drift(r.sides()...)
		return ended
	}
}

// killEtcd kills an etcd. hypergate learns of objects that drifted when their API server cannot store anything. The
// fault lasts until a request of hypergate has failed.
func killEtcd(of func(*chaosRun) *side) func(*run) time.Time {
	return func(r *run) time.Time {
		s := of(r.chaosRun)
		r.Expect(syscall.Kill(r.h.PID(), syscall.SIGSTOP)).To(gomega.Succeed())
		r.drift(s)
		s.plane.StopEtcd()
		r.Eventually(func() error { return r.reads(s) }).ShouldNot(gomega.Succeed())
		before, err := r.failed(s)
		r.Expect(err).NotTo(gomega.HaveOccurred())
		r.Expect(syscall.Kill(r.h.PID(), syscall.SIGCONT)).To(gomega.Succeed())
		r.Eventually(func() (int, error) { return r.failed(s) }).Should(gomega.BeNumerically(">", before), "no request has failed")
		r.Expect(r.h.Done()).NotTo(gomega.BeClosed(), "hypergate has ended")
		r.Expect(s.plane.StartEtcd()).To(gomega.Succeed())
		r.Eventually(func() error { return r.readsAll(s) }).Should(gomega.Succeed())
		ended := time.Now()
		r.drift(r.sides()...)
		return ended
	}
}

// reads makes an API server read an object from its etcd.
func (r *run) reads(s *side) error {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	_, err := s.clients.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "foreign", metav1.GetOptions{})
	return err
}

// readsAll makes an API server read an object of each kind of hypergate from its etcd. The API server has a
// connection to etcd for each kind. After an outage, it pauses differently before it connects each of them again.
func (r *run) readsAll(s *side) error {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	var reads errgroup.Group
	for _, kind := range s.kinds {
		var objects dynamic.ResourceInterface = s.objects.Resource(kind.GVK.GroupVersion().WithResource(kind.Resource))
		if kind.Namespaced {
			objects = s.objects.Resource(kind.GVK.GroupVersion().WithResource(kind.Resource)).Namespace(metav1.NamespaceDefault)
		}
		reads.Go(func() error {
			_, err := objects.Get(ctx, "foreign", metav1.GetOptions{})
			return client.IgnoreNotFound(err)
		})
	}
	return reads.Wait()
}

// failed returns how many requests of hypergate an API server has answered with an error of its own.
func (r *run) failed(s *side) (int, error) {
	requests, err := audit.Read(s.plane.AuditLog, s.user)
	failed := slices.DeleteFunc(requests, func(one audit.Request) bool { return one.Code < http.StatusInternalServerError })
	return len(failed), err
}

// loses waits until hypergate reports that it lost a side.
func (r *run) loses(s *side) {
	r.Helper()
	check := "readyz/" + string(s.name)
	r.Eventually(func() error { return r.h.check(r.Context(), check) }).ShouldNot(gomega.Succeed(), "hypergate does not report the loss")
	r.Expect(r.h.Done()).NotTo(gomega.BeClosed(), "hypergate has ended")
}

// cut makes a network that drops everything. Objects drift during the fault.
func cut(of func(*chaosRun) *side, one toxic) func(*run) time.Time {
	return func(r *run) time.Time {
		s := of(r.chaosRun)
		remove := r.toxiproxy.add(string(s.name), one)
		r.drift(r.sides()...)
		r.loses(s)
		remove()
		return time.Now()
	}
}

// refuse makes an address refuse connections.
func refuse(of func(*chaosRun) *side) func(*run) time.Time {
	return func(r *run) time.Time {
		s := of(r.chaosRun)
		r.toxiproxy.connect(string(s.name), false)
		r.drift(r.sides()...)
		r.loses(s)
		r.toxiproxy.connect(string(s.name), true)
		return time.Now()
	}
}

// slow makes a network bad. Objects drift and are repaired during the fault, and drift again after it.
func slow(of func(*chaosRun) *side, one toxic) func(*run) time.Time {
	return func(r *run) time.Time {
		s := of(r.chaosRun)
		remove := r.toxiproxy.add(string(s.name), one)
		began := time.Now()
		r.drift(r.sides()...)
		r.Logf("repaired in %s during the fault", r.asPlanned(began))
		remove()
		ended := time.Now()
		r.drift(r.sides()...)
		return ended
	}
}

// outage is longer than a request's timeout and than the longest pause between two attempts.
const outage = 75 * time.Second

// longOutage lasts longer than any timeout of a connection or a request.
func longOutage(r *run) time.Time {
	r.guest.plane.StopAPI()
	r.loses(r.guest)
	select {
	case <-time.After(outage): // the fault is this long
	case <-r.h.Done():
		r.Fatalf("hypergate ended: %v", r.h.Exit())
	}
	r.Expect(r.guest.plane.StartAPI(r.Context())).To(gomega.Succeed())
	ended := time.Now()
	r.drift(r.sides()...)
	return ended
}

// handOver runs two hypergates. The one with the Lease ends gracefully.
func handOver(r *run) time.Time {
	r.second()
	r.h.Terminate()
	ended := time.Now()
	r.drift(r.sides()...)
	r.h = r.standBy
	return ended
}

// takeOver runs two hypergates. The one with the Lease is killed. The fault lasts until the Lease has expired.
func takeOver(r *run) time.Time {
	r.second()
	was := r.holder()
	r.h.Kill()
	r.drift(r.sides()...)
	r.Eventually(r.holder, 2*patience).ShouldNot(gomega.Equal(was))
	r.h = r.standBy
	return time.Now()
}

// second starts another hypergate. It waits for the Lease while the first one repairs drift.
func (r *run) second() {
	r.Helper()
	r.names++
	r.standBy = r.start(direct, fmt.Sprintf("hypergate-%d", r.names))
	r.Eventually(func() string { return r.said(r.standBy) }).Should(gomega.ContainSubstring("Another pod holds the Lease"))
	r.drift(r.sides()...)
	r.Logf("repaired in %s by the leader", r.asPlanned(time.Now()))
	r.Expect(r.said(r.standBy)).NotTo(gomega.ContainSubstring("Starting Controller"), "two hypergates work at the same time")
}

func (r *run) said(h *hypergate) string {
	r.Helper()
	log, err := os.ReadFile(h.Log())
	r.Expect(err).NotTo(gomega.HaveOccurred())
	return string(log)
}

// holder returns the holder of the Lease.
func (r *run) holder() string {
	r.Helper()
	lease, err := r.mgmt.clients.CoordinationV1().Leases(r.cfg.MgmtNamespace).
		Get(r.Context(), "hypergate-"+r.cfg.Revision, metav1.GetOptions{})
	r.Expect(err).NotTo(gomega.HaveOccurred())
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// restoreGuest takes a snapshot from which objects of hypergate are missing, lets hypergate restore them, and
// restores the snapshot. Then hypergate knows a later state than the guest has.
func restoreGuest(r *run) time.Time {
	r.Expect(syscall.Kill(r.h.PID(), syscall.SIGSTOP)).To(gomega.Succeed())
	r.drift(r.guest)
	saved := r.withoutGuest(func() (string, error) { return r.guest.plane.SaveEtcd() })
	r.Expect(syscall.Kill(r.h.PID(), syscall.SIGCONT)).To(gomega.Succeed())
	r.Logf("repaired in %s", r.asPlanned(time.Now()))
	r.withoutGuest(func() (string, error) { return "", r.guest.plane.RestoreEtcd(saved) })
	r.Expect(os.RemoveAll(saved)).To(gomega.Succeed())
	return time.Now()
}

// withoutGuest calls a function while the guest's API server and etcd are stopped.
func (r *run) withoutGuest(do func() (string, error)) string {
	r.Helper()
	r.guest.plane.StopAPI()
	r.guest.plane.StopEtcd()
	out, err := do()
	r.Expect(err).NotTo(gomega.HaveOccurred())
	r.Expect(r.guest.plane.StartEtcd()).To(gomega.Succeed())
	r.Expect(r.guest.plane.StartAPI(r.Context())).To(gomega.Succeed())
	return out
}

// drift changes some objects of hypergate on each side, chosen by the seed. It deletes them or removes the label by
// which hypergate recognises them. It leaves out protected objects, and objects whose change would make hypergate
// replace istiod.
func (r *run) drift(sides ...*side) {
	r.Helper()
	const each = 3
	for _, s := range sides {
		var ids []string
		for id := range r.reference {
			if strings.HasPrefix(id, string(s.name)+": ") && mayDrift(id) {
				ids = append(ids, id)
			}
		}
		r.Expect(len(ids)).To(gomega.BeNumerically(">", each))
		for _, id := range r.choose(ids, each) {
			r.spoil(s, id)
		}
	}
}

// mayDrift reports whether an object can drift. It excludes objects that contain data of others, protected objects,
// dependencies of istiod, and objects that are not hypergate's.
func mayDrift(id string) bool {
	for _, not := range []string{
		"/namespaces ", "customresourcedefinitions", "/secrets ", "deployments ", "leases ", "gatewayclasses ", "hostedcontrolplanes ",
	} {
		if strings.Contains(id, not) {
			return false
		}
	}
	return !strings.HasPrefix(id, string(model.SideGuest)+": /serviceaccounts ")
}
