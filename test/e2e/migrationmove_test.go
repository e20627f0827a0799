package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// This file has what all stories about the way to the hosted istiod and back have in common. They use the commands, the
// Lease, the objects of both API servers and the audit logs, and nothing of hypergate's process.

// smallAt is a Gateway besides the edge.
type smallAt struct{ namespace, name, address string }

func (s smallAt) String() string { return s.namespace + "/" + s.name }

// move is a migration that a story follows, under load.
type move struct {
	*migrationTest
	story string
	began time.Time
	seen  *seen
	load  *traffic.Load
	// mark is how many versions of the Lease there were before the last request.
	mark int
	// deleted is when the story deleted Gateways, by name. Their requests fail from then on.
	deleted map[string]time.Time
	// apiAway reports whether the story takes the guest's API server away. Then kubelet and kube-proxy read the order
	// to end late.
	apiAway bool
	// aged reports whether endpoints change so fast that they are out of date soon after xDS is lost. replaced is when
	// backends were replaced.
	aged     bool
	replaced []time.Time
	// undisturbed reports whether the story only moves Gateways, so that the times of a migration have limits.
	undisturbed bool
}

// drainOfPods is how long a gateway of these stories serves after the order to end. See gatewayoptions.yaml.
const drainOfPods = 15 * time.Second

// longDownload is the stream with downloads that are longer than that. Each has a connection of its own: a kept one to
// an old pod, which ends soon, could get the next download.
const longDownload = "download, long"

// moving begins to follow, and starts the load. All Gateways are at the origin, and hypergate runs.
func (t *migrationTest) moving() *move {
	t.Helper()
	t.backAtOrigin()
	m := &move{migrationTest: t, story: t.T.Name()[strings.LastIndex(t.T.Name(), "/")+1:], began: time.Now(), seen: t.watch(t.ctx)}
	m.deleted = map[string]time.Time{}
	m.load = t.loaded(m.streams())
	m.more(m.load, fewRequests)
	const busy = "the machine is too busy for this load, before anything is requested"
	t.Expect(m.load.Failed()).To(gomega.BeZero(), busy)
	for _, row := range m.load.SoFar().Rows {
		t.Expect(row.P50).To(gomega.BeNumerically("<", slowest), "%s: %s", row.Stream, busy)
	}
	return m
}

// fewRequests are the requests of about ten seconds, at the whole pace.
const fewRequests = 2000

// slowest is the median latency of a stream from which on a story says nothing about a migration.
const slowest = time.Second

// streams returns the load of all stories about traffic, of about 200 requests per second, with downloads that outlast
// the drain of a pod.
func (m *move) streams() []traffic.Stream {
	streams := append(m.edgeAt.shortStreams(), traffic.Stream{
		Name: longDownload, Kind: traffic.Download, Address: net.JoinHostPort(m.edgeAt.address, "80"), Host: trafficHost,
		Rate: 0.2, Duration: 2 * drainOfPods, Fresh: true,
	})
	for _, s := range m.small {
		streams = append(streams, lightStreams(s)...)
	}
	return patient(streams)
}

// lightStreams are few requests, for stories with many Gateways.
func lightStreams(s smallAt) []traffic.Stream {
	streams := smallStreams(s.name, s.address)
	streams[0].Rate, streams[1].Rate, streams[2].Rate = 2, 5, 0.25
	return streams
}

// command runs a command of hypergate migrate, with the kubeconfigs of the administrators.
func (t *migrationTest) command(verb string, args ...string) (code int, output string) {
	t.Helper()
	line, reads := []string{"migrate", verb}, verb == "start" || verb == "plan"
	if t.Topology == model.TopologyStandalone || verb != "plan" {
		line = append(line, "--kubeconfig", t.MgmtKubeconfig, "-n", t.MgmtNamespace)
	}
	switch {
	case reads && t.Topology == model.TopologyStandalone:
		line = append(line, "--topology=standalone")
	case reads:
		line = append(line, "--guest-kubeconfig", t.GuestKubeconfig, "--xds-address", t.published())
	}
	out, err := exec.CommandContext(t.step(), t.Binary(), append(line, args...)...).CombinedOutput()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return exit.ExitCode(), string(out)
	}
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return 0, string(out)
}

// request requests something, which must be accepted.
func (m *move) request(verb string, args ...string) {
	m.Helper()
	_, m.mark = m.seen.last()
	code, out := m.command(verb, args...)
	m.Expect(code).To(gomega.BeZero(), out)
	m.Logf("%s: %s", verb, out)
}

// until waits until the Lease shows something, and returns that version. It looks at each version since the last
// request. It fails if the migration stops for a reason that is not in tolerated, or if the Lease does not change for
// long.
func (m *move) until(what string, done func(migration.Record) bool, tolerated ...migration.Reason) leaseSeen {
	m.Helper()
	for {
		for _, l := range m.seen.versions()[m.mark:] {
			m.Expect(l.err).NotTo(gomega.HaveOccurred())
			r := l.record.Report
			if done(l.record) {
				return l
			}
			if r.IsFor(l.record.Intent) && r.Progress == migration.Stopped && !slices.Contains(tolerated, r.Why) {
				m.Fatalf("waiting until %s, it stopped in %s: %s %s %+v", what, r.Phase, r.Why, r.Gateway, r.Findings)
			}
		}
		select {
		case <-m.seen.changed:
		case <-time.After(hang.Deadline):
			last, _ := m.seen.last()
			m.Fatalf("waiting until %s, the Lease has not changed for %s: %+v", what, hang.Deadline, last.record)
		case <-m.ctx.Done():
			m.Fatalf("waiting until %s: %v", what, m.ctx.Err())
		}
	}
}

// reaches waits until the memo has a phase.
func (m *move) reaches(phase migration.Phase) {
	m.Helper()
	m.until("phase "+string(phase), func(r migration.Record) bool { return r.Memo.Phase == phase })
}

// rolls waits until a Gateway is on its way.
func (m *move) rolls() {
	m.Helper()
	m.until("a Gateway rolls", func(r migration.Record) bool { return r.Report.Why == migration.GatewayRolling })
}

// ends waits until the migration has ended for a reason. The command says the same.
func (m *move) ends(why migration.Reason, tolerated ...migration.Reason) {
	m.Helper()
	m.until("it ends with "+string(why), func(r migration.Record) bool { return ended(r, why) }, tolerated...)
	code, out := m.command("status")
	m.Log("\n" + out)
	m.Expect(code).To(gomega.BeZero(), out)
	m.Expect(out).To(gomega.ContainSubstring("ended: " + string(why)))
}

func ended(r migration.Record, why migration.Reason) bool {
	return r.Report.IsFor(r.Intent) && r.Report.Progress == migration.Ended && r.Report.Why == why
}

// parks goes to the end of the way to the hosted istiod, and checks what is there then.
func (m *move) parks(tolerated ...migration.Reason) {
	m.Helper()
	m.ends(migration.Parked, tolerated...)
	m.allAt(m.published())
	m.Expect(m.originReplicas()).To(gomega.BeZero())
	m.Expect(m.heldEverywhere()).To(gomega.BeEmpty())
	m.reconfiguredEverywhere()
}

// rollsBack requests the way back, goes to its end, and checks what is there then.
func (m *move) rollsBack(tolerated ...migration.Reason) {
	m.Helper()
	m.request("rollback")
	m.returned(tolerated...)
}

func (m *move) returned(tolerated ...migration.Reason) {
	m.Helper()
	m.ends(migration.RolledBack, tolerated...)
	m.allAt(addressOfOrigin)
	m.istiodInGuest(1)
	m.Expect(m.heldEverywhere()).To(gomega.BeEmpty())
	m.Eventually(m.hostedIstiod).Should(gomega.BeFalse(), "the hosted istiod is removed")
	m.reconfiguredEverywhere()
}

// addressOfOrigin is where gateways of the origin get their configuration.
const addressOfOrigin = "istiod-" + world.Revision + "." + world.GuestNamespace + ".svc:15012"

// published returns where gateways get their configuration from the hosted istiod.
func (t *migrationTest) published() string {
	if slices.Contains(t.settings, "--publish="+string(model.PublishTunnel)) {
		return relayAddress()
	}
	return t.XDS().String()
}

// gateways returns the names of all Gateways, as namespace/name.
func (t *migrationTest) gateways() []smallAt {
	return append([]smallAt{{world.GuestNamespace, trafficGateway, t.edgeAt.address}}, t.small...)
}

// allAt checks that the Deployments of all Gateways have an address, and are complete.
func (t *migrationTest) allAt(address string) {
	t.Helper()
	for _, g := range t.gateways() {
		t.available(g.namespace, g.name+"-"+class)
		d, err := t.GuestClient.AppsV1().Deployments(g.namespace).Get(t.ctx, g.name+"-"+class, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Expect(envOf(d)["CA_ADDR"]).To(gomega.Equal(address), g.String())
		t.Expect(envOf(d)["PROXY_CONFIG"]).To(gomega.ContainSubstring(address), g.String())
	}
}

// rollouts returns the number of pod templates that the Deployment of each Gateway has had, also of those that came
// back.
func (t *migrationTest) rollouts() map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, g := range t.gateways() {
		d, err := t.GuestClient.AppsV1().Deployments(g.namespace).Get(t.ctx, g.name+"-"+class, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		out[g.String()] = d.Annotations["deployment.kubernetes.io/revision"]
		t.Expect(out[g.String()]).NotTo(gomega.BeEmpty())
	}
	return out
}

func (t *migrationTest) originReplicas() int32 {
	t.Helper()
	d, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, origin.Deployment, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return *d.Spec.Replicas
}

// hostedIstiod reports whether the management side has an istiod.
func (t *migrationTest) hostedIstiod() (bool, error) {
	_, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return true, err
}

// heldEverywhere returns the Gateways with the annotation of a hold, of whomever.
func (t *migrationTest) heldEverywhere() []string {
	t.Helper()
	list, err := t.Gateways.Gateways("").List(t.ctx, metav1.ListOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	var out []string
	for _, g := range list.Items {
		if g.Annotations[model.HoldAnnotation] != "" {
			out = append(out, g.Namespace+"/"+g.Name)
		}
	}
	return out
}

// reconfiguredEverywhere adds a route to each Gateway. Only the istiod that serves it can bring the route.
func (t *migrationTest) reconfiguredEverywhere() {
	t.Helper()
	for _, g := range t.gateways() {
		t.reconfiguredAt(g.namespace, g.name, &edgeOfTheGuest{address: g.address})
	}
}

// add creates small Gateways in namespaces, and waits until they serve.
func (t *migrationTest) add(namespace string, names ...string) {
	t.Helper()
	_, err := t.GuestClient.CoreV1().Namespaces().Create(t.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	t.Expect(err).To(gomega.Or(gomega.Not(gomega.HaveOccurred()), gomega.Satisfy(apierrors.IsAlreadyExists)))
	for _, name := range names {
		s := smallAt{namespace, name, t.smallGatewayIn(namespace, name, "24h")}
		t.small = append(t.small, s)
		t.answered(patient(lightStreams(s)))
	}
}

// remove deletes small Gateways.
func (t *migrationTest) remove(names ...string) {
	t.Helper()
	t.small = slices.DeleteFunc(t.small, func(s smallAt) bool {
		if !slices.Contains(names, s.name) {
			return false
		}
		t.deleteSmallGatewayIn(s.namespace, s.name)
		return true
	})
}

// backAtOrigin makes hypergate run, and rolls back what a story before has left.
func (t *migrationTest) backAtOrigin() {
	t.Helper()
	h := t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	if code, out := t.command("status"); code == 0 && !strings.Contains(out, "ended: Parked") {
		t.allAt(addressOfOrigin)
		return
	}
	t.Log("the story before has left a migration: it is rolled back")
	_, _ = t.command("rollback") // status says why a rollback is not possible
	var out string
	t.Eventually(func() int {
		var code int
		code, out = t.command("status")
		return code
	}).WithPolling(time.Second).WithTimeout(2*hang.Deadline).Should(gomega.BeZero(), func() string { return out })
	t.allAt(addressOfOrigin)
}

// statusReport is a part of the output of the command status.
type statusReport struct {
	Phase, Progress, Reason, Gateway, Problem string
	Moved                                     int
	Findings                                  []struct{ Code string }
}

func (t *migrationTest) report() (out statusReport) {
	t.Helper()
	_, text := t.command("status", "-o", "json")
	t.Expect(json.Unmarshal([]byte(text), &out)).To(gomega.Succeed(), text)
	return out
}

// migrationRow is the result of a story in the table.
type migrationRow struct {
	story                        string
	requests, failed, cut, aged  int
	away, longest, beyondRollout time.Duration
	// gap and p99 are the longest ones of the edge's streams of short requests.
	gap, p99 time.Duration
	// known is how many of the moves have a known rollout.
	moves, known int
	took         time.Duration
}

// arrives ends the load, and judges the story: no request failed but downloads that outlasted the drain of an old
// pod, each Deployment had one writer, and hypergate wrote nothing else than its phases permit. Failures because of
// endpoints that are out of date are counted, if the story causes them.
func (m *move) arrives() {
	m.Helper()
	m.more(m.load, fewRequests)
	report := m.ended(m.load, 2*fewRequests)
	m.seen.readEndings(m.requests())
	row := migrationRow{
		story: m.story, requests: report.Requests, away: m.seen.awayAt(migration.Lead), took: time.Since(m.began),
	}
	for _, of := range report.Rows {
		if strings.HasPrefix(of.Stream, "HTTP") {
			row.gap, row.p99 = max(row.gap, of.Gap), max(row.p99, of.P99)
		}
	}
	for _, f := range report.Failures {
		switch {
		case m.outlastedDrain(f):
			row.cut++
		case m.isDeleted(f):
		case m.aged && m.seen.metNoXDS(f):
			row.aged++
		default:
			row.failed++
			m.Errorf("%s by %s, %s after its begin: %s", f.Stream, f.Gateway, f.Ended.Sub(f.Began).Round(time.Millisecond), f.Error)
		}
	}
	for _, one := range m.seen.moves() {
		row.moves++
		row.longest = max(row.longest, one.took)
		rollout := "unknown"
		if !one.rolloutUnknown {
			row.known++
			row.beyondRollout = max(row.beyondRollout, one.took-one.rollout)
			rollout = seconds(one.rollout)
		}
		m.Logf("%s took %s, of which its Deployment %s", one.gateway, seconds(one.took), rollout)
	}
	if lost := m.seen.awayIn(migration.Lead); m.aged && len(lost) > 0 {
		m.Log("\n" + agingFigure(lost[0].from, lost[0].length(), m.replaced, report.Failures))
	}
	m.rows = append(m.rows, row)
	if m.undisturbed {
		m.Expect(row.tooSlow()).To(gomega.BeEmpty())
	}
	m.audited()
}

// outlastedDrain reports whether a request was cut because it needs longer than the drain of its gateway's pod, and the
// pod served for all of its drain.
func (m *move) outlastedDrain(f traffic.Failure) bool {
	m.seen.mu.Lock()
	defer m.seen.mu.Unlock()
	ending, is := m.seen.ending[f.Gateway]
	const (
		watchDelay = time.Second
		// routed is how long kube-proxy can send new connections to a pod that ends: the EndpointSlice changes first,
		// and kube-proxy writes its rules at most once a second.
		routed = 3 * time.Second
	)
	return f.Stream == longDownload && is && strings.HasPrefix(f.Cause, "connection ") &&
		(m.apiAway || f.Began.Before(ending.Add(routed))) && f.Ended.Sub(ending) > drainOfPods-watchDelay
}

// isDeleted reports whether a request failed after the story had deleted its Gateway. That includes one that was under
// way then.
func (m *move) isDeleted(f traffic.Failure) bool {
	name, _, _ := strings.Cut(f.Stream, ", ")
	at, is := m.deleted[name]
	return is && !f.Ended.Before(at)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// printRows prints the table of all stories. UNKNOWN is the number of moves that BEYOND ROLLOUT is not about.
func (t *migrationTest) printRows() {
	var out strings.Builder
	fmt.Fprintf(&out, "%-64s %8s %6s %4s %4s %7s %7s %12s %5s %7s %12s %16s %8s\n", "STORY", "REQUESTS", "FAILED", "CUT", "AGED",
		"GAP", "P99", "AWAY AT LEAD", "MOVES", "UNKNOWN", "LONGEST MOVE", "BEYOND ROLLOUT", "TOOK")
	for _, r := range t.rows {
		fmt.Fprintf(&out, "%-64s %8d %6d %4d %4d %7s %7s %12s %5d %7d %12s %16s %8s\n", r.story, r.requests, r.failed, r.cut, r.aged,
			seconds(r.gap), seconds(r.p99), seconds(r.away), r.moves, r.moves-r.known, seconds(r.longest),
			seconds(r.beyondRollout), seconds(r.took))
	}
	t.Log("\n" + out.String())
}

// afterwards lets a time pass, under load. A story is about this time.
func (m *move) afterwards(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.ctx.Done():
	}
}
