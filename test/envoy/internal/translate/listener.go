package translate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// The defaults of Envoy's API.
const (
	defaultInspectTimeout = 15 * time.Second
	defaultHeaderKiB      = 60
)

const (
	tlsInspector = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
	httpRouter   = "envoy.extensions.filters.http.router.v3.Router"
	corsFilter   = "envoy.extensions.filters.http.cors.v3.Cors"
	wasmFilter   = "envoy.extensions.filters.http.wasm.v3.Wasm"
)

// Listener translates a listener.
func (t *Translator) Listener(l *listenerv3.Listener) (*model.Listener, error) {
	path := fmt.Sprintf("listener %q", l.GetName())
	if err := t.check(path, l.ProtoReflect()); err != nil {
		return nil, err
	}
	out := &model.Listener{
		Name: l.GetName(), InspectTimeout: defaultInspectTimeout, ContinueOnTimeout: l.GetContinueOnListenerFiltersTimeout(),
	}
	if timeout := l.GetListenerFiltersTimeout(); timeout != nil && timeout.AsDuration() > 0 {
		out.InspectTimeout = timeout.AsDuration()
	}
	for _, filter := range l.GetListenerFilters() {
		out.Inspect = out.Inspect || TypeName(filter.GetTypedConfig()) == tlsInspector
	}
	if l.GetBindToPort() != nil && !l.GetBindToPort().GetValue() {
		return nil, fmt.Errorf("%s: bind_to_port: listeners without a port are not supported", path)
	}
	if err := t.addresses(l, out); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := t.chains(l, out); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

func (t *Translator) chains(l *listenerv3.Listener, out *model.Listener) error {
	shell := listenerKey(l)
	for i, chain := range l.GetFilterChains() {
		translated, err := t.chain(chain, shell)
		if err != nil {
			return fmt.Errorf("filter_chains[%d]: %w", i, err)
		}
		out.Chains = append(out.Chains, translated)
	}
	if l.GetDefaultFilterChain() == nil {
		return nil
	}
	var err error
	if out.Default, err = t.chain(l.GetDefaultFilterChain(), shell); err != nil {
		return fmt.Errorf("default_filter_chain: %w", err)
	}
	return nil
}

// listenerKey is the key of a listener without its filter chains. A change of it drains the connections of all chains
// (Envoy: filter chain only update).
func listenerKey(l *listenerv3.Listener) string {
	shell, _ := proto.Clone(l).(*listenerv3.Listener)
	shell.FilterChains, shell.DefaultFilterChain = nil, nil
	return key(shell)
}

func (t *Translator) addresses(l *listenerv3.Listener, out *model.Listener) error {
	all := make([]*corev3.Address, 0, 1+len(l.GetAdditionalAddresses()))
	all = append(all, l.GetAddress())
	for _, more := range l.GetAdditionalAddresses() {
		all = append(all, more.GetAddress())
	}
	for _, one := range all {
		network, text, err := address(one)
		if err != nil {
			return err
		}
		if network != "tcp" {
			return fmt.Errorf("address.pipe is not supported for listeners")
		}
		out.Addresses = append(out.Addresses, text)
	}
	return nil
}

func (t *Translator) chain(c *listenerv3.FilterChain, shell string) (*model.FilterChain, error) {
	match := c.GetFilterChainMatch()
	out := &model.FilterChain{Name: c.GetName(), Key: shell + key(c), Match: model.ChainMatch{
		Port: match.GetDestinationPort().GetValue(), ServerNames: lower(match.GetServerNames()),
		TransportProtocol: match.GetTransportProtocol(), ALPN: match.GetApplicationProtocols(),
	}}
	var err error
	if out.TLS, err = serverTLS(c.GetTransportSocket()); err != nil {
		return nil, fmt.Errorf("transport_socket: %w", err)
	}
	for i, filter := range c.GetFilters() {
		translated, err := t.filter(filter)
		if err != nil {
			return nil, fmt.Errorf("filters[%d] (%s): %w", i, filter.GetName(), err)
		}
		if translated == nil {
			continue
		}
		if out.Filter != nil {
			return nil, fmt.Errorf("filters[%d] (%s): a second terminal filter is not supported", i, filter.GetName())
		}
		out.Filter = translated
	}
	if out.Filter == nil {
		return nil, fmt.Errorf("there is no terminal filter")
	}
	return out, nil
}

// filter returns nil for a filter that is not executed.
func (t *Translator) filter(f *listenerv3.Filter) (model.Filter, error) {
	if f.GetConfigDiscovery() != nil {
		return nil, onlyWasm(f.GetConfigDiscovery())
	}
	config := f.GetTypedConfig()
	switch {
	case config.MessageIs(&hcmv3.HttpConnectionManager{}):
		hcm, err := unpack(config, &hcmv3.HttpConnectionManager{})
		if err != nil {
			return nil, err
		}
		return t.http(hcm)
	case config.MessageIs(&tcpv3.TcpProxy{}):
		tcp, err := unpack(config, &tcpv3.TcpProxy{})
		if err != nil {
			return nil, err
		}
		return tcpProxy(tcp)
	}
	if _, ok := t.Accepts(TypeName(config)); ok {
		return nil, nil //nolint:nilnil // nil is a filter that is not executed.
	}
	return nil, fmt.Errorf("type %s is not supported here", TypeName(config))
}

// onlyWasm accepts extensions that come by ECDS if they can only be WebAssembly.
func onlyWasm(source *corev3.ExtensionConfigSource) error {
	for _, url := range source.GetTypeUrls() {
		if !strings.HasSuffix(url, ".wasm.v3.Wasm") {
			return fmt.Errorf("config_discovery: type %s is not supported", url)
		}
	}
	return nil
}

func tcpProxy(p *tcpv3.TcpProxy) (*model.TCP, error) {
	out := &model.TCP{
		StatPrefix: p.GetStatPrefix(), IdleTimeout: defaultIdleTimeout, ConnectAttempts: int(max(p.GetMaxConnectAttempts().GetValue(), 1)),
	}
	if p.GetIdleTimeout() != nil {
		out.IdleTimeout = p.GetIdleTimeout().AsDuration()
	}
	if p.GetCluster() != "" {
		out.Clusters = []model.Weighted{{Cluster: p.GetCluster(), Weight: 1}}
	}
	for _, weighted := range p.GetWeightedClusters().GetClusters() {
		out.Clusters = append(out.Clusters, model.Weighted{Cluster: weighted.GetName(), Weight: weighted.GetWeight()})
	}
	if len(out.Clusters) == 0 {
		return nil, fmt.Errorf("it has no cluster")
	}
	return out, nil
}

func (t *Translator) http(h *hcmv3.HttpConnectionManager) (*model.HTTP, error) {
	out := &model.HTTP{
		StatPrefix: h.GetStatPrefix(), RouteName: h.GetRds().GetRouteConfigName(), ServerName: h.GetServerName(),
		UseRemoteAddress: h.GetUseRemoteAddress().GetValue(), NormalizePath: h.GetNormalizePath().GetValue(),
		MergeSlashes: h.GetMergeSlashes(), MaxHeaderBytes: defaultHeaderKiB << 10,
	}
	if out.ServerName == "" {
		out.ServerName = "envoy"
	}
	if kib := h.GetMaxRequestHeadersKb(); kib != nil {
		out.MaxHeaderBytes = int(kib.GetValue()) << 10
	}
	if idle := h.GetCommonHttpProtocolOptions().GetIdleTimeout(); idle != nil {
		out.IdleTimeout = idle.AsDuration()
	}
	if err := connectionOptions(h, out); err != nil {
		return nil, err
	}
	if err := connectionLimits(h.GetCommonHttpProtocolOptions(), h.GetHttp2ProtocolOptions()); err != nil {
		return nil, err
	}
	if err := t.httpFilters(h, out); err != nil {
		return nil, err
	}
	switch {
	case h.GetRds() != nil && h.GetRds().GetConfigSource().GetAds() == nil:
		return nil, fmt.Errorf("rds.config_source: only ads is supported")
	case h.GetRouteConfig() != nil:
		table, err := t.Routes(h.GetRouteConfig())
		out.Inline = table
		return out, err
	case out.RouteName == "":
		return nil, fmt.Errorf("it has neither rds nor route_config")
	}
	return out, nil
}

func connectionOptions(h *hcmv3.HttpConnectionManager, out *model.HTTP) error {
	switch h.GetServerHeaderTransformation() {
	case hcmv3.HttpConnectionManager_PASS_THROUGH, hcmv3.HttpConnectionManager_APPEND_IF_ABSENT:
		out.PassServerHeader = true
	case hcmv3.HttpConnectionManager_OVERWRITE:
	}
	if action := h.GetPathWithEscapedSlashesAction(); action > hcmv3.HttpConnectionManager_KEEP_UNCHANGED {
		return fmt.Errorf("path_with_escaped_slashes_action %s is not supported", action)
	}
	for name, timeout := range map[string]*durationpb.Duration{
		"request_timeout": h.GetRequestTimeout(), "request_headers_timeout": h.GetRequestHeadersTimeout(),
		"stream_idle_timeout": h.GetStreamIdleTimeout(), // istiod sends 0, which means none
	} {
		if timeout.AsDuration() > 0 {
			return fmt.Errorf("%s is not supported", name)
		}
	}
	if h.GetCodecType() == hcmv3.HttpConnectionManager_HTTP3 {
		return fmt.Errorf("codec_type HTTP3 is not supported")
	}
	for _, upgrade := range h.GetUpgradeConfigs() {
		if upgrade.GetEnabled() == nil || upgrade.GetEnabled().GetValue() {
			out.Upgrades = append(out.Upgrades, strings.ToLower(upgrade.GetUpgradeType()))
		}
	}
	return nil
}

func (t *Translator) httpFilters(h *hcmv3.HttpConnectionManager, out *model.HTTP) error {
	router := false
	for i, filter := range h.GetHttpFilters() {
		if filter.GetConfigDiscovery() != nil {
			if err := onlyWasm(filter.GetConfigDiscovery()); err != nil {
				return fmt.Errorf("http_filters[%d] (%s): %w", i, filter.GetName(), err)
			}
			continue
		}
		name := TypeName(filter.GetTypedConfig())
		if name == processor {
			if err := processorFilter(filter.GetTypedConfig(), out); err != nil {
				return fmt.Errorf("http_filters[%d] (%s): %w", i, filter.GetName(), err)
			}
			continue
		}
		if _, listed := t.Accepts(name); !listed && name != "envoy.extensions.filters.http.fault.v3.HTTPFault" {
			return fmt.Errorf("http_filters[%d] (%s): type %s is not supported here", i, filter.GetName(), name)
		}
		router = router || name == httpRouter
		out.CORS = out.CORS || name == corsFilter && !filter.GetDisabled()
	}
	if !router {
		return fmt.Errorf("http_filters has no router")
	}
	return nil
}

// Extension accepts an extension that came by ECDS.
func (t *Translator) Extension(e *corev3.TypedExtensionConfig) error {
	path := fmt.Sprintf("extension %q", e.GetName())
	if err := t.check(path, e.ProtoReflect()); err != nil {
		return err
	}
	if name := TypeName(e.GetTypedConfig()); name != wasmFilter && name != strings.Replace(wasmFilter, "http", "network", 1) {
		return fmt.Errorf("%s: type %s is not supported", path, name)
	}
	return nil
}

// Extensions returns the names of the extensions of a listener that come by ECDS.
func Extensions(l *listenerv3.Listener) []string {
	var names []string
	for _, chain := range append(slices.Clone(l.GetFilterChains()), l.GetDefaultFilterChain()) {
		for _, filter := range chain.GetFilters() {
			if filter.GetConfigDiscovery() != nil {
				names = append(names, filter.GetName())
			}
			hcm := &hcmv3.HttpConnectionManager{}
			if filter.GetTypedConfig().UnmarshalTo(hcm) != nil {
				continue // It is another filter.
			}
			for _, http := range hcm.GetHttpFilters() {
				if http.GetConfigDiscovery() != nil {
					names = append(names, http.GetName())
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func lower(names []string) []string {
	all := make([]string, 0, len(names))
	for _, name := range names {
		all = append(all, strings.ToLower(name))
	}
	return all
}
