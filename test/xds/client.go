package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/hypergate/hypergate/pkg/charts"
)

// istioVersion is what the client claims to be; istiod adapts what it sends to the proxy's version.
const istioVersion = charts.EmbeddedVersion

// Options say where istiod is and who asks.
type Options struct {
	// Address is the host:port to dial.
	Address string
	// ServerName is sent as SNI, and is what istiod's certificate must be for: the host of the published discovery address.
	ServerName string
	// RootCAs is the PEM bundle that a gateway mounts from its trust bundle's ConfigMap.
	RootCAs []byte
	// Token is a service-account token for the audience istio-ca. Empty: no token is shown.
	Token string
	// Certificate is shown to istiod, if there is one. A proxy that has its certificate needs no token.
	Certificate *tls.Certificate
	// Node is the proxy's identity.
	Node Node
}

// Node is what istiod knows a gateway's proxy by.
type Node struct {
	Namespace, Pod, PodIP, ServiceAccount string
	// Workload is the Deployment's name.
	Workload string
	// Labels are the Pod's. istiod reads gateway.networking.k8s.io/gateway-name and istio.io/rev among them.
	Labels map[string]string
	// ClusterID is the name that istiod has for the cluster. Empty: Kubernetes, Istio's default.
	ClusterID string
}

// NodeOf is the identity of the proxy in a gateway's Pod, as the environment in Istio's kube-gateway.yaml makes it.
func NodeOf(pod *corev1.Pod) Node {
	return Node{
		Namespace: pod.Namespace, Pod: pod.Name, PodIP: pod.Status.PodIP, ServiceAccount: pod.Spec.ServiceAccountName,
		Workload: pod.Labels["service.istio.io/canonical-name"], Labels: pod.Labels,
	}
}

// Client is one proxy's connection to istiod. WaitFor and Snapshot must not be called at the same time.
type Client struct {
	conn    *grpc.ClientConn
	roots   *x509.CertPool
	node    Node
	cancel  context.CancelFunc
	updates chan *Config // the newest Config that nobody has seen; closed when the stream has ended
	last    *Config
	err     error // why the stream ended; valid once updates is closed
}

// Dial connects to istiod and starts to receive. The context is for the connection's whole life. An error names the address and says why
// no connection came about: refused, or a certificate that is not for ServerName or not of RootCAs. A token that istiod rejects shows
// later, in the errors of CSR and WaitFor.
func Dial(ctx context.Context, options Options) (*Client, error) {
	c, err := connect(options)
	if err != nil {
		return nil, err
	}
	c.updates, c.last = make(chan *Config, 1), &Config{}
	ctx, c.cancel = context.WithCancel(ctx)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dialling istiod at %s as %s: %w", options.Address, options.ServerName, err), c.Close())
	}
	go c.receive(newStream(ads, c.node.proto()))
	return c, nil
}

// connect prepares the connection. It makes no request.
func connect(options Options) (*Client, error) {
	c := &Client{node: options.Node, roots: x509.NewCertPool(), cancel: func() {}}
	if c.node.ClusterID == "" {
		c.node.ClusterID = "Kubernetes"
	}
	if !c.roots.AppendCertsFromPEM(options.RootCAs) {
		return nil, errors.New("dialling istiod: no PEM certificate in the given roots; take them from the ConfigMap that gateways mount")
	}
	config := &tls.Config{ServerName: options.ServerName, RootCAs: c.roots, MinVersion: tls.VersionTLS12}
	if options.Certificate != nil {
		config.Certificates = []tls.Certificate{*options.Certificate}
	}
	dial := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithNoProxy()}
	if options.Token != "" {
		dial = append(dial, grpc.WithPerRPCCredentials(bearer{token: options.Token, cluster: c.node.ClusterID}))
	}
	// passthrough: the address is dialled as it stands, which is what SNI routers and port forwards need.
	conn, err := grpc.NewClient("passthrough:///"+options.Address, dial...)
	if err != nil {
		return nil, fmt.Errorf("dialling istiod at %s: %w", options.Address, err)
	}
	c.conn = conn
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error {
	c.cancel()
	return c.conn.Close()
}

// Snapshot returns the newest Config that there is, without waiting; the zero Config before the first push.
func (c *Client) Snapshot() *Config {
	select {
	case config, open := <-c.updates:
		if open {
			c.last = config
		}
	default:
	}
	return c.last
}

// WaitFor returns the first Config, starting with the newest so far, for which holds returns nil. The error says what the last Config
// lacked, and whether time ran out or istiod ended the stream (istiod's status is wrapped: Unauthenticated, PermissionDenied, ...).
func (c *Client) WaitFor(ctx context.Context, holds func(*Config) error) (*Config, error) {
	for {
		lacking := holds(c.Snapshot())
		if lacking == nil {
			return c.last, nil
		}
		select {
		case config, open := <-c.updates:
			if !open {
				return nil, fmt.Errorf("istiod ended the stream: %w; until then: %w", c.err, lacking)
			}
			c.last = config
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for istiod's configuration: %w: %w", context.Cause(ctx), lacking)
		}
	}
}

// receive handles pushes until the stream ends.
func (c *Client) receive(s *stream) {
	defer close(c.updates)
	if c.err = s.start(); c.err != nil {
		return
	}
	for {
		var config *Config
		if config, c.err = s.next(); c.err != nil {
			return
		}
		select { // Only the newest counts: replace one that nobody took. This is the only sender, so the send cannot block.
		case <-c.updates:
		default:
		}
		c.updates <- config
	}
}

// proto is the node as Istio's agent writes it into Envoy's bootstrap (pkg/bootstrap/config.go, pkg/model/proxy.go of istio.io/istio).
func (n Node) proto() *corev3.Node {
	text := structpb.NewStringValue
	labels := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, value := range n.Labels {
		labels.Fields[key] = text(value)
	}
	return &corev3.Node{
		Id:            fmt.Sprintf("router~%s~%s.%s~%s.svc.cluster.local", n.PodIP, n.Pod, n.Namespace, n.Namespace),
		Cluster:       n.Workload + "." + n.Namespace,
		UserAgentName: "envoy",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"CLUSTER_ID":      text(n.ClusterID),
			"INSTANCE_IPS":    text(n.PodIP),
			"ISTIO_VERSION":   text(istioVersion),
			"LABELS":          structpb.NewStructValue(labels),
			"MESH_ID":         text("cluster.local"),
			"NAME":            text(n.Pod),
			"NAMESPACE":       text(n.Namespace),
			"OWNER":           text(fmt.Sprintf("kubernetes://apis/apps/v1/namespaces/%s/deployments/%s", n.Namespace, n.Workload)),
			"SERVICE_ACCOUNT": text(n.ServiceAccount),
			"WORKLOAD_NAME":   text(n.Workload),
		}},
	}
}

// bearer puts the service-account token, and the cluster whose token it is, into each call.
type bearer struct{ token, cluster string }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token, "clusterid": b.cluster}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
