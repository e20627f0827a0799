package tunnel_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/xds"
)

// Ports that istiod opens on the pod's loopback, as in hypergate's Deployment.
const (
	plaintextXDS  = "127.0.0.1:15010"
	introspection = "127.0.0.1:9876"
)

// The resource types of the requests.
const (
	clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	secrets  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	routes   = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// TestWhatASidecarReachesOnLoopback plays a compromised sidecar, which shares the loopback of a real istiod. Without an
// identity it gets a gateway's configuration, and no Secret. It can end istiod. At the pod's own address, which is the
// tunnel's only target, both ports are closed.
func TestWhatASidecarReachesOnLoopback(t *testing.T) {
	w := newHarness(t)
	w.services()
	istiod := w.istiodProcess("--grpcAddr=" + plaintextXDS)
	for _, address := range []string{plaintextXDS, introspection} {
		_, port, err := net.SplitHostPort(address)
		w.must(err)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(istiodIP, port))
		if err == nil {
			_ = conn.Close()
			t.Errorf("port %s is open at the pod's address", port)
		}
	}
	w.configurationWithoutIdentity()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+introspection+"/homej/exit", nil)
	w.must(err)
	answer, err := http.DefaultClient.Do(request)
	w.must(err)
	w.must(answer.Body.Close())
	w.g.Expect(answer.StatusCode).To(gomega.Equal(http.StatusAccepted))
	w.g.Eventually(istiod.Done()).Should(gomega.BeClosed())
	w.g.Expect(istiod.ExitCode()).To(gomega.Equal(0))
}

// configurationWithoutIdentity requests clusters, a Secret and routes of one stream. istiod answers the first and the
// last in this order, and not the one between.
func (w *harness) configurationWithoutIdentity() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), hang.Deadline)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+plaintextXDS,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	w.must(err)
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	w.must(err)
	node := xds.Node{
		Namespace: gatewaysNamespace, Pod: "gateway", PodIP: "10.204.0.1", ServiceAccount: "gateway", Workload: "gateway",
		ClusterID: "Kubernetes",
	}
	w.must(stream.Send(&discoveryv3.DiscoveryRequest{Node: node.Proto(), TypeUrl: clusters}))
	push, err := stream.Recv()
	w.must(err)
	w.g.Expect(push.GetTypeUrl()).To(gomega.Equal(clusters))
	w.g.Expect(len(push.GetResources())).To(gomega.BeNumerically(">", manyServices*portsOfService))
	w.must(stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: secrets, ResourceNames: []string{"kubernetes://certificate"}}))
	w.must(stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: routes, ResourceNames: []string{"http.80"}}))
	push, err = stream.Recv()
	w.must(err)
	w.g.Expect(push.GetTypeUrl()).To(gomega.Equal(routes), "istiod answered the request for a Secret")
}
