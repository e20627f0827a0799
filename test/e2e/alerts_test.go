package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/proc"
	"github.com/hypergate/hypergate/test/world"
)

// fasterFor is how much shorter an alert's condition must hold than in deploy/monitoring: a minute becomes a second.
const fasterFor = 60

// rarely is how long hypergate can need to notice a fault: it probes a published address every five minutes.
const rarely = 8 * time.Minute

// fault is one that an SRE finds by its alert, understands by `hypergate status`, and ends as the runbook says.
type fault struct {
	name string
	// begin begins the fault. The runbook's mitigation ends it.
	begin func(*alerted) (mitigate func())
	// alerts are all alerts that fire.
	alerts []string
	// status is a part of what `hypergate status` shows.
	status string
	// meanwhile is what else happens before the mitigation.
	meanwhile func(*alerted)
}

// faults returns the faults in their order.
func faults() []fault {
	return []fault{
		{
			name: "hypergate's credential expires soon", begin: (*alerted).withOldCredential, status: "credential  29m left",
			alerts: []string{"HypergateGuestCredentialExpiring"},
		},
		{
			name: "another client fights over an object", begin: (*alerted).withConflictingController, status: "reverting",
			alerts: []string{"HypergateDegraded", "HypergateWriteConflict"},
		},
		{
			name: "the published address is gone", begin: (*alerted).withoutRouter, status: "EndpointUnreachable",
			alerts: []string{"HypergateEndpointUnreachable"}, meanwhile: (*alerted).silentWhilePaused,
		},
		{
			name: "the control plane is paused, and forgotten", begin: (*alerted).pause, status: "paused",
			alerts: []string{"HypergatePaused"},
		},
		{name: "hypergate does not run", begin: (*alerted).withoutHypergate, status: "SILENT", alerts: []string{"HypergateAbsent"}},
	}
}

// TestAlerts runs a real Prometheus with the rules of deploy/monitoring beside a real hypergate. Each fault fires
// exactly the alerts of its runbook, and the runbook's mitigation ends them.
func TestAlerts(t *testing.T) {
	t.Parallel()
	f := started(t, world.Options{Name: "e2e-alerts"})
	var cancel context.CancelFunc
	f.ctx, cancel = context.WithTimeout(t.Context(), 2*storyTimeout)
	t.Cleanup(cancel)
	f.Expect(f.AddControlPlane(f.step())).To(gomega.Succeed())
	a := &alerted{fixture: f, metrics: freeport.Address(f.T)}
	f.settings = []string{"--metrics-address", a.metrics}
	a.hypergate = f.installed()
	a.api = f.startPrometheus(a.metrics)
	a.scrapeIsSmall()
	a.Eventually(a.up).Should(gomega.BeTrue())
	a.quiet()
	rows := []string{fmt.Sprintf("%-55s %-34s %12s %12s %12s", "FAULT", "ALERTS", "FIRE AFTER", "STATUS TOOK", "END AFTER")}
	for _, one := range faults() {
		rows = append(rows, a.meets(one))
	}
	t.Logf("\n%s\nThe alerts' times are those of deploy/monitoring, divided by %d.", strings.Join(rows, "\n"), fasterFor)
}

// alerted is a hypergate that Prometheus scrapes.
type alerted struct {
	*fixture
	hypergate *world.Hypergate
	// metrics is the address of hypergate's metrics, and api that of Prometheus.
	metrics, api string
}

// startPrometheus starts Prometheus, and returns its address. It scrapes each second, as the PodMonitors say.
func (t *fixture) startPrometheus(metrics string) string {
	t.Helper()
	found, err := servers.Find(t.ctx, "prometheus")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	root, err := servers.ModuleRoot()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	jobs, err := scrapeConfigs(root, t.MgmtNamespace, metrics)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	dir, address := t.TempDir(), freeport.Address(t.T)
	for name, content := range map[string]any{"rules.yaml": map[string]any{"groups": t.fasterRules()}, "prometheus.yaml": map[string]any{
		"global":         map[string]any{"scrape_timeout": "1s", "scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"rules.yaml"},
		"scrape_configs": jobs,
	}} {
		data, err := yaml.Marshal(content)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		t.Expect(os.WriteFile(filepath.Join(dir, name), data, 0o600)).To(gomega.Succeed())
	}
	p, err := proc.Start("prometheus", t.Dir, found["prometheus"], "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(p.Kill)
	return address
}

// scrapeConfigs returns what Prometheus scrapes: the PodMonitors of deploy/monitoring, as test/monitoring translates
// them, with shorter times. hypergate is a process here. Its target has the labels that the service discovery gives to
// the pod of its Deployment, so a PodMonitor that does not select the pod scrapes nothing.
func scrapeConfigs(root, namespace, address string) ([]map[string]any, error) {
	var translated struct {
		Jobs []map[string]any `json:"scrape_configs"`
	}
	var deployment appsv1.Deployment
	for path, into := range map[string]any{
		"test/monitoring/testdata/scrape_configs.yaml": &translated, "deploy/hosted/management/deployment.yaml": &deployment,
	} {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(data, into); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var targets []map[string]any
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for _, port := range container.Ports {
			labels := map[string]string{
				"__meta_kubernetes_namespace": namespace, "__meta_kubernetes_pod_name": "hypergate-0",
				"__meta_kubernetes_pod_container_name": container.Name, "__meta_kubernetes_pod_container_port_name": port.Name,
			}
			for name, value := range deployment.Spec.Template.Labels {
				name = regexp.MustCompile(`[^a-zA-Z0-9_]`).ReplaceAllString(name, "_")
				labels["__meta_kubernetes_pod_label_"+name], labels["__meta_kubernetes_pod_labelpresent_"+name] = value, "true"
			}
			targets = append(targets, map[string]any{"targets": []string{address}, "labels": labels})
		}
	}
	for _, job := range translated.Jobs {
		interval, err := time.ParseDuration(fmt.Sprint(job["scrape_interval"]))
		if err != nil {
			return nil, err
		}
		job["scrape_interval"], job["static_configs"] = (interval / fasterFor).String(), targets
	}
	return translated.Jobs, nil
}

// fasterRules returns the rule groups of deploy/monitoring, with shorter times.
func (t *fixture) fasterRules() []map[string]any {
	t.Helper()
	root, err := servers.ModuleRoot()
	t.Expect(err).NotTo(gomega.HaveOccurred())
	data, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", "rules", "prometheusrule.yaml"))
	t.Expect(err).NotTo(gomega.HaveOccurred())
	var rule struct {
		Spec struct {
			Groups []map[string]any `json:"groups"`
		} `json:"spec"`
	}
	t.Expect(yaml.Unmarshal(data, &rule)).To(gomega.Succeed())
	for _, group := range rule.Spec.Groups {
		rules, _ := group["rules"].([]any)
		for _, one := range rules {
			fields, _ := one.(map[string]any)
			if text, isAlert := fields["for"].(string); isAlert {
				held, err := time.ParseDuration(text)
				t.Expect(err).NotTo(gomega.HaveOccurred())
				fields["for"] = (held / fasterFor).String()
			}
		}
	}
	return rule.Spec.Groups
}

// meets goes through a fault, and returns its row of the table.
func (a *alerted) meets(one fault) string {
	a.Helper()
	a.Log(one.name)
	begin := time.Now()
	mitigate := one.begin(a)
	a.Eventually(a.firing).WithTimeout(rarely).Should(gomega.Equal(one.alerts))
	fired := time.Since(begin)
	a.Eventually(a.status).Should(gomega.ContainSubstring(one.status))
	begin = time.Now()
	text := a.status()
	took := time.Since(begin)
	a.Log("\n" + text)
	a.Expect(a.firing()).To(gomega.Equal(one.alerts), "the alerts while the SRE reads the status")
	if one.meanwhile != nil {
		one.meanwhile(a)
	}
	begin = time.Now()
	mitigate()
	a.quiet()
	return fmt.Sprintf("%-55s %-34s %10.1f s %9.0f ms %10.1f s", one.name, strings.Join(one.alerts, ", "), fired.Seconds(),
		float64(took.Milliseconds()), time.Since(begin).Seconds())
}

// quiet waits until hypergate has no problem, and no alert fires.
func (a *alerted) quiet() {
	a.Helper()
	a.Eventually(a.firing).Should(gomega.BeEmpty())
	a.Eventually(a.status).Should(gomega.MatchRegexp(`^guest1\s+ok`))
	a.Expect(a.firing()).To(gomega.BeEmpty())
}

// status returns what `hypergate status` prints.
func (a *alerted) status() string {
	a.Helper()
	command := exec.CommandContext(a.step(), a.Binary(), "status", "--kubeconfig", a.MgmtKubeconfig, "-n", a.MgmtNamespace)
	out, err := command.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); !ended { // the exit code says what the text says
		a.Expect(err).NotTo(gomega.HaveOccurred())
	}
	return string(out)
}

// firing returns the names of the alerts that fire, sorted.
func (a *alerted) firing() ([]string, error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string            `json:"state"`
				Labels map[string]string `json:"labels"`
			} `json:"alerts"`
		} `json:"data"`
	}
	if err := a.ask("/api/v1/alerts", &answer); err != nil {
		return nil, err
	}
	var out []string
	for _, alert := range answer.Data.Alerts {
		if alert.State == "firing" {
			out = append(out, alert.Labels["alertname"])
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// up reports whether Prometheus has scraped hypergate.
func (a *alerted) up() (bool, error) {
	var answer struct {
		Data struct {
			Result []any `json:"result"`
		} `json:"data"`
	}
	err := a.ask("/api/v1/query?query="+url.QueryEscape("hypergate_leader == 1"), &answer)
	return len(answer.Data.Result) == 1, err
}

// ask reads an answer of Prometheus. Without an answer, it is not known which alerts fire.
func (a *alerted) ask(path string, into any) error {
	body, err := get(a.ctx, "http://"+a.api+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func get(ctx context.Context, from string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, hang.Deadline)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", from, response.Status)
	}
	return io.ReadAll(response.Body)
}

// scrapeIsSmall checks the size of a scrape, and logs its time.
func (a *alerted) scrapeIsSmall() {
	a.Helper()
	var times []time.Duration
	for range 20 {
		begin := time.Now()
		body, err := get(a.ctx, "http://"+a.metrics+"/metrics")
		times = append(times, time.Since(begin))
		a.Expect(err).NotTo(gomega.HaveOccurred())
		a.Expect(len(body)).To(gomega.BeNumerically("<=", 60<<10), "bytes of a scrape")
		if len(times) == 1 {
			a.Logf("a scrape has %d bytes", len(body))
		}
	}
	slices.Sort(times)
	a.Logf("20 scrapes: the median took %s, the longest %s", times[len(times)/2], times[len(times)-1])
}

// withoutRouter stops the router that publishes istiod. The runbook: check that the router runs.
func (a *alerted) withoutRouter() (mitigate func()) {
	a.StopRouter()
	return func() { a.Expect(a.RestartRouter(a.step())).To(gomega.Succeed()) }
}

// withOldCredential gives hypergate a token that was issued eleven hours ago, and is valid for half an hour. The
// runbook: run its command, which writes the Secret. Another client wrote the Secret before, so the command names that
// client, and the runbook says to repeat it with --force-conflicts.
func (a *alerted) withOldCredential() (mitigate func()) {
	a.Expect(a.AgeGuestKubeconfig(11*time.Hour, 30*time.Minute)).To(gomega.Succeed())
	return func() {
		page := runbook(a.T, "HypergateGuestCredentialExpiring")
		const again = "--force-conflicts"
		a.Expect(page).To(gomega.ContainSubstring("Otherwise, repeat the command with\n  `" + again + "`"))
		command := strings.ReplaceAll(onlyBlock(a.T, page), "<namespace>", a.MgmtNamespace)
		shell := newQuickstart(a.fixture)
		out, err := shell.try(command)
		a.Expect(err).To(gomega.HaveOccurred())
		a.Expect(out).To(gomega.ContainSubstring("another client wrote its kubeconfig"))
		shell.run(command + " " + again)
		a.Expect(a.ReadGuestKubeconfigSecret(a.step())).To(gomega.Succeed())
	}
}

// runbook returns the part Mitigation of an alert's page.
func runbook(t *testing.T, alert string) string {
	t.Helper()
	root, err := servers.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "runbooks", alert+".md"))
	if err != nil {
		t.Fatal(err)
	}
	_, mitigation, found := strings.Cut(string(page), "\n## Mitigation\n")
	if !found {
		t.Fatalf("the runbook of %s has no mitigation", alert)
	}
	mitigation, _, _ = strings.Cut(mitigation, "\n## ")
	return mitigation
}

// onlyBlock returns the only code block of a text.
func onlyBlock(t *testing.T, text string) string {
	t.Helper()
	parts := strings.Split(text, "\n```\n")
	if len(parts) != 3 {
		t.Fatalf("there is not exactly one code block in %q", text)
	}
	return parts[1]
}

// withConflictingController changes istiod's Deployment again and again. The runbook: stop the other client.
func (a *alerted) withConflictingController() (mitigate func()) {
	ctx, cancel := context.WithCancel(a.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = a.MgmtClient.AppsV1().Deployments(a.MgmtNamespace).Patch(ctx, "istiod-"+world.Revision, types.MergePatchType,
				[]byte(`{"spec":{"revisionHistoryLimit":7}}`), metav1.PatchOptions{FieldManager: "other"})
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	stop := func() { cancel(); <-ended }
	a.Cleanup(stop)
	return stop
}

// silentWhilePaused pauses the HostedControlPlane while an alert fires, and goes on. A pause is intended: meanwhile, no
// alert fires but the one about the pause.
func (a *alerted) silentWhilePaused() {
	a.Helper()
	before, err := a.firing()
	a.Expect(err).NotTo(gomega.HaveOccurred())
	end := a.pause()
	onlyPause := gomega.Or(gomega.BeEmpty(), gomega.ConsistOf("HypergatePaused"))
	a.Eventually(a.firing).Should(onlyPause)
	a.Eventually(a.status).Should(gomega.ContainSubstring("paused"))
	a.Log("\n" + a.status())
	a.Expect(a.firing()).To(onlyPause)
	a.Eventually(a.firing).Should(gomega.ConsistOf("HypergatePaused"))
	end()
	a.Eventually(a.firing).Should(gomega.Equal(before))
}

// pause pauses the HostedControlPlane.
func (a *alerted) pause() (mitigate func()) {
	_, err := a.controlPlanes().Patch(a.step(), a.GuestName, types.MergePatchType,
		[]byte(`{"spec":{"pausedUntil":"true"}}`), metav1.PatchOptions{})
	a.Expect(err).NotTo(gomega.HaveOccurred())
	return a.endPause
}

// endPause ends a pause with the command of the page to which the runbook of HypergatePaused refers. Only the
// HostedControlPlane has the field here, and the page has a command for that.
func (a *alerted) endPause() {
	a.Helper()
	a.Expect(runbook(a.T, "HypergatePaused")).To(gomega.ContainSubstring("[end the pause](../hypershift.md#a-pause)"))
	root, err := servers.ModuleRoot()
	a.Expect(err).NotTo(gomega.HaveOccurred())
	page, err := os.ReadFile(filepath.Join(root, "docs", "hypershift.md"))
	a.Expect(err).NotTo(gomega.HaveOccurred())
	found := regexp.MustCompile("(?s)- To end it: .*If the HostedControlPlane alone has the field:\\s+" +
		"`(kubectl -n \\S+ patch hostedcontrolplane [^`]+)`").FindStringSubmatch(string(page))
	a.Expect(found).To(gomega.HaveLen(2), "docs/hypershift.md has no command that ends a pause")
	shell := newQuickstart(a.fixture)
	shell.env = append(shell.env, "KUBECONFIG="+a.MgmtKubeconfig)
	shell.run(found[1])
}

// withoutHypergate kills hypergate, as if its Deployment had 0 replicas. The runbook: set their number. hypergate is a
// process here, so the test starts it.
func (a *alerted) withoutHypergate() (mitigate func()) {
	a.hypergate.Kill()
	return func() { a.hypergate = a.start() }
}
