package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	fleetclient "github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/capi"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/hypershift"
)

// command runs a command on the management cluster and returns its exit code and output.
func command(t *testing.T, pair *planes.Pair, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = app.Execute(t.Context(), append(args, "--kubeconfig="+pair.Mgmt.Kubeconfig), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// status returns what the command status shows of the world's installation, and its exit code.
func (w *harness) status(args ...string) (int, summary.Reading) {
	w.Helper()
	code, out, errOut := command(w.T, w.pair, append([]string{"status", "-n", w.cfg.MgmtNamespace, "-o=json"}, args...)...)
	var report struct{ Installations []summary.Reading }
	if out != "" {
		w.Expect(json.Unmarshal([]byte(out), &report)).To(gomega.Succeed(), out)
	}
	if len(report.Installations) != 1 {
		return code, summary.Reading{Why: errOut}
	}
	return code, report.Installations[0]
}

// leaseWrites returns the writes to the Lease, and checks that there is no other way of writing than an update.
func (w *harness) leaseWrites() (n int) {
	w.Helper()
	for _, request := range writes(w.mgmtRequests.since(0)) {
		if strings.Contains(request, "/leases") {
			n++
			w.Expect(request).To(gomega.Or(gomega.HavePrefix(http.MethodPut), gomega.HavePrefix(http.MethodPost)))
		}
	}
	return n
}

// TestTheLeaseHasASummary checks that the state of an installation is on its Lease, after a restart too, and that the
// summary costs no write.
func TestTheLeaseHasASummary(t *testing.T) {
	w := newHarness(t)
	w.removeCRDs(dynamic.NewForConfigOrDie(w.pair.Guest.Config)) // another test may have left CRDs of another owner
	// Without Istio resources there is no webhook. Nothing here could answer its probe.
	w.cfg.IstioResources, w.elects = nil, true
	code, none := w.status()
	w.Expect(code).To(gomega.Equal(1))
	w.Expect(none.Why).To(gomega.ContainSubstring("no Lease of hypergate in namespace %q", w.cfg.MgmtNamespace))

	begun := time.Now()
	stop := w.run()
	w.Eventually(func() summary.State { _, r := w.status(); return r.State }).Should(gomega.Equal(summary.Unreported))
	w.install("demo")
	w.Expect(w.mgmt.CoreV1().ConfigMaps(w.cfg.MgmtNamespace).
		Delete(t.Context(), "istio-"+w.cfg.Revision+"-a", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.settle()
	// A summary of the time before, which the Lease can have until its next renewal, is not the one that counts.
	w.Eventually(func() int64 {
		_, r := w.status()
		if r.Summary == nil {
			return -1
		}
		return r.Summary.Repairs
	}).Should(gomega.Equal(int64(1)))
	code, got := w.status("--wait=5m", "--for=upgradeable")
	w.Expect(code).To(gomega.BeZero(), got.Why)
	w.Expect(got.State).To(gomega.Equal(summary.OK), got.Why)
	w.Expect(w.leaseWrites()).To(gomega.BeNumerically("<=", 3+int(time.Since(begun)/(26*time.Second))),
		"the Lease is created, renewed at once, and then every 26 s")

	s := got.Summary
	w.Expect([]any{s.Topology, s.Lifecycle, s.Classes, s.Istiod.State, s.CA.Phase, s.Repairs, s.CRDs.Ours}).
		To(gomega.Equal([]any{"hosted", summary.Active, 1, summary.IstiodServing, summary.PhaseSteady, int64(1), 6}))
	w.Expect([]int{s.Istiod.Ready, s.Istiod.Wanted}).To(gomega.Equal([]int{1, 1}))
	w.Expect(s.Published).To(gomega.Equal(summary.Published{
		Strategy: "address", Address: "istiod.apps.example.com:443", State: summary.PublishedUnprobed,
	}))
	w.Expect(time.Until(s.Token.Until)).To(gomega.BeNumerically("~", time.Hour, 10*time.Minute))
	w.Expect(s.GuestCredential.Until).To(gomega.BeTemporally(">", time.Now()))
	w.Expect(s.CA.Expires).To(gomega.BeTemporally(">", time.Now().AddDate(4, 0, 0)))
	w.Expect(s.Writes).To(gomega.BeNumerically(">", 20))

	t.Log("it is one line of limited size")
	lease, err := w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace).Get(t.Context(), "hypergate-"+w.cfg.Revision, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	annotation := lease.Annotations[summary.Annotation]
	w.Expect(len(annotation)).To(gomega.BeNumerically("<=", summary.MaxSize))
	t.Logf("%d bytes: %s", len(annotation), annotation)
	_, table, _ := command(t, w.pair, "status", "-n", w.cfg.MgmtNamespace)
	t.Log("\n" + table)

	t.Log("a forged summary is reported, and replaced with the next renewal")
	forged := fmt.Sprintf(`{"metadata":{"annotations":{%q:"ok"}}}`, summary.Annotation)
	w.Eventually(func(g gomega.Gomega) { // the renewal can come first
		_, err := w.mgmt.CoordinationV1().Leases(w.cfg.MgmtNamespace).
			Patch(t.Context(), lease.Name, types.MergePatchType, []byte(forged), metav1.PatchOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		code, got := w.status()
		g.Expect([]any{code, got.State}).To(gomega.Equal([]any{2, summary.Unreadable}), got.Why)
	}).Should(gomega.Succeed())

	t.Log("the pod ends, and another one begins: the summary stays, and its conditions keep their times")
	code, _ = w.status("--wait=5m")
	w.Expect(code).To(gomega.BeZero())
	stop()
	code, got = w.status()
	w.Expect([]any{code, got.State}).To(gomega.Equal([]any{3, summary.Unreported}), got.Why)
	before := got.Summary
	w.run()
	w.Eventually(func() bool {
		_, got = w.status()
		return got.State == summary.OK && got.Summary.Time.After(before.Time)
	}).Should(gomega.BeTrue())
	w.Expect(got.Summary.Condition(summary.Available).Since).To(gomega.Equal(before.Condition(summary.Available).Since))
}

// TestACAPIClusterHasAStatus checks the summary of a Cluster of Cluster API, which has no conditions of hypergate.
func TestACAPIClusterHasAStatus(t *testing.T) {
	w := withClusterAPI(t, capi.V1Beta2)
	w.elects = true
	w.createCluster()
	w.initialize()
	access := w.access("first")
	w.putSecret(access)
	w.run()
	w.install("demo")
	code, got := w.status("guest1", "--wait=5m")
	w.Expect(code).To(gomega.BeZero(), got.Why)
	w.Expect(got.Summary.Guest).To(gomega.Equal("guest1"))
	w.Expect(got.Summary.GuestCredential.From).NotTo(gomega.BeZero(), "the kubeconfig has a token")

	t.Log("a pause")
	w.patchCluster(`{"spec":{"paused":true}}`)
	w.Eventually(func() summary.State { _, got = w.status(); return got.State }).Should(gomega.Equal(summary.OnHold))
	w.Expect(got.Why).To(gomega.And(gomega.ContainSubstring("paused by spec.paused "), gomega.Not(gomega.ContainSubstring("pausedUntil"))))
	w.Expect(got.Summary.Condition(summary.Available).Status).To(gomega.Equal(summary.True))
	w.patchCluster(`{"spec":{"paused":null}}`)

	t.Log("the kubeconfig is replaced by one that cannot be used: an action is required")
	w.putSecret(access, func(s *corev1.Secret) { s.Data["value"] = []byte("none") })
	code, _ = w.status("--for=degraded", "--wait=5m")
	w.Expect(code).To(gomega.BeZero())
	code, got = w.status()
	w.Expect([]any{code, got.State}).To(gomega.Equal([]any{2, summary.IsDegraded}), got.Why)
	w.Expect(got.Why).To(gomega.HavePrefix("GuestKubeconfig: "))
	_, table, _ := command(t, w.pair, "status", "-n", w.cfg.MgmtNamespace)
	t.Log("\n" + table)
}

// TestTheFleet lists 300 installations among 3,000 other Leases, with the permissions of deploy/fleet alone.
func TestTheFleet(t *testing.T) {
	needsServers(t)
	t.Parallel()
	g := hang.Gomega(t)
	own, err := planes.StartPlane(t.Context(), "fleet", filepath.Join(t.TempDir(), "fleet"), false)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(own.Stop)
	createFleet(t, kubernetes.NewForConfigOrDie(own.Config), fleetSize, foreignLeases)
	user := grantFleet(t, own)

	t.Log("the requests")
	config, err := clientcmd.BuildConfigFromFlags("", user)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	sent := &requests{}
	reader, err := fleetclient.New(counted(config, sent))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	begun := time.Now()
	found, err := reader.Fleet(t.Context(), "")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Logf("%d installations by %d requests in %s: %q", len(found.Installations), sent.count(), time.Since(begun), sent.since(0))
	g.Expect(found.Installations).To(gomega.HaveLen(fleetSize))
	g.Expect(sent.count()).To(gomega.BeNumerically("<=", 10))
	g.Expect(found.Notes).To(gomega.BeEmpty())

	fleetByPages(t, own, reader, sent)
	fleetOfHyperShift(t, own, reader)

	t.Log("the command")
	run := func(args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := app.Execute(t.Context(), append(args, "--kubeconfig="+user), &out, &errOut)
		return code, out.String(), errOut.String()
	}
	code, out, errOut := run("fleet")
	g.Expect(code).To(gomega.Equal(2), errOut)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Log("\n" + strings.Join(lines[:8], "\n"))
	g.Expect(lines[0]).To(gomega.Equal("300 installations: 298 ok, 1 UNREADABLE, 1 SILENT"))
	g.Expect(lines).To(gomega.HaveLen(fleetSize + 5))
	g.Expect(lines[2]).To(gomega.Equal("1 hosted cluster without hypergate"))
	g.Expect(lines[5]).To(gomega.And(gomega.HavePrefix("SILENT"), gomega.ContainSubstring("fleet-0")))

	t.Log("its output is closed")
	closed, output := io.Pipe()
	g.Expect(closed.Close()).To(gomega.Succeed())
	var problem bytes.Buffer
	g.Expect(app.Execute(t.Context(), []string{"fleet", "--kubeconfig=" + user}, output, &problem)).To(gomega.Equal(1))
	g.Expect(problem.String()).To(gomega.Equal("hypergate: printing the report: io: read/write on closed pipe\n"))

	t.Log("one namespace, and other errors")
	code, _, _ = run("fleet", "-n", "fleet-7")
	g.Expect(code).To(gomega.BeZero())
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no hypergate":       {[]string{"fleet", "-n", "default"}, `no Lease of hypergate in namespace "default"`},
		"no such namespace":  {[]string{"status", "-n", "clusters-none"}, "check the namespace"},
		"no such guest":      {[]string{"status", "-n", "fleet-7", "guest9"}, "there is one for guest7"},
		"no such context":    {[]string{"fleet", "--context=none"}, `context "none" does not exist`},
		"two ways of output": {[]string{"fleet", "-w", "-o", "json"}, "--watch prints lines of a table"},
	} {
		code, out, errOut := run(tc.args...)
		if code != 1 || out != "" || !strings.Contains(errOut, tc.want) {
			t.Errorf("%s: code %d, output %q, error %q", name, code, out, errOut)
		}
	}
}

// TestAFleetIsWatched checks that fleet and status with --watch print a change, with the permissions of deploy/fleet.
func TestAFleetIsWatched(t *testing.T) {
	needsServers(t)
	t.Parallel()
	own, err := planes.StartPlane(t.Context(), "watched", filepath.Join(t.TempDir(), "watched"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	client := kubernetes.NewForConfigOrDie(own.Config)
	createFleet(t, client, 10, 0)
	user := grantFleet(t, own)
	if got := watchChanges(t, client, user, "fleet", "fleet-7", "ok ", "UNREADABLE "); len(got) != 6 {
		t.Errorf("%q: want a list with a header, and one change", got)
	}
	got := watchChanges(t, client, user, "status", "fleet-9", "guest9   ok", "  guest9  state: unreadable: ")
	if len(got) < 3 || !strings.Contains(got[len(got)-1], "state: unreadable") {
		t.Errorf("%q: want a table, and one change", got)
	}
}

// fleetByPages checks that a fleet is read page by page, and that a Cluster without hypergate is found.
func fleetByPages(t *testing.T, own *planes.Plane, reader *fleetclient.Client, sent *requests) {
	t.Helper()
	g := hang.Gomega(t)
	t.Log("page by page, with two Clusters, of which one has no hypergate")
	_, err := capi.Serve(t.Context(), own.Config, capi.V1Beta2)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	for namespace, name := range map[string]string{"fleet-7": "guest7", "default": "lonely"} {
		clusters, err := capi.Clusters(own.Config, capi.V1Beta2, namespace)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = clusters.Create(t.Context(), capi.Cluster(capi.V1Beta2, namespace, name), metav1.CreateOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}
	before := sent.count()
	reader.PageSize = 100
	again, err := reader.Fleet(t.Context(), "")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(again.Notes).To(gomega.BeEmpty())
	g.Expect(again.Installations).To(gomega.HaveLen(fleetSize))
	g.Expect(again.Without).To(gomega.Equal([]fleetclient.Cluster{{Kind: "Cluster", Namespace: "default", Name: "lonely"}}))
	t.Logf("%q", sent.since(before))
	g.Expect(sent.count()-before).To(gomega.Equal(7),
		"three pages of Leases, an empty one because other Leases follow, two groups, one page of Clusters")
}

// fleetOfHyperShift checks that a Cluster in the namespace of a HostedControlPlane is not a hosted cluster of its own.
func fleetOfHyperShift(t *testing.T, own *planes.Plane, reader *fleetclient.Client) {
	t.Helper()
	g := hang.Gomega(t)
	crd, err := hypershift.CRD(t.Context())
	g.Expect(err).NotTo(gomega.HaveOccurred())
	client := dynamic.NewForConfigOrDie(own.Config)
	_, err = client.Resource(crdResource).Create(t.Context(), crd, metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	for _, namespace := range []string{"default", "fleet-8"} {
		g.Eventually(func() error {
			_, err := client.Resource(hypershift.ControlPlanes()).Namespace(namespace).
				Create(t.Context(), controlPlane(t, "guest", ""), metav1.CreateOptions{})
			return err
		}).Should(gomega.Succeed())
	}
	clusters, err := capi.Clusters(own.Config, capi.V1Beta2, "fleet-8")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = clusters.Create(t.Context(), capi.Cluster(capi.V1Beta2, "fleet-8", "guest-x7k2p"), metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	found, err := reader.Fleet(t.Context(), "")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(found.Notes).To(gomega.BeEmpty())
	g.Expect(found.Without).To(gomega.Equal([]fleetclient.Cluster{{Kind: "HostedControlPlane", Namespace: "default", Name: "guest"}}),
		"the Clusters of both namespaces are HyperShift's")
}

// watchChanges checks that a command with --watch prints a state that changes, and ends well when it is interrupted.
// A line that begins with first is printed at once, and one with changed after the change.
func watchChanges(t *testing.T, client kubernetes.Interface, kubeconfig, command, namespace, first, changed string) []string {
	t.Helper()
	g := hang.Gomega(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	reader, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- app.Execute(ctx, []string{command, "--watch", "-n", namespace, "--kubeconfig=" + kubeconfig}, writer, io.Discard)
		_ = writer.Close()
	}()
	var printed []string
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		printed = append(printed, lines.Text())
		switch {
		case strings.HasPrefix(lines.Text(), first):
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"forged"}}}`, summary.Annotation)
			_, err := client.CoordinationV1().Leases(namespace).
				Patch(ctx, "hypergate-x", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			g.Expect(err).NotTo(gomega.HaveOccurred())
		case strings.Contains(lines.Text(), changed):
			interrupt()
		}
	}
	t.Log("\n" + strings.Join(printed, "\n"))
	g.Expect(<-ended).To(gomega.BeZero())
	return printed
}

// fleetSize is how many installations there are. foreignLeases is how many other Leases there are.
const (
	fleetSize     = 300
	foreignLeases = 3000
)

// createFleet creates the Leases of a fleet, each in its own namespace, and others. The first installation is silent,
// and the second has a forged summary.
func createFleet(t *testing.T, client kubernetes.Interface, size, foreign int) {
	t.Helper()
	var creating errgroup.Group
	creating.SetLimit(16)
	create := func(namespace, name string, labels, annotations map[string]string, renewed time.Time) error {
		_, err := client.CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("hypergate-0"), LeaseDurationSeconds: new(int32(137)), RenewTime: &metav1.MicroTime{Time: renewed},
			},
		}, metav1.CreateOptions{})
		return err
	}
	later := time.Now().Add(hang.Deadline)
	for i := range size {
		creating.Go(func() error {
			namespace, renewed := fmt.Sprintf("fleet-%d", i), later
			if _, err := client.CoreV1().Namespaces().
				Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			encoded, err := summary.Encode(summary.Summary{
				Time: later, Holder: "hypergate-0", Hypergate: "v0.3.0", Istio: "1.28.3", Topology: "hosted",
				Guest:      fmt.Sprintf("guest%d", i),
				Conditions: []summary.Condition{{Type: summary.Available, Status: summary.True, Since: time.Now()}},
			})
			if err != nil {
				return err
			}
			switch i {
			case 0:
				renewed = time.Now().Add(-time.Hour)
			case 1:
				encoded = "{}"
			}
			labels := map[string]string{summary.Label: summary.LabelValue}
			if err := create(namespace, "hypergate-x", labels, map[string]string{summary.Annotation: encoded}, renewed); err != nil {
				return err
			}
			for j := range foreign / size {
				if err := create(namespace, fmt.Sprintf("other-%d", j), nil, nil, later); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
}

// grantFleet applies deploy/fleet, and returns the kubeconfig of a user with only this role.
func grantFleet(t *testing.T, plane *planes.Plane) string {
	t.Helper()
	objects := render(t, "fleet")
	if err := deploy.Apply(t.Context(), plane.Config, objects); err != nil {
		t.Fatal(err)
	}
	_, err := kubernetes.NewForConfigOrDie(plane.Config).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "hypergate-fleet"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "fleet-reader"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roles, err := audit.RolesOf(objects)
	if err != nil {
		t.Fatal(err)
	}
	if err := deploy.TakesEffect(t.Context(), plane.Config, "fleet-reader", audit.Permissions(roles), true); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = "fleet-reader"
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
