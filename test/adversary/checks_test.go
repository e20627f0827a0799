package adversary_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/freeport"
)

// ask returns the response of a health check or metrics URL, or an empty string if nothing answers.
func ask(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// passes returns the number of passes, as lines of the metrics.
func passes(t *testing.T, metrics string) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(ask(t, "http://"+metrics+"/metrics")) {
		if strings.HasPrefix(line, "controller_runtime_reconcile_total{") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// clusterAPI returns a management side of Cluster API: the guest's kubeconfig in a Secret, and the Cluster that owns
// it.
func clusterAPI(t *testing.T, g *adversary.Server) *adversary.Server {
	t.Helper()
	m := adversary.Mgmt(t, mgmtNS)
	m.Serve("cluster.x-k8s.io/v1beta2", "clusters", "Cluster")
	config := g.Config()
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"guest": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"me": {Token: "x"}},
		Contexts:  map[string]*clientcmdapi.Context{"it": {Cluster: "guest", AuthInfo: "me"}}, CurrentContext: "it",
	})
	if err != nil {
		t.Fatal(err)
	}
	value := base64.StdEncoding.EncodeToString(kubeconfig)
	m.Put("v1", "secrets", "{metadata: {namespace: "+mgmtNS+", name: guest1-kubeconfig}, data: {value: "+value+"}}")
	putCluster(m, "")
	return m
}

func putCluster(m *adversary.Server, spec string) {
	m.Put("cluster.x-k8s.io/v1beta2", "clusters", "{metadata: {namespace: "+mgmtNS+", name: guest1, uid: c1}, spec: {"+spec+"}, "+
		"status: {initialization: {controlPlaneInitialized: true}}}")
}

// TestChecksAndMetricsWhilePassesRun is for the race detector. Other goroutines than the worker's request the health
// checks and the metrics, while the objects of both sides change.
func TestChecksAndMetricsWhilePassesRun(t *testing.T) {
	const changes = 150
	for name, tc := range map[string]struct {
		management func(*testing.T, *adversary.Server) *adversary.Server
		options    func(*controller.Options)
		change     []func(*adversary.Server)
	}{
		"HyperShift": {
			func(t *testing.T, _ *adversary.Server) *adversary.Server {
				t.Helper()
				m := adversary.Mgmt(t, mgmtNS)
				putHCP(m, "")
				return m
			},
			func(*controller.Options) {},
			[]func(*adversary.Server){
				func(m *adversary.Server) { putHCP(m, ", pausedUntil: 'true'") },
				func(m *adversary.Server) { putHCP(m, "") },
				func(m *adversary.Server) { m.Delete(hcpVersion, hcps, mgmtNS, "guest1") },
				func(m *adversary.Server) { putHCP(m, "") },
			},
		},
		"Cluster API": {
			clusterAPI,
			func(o *controller.Options) {
				o.Config.GuestKubeconfigSecret, o.GuestConfig, o.LoadGuest = "guest1-kubeconfig", nil, nil
			},
			[]func(*adversary.Server){
				func(m *adversary.Server) { putCluster(m, "paused: true") },
				func(m *adversary.Server) { putCluster(m, "") },
				func(m *adversary.Server) { m.Delete("cluster.x-k8s.io/v1beta2", "clusters", mgmtNS, "guest1") },
				func(m *adversary.Server) { putCluster(m, "") },
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := adversary.Guest(t)
			m := tc.management(t, g)
			health, metrics := freeport.Address(t), freeport.Address(t)
			run(t, m, g, tc.options, func(o *controller.Options) { o.HealthAddress, o.MetricsAddress = health, metrics })
			eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
			ended := make(chan struct{})
			var asking sync.WaitGroup
			for _, url := range []string{
				health + "/readyz/guest", health + "/readyz/management", health + "/healthz",
				metrics + "/metrics",
			} {
				asking.Go(func() {
					next := time.NewTicker(5 * time.Millisecond) // without a pause, the passes get almost no CPU time
					defer next.Stop()
					for {
						select {
						case <-ended:
							return
						case <-next.C:
							ask(t, "http://"+url)
						}
					}
				})
			}
			for i := range changes {
				before := passes(t, metrics)
				putClass(g, fmt.Sprint("c", i%5))
				if i%3 == 0 {
					g.Delete(classAPI, classes, "", fmt.Sprint("c", (i+2)%5))
				}
				tc.change[i%len(tc.change)](m)
				if i%10 == 0 {
					eventually(t, "a pass follows", func() bool { return passes(t, metrics) != before })
				}
			}
			close(ended)
			asking.Wait()
		})
	}
}
