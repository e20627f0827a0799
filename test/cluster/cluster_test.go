package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/hang"
)

// starterEnv makes the test binary start a cluster and then wait, for tests of clusters that outlive a process. Its
// value has the cluster's name, the state folder and an optional "detached", separated by spaces.
const starterEnv = "HYPERGATE_TEST_STARTER"

func TestMain(m *testing.M) {
	cluster.MaybeRunNode()
	if order := os.Getenv(starterEnv); order != "" {
		starter(strings.Fields(order))
	}
	os.Exit(m.Run())
}

// TestRealClusters checks a complete run. Both clusters answer, the guest's control plane runs on the node, images
// need no registry, both API servers survive an outage, and nothing is left behind.
func TestRealClusters(t *testing.T) {
	skipUnlessPossible(t)
	t.Parallel()
	g := hang.Gomega(t)
	before := sysctls(t)
	begin := time.Now()
	c, err := cluster.Start(t.Context(), cluster.Options{
		Name: "story", Guest: true, Dir: t.TempDir(), StandIns: []string{"registry.example.com/proxyv2:" + charts.EmbeddedVersion},
		Progress: progress{t},
	})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("started in %.1f s", time.Since(begin).Seconds())

	guestIsHosted(t, g, c)
	imagesWork(t, g, c)
	t.Log("a second start of the same name is refused and does no harm")
	_, err = cluster.Start(t.Context(), cluster.Options{Name: "story"})
	g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("is running")))
	outagesEnd(t, g, c)
	t.Log("both API servers keep an audit log")
	g.Eventually(func() []string { return auditedUsers(t, c.MgmtAuditLog) }).Should(gomega.ContainElement("system:node:node1"))
	g.Eventually(func() []string {
		return auditedUsers(t, c.GuestAuditLog)
	}).Should(gomega.ContainElement("system:kube-controller-manager"))

	begin = time.Now()
	g.Expect(c.Stop()).To(gomega.Succeed())
	t.Logf("stopped in %.1f s", time.Since(begin).Seconds())
	g.Expect(leftovers(t, "story", c.Dir)).To(gomega.BeEmpty())
	g.Expect(sysctls(t)).To(gomega.Equal(before))
}

func guestIsHosted(t *testing.T, g gomega.Gomega, c *cluster.Cluster) {
	t.Helper()
	t.Log("the guest's API server is a pod of the node, and of another cluster than the management cluster's")
	ctx, mgmt, guest := t.Context(), clientFor(g, c.Mgmt), clientFor(g, c.Guest)
	pods, err := mgmt.CoreV1().Pods(c.HCPNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=kube-apiserver"})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(pods.Items).To(gomega.HaveLen(1))
	g.Expect(pods.Items[0].Spec.NodeName).To(gomega.Equal("node1"))
	g.Expect(pods.Items[0].Status.Phase).To(gomega.Equal(corev1.PodRunning))
	g.Expect(namespaceUID(ctx, g, guest)).NotTo(gomega.Equal(namespaceUID(ctx, g, mgmt)))

	t.Log("the guest has controllers")
	g.Eventually(func() error {
		_, err := guest.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
}

func imagesWork(t *testing.T, g gomega.Gomega, c *cluster.Cluster) {
	t.Helper()
	ctx, mgmt := t.Context(), clientFor(g, c.Mgmt)
	create := func(pod *corev1.Pod) {
		g.Eventually(func() error { // the namespace's service account might not exist yet
			_, err := mgmt.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
			return err
		}).Should(gomega.Succeed())
	}
	t.Log("istiod's image is there, and works with a read-only root and a mount below /etc")
	create(istiodVersionPod())
	g.Eventually(func() string { return podLog(ctx, mgmt, "istiod-version") }).Should(gomega.ContainSubstring(charts.EmbeddedVersion))

	t.Log("a stand-in passes for a ready gateway, and this machine reaches its pod")
	create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gateway"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "istio-proxy", Image: "registry.example.com/proxyv2:" +
			charts.EmbeddedVersion, Args: []string{"proxy", "router", "--domain", "x"},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(15021)},
		}},
	}}}})
	var address string
	g.Eventually(func(g gomega.Gomega) {
		pod, err := mgmt.CoreV1().Pods("default").Get(ctx, "gateway", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(pod.Status.ContainerStatuses).To(gomega.HaveLen(1))
		g.Expect(pod.Status.ContainerStatuses[0].Ready).To(gomega.BeTrue())
		address = pod.Status.PodIP
	}).Should(gomega.Succeed())
	connection, err := (&net.Dialer{Timeout: hang.Deadline}).DialContext(ctx, "tcp", net.JoinHostPort(address, "15021"))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(connection.Close()).To(gomega.Succeed())
}

func outagesEnd(t *testing.T, g gomega.Gomega, c *cluster.Cluster) {
	t.Helper()
	t.Log("each API server can be stopped alone, and comes back with its data")
	ctx, mgmt, guest := t.Context(), clientFor(g, c.Mgmt), clientFor(g, c.Guest)
	guestUID := namespaceUID(ctx, g, guest)
	g.Expect(c.StopGuestAPI(ctx)).To(gomega.Succeed())
	g.Expect(c.StopMgmtAPI(ctx)).To(gomega.Succeed())
	_, err := mgmt.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	g.Expect(err).To(gomega.HaveOccurred())
	g.Expect(c.StartMgmtAPI(ctx)).To(gomega.Succeed())
	_, err = guest.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	g.Expect(err).To(gomega.HaveOccurred())
	g.Expect(c.StartGuestAPI(ctx)).To(gomega.Succeed())
	g.Expect(namespaceUID(ctx, g, guest)).To(gomega.Equal(guestUID))
}

// TestCrashedRunnerLeavesNothingRunning kills a process that has a cluster, and then uses the cluster's name again.
func TestCrashedRunnerLeavesNothingRunning(t *testing.T) {
	skipUnlessPossible(t)
	t.Parallel()
	g := hang.Gomega(t)
	dir := t.TempDir()
	victim := startStarter(t, "crash "+dir)
	g.Expect(leftovers(t, "crash", dir)).NotTo(gomega.BeEmpty(), "the cluster had nothing that could be left behind")
	g.Expect(victim.Process.Kill()).To(gomega.Succeed())
	_ = victim.Wait() // the error is that it was killed

	onlyCgroups := func() []string {
		var other []string
		for _, thing := range leftovers(t, "crash", dir) {
			if !strings.HasPrefix(thing, "cgroup ") { // empty folders, which the next run removes
				other = append(other, thing)
			}
		}
		return other
	}
	g.Eventually(onlyCgroups).Should(gomega.BeEmpty())

	c, err := cluster.Start(t.Context(), cluster.Options{Name: "crash", Dir: dir, Progress: progress{t}})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(c.Guest).To(gomega.BeNil())
	g.Expect(c.Stop()).To(gomega.Succeed())
	g.Expect(leftovers(t, "crash", dir)).To(gomega.BeEmpty())
}

// TestDetachedOutlivesItsStarter checks the demo's life cycle: one process starts the clusters and ends, and another
// one ends them.
func TestDetachedOutlivesItsStarter(t *testing.T) {
	skipUnlessPossible(t)
	t.Parallel()
	g := hang.Gomega(t)
	dir := t.TempDir()
	demo := startStarter(t, "detach "+dir+" detached")
	t.Cleanup(func() {
		if err := cluster.Down(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	g.Expect(demo.Process.Kill()).To(gomega.Succeed())
	_ = demo.Wait() // the error is that it was killed
	out, err := exec.CommandContext(t.Context(), "ip", "route", "show", "dev", "hg-detach").Output()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(string(out)).NotTo(gomega.BeEmpty())
	g.Expect(leftovers(t, "detach", dir)).To(gomega.ContainElement(gomega.ContainSubstring("kube-apiserver")))

	attached, err := cluster.Attach(dir)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(namespaceUID(t.Context(), g, clientFor(g, attached.Mgmt))).NotTo(gomega.BeEmpty())

	g.Expect(cluster.Down(t.Context(), dir)).To(gomega.Succeed())
	g.Expect(leftovers(t, "detach", dir)).To(gomega.BeEmpty())
}

func TestStartNeedsRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("Start refuses other users than root, and this test runs as root")
	}
	_, err := cluster.Start(t.Context(), cluster.Options{Name: "noroot"})
	hang.Gomega(t).Expect(err).To(gomega.MatchError(cluster.ErrNeedsRoot))
}

func TestStartRefusesBadNames(t *testing.T) {
	skipUnlessPossible(t)
	for _, name := range []string{"", "Upper", "a/b", "longer-than-12"} {
		_, err := cluster.Start(t.Context(), cluster.Options{Name: name})
		hang.Gomega(t).Expect(err).To(gomega.MatchError(gomega.ContainSubstring("cluster name")), name)
	}
}

func skipUnlessPossible(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real clusters need root; run the tests as root to include this one")
	}
	if testing.Short() {
		t.Skip("real clusters take half a minute; left out by -short")
	}
}

// starter is the main program of a process that a test kills. It starts a cluster, prints a line, and waits.
func starter(order []string) {
	_, err := cluster.Start(context.Background(),
		cluster.Options{Name: order[0], Dir: order[1], Detach: len(order) > 2, Progress: os.Stderr})
	if err != nil {
		_, _ = io.WriteString(os.Stdout, err.Error()+"\n")
		os.Exit(1)
	}
	_, _ = io.WriteString(os.Stdout, "started\n")
	select {}
}

func startStarter(t *testing.T, order string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), starterEnv+"="+order)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("starting a cluster in another process: %s (%v)", line, err)
	}
	return command
}

// leftovers lists everything on this machine that belongs to the named run.
func leftovers(t *testing.T, name, dir string) []string {
	t.Helper()
	var found []string
	glob := func(kind, pattern string) {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			found = append(found, kind+" "+file)
		}
	}
	glob("cgroup", "/sys/fs/cgroup/hypergate-"+name)
	glob("cgroup", "/sys/fs/cgroup/*/hypergate-"+name)
	glob("link", "/sys/class/net/h[gp]-"+name)
	glob("folder", filepath.Join(os.TempDir(), "hypergate-"+name))
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			found = append(found, "mount "+line)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		line, _ := os.ReadFile(file)
		if len(line) == 0 {
			continue // has ended, or is a zombie
		}
		groups, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if strings.Contains(string(line), dir) || strings.Contains(string(groups), "/hypergate-"+name) {
			found = append(found, "process "+filepath.Dir(file)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// sysctls returns the machine's sysctls that a kubelet sets if it can.
func sysctls(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, key := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", key))
		if err != nil {
			t.Fatal(err)
		}
		values[key] = string(value)
	}
	return values
}

func clientFor(g gomega.Gomega, config *rest.Config) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return client
}

// namespaceUID returns the UID of kube-system, which identifies a cluster.
func namespaceUID(ctx context.Context, g gomega.Gomega, client kubernetes.Interface) string {
	namespace, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return string(namespace.UID)
}

func istiodVersionPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "istiod-version"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "discovery", Image: cluster.IstiodImage, Args: []string{"version"},
				SecurityContext: &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true)},
				VolumeMounts:    []corev1.VolumeMount{{Name: "mesh", MountPath: "/etc/istio/config"}},
			}},
			Volumes: []corev1.Volume{{Name: "mesh", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

func podLog(ctx context.Context, client kubernetes.Interface, name string) string {
	data, err := client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// auditedUsers returns the users of all events in an audit log, with repetitions.
func auditedUsers(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for line := range strings.Lines(string(data)) {
		var event struct{ User struct{ Username string } }
		if json.Unmarshal([]byte(line), &event) == nil { // the last line may be incomplete
			users = append(users, event.User.Username)
		}
	}
	return users
}

// progress writes to the test's log.
type progress struct{ t *testing.T }

func (p progress) Write(line []byte) (int, error) {
	p.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
