package tunnel_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/proc"
	"github.com/hypergate/hypergate/test/xds"
)

const (
	// realIstiod is the port of xDS of the real istiod, beside the stand-in at 15012.
	realIstiod = 15112
	// manyGateways are configured with manyServices, each of which has portsOfService ports.
	manyGateways, manyServices, portsOfService = 200, 300, 3
	// istiodEvery is the interval of gateways that istiod accepts. By default it accepts 15 per second, and 5 more for
	// each CPU (pilot/pkg/features, PILOT_MAX_REQUESTS_PER_SECOND). It refuses others, and they try again later.
	istiodEvery = time.Second / 25
	// mostSlower is how many times as long as the direct way the tunnel may need, at that pace.
	mostSlower = 1.1
	// gatewaysNamespace has the gateways.
	gatewaysNamespace = "gateways"
)

// BenchmarkGateways measures how long a real istiod needs to configure 200 gateways: each gets a certificate and 900
// clusters. The ways take turns: directly, and through the tunnel. It fails beyond mostSlower.
// The pace alone takes most of the time of all, so it also shows the time of each gateway, without a limit.
//
// The gateways begin at the pace at which istiod accepts them. They also begin at once, with an istiod that accepts
// all of them. Then all CPUs are busy, and the result depends on how many there are, so it has no limit. It shows the
// CPU time for a gateway at each hop.
func BenchmarkGateways(b *testing.B) {
	w := newHarness(b)
	w.pod("istiod-relay-0", relay0IP)
	hops := w.plane.PIDs()
	delete(hops, "etcd")
	hops["relay"] = w.relay("istiod-relay-0", relay0IP).PID()
	hops["sidecar"] = w.start("sidecar", sidecarEnv(), "sidecar",
		"--credential="+filepath.Join(w.dir, "guest"), "--relay-namespace="+namespace, "--relays=istiod-relay-0",
		"--certificate="+filepath.Join(w.dir, "tunnel/tls.crt"), "--key="+filepath.Join(w.dir, "tunnel/tls.key"),
		"--pod-ip="+istiodIP, fmt.Sprintf("--target-port=%d", realIstiod), "--health-address="+istiodIP+health).PID()
	w.services()
	options := w.realIstiod()
	w.becomes(istiodIP, up0, 1)
	ways := map[string]string{
		"direct": net.JoinHostPort(istiodIP, fmt.Sprint(realIstiod)), "tunnel": net.JoinHostPort(relay0IP, "15012"),
	}
	w.configure(1, 0, ways["direct"], options) // istiod has computed everything once
	for _, pace := range []struct {
		name  string
		every time.Duration
	}{{"", istiodEvery}, {"-at-once", 0}} {
		took, each := map[string][]time.Duration{}, map[string][]time.Duration{}
		for range 3 {
			for _, way := range []string{"direct", "tunnel"} {
				before := w.cpu(hops)
				all, ofOne := w.configure(manyGateways, pace.every, ways[way], options)
				took[way], each[way] = append(took[way], all), append(each[way], ofOne...)
				b.Logf("%s%s: %s", way, pace.name, took[way][len(took[way])-1].Round(time.Millisecond))
				for hop, used := range w.cpu(hops) {
					b.ReportMetric(float64((used-before[hop]).Microseconds())/1000/manyGateways, hop+"-ms/gateway")
				}
			}
		}
		direct, through := median(took["direct"]).Seconds(), median(took["tunnel"]).Seconds()
		if pace.every > 0 && through > mostSlower*direct {
			b.Errorf("200 gateways need %.1f s through the tunnel, and %.1f s directly: more than %.1f times", through, direct, mostSlower)
		}
		for way, times := range each {
			b.ReportMetric(milliseconds(median(times)), "ms-p50-"+way+pace.name) // it sorts them
			b.ReportMetric(milliseconds(times[len(times)*99/100]), "ms-p99-"+way+pace.name)
		}
		for metric, value := range map[string]float64{"s-direct": direct, "s-tunnel": through, "ratio": through / direct} {
			b.ReportMetric(value, metric+pace.name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// services creates the Services whose clusters each gateway gets.
func (w *harness) services() {
	w.t.Helper()
	_, err := w.guest.CoreV1().Namespaces().
		Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: gatewaysNamespace}}, metav1.CreateOptions{})
	w.must(err)
	for i := range manyServices {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("service-%d", i)}}
		for port := range portsOfService {
			one := corev1.ServicePort{Name: fmt.Sprintf("http-%d", port), Port: int32(8000 + port)}
			service.Spec.Ports = append(service.Spec.Ports, one)
		}
		_, err := w.guest.CoreV1().Services(gatewaysNamespace).Create(w.t.Context(), service, metav1.CreateOptions{})
		w.must(err)
	}
}

// realIstiod starts the real istiod for the guest, and returns what gateways need to connect to it.
func (w *harness) realIstiod() xds.Options {
	w.t.Helper()
	w.istiodProcess("--grpcAddr=", "--ctrlz_port=0")
	ctx := w.t.Context()
	ca, err := w.guest.CoreV1().Secrets(namespace).Get(ctx, "istio-ca-secret", metav1.GetOptions{})
	w.must(err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "gateway"}}
	_, err = w.guest.CoreV1().ServiceAccounts(gatewaysNamespace).Create(ctx, account, metav1.CreateOptions{})
	w.must(err)
	token, err := w.guest.CoreV1().ServiceAccounts(gatewaysNamespace).CreateToken(ctx, account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"istio-ca"}}}, metav1.CreateOptions{})
	w.must(err)
	return xds.Options{
		ServerName: istiodName, RootCAs: ca.Data["ca-cert.pem"], Token: token.Status.Token,
		Node: xds.Node{Namespace: gatewaysNamespace, ServiceAccount: account.Name, Workload: "gateway"},
	}
}

// istiodProcess starts the real istiod for the guest, and waits until it is ready. The flags are those of ports that
// gateways do not use.
func (w *harness) istiodProcess(flags ...string) *proc.Process {
	w.t.Helper()
	ctx := w.t.Context()
	binaries, err := servers.Find(ctx, "pilot-discovery")
	w.must(err)
	const ready = istiodIP + ":15118"
	process, err := proc.Spec{
		Name: "istiod", LogDir: w.dir,
		Argv: append([]string{
			binaries["pilot-discovery"], "discovery", "--kubeconfig=" + w.plane.Kubeconfig, "--httpAddr=" + ready,
			fmt.Sprintf("--secureGRPCAddr=%s:%d", istiodIP, realIstiod), "--httpsAddr=" + istiodIP + ":15117",
			"--monitoringAddr=" + istiodIP + ":15114",
		}, flags...),
		Env: []string{
			// istiod refuses streams beyond a rate that follows from its CPUs. The gateways of this test do not try
			// again.
			"PILOT_MAX_REQUESTS_PER_SECOND=1000",
			"POD_NAMESPACE=" + namespace, "PILOT_CERT_PROVIDER=istiod", "INJECTION_WEBHOOK_CONFIG_NAME=", "VALIDATION_WEBHOOK_CONFIG_NAME=",
		},
	}.Start()
	w.must(err)
	w.t.Cleanup(process.Kill)
	w.g.Eventually(func() (int, error) {
		response, err := http.Get("http://" + ready + "/ready") //nolint:noctx // a test
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}).Should(gomega.Equal(http.StatusOK), func() string { return proc.Tail(filepath.Join(w.dir, "istiod.log"), 20) })
	return process
}

// configure starts n gateways, one in each interval. It returns the time until all have a certificate and all clusters,
// and the time of each since its own start.
func (w *harness) configure(n int, every time.Duration, address string, options xds.Options) (all time.Duration, each []time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*hang.Deadline)
	defer cancel()
	begin := time.Now()
	each = make([]time.Duration, n)
	var group errgroup.Group
	for i := range n {
		group.Go(func() error {
			select {
			case <-time.After(time.Duration(i) * every):
			case <-ctx.Done():
				return ctx.Err()
			}
			started := time.Now()
			mine, source := options, net.IPv4(10, 204, 0, byte(1+i))
			mine.Address = address
			mine.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: source}}).DialContext(ctx, "tcp", address)
			}
			mine.Node.Pod, mine.Node.PodIP = fmt.Sprintf("gateway-%d", i), source.String()
			client, err := xds.Dial(ctx, mine)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			if _, err := client.CSR(ctx); err != nil {
				return err
			}
			_, err = client.WaitFor(ctx, func(c *xds.Config) error {
				if len(c.Clusters) < manyServices*portsOfService {
					return fmt.Errorf("%d clusters", len(c.Clusters))
				}
				return nil
			})
			each[i] = time.Since(started)
			return err
		})
	}
	w.must(group.Wait())
	return time.Since(begin), each
}
