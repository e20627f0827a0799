package bootstrap

import (
	"encoding/json"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	// Istio's bootstrap template names these types, and the JSON can only be read if they are known.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/brotli/compressor/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/compressor/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/zstd/compressor/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
	"github.com/hypergate/hypergate/test/envoy/internal/translate"
)

// Config is the bootstrap configuration.
type Config struct {
	// Node is the identity of the proxy.
	Node *corev3.Node
	// Admin is the host:port of the admin endpoints.
	Admin     string
	Clusters  []*model.Cluster
	Listeners []*model.Listener
	// XDSCluster is the name of the static cluster of the aggregated stream. SDSCluster is that of the agent's
	// secrets, and is empty if there is none.
	XDSCluster, SDSCluster string
}

// document is the part of envoy.config.bootstrap.v3.Bootstrap that counts. Names are as Istio's template writes them.
type document struct {
	Node  json.RawMessage `json:"node"`
	Admin struct {
		Address struct {
			SocketAddress struct {
				Address   string `json:"address"`
				PortValue int    `json:"port_value"`
			} `json:"socket_address"`
		} `json:"address"`
	} `json:"admin"`
	DynamicResources struct {
		ADSConfig json.RawMessage `json:"ads_config"`
		LDSConfig json.RawMessage `json:"lds_config"`
		CDSConfig json.RawMessage `json:"cds_config"`
	} `json:"dynamic_resources"`
	StaticResources struct {
		Clusters  []json.RawMessage `json:"clusters"`
		Listeners []json.RawMessage `json:"listeners"`
		Secrets   []json.RawMessage `json:"secrets"`
	} `json:"static_resources"`
}

const sdsCluster = "sds-grpc"

// Read reads the JSON of a bootstrap configuration. t translates the static resources.
func Read(text []byte, t *translate.Translator) (*Config, error) {
	var from document
	if err := json.Unmarshal(text, &from); err != nil {
		return nil, fmt.Errorf("the bootstrap configuration is not valid JSON: %w", err)
	}
	out := &Config{Node: &corev3.Node{}}
	if err := decode("node", from.Node, out.Node); err != nil {
		return nil, err
	}
	socket := from.Admin.Address.SocketAddress
	if socket.Address == "" {
		return nil, fmt.Errorf("admin.address.socket_address is missing")
	}
	out.Admin = fmt.Sprintf("%s:%d", socket.Address, socket.PortValue)
	if len(from.StaticResources.Secrets) > 0 {
		return nil, fmt.Errorf("static_resources.secrets is not supported")
	}
	if err := out.static(from, t); err != nil {
		return nil, err
	}
	return out, out.dynamic(from)
}

func (c *Config) static(from document, t *translate.Translator) error {
	for i, raw := range from.StaticResources.Clusters {
		message := &clusterv3.Cluster{}
		if err := decode(fmt.Sprintf("static_resources.clusters[%d]", i), raw, message); err != nil {
			return err
		}
		cluster, err := t.Cluster(message)
		if err != nil {
			return fmt.Errorf("static_resources: %w", err)
		}
		c.Clusters = append(c.Clusters, cluster)
		if cluster.Name == sdsCluster {
			c.SDSCluster = cluster.Name
		}
	}
	for i, raw := range from.StaticResources.Listeners {
		message := &listenerv3.Listener{}
		if err := decode(fmt.Sprintf("static_resources.listeners[%d]", i), raw, message); err != nil {
			return err
		}
		listener, err := t.Listener(message)
		if err != nil {
			return fmt.Errorf("static_resources: %w", err)
		}
		c.Listeners = append(c.Listeners, listener)
	}
	return nil
}

func (c *Config) dynamic(from document) error {
	ads := &corev3.ApiConfigSource{}
	if err := decode("dynamic_resources.ads_config", from.DynamicResources.ADSConfig, ads); err != nil {
		return err
	}
	if ads.GetApiType() != corev3.ApiConfigSource_DELTA_GRPC {
		return fmt.Errorf("dynamic_resources.ads_config.api_type %s is not supported, only DELTA_GRPC is", ads.GetApiType())
	}
	if len(ads.GetGrpcServices()) != 1 {
		return fmt.Errorf("dynamic_resources.ads_config.grpc_services must have one entry")
	}
	c.XDSCluster = ads.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName()
	for name, raw := range map[string]json.RawMessage{
		"lds_config": from.DynamicResources.LDSConfig, "cds_config": from.DynamicResources.CDSConfig,
	} {
		source := &corev3.ConfigSource{}
		if err := decode("dynamic_resources."+name, raw, source); err != nil {
			return err
		}
		if source.GetAds() == nil {
			return fmt.Errorf("dynamic_resources.%s: only ads is supported", name)
		}
	}
	if c.Cluster(c.XDSCluster) == nil {
		return fmt.Errorf("dynamic_resources.ads_config: there is no static cluster %q", c.XDSCluster)
	}
	return nil
}

// Cluster returns a static cluster, or nil.
func (c *Config) Cluster(name string) *model.Cluster {
	for _, cluster := range c.Clusters {
		if cluster.Name == name {
			return cluster
		}
	}
	return nil
}

func decode(path string, raw json.RawMessage, into proto.Message) error {
	if len(raw) == 0 {
		return fmt.Errorf("%s is missing", path)
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
