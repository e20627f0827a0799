package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/world"
)

// rotateCA rotates the mesh CA with phases of seconds instead of a day. Meanwhile the guest and a fleet of gateways
// continue their work.
func rotateCA(t *fixture) {
	size, overlap := t.fleetSize()
	h := t.start("--ca-overlap", overlap.String())
	t.Expect(t.Apply(t.step(), "class.yaml", map[string]string{"name": class})).To(gomega.Succeed())
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	old, memory := t.caFiles(), t.istiodMemory("VmRSS")
	fleet := t.fleet(size, overlap)
	t.Logf("%d gateways, overlap %s; memory of istiod without them %s, with them %s", size, overlap, memory, t.istiodMemory("VmRSS"))
	stop := t.atWork()

	began := time.Now()
	out, err := h.Exec(t.step(), "/hypergate", "rotate-ca", "--namespace", t.MgmtNamespace)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Log(out)
	for _, phase := range []string{"spreading", "settling", ""} {
		t.Eventually(t.caPhase, stepTimeout).Should(gomega.Equal(phase))
		t.Logf("%s after %s", cmp.Or(phase, "one root"), time.Since(began).Round(100*time.Millisecond))
	}
	fresh := t.caFiles()
	root := strings.TrimSpace(fresh["root-cert.pem"])
	t.Expect(root).NotTo(gomega.ContainSubstring(strings.TrimSpace(old["root-cert.pem"])))
	t.Expect(fresh).To(gomega.HaveLen(4))
	t.Log("the guest's gateways and its API server get only the new root, and reach istiod with it")
	t.Eventually(t.publishedRoot).Should(gomega.Equal(root))
	t.Eventually(func() []string {
		return fleet.without(func(a *agent) bool { return a.trusts(root) })
	}).Should(gomega.BeEmpty(), "gateways that are not done")
	took := time.Since(began)
	t.Eventually(t.failurePolicy).Should(gomega.Equal(admissionregistrationv1.Fail))
	for _, w := range t.webhooks().Webhooks {
		t.Expect(strings.TrimSpace(string(w.ClientConfig.CABundle))).To(gomega.Equal(root), w.Name)
	}
	t.Expect(stop()).To(gomega.BeEmpty(), "failures during the rotation")
	fleet.end()
	did := fleet.tally()
	t.Logf("all gateways were done after %s, %s more than both overlaps; memory of istiod at most %s", took.Round(100*time.Millisecond),
		(took - 2*overlap).Round(100*time.Millisecond), t.istiodMemory("VmHWM"))
	t.Log(did)
	t.Expect(did.distrust).To(gomega.BeEmpty(), "a gateway and istiod did not trust each other")
	t.Expect(did.longest).To(gomega.BeNumerically("<", hang.Deadline), "without a stream")
}

// fleetSize returns the number of simulated gateways during the rotation, and the overlap. More gateways renew more
// certificates during the overlap, so it is longer. `make rotation` sets GATEWAYS.
func (t *fixture) fleetSize() (int, time.Duration) {
	t.Helper()
	size := 20
	if t.Topology == model.TopologyStandalone {
		size = 5 // the same code, and the machine also runs the other topology
	} else if asked := os.Getenv("GATEWAYS"); asked != "" {
		var err error
		size, err = strconv.Atoi(asked)
		t.Expect(err).NotTo(gomega.HaveOccurred(), "GATEWAYS")
	}
	return size, max(20*time.Second, time.Duration(size)*150*time.Millisecond)
}

// istiodMemory returns a line of the status of istiod's process. VmRSS is its current memory, and VmHWM is its
// maximum.
func (t *fixture) istiodMemory(line string) string {
	t.Helper()
	pod := t.istiodPod()
	processes, err := filepath.Glob("/proc/[0-9]*")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	for _, process := range processes {
		group, err := os.ReadFile(filepath.Join(process, "cgroup"))
		if err != nil || !strings.Contains(string(group), string(pod.UID)) {
			continue // another process, or one that has ended
		}
		state, _ := os.ReadFile(filepath.Join(process, "status"))
		if !strings.HasPrefix(string(state), "Name:\tpilot-discovery\n") {
			continue
		}
		for text := range strings.Lines(string(state)) {
			if value, is := strings.CutPrefix(text, line+":"); is {
				return strings.Join(strings.Fields(value), " ")
			}
		}
	}
	return "unknown"
}

func (t *fixture) caFiles() map[string]string {
	t.Helper()
	secret, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, model.CASecretName, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	files := map[string]string{}
	for name, data := range secret.Data {
		files[name] = string(data)
	}
	return files
}

func (t *fixture) caPhase() (string, error) {
	secret, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, model.CASecretName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return secret.Annotations[model.PhaseAnnotation], nil
}

// publishedRoot returns the root that gateways mount.
func (t *fixture) publishedRoot() (string, error) {
	root, err := t.GuestClient.CoreV1().ConfigMaps(world.GuestNamespace).Get(t.ctx, world.Revision+"-ca-cert", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(root.Data["root-cert.pem"]), nil
}

// atWork makes requests in the guest every second, until the returned function is called. That function returns the
// failures. The requests are an object that the webhook must refuse, and a new proxy that needs its certificate and
// configuration.
func (t *fixture) atWork() (stop func() []string) {
	ctx, cancel := context.WithCancel(t.ctx)
	var failed []string
	var mu sync.Mutex
	note := func(at time.Time, what string, err error) {
		if err != nil && ctx.Err() == nil {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, fmt.Sprintf("%s: %s: %v", at.Format(time.TimeOnly), what, err))
		}
	}
	var working sync.WaitGroup
	for what, ask := range map[string]func(context.Context) error{"admission": t.refusedByWebhook, "a new proxy": t.tryProxy} {
		working.Go(func() {
			_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
				at := time.Now()
				note(at, what, within(ctx, ask))
				return false, nil
			})
		})
	}
	t.Cleanup(func() { cancel(); working.Wait() })
	return func() []string {
		cancel()
		working.Wait()
		return failed
	}
}

// refusedByWebhook returns an error unless the webhook answers and refuses.
func (t *fixture) refusedByWebhook(ctx context.Context) error {
	_, err := t.GuestDynamic.Resource(world.Resource("networking.istio.io", "v1", "destinationrules")).Namespace(world.GuestNamespace).
		Create(ctx, destinationRule("bad", "not a host"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return fmt.Errorf("the webhook was not called")
	}
	if !strings.Contains(err.Error(), `admission webhook "rev.validation.istio.io" denied the request`) {
		return err
	}
	return nil
}

// within retries an attempt for three minutes, because istiod may be unavailable during its replacement. A proxy
// retries in the same way as istio-agent. Without istiod, an object is admitted, or refused for that reason.
func within(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = attempt(ctx)
		return last == nil, nil
	})
	if err != nil {
		return last
	}
	return nil
}

// tryProxy makes one attempt to get a proxy's certificate and configuration.
func (t *fixture) tryProxy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client, err := t.Proxy(ctx, world.GuestNamespace, "gw")
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if _, err := client.CSR(ctx); err != nil {
		return err
	}
	_, err = client.WaitFor(ctx, reaches)
	return err
}
