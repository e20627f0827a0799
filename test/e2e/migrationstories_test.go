package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/world"
)

// TestMigrationFromOLM moves Gateways from an istiod that OLM and the sail-operator have installed, and back. Each
// story begins and ends at that istiod. The last ones do not, and follow from each other.
func TestMigrationFromOLM(t *testing.T) {
	t.Parallel()
	shared := startMigrationTest(t, "e2e-mig-olm", 2)
	t.Cleanup(shared.printRows)
	shared.runAll(migrationsFromOLM())
}

func migrationsFromOLM() []migrationStory {
	stories := []migrationStory{
		{"an OLM guest is ready to move", readyFromOLM},
		{"one Gateway moves, and moves back", thereAndBack},
		{"what does not fit is refused by name, and nothing is changed", refusedByName},
		{"three Gateways move, and move back", threeThereAndBack},
		{"the conditions of the class and the HostedControlPlane follow", conditionsFollow},
	}
	for _, phase := range []migration.Phase{
		migration.StandBy, migration.Hold, migration.Lead, migration.Roll, migration.Park, migration.Retire,
	} {
		stories = append(stories, migrationStory{"rolled back from " + string(phase), func(t *migrationTest) { rolledBackFrom(t, phase) }})
	}
	return append(stories,
		migrationStory{"hypergate is killed after each of 20 changes of the Lease", killedAtEachChange},
		migrationStory{"the istiod in the guest is restarted in each phase", originRestarted},
		migrationStory{"a backend is replaced every 2 s, and what that costs at Lead", backendsReplacedMeanwhile},
		migrationStory{"the published address is away while Gateways roll", publishedAddressAway},
		migrationStory{"the published address stays away, and the migration stops after ten minutes", publishedAddressStaysAway},
		migrationStory{"Gateways and routes are made, changed and deleted while others are held", changedWhileHeld},
		migrationStory{"a hold that another client removes is set again, or the migration stops", holdRemoved},
		migrationStory{"the guest denies the release of a Gateway, and the replicas of its istiod", writesDenied},
		migrationStory{"the guest's API is away for 30 s while Gateways roll", func(t *migrationTest) { guestAPIAway(t, shortAway) }},
		migrationStory{"the guest's API is away for 3 minutes while Gateways roll", func(t *migrationTest) { guestAPIAway(t, longAway) }},
		migrationStory{"Gateways with two and three pods move, and move back", morePods},
		migrationStory{"the operators return after Park, and it stays parked", operatorsReturn},
		migrationStory{"the HostedControlPlane is paused while Gateways roll", controlPlanePaused},
		migrationStory{"five Gateways move, and move back", func(t *migrationTest) { many(t, 5) }},
		migrationStory{"twelve Gateways in four namespaces move, and move back", func(t *migrationTest) { many(t, 12) }},
		migrationStory{"the class is deleted while Gateways roll", classDeleted},
		migrationStory{"the owner deletes the resource Istio, and the migration is done", ownerRemoves},
	)
}

// TestMigrationReplaced begins with OLM. In the middle of the way to the hosted istiod, the ingress operator replaces
// that installation by its own one.
func TestMigrationReplaced(t *testing.T) {
	t.Parallel()
	shared := startMigrationTest(t, "e2e-mig-repl", 2)
	t.Cleanup(shared.printRows)
	shared.runAll([]migrationStory{
		{"an OLM guest is ready to move", readyFromOLM},
		{"the ingress operator replaces the installation while Gateways roll", replacedMeanwhile},
		{"the HostedControlPlane is deleted while Gateways roll", controlPlaneDeleted},
	})
}

// TestMigrationFromSail moves Gateways from an istiod that the sail library of the ingress operator has installed.
func TestMigrationFromSail(t *testing.T) {
	t.Parallel()
	shared := startMigrationTest(t, "e2e-mig-sail", 2)
	t.Cleanup(shared.printRows)
	shared.runAll([]migrationStory{
		{"a guest of the sail library is ready to move", readyFromSail},
		{"one Gateway moves, and moves back", thereAndBack},
		{"rolled back from Roll", func(t *migrationTest) { t.addTwo(); rolledBackFrom(t, migration.Roll) }},
		{"five Gateways move, and move back", func(t *migrationTest) { many(t, 5) }},
		{"the operators return after Park, and it stays parked", operatorsReturn},
		{"the ingress operator stands down, and the migration is done", ownerRemoves},
	})
}

// TestMigrationFromHelm moves Gateways from an istiod that an administrator of the guest has installed with helm.
func TestMigrationFromHelm(t *testing.T) {
	t.Parallel()
	shared := startMigrationTest(t, "e2e-mig-helm", 2)
	t.Cleanup(shared.printRows)
	shared.runAll([]migrationStory{
		{"a guest of Istio's Helm chart is ready to move", readyFromHelm},
		{"three Gateways move, and move back", threeThereAndBack},
		{"rolled back from Roll", func(t *migrationTest) { rolledBackFrom(t, migration.Roll) }},
		{"a Gateway is left out, and moves when its annotation is removed", oneStays},
		{"the release is upgraded after Park, and it stays parked", releaseUpgraded},
		{"the release is uninstalled, and the migration is done", ownerRemoves},
	})
}

// TestMigrationStandalone moves Gateways of a standalone cluster. Its hosted istiod is in a namespace of its own, on
// the same API server. See deploy/standalone-own-namespace.
func TestMigrationStandalone(t *testing.T) {
	t.Parallel()
	shared := startMigrationTestIn(t, world.Options{
		Name: "e2e-mig-one", Topology: model.TopologyStandalone, Folder: world.StandaloneOwnNamespace, RealGateways: true,
	})
	t.Cleanup(shared.printRows)
	shared.runAll([]migrationStory{
		{"an OLM cluster is ready to move", readyFromOLM},
		{"one Gateway moves, and moves back", thereAndBack},
		{"three Gateways move, and move back", threeThereAndBack},
		{"rolled back from Roll", func(t *migrationTest) { rolledBackFrom(t, migration.Roll) }},
		{"the operators return after Park, and it stays parked", operatorsReturn},
		{"the owner deletes the resource Istio, and the migration is done", ownerRemoves},
	})
}

// TestMigrationByTunnel moves Gateways to two hosted istiods behind the tunnel. Without a HostedControlPlane, the
// number of istiods is a flag.
func TestMigrationByTunnel(t *testing.T) {
	t.Parallel()
	shared := startMigrationTest(t, "e2e-mig-tun", 2)
	shared.withoutPlane, shared.settings = true, append(world.ByTunnel(), "--replicas=2")
	t.Cleanup(shared.printRows)
	shared.runAll([]migrationStory{
		{"an OLM guest is ready to move", readyFromOLM},
		{"three Gateways move to two istiods behind the tunnel, and move back", twoBehindTheTunnel},
	})
}

func readyFromOLM(t *migrationTest) {
	t.ready(func() (*origin.Origin, error) { return origin.StartOLM(t.step(), origin.In(t.World), t.istio) })
}

func readyFromSail(t *migrationTest) {
	t.ready(func() (*origin.Origin, error) { return origin.StartSail(t.step(), origin.In(t.World), t.istio) })
}

func readyFromHelm(t *migrationTest) {
	t.ready(func() (*origin.Origin, error) { return origin.StartHelm(t.step(), origin.In(t.World), t.istio) })
	_, out := t.command("plan")
	t.Expect(out).To(gomega.ContainSubstring("Origin  Helm: istiod ")) // all origins have a label of Helm
}

// ready makes a guest with an origin and one Gateway. hypergate has the permissions of a migration, and stands by.
func (t *migrationTest) ready(start func() (*origin.Origin, error)) {
	t.Helper()
	standalone := t.Topology == model.TopologyStandalone
	if !standalone && !t.withoutPlane {
		t.Expect(t.AddControlPlane(t.step())).To(gomega.Succeed())
	}
	var err error
	t.origin, err = start()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	t.istiodInGuest(1)
	t.firstEdge(start)
	if !standalone { // whose folder of deploy/ has these permissions
		t.Expect(t.AllowMigration(t.step())).To(gomega.Succeed())
	}
	t.backAtOrigin()
	code, out := t.command("plan")
	t.Log("\n" + out)
	t.Expect(code).To(gomega.BeZero(), out)
}

// firstEdge makes the first gateway. Its controls need the origin's operators to be away for a while: the ingress
// operator would put its label of a revision back.
func (t *migrationTest) firstEdge(start func() (*origin.Origin, error)) {
	t.Helper()
	t.stopOperators = func() (restart func()) {
		t.origin.Stop()
		return func() {
			var err error
			t.origin, err = start()
			t.Expect(err).NotTo(gomega.HaveOccurred())
		}
	}
	t.edgeAt = t.edge()
}

func (t *migrationTest) addTwo() {
	t.Helper()
	if len(t.small) == 0 {
		t.add("team-a", "small-a")
		t.add("team-b", "small-b")
	}
}

func thereAndBack(t *migrationTest) {
	m := t.moving()
	m.undisturbed = true
	m.request("start")
	m.parks()
	m.rollsBack()
	m.arrives()
}

func threeThereAndBack(t *migrationTest) {
	t.addTwo()
	thereAndBack(t)
}

// twoBehindTheTunnel: each relay has a tunnel to each istiod, of which one leads. hypergate asks both which Gateways
// are connected, through the relays. No relay stays back at the origin.
func twoBehindTheTunnel(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	m.request("start")
	m.parks()
	t.rolledOutTo(2)
	t.eachRelayHolds(2)
	m.rollsBack()
	t.noRelayStays()
	m.arrives()
}

// rolledBackFrom asks for the way back while the migration is in a phase. Hold lasts for one step, so a policy of the
// guest denies one of the holds.
func rolledBackFrom(t *migrationTest, phase migration.Phase) {
	allow := func() {}
	if phase == migration.Hold {
		allow = t.denyHoldOfEdge()
	}
	m := t.moving()
	m.request("start")
	switch phase {
	case migration.Park:
		m.parks()
	case migration.Retire:
		m.parks()
		m.request("retire")
		m.until("it waits for the owner", waitsForOwner)
	case migration.Roll:
		m.rolls()
	case migration.StandBy:
		m.reaches(phase)
		m.Eventually(m.hostedIstiod).Should(gomega.BeTrue(), "the hosted istiod is being installed")
	default:
		m.reaches(phase)
	}
	m.request("rollback")
	asked := m.until("the rollback is requested", func(r migration.Record) bool { return r.Intent.Goal == migration.Backward })
	t.Expect(asked.record.Memo.Phase).To(gomega.Equal(phase), "where the way back began")
	allow()
	m.returned()
	m.arrives()
}

// oneStays leaves a Gateway where it is, on both ways. Both istiods serve meanwhile: also in a namespace that is new, a
// Gateway gets the roots of the hosted one. When the annotation is removed, the migration goes on without a further
// request.
func oneStays(t *migrationTest) {
	t.addTwo()
	stays := t.small[0]
	skip := func(value string) { t.annotate(stays, migration.SkipAnnotation, value) }
	m := t.moving()
	skip(`"true"`)
	m.request("start")
	m.leavesOut(stays)
	t.Expect(t.deployedBy(addressOfOrigin)).To(gomega.ConsistOf(stays.String()))
	t.Expect(t.originReplicas()).To(gomega.BeNumerically(">", 0))
	t.Expect(t.publisher()).To(gomega.HavePrefix(model.HostedIdentity))
	t.add("team-new", "made")
	skip("null")
	m.parks()

	skip(`"true"`)
	m.request("rollback")
	m.leavesOut(stays)
	t.Expect(t.deployedBy(t.published())).To(gomega.ConsistOf(stays.String()))
	t.Expect(t.hostedIstiod()).To(gomega.BeTrue())
	skip("null")
	m.returned()
	m.arrives()
	t.remove("made")
}

// publisher returns the name of the istiod that publishes its roots, of those that take part in elections
// (istio pilot/pkg/leaderelection/leaderelection.go, NamespaceController).
func (t *migrationTest) publisher() string {
	t.Helper()
	locks := t.GuestClient.CoreV1().ConfigMaps(world.GuestNamespace)
	lock, err := locks.Get(t.ctx, "istio-namespace-controller-election", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	var record struct{ HolderIdentity string }
	t.Expect(json.Unmarshal([]byte(lock.Annotations["control-plane.alpha.kubernetes.io/leader"]), &record)).To(gomega.Succeed())
	return record.HolderIdentity
}

// leavesOut waits until all Gateways but one have moved. Then each one is configured by the istiod that it is at.
func (m *move) leavesOut(stays smallAt) {
	m.Helper()
	m.until("all but "+stays.String()+" have moved", func(r migration.Record) bool { return ended(r, migration.Skipped) })
	code, out := m.command("status")
	m.Log("\n" + out)
	m.Expect(code).To(gomega.Equal(2), out)
	m.Expect(out).To(gomega.And(gomega.ContainSubstring("ended: Skipped"), gomega.ContainSubstring(migration.SkipAnnotation)))
	m.reconfiguredEverywhere()
}

// waitsForOwner reports whether a migration waits until the owner removes the istiod in the guest.
func waitsForOwner(r migration.Record) bool { return r.Report.Why == migration.OriginExists }

// conditionsFollow reads the conditions on the way to the hosted istiod, at its end, and at the end of the way back.
// Then hypergate stands by again, as before the migration: it installs nothing beside the istiod in the guest.
func conditionsFollow(t *migrationTest) {
	t.addTwo()
	m := t.moving()
	m.request("start")
	m.rolls()
	m.says(map[string]string{
		status.MigrationCondition: "True Roll: ", status.ControlPlaneProgressing: "True Migrating: migration, phase Roll: ",
		status.ControlPlaneDegraded: "False ", status.ControlPlaneUpgradeable: "False ", status.ControlPlaneAvailable: "True ",
	})
	m.parks()
	m.says(map[string]string{
		status.MigrationCondition: "False Park: ", status.ControlPlaneProgressing: "False ", status.ControlPlaneDegraded: "False ",
		status.ControlPlaneUpgradeable: "True ", status.ControlPlaneAvailable: "True ",
	})
	m.rollsBack()
	m.says(map[string]string{
		status.MigrationCondition: "False Check: ", status.ControlPlaneProgressing: "False Blocked: ",
		status.ControlPlaneDegraded: "True ", status.ControlPlaneUpgradeable: "Unknown PlanRejected: ",
	})
	m.arrives()
}

// says waits until the conditions of the GatewayClass and the HostedControlPlane begin with texts: the status, the
// reason, and the message.
func (t *migrationTest) says(texts map[string]string) {
	t.Helper()
	for kind, text := range texts {
		read := func() (string, error) { return t.planeText(kind) }
		if kind == status.MigrationCondition {
			read = func() (string, error) {
				c := t.condition(kind)
				return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
			}
		}
		t.Eventually(read).Should(gomega.HavePrefix(text), kind)
		said, _ := read() // for the log alone
		t.Logf("%s: %s", kind, said)
	}
}

// many adds Gateways in three further namespaces, so that there are that many.
func many(t *migrationTest, gateways int) {
	var added []string
	for i := len(t.gateways()); i < gateways; i++ {
		name := fmt.Sprintf("more-%d", i)
		t.add([]string{"team-a", "team-b", "team-c", world.GuestNamespace}[i%4], name)
		added = append(added, name)
	}
	thereAndBack(t)
	t.remove(added...)
}

// morePods gives the Gateways two and three pods, as an autoscaler would.
func morePods(t *migrationTest) {
	t.addTwo()
	for i, g := range t.gateways() {
		replicas := int32(2 + i%2)
		t.scale(g.namespace, g.name+"-"+class, replicas)
		defer t.scale(g.namespace, g.name+"-"+class, 1)
	}
	thereAndBack(t)
}

// ownerRemoves goes to the end: after Park, the owner of the installation removes it. Then hypergate runs istiod
// without elections, and a rollback is not possible.
func ownerRemoves(t *migrationTest) {
	m := t.moving()
	m.request("start")
	m.parks()
	m.request("retire")
	m.until("it waits for the owner", waitsForOwner)
	before := m.rollouts()
	m.Expect(t.origin.Remove(m.ctx)).To(gomega.Succeed())
	m.ends(migration.Finished)
	m.allAt(m.XDS().String())
	m.Expect(m.heldEverywhere()).To(gomega.BeEmpty())
	m.reconfiguredEverywhere()
	m.Expect(m.rollouts()).To(gomega.Equal(before), "no pod of a gateway is replaced when the origin is removed")
	d := m.istiodPod()
	elections := ""
	for _, e := range d.Spec.Containers[0].Env {
		if e.Name == "ENABLE_LEADER_ELECTION" {
			elections = e.Value
		}
	}
	m.Expect(elections).To(gomega.Equal("false"))
	code, out := m.command("rollback")
	m.Expect(code).To(gomega.Equal(1), out)
	m.Expect(out).To(gomega.ContainSubstring("a rollback is not possible"))
	m.arrives()
	m.restsAfterDone()
}
