package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

const (
	httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	// defaultConnectTimeout, defaultDNSRefresh and defaultIdleTimeout are the defaults of Envoy's API.
	defaultConnectTimeout = 5 * time.Second
	defaultDNSRefresh     = 5 * time.Second
	defaultIdleTimeout    = time.Hour
	// leastCircuit is the smallest limit of a circuit breaker, or of the streams of a connection, that counts as no
	// limit. The stand-in breaks no circuits.
	leastCircuit = 1024
	// defaultChoices is the default of Envoy's API for the endpoints that are compared.
	defaultChoices = 2
)

// Cluster translates a cluster.
func (t *Translator) Cluster(c *clusterv3.Cluster) (*model.Cluster, error) {
	path := fmt.Sprintf("cluster %q", c.GetName())
	if err := t.check(path, c.ProtoReflect()); err != nil {
		return nil, err
	}
	out := &model.Cluster{
		Name: c.GetName(), Key: key(c),
		ConnectTimeout: defaultConnectTimeout, DNSRefresh: defaultDNSRefresh, IdleTimeout: defaultIdleTimeout,
		LocalityWeighted: c.GetCommonLbConfig().GetLocalityWeightedLbConfig() != nil,
	}
	// Envoy's default of the threshold is 50 %. 0 switches the panic mode off.
	out.Panic = c.GetCommonLbConfig().GetHealthyPanicThreshold() == nil || c.GetCommonLbConfig().GetHealthyPanicThreshold().GetValue() > 0
	if c.GetConnectTimeout() != nil {
		out.ConnectTimeout = c.GetConnectTimeout().AsDuration()
	}
	if rate := c.GetDnsRefreshRate(); rate != nil { //nolint:staticcheck // Istio sends the deprecated field.
		out.DNSRefresh = rate.AsDuration()
	}
	for _, step := range []func(*clusterv3.Cluster, *model.Cluster) error{t.discovery, balancing, circuits, protocol, t.clusterTLS} {
		if err := step(c, out); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return out, nil
}

// key is equal for equal messages.
func key(m proto.Message) string {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(wire)
	return hex.EncodeToString(sum[:])
}

func (t *Translator) discovery(c *clusterv3.Cluster, out *model.Cluster) error {
	switch c.GetType() {
	case clusterv3.Cluster_STATIC:
		out.Discovery = model.Static
	case clusterv3.Cluster_STRICT_DNS:
		out.Discovery = model.StrictDNS
	case clusterv3.Cluster_LOGICAL_DNS:
		out.Discovery = model.LogicalDNS
	case clusterv3.Cluster_EDS:
		out.Discovery, out.ServiceName = model.EDS, c.GetEdsClusterConfig().GetServiceName()
		if out.ServiceName == "" {
			out.ServiceName = c.GetName()
		}
		if c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil {
			return fmt.Errorf("eds_cluster_config.eds_config: only ads is supported")
		}
		return nil
	default:
		return fmt.Errorf("type %s is not supported", c.GetType())
	}
	endpoints, err := t.Endpoints(c.GetLoadAssignment())
	out.Inline = endpoints
	return err
}

func balancing(c *clusterv3.Cluster, out *model.Cluster) error {
	switch c.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		out.Balancing = model.RoundRobin
	case clusterv3.Cluster_LEAST_REQUEST:
		out.Balancing = model.LeastRequest
	case clusterv3.Cluster_RANDOM:
		out.Balancing = model.Random
	case clusterv3.Cluster_CLUSTER_PROVIDED:
		var err error
		out.Balancing = model.RoundRobin
		out.Hint, err = hint(c.GetLoadBalancingPolicy())
		return err
	default:
		return fmt.Errorf("lb_policy %s is not supported", c.GetLbPolicy())
	}
	if c.GetLoadBalancingPolicy() != nil {
		return fmt.Errorf("load_balancing_policy beside lb_policy %s is not supported", c.GetLbPolicy())
	}
	return shares(c)
}

// shares rejects options that change the share of an endpoint.
func shares(c *clusterv3.Cluster) error {
	least := c.GetLeastRequestLbConfig()
	if least.GetSlowStartConfig() != nil || c.GetRoundRobinLbConfig().GetSlowStartConfig() != nil {
		return fmt.Errorf("slow_start_config is not supported")
	}
	if choices := least.GetChoiceCount(); choices != nil && choices.GetValue() != defaultChoices {
		return fmt.Errorf("least_request_lb_config.choice_count: only %d is supported", defaultChoices)
	}
	return nil
}

// hint returns the metadata that has the endpoints of a request. Only the policy of istiod's clusters for
// InferencePools is supported: one key of metadata, and otherwise round robin.
func hint(policy *clusterv3.LoadBalancingPolicy) (model.MetadataKey, error) {
	none := model.MetadataKey{}
	packed, err := onePolicy(policy, &overridev3.OverrideHost{})
	if err != nil {
		return none, err
	}
	if _, err := onePolicy(packed.GetFallbackPolicy(), &roundrobinv3.RoundRobin{}); err != nil {
		return none, fmt.Errorf("fallback_policy: %w", err)
	}
	if len(packed.GetOverrideHostSources()) != 1 || len(packed.GetOverrideHostSources()[0].GetMetadata().GetPath()) != 1 {
		return none, fmt.Errorf("load_balancing_policy: override_host_sources other than one key of metadata are not supported")
	}
	key := packed.GetOverrideHostSources()[0].GetMetadata()
	return model.MetadataKey{Namespace: key.GetKey(), Name: key.GetPath()[0].GetKey()}, nil
}

func onePolicy[M proto.Message](policy *clusterv3.LoadBalancingPolicy, into M) (M, error) {
	if len(policy.GetPolicies()) != 1 {
		return into, fmt.Errorf("load_balancing_policy: %d policies are not supported", len(policy.GetPolicies()))
	}
	config := policy.GetPolicies()[0].GetTypedExtensionConfig().GetTypedConfig()
	if !config.MessageIs(into) {
		return into, fmt.Errorf("load_balancing_policy: type %s is not supported here", TypeName(config))
	}
	return unpack(config, into)
}

func circuits(c *clusterv3.Cluster, _ *model.Cluster) error {
	for _, threshold := range c.GetCircuitBreakers().GetThresholds() {
		limits := map[string]interface{ GetValue() uint32 }{
			"max_connections": threshold.GetMaxConnections(), "max_pending_requests": threshold.GetMaxPendingRequests(),
			"max_requests": threshold.GetMaxRequests(), "max_retries": threshold.GetMaxRetries(),
		}
		set := map[string]bool{
			"max_connections": threshold.MaxConnections != nil, "max_pending_requests": threshold.MaxPendingRequests != nil,
			"max_requests": threshold.MaxRequests != nil, "max_retries": threshold.MaxRetries != nil,
		}
		for name, limit := range limits {
			if set[name] && limit.GetValue() < leastCircuit {
				return fmt.Errorf("circuit_breakers.thresholds.%s: limits below %d are not supported", name, leastCircuit)
			}
		}
	}
	return nil
}

func protocol(c *clusterv3.Cluster, out *model.Cluster) error {
	for name := range c.GetTypedExtensionProtocolOptions() {
		if name != httpOptions {
			return fmt.Errorf("typed_extension_protocol_options[%q] is not supported", name)
		}
	}
	packed := c.GetTypedExtensionProtocolOptions()[httpOptions]
	if packed == nil {
		return nil
	}
	options, err := unpack(packed, &httpv3.HttpProtocolOptions{})
	if err != nil {
		return err
	}
	if idle := options.GetCommonHttpProtocolOptions().GetIdleTimeout(); idle != nil {
		out.IdleTimeout = idle.AsDuration()
	}
	http2 := options.GetExplicitHttpConfig().GetHttp2ProtocolOptions()
	if err := connectionLimits(options.GetCommonHttpProtocolOptions(), http2); err != nil {
		return err
	}
	switch {
	case options.GetUseDownstreamProtocolConfig() != nil:
		out.Protocol = model.SameProtocol
	case options.GetAutoConfig() != nil:
		out.Protocol = model.AutoProtocol
	case options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil:
		out.Protocol = model.HTTP2
	}
	return nil
}

// connectionLimits rejects options that end a connection under its requests, or refuse streams of it.
func connectionLimits(common *corev3.HttpProtocolOptions, http2 *corev3.Http2ProtocolOptions) error {
	if common.GetMaxConnectionDuration().AsDuration() > 0 {
		return fmt.Errorf("common_http_protocol_options.max_connection_duration is not supported")
	}
	if streams := http2.GetMaxConcurrentStreams(); streams != nil && streams.GetValue() < leastCircuit {
		return fmt.Errorf("http2_protocol_options.max_concurrent_streams: limits below %d are not supported", leastCircuit)
	}
	return nil
}

// Endpoints translates the endpoints of a cluster.
func (t *Translator) Endpoints(a *endpointv3.ClusterLoadAssignment) (*model.Endpoints, error) {
	path := fmt.Sprintf("endpoints %q", a.GetClusterName())
	if err := t.check(path, a.ProtoReflect()); err != nil {
		return nil, err
	}
	out := &model.Endpoints{Name: a.GetClusterName()}
	for i, group := range a.GetEndpoints() {
		locality := model.Locality{Priority: group.GetPriority(), Weight: weight(group.GetLoadBalancingWeight())}
		for j, endpoint := range group.GetLbEndpoints() {
			host, err := newHost(endpoint)
			if err != nil {
				return nil, fmt.Errorf("%s: endpoints[%d].lb_endpoints[%d]: %w", path, i, j, err)
			}
			locality.Hosts = append(locality.Hosts, host)
		}
		out.Localities = append(out.Localities, locality)
	}
	return out, nil
}

// weight returns the default 1 for an unset weight.
func weight(value interface{ GetValue() uint32 }) uint32 { return max(value.GetValue(), 1) }

func newHost(e *endpointv3.LbEndpoint) (model.Host, error) {
	host := model.Host{
		Hostname: e.GetEndpoint().GetHostname(), Weight: weight(e.GetLoadBalancingWeight()), Labels: transportSocketLabels(e.GetMetadata()),
		// Degraded endpoints count as healthy ones: istiod does not send them.
		Healthy: e.GetHealthStatus() == corev3.HealthStatus_HEALTHY || e.GetHealthStatus() == corev3.HealthStatus_UNKNOWN ||
			e.GetHealthStatus() == corev3.HealthStatus_DEGRADED,
	}
	var err error
	host.Network, host.Address, err = address(e.GetEndpoint().GetAddress())
	return host, err
}

func transportSocketLabels(m *corev3.Metadata) map[string]string {
	fields := m.GetFilterMetadata()["envoy.transport_socket_match"].GetFields()
	if len(fields) == 0 {
		return nil
	}
	labels := map[string]string{}
	for name, value := range fields {
		labels[name] = value.GetStringValue()
	}
	return labels
}

func address(a *corev3.Address) (network, text string, err error) {
	socket := a.GetSocketAddress()
	switch {
	case a.GetPipe() != nil:
		return "unix", a.GetPipe().GetPath(), nil
	case socket == nil:
		return "", "", fmt.Errorf("an address is missing")
	case socket.GetProtocol() != corev3.SocketAddress_TCP:
		return "", "", fmt.Errorf("address.socket_address.protocol %s is not supported", socket.GetProtocol())
	}
	return "tcp", net.JoinHostPort(socket.GetAddress(), strconv.FormatUint(uint64(socket.GetPortValue()), 10)), nil
}
