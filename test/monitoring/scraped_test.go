package monitoring

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// clusterID is the label _id in the golden files of the component.
const clusterID = "0d4ec93c-3cf7-4c4c-9b5e-4c5f5c6b8c11"

// pod is a pod that the service discovery of Prometheus finds.
type pod struct {
	namespace, name string
	labels          map[string]string
	// ports are the names of the ports, with the name of their container.
	ports map[string]string
}

// deployed returns the pods of the Deployments in a file, as if it was applied to a namespace.
func deployed(t *testing.T, namespace, path string) []pod {
	t.Helper()
	var out []pod
	for _, object := range objects(t, path) {
		var d struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				Template struct {
					Metadata struct{ Labels map[string]string }
					Spec     struct {
						Containers []struct {
							Name  string
							Ports []struct{ Name string }
						}
					}
				}
			}
		}
		if err := object.Decode(&d); err != nil && d.Kind == "Deployment" {
			t.Fatal(err)
		}
		if d.Kind != "Deployment" {
			continue
		}
		one := pod{namespace, d.Metadata.Name + "-0", d.Spec.Template.Metadata.Labels, map[string]string{}}
		for _, container := range d.Spec.Template.Spec.Containers {
			for _, port := range container.Ports {
				one.ports[port.Name] = container.Name
			}
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no Deployment", path)
	}
	return out
}

// discovered returns a pod as the service discovery shows it: one target for each port.
func (p pod) discovered() []labels.Labels {
	var out []labels.Labels
	for _, port := range slices.Sorted(maps.Keys(p.ports)) {
		b := labels.NewBuilder(labels.EmptyLabels())
		for name, value := range map[string]string{
			"namespace": p.namespace, "pod_name": p.name, "pod_phase": "Running",
			"pod_container_name": p.ports[port], "pod_container_port_name": port,
		} {
			b.Set("__meta_kubernetes_"+name, value)
		}
		for name, value := range p.labels {
			b.Set(podLabel+labelName(name), value)
			b.Set(podLabelPresent+labelName(name), "true")
		}
		out = append(out, b.Labels())
	}
	return out
}

// targets returns the labels of the targets that a job scrapes.
func targets(job *config.ScrapeConfig, pods []pod) []map[string]string {
	var out []map[string]string
	for _, p := range pods {
		for _, found := range p.discovered() {
			b := labels.NewBuilder(found)
			if !relabel.ProcessBuilder(b, job.RelabelConfigs...) {
				continue
			}
			target := map[string]string{}
			b.Range(func(l labels.Label) {
				if !strings.HasPrefix(l.Name, model.ReservedLabelPrefix) { // Prometheus removes these
					target[l.Name] = l.Value
				}
			})
			out = append(out, target)
		}
	}
	return out
}

// pages returns by port what the page of metrics there has: names of series, and names of their labels. Those of
// hypergate itself are in a table of the documentation, which hack/docs compares with the code.
func pages(t *testing.T) map[string]map[string][]string {
	t.Helper()
	hypergate, sidecar := map[string][]string{}, map[string][]string{}
	rows := regexp.MustCompile("(?m)^\\| (`hypergate_.*`) \\| ([^|]+) \\|").FindAllStringSubmatch(file(t, "docs/reference/metrics.md"), -1)
	for _, row := range rows {
		for _, series := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			name, names := seriesOf(series[1])
			switch {
			case strings.HasPrefix(name, "hypergate_tunnel_"):
				sidecar[name] = names
			case strings.HasPrefix(name, "hypergate_relay_"): // in the guest: not scraped
			case row[2] == "histogram":
				hypergate[name+"_bucket"], hypergate[name+"_sum"], hypergate[name+"_count"] = append(names, "le"), names, names
			default:
				hypergate[name] = names
			}
		}
	}
	if len(hypergate) < 30 || len(sidecar) < 7 {
		t.Fatalf("the page has %d metrics of hypergate, and %d of the sidecar", len(hypergate), len(sidecar))
	}
	maps.Copy(hypergate, recorded(t, "hypergate.txt"))
	return map[string]map[string][]string{"metrics": hypergate, "tunnel-health": sidecar, "http-monitoring": recorded(t, "istiod.txt")}
}

// recorded returns the names of the series of a page, and of their labels.
func recorded(t *testing.T, name string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for line := range strings.Lines(file(t, "test/monitoring/testdata", name)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			series, names := seriesOf(line)
			out[series] = names
		}
	}
	return out
}

// seriesOf reads name{label,label}.
func seriesOf(text string) (name string, names []string) {
	name, in, has := strings.Cut(text, "{")
	if has {
		names = strings.Split(strings.TrimSuffix(in, "}"), ",")
	}
	return name, names
}

// jobs are the scrape configurations of PodMonitors, and the pods that are there.
type jobs struct {
	configs []*config.ScrapeConfig
	// namespace is that of the pods.
	namespace string
	pods      []pod
	// more are the labels that each target and each of its series has besides those of the Prometheus operator.
	more map[string]string
}

// tunnelGolden returns the path of the golden file of istiod's Deployment with the tunnel, of the latest version.
func tunnelGolden(t *testing.T) string {
	t.Helper()
	const golden = "pkg/desired/testdata/golden/*/tunnel/management/deployment_istiod-openshift-gateway.yaml"
	paths, err := filepath.Glob(filepath.Join(root, golden))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v", golden, err)
	}
	path, err := filepath.Rel(root, paths[len(paths)-1])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// installations returns what is scraped: by deploy/monitoring, and as HyperShift's component.
func installations(t *testing.T) map[string]jobs {
	t.Helper()
	const component, hosted = "test/hypershift/testdata/cpo/single-replica.yaml", "clusters-guest1"
	out := map[string]jobs{}
	for name, one := range map[string]struct {
		monitors, namespace string
		deployments         []string
		more                map[string]string
	}{
		"hosted": {
			"deploy/monitoring/hosted", hosted,
			[]string{"deploy/hosted/management/deployment.yaml", tunnelGolden(t)},
			nil,
		},
		"cluster-api": {
			"deploy/monitoring/cluster-api", hosted,
			[]string{"deploy/cluster-api/management/deployment.yaml", tunnelGolden(t)},
			nil,
		},
		"standalone": {
			"deploy/monitoring/standalone", "openshift-ingress",
			[]string{"deploy/standalone/deployment.yaml", tunnelGolden(t)},
			nil,
		},
		"component": {component, hosted, []string{component, tunnelGolden(t)}, map[string]string{"_id": clusterID}},
	} {
		installed := jobs{namespace: one.namespace, more: one.more}
		for _, path := range one.deployments {
			installed.pods = append(installed.pods, deployed(t, one.namespace, path)...)
		}
		var all []scrapeConfig
		for _, monitor := range podMonitors(t, one.monitors) {
			all = append(all, monitor.scrapeConfigs()...)
		}
		installed.configs = asConfig(t, all)
		out[name] = installed
	}
	return out
}

// TestTargets checks which ports of which pods are scraped, and the labels of the targets. Alerts and dashboards read
// the label namespace.
func TestTargets(t *testing.T) {
	t.Parallel()
	for name, installed := range installations(t) {
		var got []map[string]string
		for _, job := range installed.configs {
			for _, target := range targets(job, installed.pods) {
				delete(target, "job")
				got = append(got, target)
			}
		}
		var want []map[string]string
		for _, one := range [][3]string{
			{"hypergate-0", "hypergate", "metrics"},
			{"istiod-openshift-gateway-0", "discovery", "http-monitoring"},
			{"istiod-openshift-gateway-0", "tunnel", "tunnel-health"},
		} {
			target := map[string]string{"namespace": installed.namespace, "pod": one[0], "container": one[1], "endpoint": one[2]}
			maps.Copy(target, installed.more)
			want = append(want, target)
		}
		byEndpoint := func(a, b map[string]string) int { return strings.Compare(a["endpoint"], b["endpoint"]) }
		slices.SortFunc(got, byEndpoint)
		slices.SortFunc(want, byEndpoint)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the targets, -want +got:\n%s", name, diff)
		}
	}
}

// TestTheTargetOfAGateway checks which gateways are scraped, and the labels of a gateway's target.
func TestTheTargetOfAGateway(t *testing.T) {
	t.Parallel()
	gateway := pod{"shop", "gw-0", map[string]string{
		"gateway.networking.k8s.io/gateway-name": "gw", "gateway.networking.k8s.io/gateway-class-name": "openshift-default",
	}, map[string]string{"metrics": "istio-proxy", "status-port": "istio-proxy"}}
	elsewhere := gateway
	elsewhere.namespace = "elsewhere"
	monitors := podMonitors(t, "deploy/monitoring/guest")
	monitors[0].Metadata.Namespace = gateway.namespace // as with kubectl -n
	found := asConfig(t, monitors[0].scrapeConfigs())
	want := []map[string]string{{
		"namespace": "shop", "pod": "gw-0", "container": "istio-proxy", "endpoint": "metrics", "job": "shop/hypergate-gateways",
		"gateway_networking_k8s_io_gateway_name": "gw",
	}}
	if diff := cmp.Diff(want, targets(found[0], []pod{gateway, elsewhere, {"shop", "other", nil, gateway.ports}})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestNamespaceSelectors checks in which namespaces a PodMonitor of the namespace monitoring selects pods.
func TestNamespaceSelectors(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string][]string{
		"{}":                           {"monitoring"},
		"{any: false, matchNames: []}": {"monitoring"},
		"{matchNames: [a, b]}":         {"a", "b"},
		"{any: true}":                  {"a", "a-b", "b", "monitoring"},
		"{any: true, matchNames: [a]}": {"a", "a-b", "b", "monitoring"},
	} {
		var monitor podMonitor
		monitor.Metadata.Namespace = "monitoring"
		monitor.Spec.PodMetricsEndpoints = []scrapedSource{{Port: "metrics", Interval: "60s"}}
		if err := yaml.Unmarshal([]byte(selector), &monitor.Spec.NamespaceSelector); err != nil {
			t.Fatal(err)
		}
		job := asConfig(t, monitor.scrapeConfigs())[0]
		var got []string
		for _, namespace := range []string{"a", "a-b", "b", "monitoring"} {
			if len(targets(job, []pod{{namespace, "pod-0", nil, map[string]string{"metrics": "c"}}})) == 1 {
				got = append(got, namespace)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the namespaces, -want +got:\n%s", selector, diff)
		}
	}
}

// TestWhatIsScraped checks that each metric that rules and dashboards read is kept, and all of hypergate's, with their
// own labels. Go's metrics are dropped.
func TestWhatIsScraped(t *testing.T) {
	t.Parallel()
	read := slices.DeleteFunc(append(othersMetrics(), "controller_runtime_reconcile_errors_total"), func(metric string) bool {
		return metric == "ALERTS" || strings.HasPrefix(metric, "kube_") // from elsewhere
	})
	available := pages(t)
	for name, installed := range installations(t) {
		kept := map[string]bool{}
		for _, job := range installed.configs {
			scraped := targets(job, installed.pods)
			if len(scraped) == 0 {
				t.Errorf("%s: %s has no target", name, job.JobName)
				continue
			}
			target := scraped[0]
			for series, names := range available[target["endpoint"]] {
				got, is := scrapedSeries(job, series, names)
				if !is {
					continue
				}
				kept[series] = true
				want := maps.Clone(installed.more)
				if diff := cmp.Diff(want, got); diff != "" && len(got)+len(want) > 0 {
					t.Errorf("%s: the labels of %s that the PodMonitor adds, -want +got:\n%s", name, series, diff)
				}
				for _, label := range names {
					if _, taken := target[label]; taken {
						t.Errorf("%s: %s has the label %s, which is one of the target", name, series, label)
					}
				}
			}
			for series := range available[target["endpoint"]] {
				if strings.HasPrefix(series, "hypergate_") && !kept[series] {
					t.Errorf("%s: %s is dropped", name, series)
				}
			}
		}
		for _, metric := range read {
			if !kept[metric] {
				t.Errorf("%s: %s is read, and dropped or on no page", name, metric)
			}
		}
		for metric := range kept {
			if regexp.MustCompile("^(go|rest_client|workqueue|certwatcher)_").MatchString(metric) {
				t.Errorf("%s: %s is kept", name, metric)
			}
		}
	}
}

// scrapedSeries returns the labels that a job adds to a series, and reports whether it keeps the series. A label that
// the series has, and that is lost or changed, is a label that is added.
func scrapedSeries(job *config.ScrapeConfig, series string, names []string) (added map[string]string, kept bool) {
	b := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, series))
	for _, name := range names {
		b.Set(name, "value of "+name)
	}
	before := b.Labels().Map()
	if !relabel.ProcessBuilder(b, job.MetricRelabelConfigs...) {
		return nil, false
	}
	added = b.Labels().Map()
	for name, value := range before {
		if added[name] == value {
			delete(added, name)
		} else {
			added[name] = "instead of " + value
		}
	}
	return added, true
}
