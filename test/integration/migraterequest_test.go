package integration_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/hang"
)

// operatorKubeconfig applies deploy/migration-operator for the names of this story, and returns the kubeconfig of a
// user with this role alone.
func (w *migrationWorld) operatorKubeconfig() string {
	w.Helper()
	objects, err := deploy.Render("migration-operator")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	user := "operator-" + w.cfg.Revision
	for _, u := range objects {
		data, err := u.MarshalJSON()
		w.Expect(err).NotTo(gomega.HaveOccurred())
		text := strings.NewReplacer(`openshift-gateway"`, w.cfg.Revision+`"`, `"hypergate-migration-operator"`, `"`+user+`"`)
		w.Expect(u.UnmarshalJSON([]byte(text.Replace(string(data))))).To(gomega.Succeed())
	}
	w.Expect(deploy.Apply(w.Context(), w.pair.Mgmt.Config, objects)).To(gomega.Succeed())
	_, err = w.mgmt.RbacV1().RoleBindings(w.cfg.MgmtNamespace).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	roles, err := audit.RolesOf(objects)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range roles {
		roles[i].Namespace = w.cfg.MgmtNamespace // they are bound there
	}
	w.Expect(deploy.TakesEffect(w.Context(), w.pair.Mgmt.Config, user, audit.Permissions(roles), true)).To(gomega.Succeed())
	config, err := clientcmd.LoadFromFile(w.pair.Mgmt.Kubeconfig)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := filepath.Join(w.TempDir(), "operator")
	w.Expect(clientcmd.WriteToFile(*config, path)).To(gomega.Succeed())
	return path
}

// migrate runs a command of hypergate migrate as that user, and returns its exit code and output.
func (w *migrationWorld) migrate(kubeconfig, verb string, args ...string) (code int, output string) {
	w.Helper()
	return w.migrateUntil(w.Context(), kubeconfig, verb, args...)
}

// migrateUntil is migrate with a context, whose end interrupts the command.
func (w *migrationWorld) migrateUntil(ctx context.Context, kubeconfig, verb string, args ...string) (code int, output string) {
	w.Helper()
	var out bytes.Buffer
	line := append([]string{
		"migrate", verb, "--kubeconfig=" + kubeconfig, "-n=" + w.cfg.MgmtNamespace, "--revision=" + w.cfg.Revision,
	}, args...)
	if verb == "start" {
		line = append(line, "--guest-kubeconfig="+w.kubeconfig, "--guest-namespace="+w.cfg.GuestNamespace,
			"--controller-name="+w.cfg.ControllerName)
	}
	code = app.Execute(ctx, line, &out, &out)
	return code, out.String()
}

// lease returns the Lease of the migration.
func (w *migrationWorld) lease() *coordinationv1.Lease {
	w.Helper()
	lease, err := w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace).
		Get(w.Context(), migration.LeaseName(w.cfg.Revision), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return lease
}

// annotate plays another client of the Lease: hypergate, or GitOps.
func (w *migrationWorld) annotate(key, value string) {
	w.Helper()
	_, err := w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace).Patch(w.Context(), migration.LeaseName(w.cfg.Revision),
		types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":`+value+`}}}`), metav1.PatchOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// TestAMigrationIsRequested runs the requests with the permissions of deploy/migration-operator alone, against a real
// API server. What is refused changes nothing.
func TestAMigrationIsRequested(t *testing.T) {
	w := newMigrationWorld(t)
	w.Eventually(func() string { _, out := w.plan(); return out }).ShouldNot(gomega.ContainSubstring("MissingPermissions"))
	user := w.operatorKubeconfig()
	expect := func(code int, want, verb string, args ...string) {
		t.Helper()
		got, out := w.migrate(user, verb, args...)
		t.Logf("%s: exit code %d\n%s", verb, got, out)
		w.Expect(got).To(gomega.Equal(code), out)
		w.Expect(out).To(gomega.ContainSubstring(want))
	}
	expect(0, "none was requested, and the Lease does not exist", "status")
	for _, verb := range []string{"pause", "resume", "rollback", "retire"} {
		expect(1, "no migration was started: the Lease hypergate-migration-"+w.cfg.Revision+" does not exist", verb)
	}

	t.Log("a finding blocks: nothing is written")
	hold := func(value string) {
		_, err := w.gateway.Gateways(w.namespace).Patch(t.Context(), "small", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+model.HoldAnnotation+`":`+value+`}}}`), metav1.PatchOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
	hold(`"1000"`)
	expect(2, "Blocker ForeignHold", "start")
	expect(0, "the Lease does not exist", "status")
	hold("null")

	t.Log("each request, and what is refused")
	expect(0, "start requested at", "start", "--allow-untested")
	w.Expect(w.lease().Annotations).To(gomega.And(
		gomega.HaveKeyWithValue(migration.GoalAnnotation, "start"),
		gomega.HaveKeyWithValue(migration.AcceptedAnnotation, "OriginUntested")))
	version := w.lease().ResourceVersion
	expect(1, "a migration is in progress already", "start")
	expect(1, "nothing to resume", "resume")
	w.Expect(w.lease().ResourceVersion).To(gomega.Equal(version))
	expect(3, "hypergate has not answered it yet", "status")
	var code int
	var out string
	// A busy machine may need longer to ask.
	for after := 3 * time.Second; code != 3 && after < hang.Deadline; after *= 2 {
		interrupted, cancel := context.WithTimeout(t.Context(), after)
		code, out = w.migrateUntil(interrupted, user, "status", "--watch")
		cancel()
	}
	w.Expect(code).To(gomega.Equal(3), "an interrupted --watch ends with the code of the last state: %s", out)
	expect(0, "pause requested at", "pause")
	version = w.lease().ResourceVersion
	expect(0, "pause was requested before; nothing is changed", "pause")
	w.Expect(w.lease().ResourceVersion).To(gomega.Equal(version))
	expect(0, "resume requested at", "resume")
	w.Expect(w.lease().Annotations).NotTo(gomega.HaveKey(migration.PausedAnnotation))
	expect(0, `"request": "rollback"`, "rollback", "-o", "json")
	expect(1, "retire is possible only after start", "retire")

	t.Log("another client sets what is not a goal, and hypergate reports the end")
	w.annotate(migration.GoalAnnotation, `"Roll"`)
	expect(2, `unsupported goal "Roll"`, "status")
	expect(1, "correct the annotation, or remove it", "pause")
	w.annotate(migration.GoalAnnotation, `"retire"`)
	i, err := migration.ParseIntent(w.lease().Annotations)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	report, err := migration.Report{Intent: i, Phase: migration.Done, Progress: migration.Ended, Why: migration.Finished}.Encode()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.annotate(migration.ReportAnnotation, strconv.Quote(report))
	expect(1, "a rollback is not possible", "rollback")
	expect(0, "ended: Finished", "status", "--watch")
}

// TestARollbackWithoutAnOriginGoesForward checks that the next step of a rollback that has stopped because the istiod
// in the guest was removed is possible: the check does not block a start then. Without a migration that has begun, it
// does.
func TestARollbackWithoutAnOriginGoesForward(t *testing.T) {
	w := newMigrationWorld(t)
	w.Eventually(func() string { _, out := w.plan(); return out }).ShouldNot(gomega.ContainSubstring("MissingPermissions"))
	user := w.operatorKubeconfig()
	w.Expect(w.guest.AppsV1().Deployments(w.cfg.GuestNamespace).Delete(t.Context(), w.cfg.IstiodName(), metav1.DeleteOptions{})).
		To(gomega.Succeed())
	code, out := w.migrate(user, "start", "--allow-untested")
	w.Expect(code).To(gomega.Equal(2), out)

	i := migration.Intent{Goal: migration.Backward, At: time.Now().Add(-time.Hour).Truncate(time.Second)}
	report, err := migration.Report{Intent: i, Phase: migration.Lead, Progress: migration.Stopped, Why: migration.OriginGone}.Encode()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: migration.LeaseName(w.cfg.Revision), Annotations: map[string]string{migration.ReportAnnotation: report},
	}}
	for key, value := range i.Annotations() {
		if value != "" {
			lease.Annotations[key] = value
		}
	}
	_, err = w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace).Create(t.Context(), lease, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	code, out = w.migrate(user, "status")
	w.Expect(code).To(gomega.Equal(2), out)
	w.Expect(out).To(gomega.ContainSubstring("hypergate migrate start"))
	code, out = w.migrate(user, "start", "--allow-untested")
	w.Expect(code).To(gomega.Equal(0), out)
	w.Expect(w.lease().Annotations).To(gomega.HaveKeyWithValue(migration.GoalAnnotation, "start"))
}
