package e2e_test

import (
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/world"
)

// refusedByName asks for migrations that must not begin: with the command, and with the annotations of the Lease, as
// GitOps does. The command ends with 2 and names the finding. hypergate reports the same, and changes nothing.
func refusedByName(t *migrationTest) {
	m := t.moving()
	began, before := time.Now(), t.versions()
	for _, one := range []unfit{
		{
			migration.IgnoredResources, "AuthorizationPolicy " + backends + "/deny-admin",
			func() { t.Expect(t.ApplyObject(t.step(), authorizationPolicy())).To(gomega.Succeed()) },
			func() {
				t.Expect(t.GuestDynamic.Resource(world.Resource("security.istio.io", "v1", "authorizationpolicies")).Namespace(backends).
					Delete(t.ctx, "deny-admin", metav1.DeleteOptions{})).To(gomega.Succeed())
			},
		},
		{
			migration.ForeignHold, "Gateway " + world.GuestNamespace + "/" + trafficGateway,
			func() { t.annotateEdge(model.HoldAnnotation, `"7"`) }, func() { t.annotateEdge(model.HoldAnnotation, "null") },
		},
		{
			migration.OriginNewer, "Deployment " + world.GuestNamespace + "/" + origin.Deployment,
			func() { t.origin.Stop(); t.versionOfOrigin("1.31.0") },
			func() { t.versionOfOrigin(t.istio.Version) },
		},
	} {
		t.isRefused(one)
	}
	t.Log("an intent that is not one")
	t.byGitOps(`"Roll"`)
	t.Eventually(func() int { code, _ := t.command("status"); return code }).Should(gomega.Equal(2))
	m.afterwards(5 * time.Second)
	t.withoutLease()
	t.Expect(m.migrationWrites(began)).To(gomega.BeEmpty())
	hosted, err := t.hostedIstiod()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(hosted).To(gomega.BeFalse())
	after := t.versions()
	t.Expect(after["gateway"]).To(gomega.Equal(before["gateway"]))
	t.Expect(after["webhook"]).To(gomega.Equal(before["webhook"]))

	t.origin, err = origin.StartOLM(t.step(), origin.In(t.World), t.istio)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.istiodInGuest(1)
	t.Log("two migrations at once")
	m.request("start")
	code, out := t.command("start")
	t.Expect(code).To(gomega.Equal(1), out)
	t.Expect(out).To(gomega.ContainSubstring("a migration is in progress already"))
	m.rollsBack()
	m.arrives()
}

// unfit is a state of the guest in which no migration begins.
type unfit struct {
	code   migration.Code
	object string
	// set makes the guest unfit. unset reverts it.
	set, unset func()
}

// isRefused requests a migration of an unfit guest. The guest is fit again afterwards, also if a check fails.
func (t *migrationTest) isRefused(of unfit) {
	t.Helper()
	defer of.unset()
	of.set()
	t.Logf("%s: the command", of.code)
	code, out := t.command("start")
	t.Expect(code).To(gomega.Equal(2), out)
	t.Expect(out).To(gomega.And(gomega.ContainSubstring("Blocker "+string(of.code)), gomega.ContainSubstring(of.object)))
	t.Logf("%s: the Lease", of.code)
	t.byGitOps(`"start"`)
	defer t.withoutLease()
	t.Eventually(func(g gomega.Gomega) {
		r := t.report()
		g.Expect(r.Progress).To(gomega.BeEquivalentTo(migration.Stopped))
		g.Expect(r.Reason).To(gomega.BeEquivalentTo(migration.Blocked))
		g.Expect(r.Findings).To(gomega.ContainElement(gomega.HaveField("Code", string(of.code))))
	}).Should(gomega.Succeed())
	t.says(map[string]string{status.ControlPlaneDegraded: "True MigrationBlocked: "})
	code, out = t.command("status")
	t.Expect(code).To(gomega.Equal(2), out)
}

func authorizationPolicy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
		"metadata": map[string]any{"name": "deny-admin", "namespace": backends},
		"spec": map[string]any{"action": "DENY", "rules": []any{map[string]any{
			"to": []any{map[string]any{"operation": map[string]any{"paths": []any{"/admin"}}}},
		}}},
	}}
}

func (t *migrationTest) annotateEdge(key, value string) {
	t.Helper()
	t.annotate(smallAt{namespace: world.GuestNamespace, name: trafficGateway}, key, value)
}

// annotate sets an annotation of a Gateway to a value in JSON. The value null removes it.
func (t *migrationTest) annotate(gateway smallAt, key, value string) {
	t.Helper()
	_, err := t.Gateways.Gateways(gateway.namespace).Patch(t.ctx, gateway.name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+key+`":`+value+`}}}`), metav1.PatchOptions{FieldManager: "guest-admin"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// versionOfOrigin sets the label with the version of istiod. The operators would put it back.
func (t *migrationTest) versionOfOrigin(version string) {
	t.Helper()
	_, err := t.GuestClient.AppsV1().Deployments(world.GuestNamespace).Patch(t.ctx, origin.Deployment, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app.kubernetes.io/version":"`+version+`"}}}`), metav1.PatchOptions{FieldManager: "guest-admin"})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// byGitOps creates the Lease with an intent, as GitOps does.
func (t *migrationTest) byGitOps(goal string) {
	t.Helper()
	_, err := t.MgmtClient.CoordinationV1().Leases(t.MgmtNamespace).Patch(t.ctx, migration.LeaseName(world.Revision), types.ApplyPatchType,
		[]byte(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"`+migration.LeaseName(world.Revision)+
			`","annotations":{"`+migration.GoalAnnotation+`":`+goal+`}}}`), metav1.PatchOptions{FieldManager: "gitops", Force: new(true)})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// withoutLease deletes the Lease: there is no request then.
func (t *migrationTest) withoutLease() {
	t.Helper()
	leases := t.MgmtClient.CoordinationV1().Leases(t.MgmtNamespace)
	t.Expect(leases.Delete(t.ctx, migration.LeaseName(world.Revision), metav1.DeleteOptions{})).To(gomega.Succeed())
	t.Consistently(func() (string, error) {
		left, err := leases.Get(t.ctx, migration.LeaseName(world.Revision), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		} else if err != nil {
			return "", err
		}
		return left.Annotations[migration.GoalAnnotation], nil
	}, "3s").Should(gomega.BeEmpty(), "hypergate does not bring a request back")
}
