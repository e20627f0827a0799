package e2e_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/world"
)

const (
	shortAway, longAway = 30 * time.Second, 3 * time.Minute
	// parkedEvery is the shortest time between two writes that park an origin again.
	parkedEvery = time.Minute
)

// killedAtEachChange kills hypergate after each change that it writes to the Lease, 20 times, there and back. hypergate
// is a process of this machine here: the kubelet would wait longer after each crash of a pod.
func killedAtEachChange(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	t.start().Terminate()
	h, err := t.StartProcess(t.ctx)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	defer func() { h.Terminate() }()
	kills := 0
	killUntil := func(why migration.Reason) {
		for last := 0; ; {
			now, n := m.seen.last()
			if ended(now.record, why) {
				return
			}
			if n > max(last, m.mark+1) && kills < 20 { // the first one is the request
				h.Kill()
				kills++
				h, err = t.StartProcess(t.ctx)
				t.Expect(err).NotTo(gomega.HaveOccurred())
				_, last = m.seen.last()
				continue
			}
			select {
			case <-m.seen.changed:
			case <-time.After(5 * time.Minute):
				m.Fatalf("after %d kills, the Lease does not change: %+v", kills, now.record)
			case <-h.Done():
				m.Fatalf("hypergate ended by itself: %v", h.Exit())
			}
		}
	}
	m.request("start")
	killUntil(migration.Parked)
	m.parks()
	t.Logf("%d kills on the way to the hosted istiod", kills)
	m.request("rollback")
	killUntil(migration.RolledBack)
	m.returned()
	t.Expect(kills).To(gomega.BeNumerically(">=", 20))
	m.arrives()
}

// backendsReplacedMeanwhile replaces a backend every 2 s on the way to the hosted istiod. Endpoints are out of date
// while xDS is away at Lead, which costs requests. These are counted. At all other times, no request fails.
func backendsReplacedMeanwhile(t *migrationTest) {
	const replicas = 4
	t.scale(backends, "backend", replicas)
	defer t.scale(backends, "backend", 2)
	m := t.moving()
	m.aged = true
	m.request("start")
	pace := time.NewTicker(2 * time.Second)
	defer pace.Stop()
	for last := (leaseSeen{}); !ended(last.record, migration.Parked); last, _ = m.seen.last() {
		t.Expect(last.record.Report.Progress).NotTo(gomega.Equal(migration.Stopped), "%+v", last.record.Report)
		<-pace.C
		deleted, err := t.replaceOldestBackend(t.ctx, replicas)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		if deleted {
			m.replaced = append(m.replaced, time.Now())
		}
	}
	m.parks()
	m.rollsBack()
	m.arrives()
}

// originRestarted restarts the istiod in the guest in each phase, there and back: it deletes its pods as soon as the
// phase begins. Where it has no pods any more, it scales it up. It is parked again then. Hold lasts for one step, so a
// policy of the guest denies one of the holds for a while. On the way there, Lead begins with the end of these pods, so
// that none may be left to restart.
func originRestarted(t *migrationTest) {
	t.addTwo()
	allow := t.denyHoldOfEdge()
	m := t.moving()
	m.request("start")
	m.restartsOrigin("there", migration.StandBy, 1)
	m.restartsOrigin("there", migration.Hold, 1)
	allow()
	m.restartsOrigin("there", migration.Lead, 0)
	m.restartsOrigin("there", migration.Roll, 1)
	m.parks()
	t.returnsAndIsParked()
	m.allAt(t.XDS().String())
	m.request("retire")
	m.until("it waits for the owner", waitsForOwner)
	t.returnsAndIsParked()
	m.allAt(t.XDS().String())
	t.Eventually(func() (int, error) {
		all, err := t.podsOfOrigin()
		return len(all), err
	}).Should(gomega.BeZero(), "pods of the istiod in the guest")
	m.request("rollback")
	m.restartsOrigin("back", migration.Lead, 1)
	m.restartsOrigin("back", migration.Roll, 1)
	m.returned()
	m.arrives()
}

// restartsOrigin waits until a phase begins, and deletes the pods of the istiod in the guest. It logs how many were not
// ending already. With a number of at least one, it waits for them, and checks that the phase lasts until then. The
// Lease is read before the deletion: on the way back, a restart in Roll leads to Lead.
func (m *move) restartsOrigin(way string, phase migration.Phase, atLeast int) {
	m.Helper()
	m.reaches(phase)
	deleted := 0
	m.Eventually(func() (int, error) {
		all, err := m.podsOfOrigin()
		deleted = len(slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }))
		return deleted, err
	}).Should(gomega.BeNumerically(">=", atLeast), "pods of the istiod in the guest")
	now := m.phaseNow()
	pods := m.GuestClient.CoreV1().Pods(world.GuestNamespace)
	m.Expect(pods.DeleteCollection(m.ctx, metav1.DeleteOptions{}, ofOrigin())).To(gomega.Succeed())
	m.Logf("pods of istiod that were deleted at the beginning of %s on the way %s: %d, in %s", phase, way, deleted, now)
	if atLeast > 0 {
		m.Expect(now).To(gomega.Equal(phase), "the phase in which istiod is restarted")
	}
}

// phaseNow returns the phase that the Lease shows, without the delay of a watch.
func (t *migrationTest) phaseNow() migration.Phase {
	t.Helper()
	leases := t.MgmtClient.CoordinationV1().Leases(t.MgmtNamespace)
	lease, err := leases.Get(t.ctx, migration.LeaseName(world.Revision), metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	record, _, err := migration.ParseRecord(lease.Annotations)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return record.Memo.Phase
}

// ofOrigin selects the pods of the istiod in the guest.
func ofOrigin() metav1.ListOptions { return metav1.ListOptions{LabelSelector: "app=istiod"} }

func (t *migrationTest) podsOfOrigin() ([]corev1.Pod, error) {
	all, err := t.GuestClient.CoreV1().Pods(world.GuestNamespace).List(t.ctx, ofOrigin())
	return all.Items, err
}

// returnsAndIsParked scales the istiod in the guest up, and waits until hypergate has scaled it down again.
func (t *migrationTest) returnsAndIsParked() {
	t.Helper()
	_, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).UpdateScale(t.ctx, origin.Deployment, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: origin.Deployment, Namespace: world.GuestNamespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 1},
	}, metav1.UpdateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(t.originReplicas).Should(gomega.BeZero())
}

// publishedAddressAway ends the router when the first Gateway is released. Its new pods get no configuration, and are
// not ready. Its old pods serve. Nothing else is released meanwhile.
func publishedAddressAway(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	m.request("start")
	m.rolls()
	t.withoutRouter(func() {
		m.afterwards(time.Minute)
		last, _ := m.seen.last()
		t.Expect(last.record.Report.Progress).To(gomega.Equal(migration.Waiting), "%+v", last.record.Report)
		t.Expect(t.deployedBy(m.XDS().String())).To(gomega.HaveLen(1), "only one is released")
	})
	m.parks()
	m.rollsBack()
	m.arrives()
}

// publishedAddressStaysAway ends the router when the first Gateway is released, until hypergate gives that Gateway up,
// ten minutes later. The Gateway then has its pods of before again, all Gateways are held, and conditions name the
// reason. Nothing else moves until a person acts.
func publishedAddressStaysAway(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	m.request("start")
	m.rolls()
	t.withoutRouter(func() {
		began := time.Now()
		t.Eventually(func() migration.Reason {
			last, _ := m.seen.last()
			if last.record.Report.Progress == migration.Stopped {
				return last.record.Report.Why
			}
			return ""
		}).WithPolling(time.Second).WithTimeout(10*time.Minute + hang.Deadline).Should(gomega.Equal(migration.GatewayFailed))
		t.Logf("it stopped after %s", time.Since(began).Round(time.Second))
		t.Expect(time.Since(began)).To(gomega.BeNumerically(">", 9*time.Minute))
		t.allAt(addressOfOrigin)
		t.Expect(t.heldEverywhere()).To(gomega.HaveLen(len(t.gateways())))
		t.says(map[string]string{
			status.ControlPlaneDegraded: "True MigrationStopped: ", status.MigrationCondition: "False Roll: ",
		})
	})
	code, out := t.command("status")
	t.Log("\n" + out)
	t.Expect(code).To(gomega.Equal(2), out)
	t.Expect(out).To(gomega.ContainSubstring("STOPPED: GatewayFailed"))
	m.rollsBack()
	m.arrives()
}

// withoutRouter ends the router, through which istiod is published, and starts it again afterwards.
func (t *migrationTest) withoutRouter(during func()) {
	t.Helper()
	t.StopRouter()
	defer func() { t.Expect(t.RestartRouter(t.step())).To(gomega.Succeed()) }()
	during()
}

// deployedBy returns the Gateways whose Deployment has an address.
func (t *migrationTest) deployedBy(address string) (out []string) {
	t.Helper()
	for _, g := range t.gateways() {
		d, err := t.GuestClient.AppsV1().Deployments(g.namespace).Get(t.ctx, g.name+"-"+class, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		if envOf(d)["CA_ADDR"] == address {
			out = append(out, g.String())
		}
	}
	return out
}

// changedWhileHeld pauses in Roll, and changes what the guest's users can change.
func changedWhileHeld(t *migrationTest) {
	t.addTwo()
	t.add("team-c", "deleted")
	m := t.moving()
	m.request("start")
	m.reaches(migration.Roll)
	m.request("pause")
	m.until("it is paused", func(r migration.Record) bool { return ended(r, migration.Paused) })
	held := t.heldEverywhere()
	t.Expect(held).NotTo(gomega.BeEmpty())
	began := time.Now()

	t.Log("a new route reaches each Gateway, held or not")
	m.reconfiguredEverywhere()
	t.Log("a new Gateway is deployed by the hosted istiod")
	t.add("team-c", "made")
	made, err := t.GuestClient.AppsV1().Deployments("team-c").Get(t.ctx, "made-"+class, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(envOf(made)["CA_ADDR"]).To(gomega.Equal(t.XDS().String()))
	t.Log("a listener of a held Gateway changes")
	_, err = t.Gateways.Gateways(world.GuestNamespace).Patch(t.ctx, trafficGateway, types.JSONPatchType, []byte(
		`[{"op":"add","path":"/spec/listeners/-","value":{"name":"more","port":8081,"protocol":"HTTP"}}]`), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(t.edgeIsReported).Should(gomega.Succeed(), "istiod reports the listener, for which a held Gateway has no port")
	t.Log("a held Gateway is deleted, with its route")
	t.deletedUnderLoad(m, "team-c", "deleted")
	t.Expect(m.migrationWrites(began)).To(gomega.BeEmpty(), "a paused migration writes nothing")

	m.request("resume")
	m.parks()
	t.Eventually(func() ([]int32, error) {
		service, err := t.GuestClient.CoreV1().Services(world.GuestNamespace).Get(t.ctx, trafficGateway+"-"+class, metav1.GetOptions{})
		var out []int32
		for _, port := range service.Spec.Ports {
			out = append(out, port.Port)
		}
		return out, err
	}).Should(gomega.ContainElement(int32(8081)), "the Service of a Gateway that is not held gets the port")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, trafficGateway)).To(gomega.Succeed())
	m.rollsBack()
	m.arrives()
	t.remove("made")
}

// edgeIsReported returns an error unless the status of the edge is that of its current generation.
func (t *migrationTest) edgeIsReported() error {
	got, err := t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, trafficGateway, metav1.GetOptions{})
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(got.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed))
	if c == nil || c.ObservedGeneration != got.Generation {
		return fmt.Errorf("generation %d is not reported: %+v", got.Generation, c)
	}
	return nil
}

// deletedUnderLoad deletes a small Gateway. The load of the story goes on without it.
func (t *migrationTest) deletedUnderLoad(m *move, namespace, name string) {
	t.Helper()
	m.deleted[name] = time.Now()
	t.Expect(t.Gateways.Gateways(namespace).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Expect(t.Gateways.HTTPRoutes(backends).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.small = slices.DeleteFunc(t.small, func(s smallAt) bool { return s.name == name })
}

// migrationWrites returns hypergate's writes in the guest since a time that are writes of a migration.
func (m *move) migrationWrites(since time.Time) (out []string) {
	m.Helper()
	all, err := audit.Read(m.AuditLog(model.SideGuest), m.GuestUser())
	m.Expect(err).NotTo(gomega.HaveOccurred())
	for _, r := range all {
		if kinds, known := kindsOf(r); r.At.After(since) && r.IsWrite() && r.Succeeded() && (!known || len(kinds) > 0) {
			out = append(out, line(r))
		}
	}
	return out
}

// holdRemoved removes the hold of the Gateway that moves last. It is held again before it moves.
func holdRemoved(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	m.request("start")
	m.rolls()
	last := t.small[len(t.small)-1]
	_, err := t.Gateways.Gateways(last.namespace).Patch(t.ctx, last.name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+model.HoldAnnotation+`":null}}}`), metav1.PatchOptions{FieldManager: "guest-admin"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	m.parks()
	again := 0
	m.seen.mu.Lock()
	for _, h := range m.seen.holds {
		if h.gateway == last.String() && h.before == "" && h.after != "" && !h.created {
			again++
		}
	}
	m.seen.mu.Unlock()
	t.Expect(again).To(gomega.Equal(2), "in Hold, and after the removal: the last one is not held once it has moved")
	m.rollsBack()
	m.arrives()
}

func guestAPIAway(t *migrationTest, away time.Duration) {
	t.addTwo()
	m := t.moving()
	m.apiAway = true
	m.request("start")
	m.rolls()
	back := t.withoutGuestAPI()
	m.afterwards(away)
	back()
	m.parks()
	m.rollsBack()
	m.arrives()
}

// operatorsReturn lets the operators of the origin be away during the migration. After Park they return, and their
// istiod is scaled up, twice. hypergate parks it again, at most once a minute.
func operatorsReturn(t *migrationTest) {
	t.origin.Stop()
	m := t.moving()
	m.request("start")
	m.parks()
	var err error
	start := origin.StartOLM
	if t.isSail() {
		start = origin.StartSail
	}
	t.origin, err = start(t.step(), origin.In(t.World), t.istio)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	began := time.Now()
	for range 2 {
		t.returnsAndIsParked()
	}
	writes := m.parkings(began)
	t.Logf("parked again at %v", writes)
	t.Expect(writes).To(gomega.HaveLen(2))
	t.Expect(writes[1].Sub(writes[0])).To(gomega.BeNumerically(">=", parkedEvery-time.Second))
	m.allAt(t.XDS().String())
	t.Expect(t.origin.Err()).NotTo(gomega.HaveOccurred())
	m.rollsBack()
	m.arrives()
}

// releaseUpgraded upgrades the release of Helm after Park. It leaves istiod's replicas as they are.
func releaseUpgraded(t *migrationTest) {
	m := t.moving()
	m.request("start")
	m.parks()
	revision := t.releaseRevisions()
	var err error
	t.origin, err = origin.StartHelm(t.step(), origin.In(t.World), t.istio)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.releaseRevisions()).To(gomega.Equal(revision+1), "helm has upgraded the release")
	m.afterwards(5 * time.Second)
	t.Expect(t.originReplicas()).To(gomega.BeZero())
	m.allAt(t.XDS().String())
	m.rollsBack()
	m.arrives()
}

// releaseRevisions returns how many revisions of the release Helm has stored.
func (t *migrationTest) releaseRevisions() int {
	t.Helper()
	secrets, err := t.GuestClient.CoreV1().Secrets(world.GuestNamespace).List(t.ctx,
		metav1.ListOptions{LabelSelector: "owner=helm,name=" + origin.HelmRelease})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return len(secrets.Items)
}

func (t *migrationTest) isSail() bool {
	t.Helper()
	got, err := t.Gateways.GatewayClasses().Get(t.ctx, class, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	return slices.Contains(got.Finalizers, "openshift.io/ingress-operator-sail-finalizer")
}

// parkings returns when hypergate wrote the replicas of the origin.
func (m *move) parkings(since time.Time) (out []time.Time) {
	m.Helper()
	all, err := audit.Read(m.AuditLog(model.SideGuest), m.GuestUser())
	m.Expect(err).NotTo(gomega.HaveOccurred())
	for _, r := range all {
		kinds, _ := kindsOf(r)
		if r.At.After(since) && r.IsWrite() && r.Succeeded() && slices.Contains(kinds, migration.WriteReplicas) {
			out = append(out, r.At)
		}
	}
	return out
}

// controlPlanes returns the client for the HostedControlPlane.
func (t *fixture) controlPlanes() dynamic.ResourceInterface {
	return t.MgmtDynamic.Resource(world.Resource("hypershift.openshift.io", "v1beta1", "hostedcontrolplanes")).Namespace(t.MgmtNamespace)
}

func (t *migrationTest) patchControlPlane(patch string) {
	t.Helper()
	_, err := t.controlPlanes().Patch(t.ctx, t.GuestName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// controlPlanePaused pauses the HostedControlPlane in Roll. hypergate writes nothing meanwhile, and goes on afterwards.
func controlPlanePaused(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	m.request("start")
	m.rolls()
	t.patchControlPlane(`{"spec":{"pausedUntil":"true"}}`)
	m.afterwards(5 * time.Second)
	began := time.Now()
	m.afterwards(20 * time.Second)
	t.Expect(m.migrationWrites(began)).To(gomega.BeEmpty())
	t.patchControlPlane(`{"spec":{"pausedUntil":null}}`)
	m.parks()
	m.rollsBack()
	m.arrives()
}

// controlPlaneDeleted deletes the HostedControlPlane in Roll. The guest ends with it: hypergate writes nothing more
// in the guest, and gateways serve as long as there are nodes.
func controlPlaneDeleted(t *migrationTest) {
	t.addTwo()
	t.patchControlPlane(`{"metadata":{"finalizers":["example.com/story"]}}`)
	m := t.moving()
	m.request("start")
	m.rolls()
	t.Expect(t.controlPlanes().Delete(t.ctx, t.GuestName, metav1.DeleteOptions{})).To(gomega.Succeed())
	m.afterwards(5 * time.Second)
	began := time.Now()
	m.afterwards(20 * time.Second)
	t.Expect(m.migrationWrites(began)).To(gomega.BeEmpty())
	m.arrives()
}

// classDeleted deletes the only class in Roll. The origin is removed with it. Gateways go on serving. When the class is
// back, the migration ends, in whatever direction it can.
func classDeleted(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	m.request("start")
	m.rolls()
	t.Expect(t.DeleteClass(t.step(), class)).To(gomega.Succeed())
	m.afterwards(30 * time.Second)
	t.Logf("without a class: %+v", t.report())
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	m.parks(migration.Blocked, migration.LockPending)
	m.rollsBack()
	m.arrives()
}

// replacedMeanwhile starts the next ingress operator in Roll: it removes the installation of OLM, and installs by
// itself. istiod in the guest is away meanwhile. Then it is another Deployment with one replica, which follows.
func replacedMeanwhile(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	old, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, origin.Deployment, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	m.request("start")
	m.rolls()
	sailOperator := t.origin
	sailOperator.StopIngressOperator()
	defer sailOperator.Stop()
	t.origin, err = origin.StartSail(t.step(), origin.In(t.World), t.istio)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	m.parks(migration.Blocked)
	var next *appsv1.Deployment
	t.Eventually(func() (types.UID, error) {
		next, err = t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Get(t.ctx, origin.Deployment, metav1.GetOptions{})
		return next.UID, err
	}).ShouldNot(gomega.Equal(old.UID))
	t.Expect(t.origin.Err()).NotTo(gomega.HaveOccurred())
	m.rollsBack()
	m.arrives()
}

// untilReadAgain is how long hypergate waits before it reads a guest again in which nothing is in progress: see
// migrationAtRest of pkg/controller. A shorter look would not notice that it goes on with that.
const untilReadAgain = time.Minute

// restsAfterDone checks that a finished migration costs nothing: no election of istiod, and no request of hypergate.
func (m *move) restsAfterDone() {
	m.Helper()
	m.afterwards(5 * time.Second)
	began := time.Now()
	m.afterwards(untilReadAgain + 30*time.Second)
	all, err := audit.Read(m.AuditLog(model.SideGuest), m.GuestUser(), m.IstiodUser())
	m.Expect(err).NotTo(gomega.HaveOccurred())
	var out []string
	for _, r := range all {
		if r.At.After(began) && r.Verb != "watch" && r.Resource != "tokenreviews" && r.Namespace != m.MgmtNamespace {
			out = append(out, line(r))
		}
	}
	m.Expect(out).To(gomega.BeEmpty())
}
