package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/hypergate/hypergate/pkg/charts"
)

// istioVersion is the version that the client reports. istiod adapts its configuration to the proxy's version.
const istioVersion = charts.EmbeddedVersion

// Options are the address of istiod and the identity of the client.
type Options struct {
	// Address is the host:port to dial.
	Address string
	// Dial connects to Address. Nil means by TCP, from any address.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// ServerName is the SNI, and istiod's certificate must contain it. It is the host of the published discovery
	// address.
	ServerName string
	// RootCAs is the PEM bundle that a gateway mounts from its trust bundle's ConfigMap.
	RootCAs []byte
	// Token is a service account token for the audience istio-ca. Empty means that no token is sent.
	Token string
	// Certificate is sent to istiod, if it is set. A proxy with a certificate needs no token.
	Certificate *tls.Certificate
	// Node is the proxy's identity.
	Node Node
}

// Node is the identity by which istiod knows a gateway's proxy.
type Node struct {
	Namespace, Pod, PodIP, ServiceAccount string
	// Workload is the Deployment's name.
	Workload string
	// Labels are the Pod's labels. istiod uses gateway.networking.k8s.io/gateway-name and istio.io/rev among them.
	Labels map[string]string
	// ClusterID is istiod's name for the cluster. Empty means Kubernetes, which is Istio's default.
	ClusterID string
}

// NodeOf returns the identity of the proxy in a gateway's Pod, with the same values as the environment in Istio's
// kube-gateway.yaml.
func NodeOf(pod *corev1.Pod) Node {
	return Node{
		Namespace: pod.Namespace, Pod: pod.Name, PodIP: pod.Status.PodIP, ServiceAccount: pod.Spec.ServiceAccountName,
		Workload: pod.Labels["service.istio.io/canonical-name"], Labels: pod.Labels,
	}
}

// Client is one proxy's connection to istiod. WaitFor and Snapshot must not be called concurrently.
type Client struct {
	conn    *grpc.ClientConn
	roots   *x509.CertPool
	node    Node
	cancel  context.CancelFunc
	updates chan *Config // the newest unread Config; closed when the stream has ended
	last    *Config
	err     error // the reason for the end of the stream; valid once updates is closed
}

// Dial connects to istiod and starts to receive. ctx must live as long as the connection. An error names the address
// and the reason: the connection was refused, or the certificate is not for ServerName or not from RootCAs.
//
// If istiod rejects the token, CSR and WaitFor return the error later.
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
	go c.receive(newStream(ads, c.node.Proto()))
	return c, nil
}

// connect prepares the connection without a request.
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
	if options.Dial != nil {
		dial = append(dial, grpc.WithContextDialer(options.Dial))
	}
	// With passthrough, the address is dialled unchanged. SNI routers and port forwards need this.
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

// Snapshot returns the newest Config without waiting. Before the first push it returns the zero Config.
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

// WaitFor returns the first Config for which holds returns nil, beginning with the newest existing one. The error
// names what the last Config lacked. It also shows whether time ran out or istiod ended the stream. In the latter
// case it wraps istiod's status (Unauthenticated, PermissionDenied, ...).
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
		select { // Only the newest counts: replace an unread one. This is the only sender, so the send cannot block.
		case <-c.updates:
		default:
		}
		c.updates <- config
	}
}

// Proto returns the node as Istio's agent writes it into Envoy's bootstrap (pkg/bootstrap/config.go,
// pkg/model/proxy.go of istio.io/istio).
func (n Node) Proto() *corev3.Node {
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
			"PROXY_CONFIG":    structpb.NewStructValue(&structpb.Struct{}), // istiod lists only proxies that have it
			"OWNER":           text(fmt.Sprintf("kubernetes://apis/apps/v1/namespaces/%s/deployments/%s", n.Namespace, n.Workload)),
			"SERVICE_ACCOUNT": text(n.ServiceAccount),
			"WORKLOAD_NAME":   text(n.Workload),
		}},
	}
}

// bearer adds the service account token and the name of its cluster to each call.
type bearer struct{ token, cluster string }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token, "clusterid": b.cluster}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
