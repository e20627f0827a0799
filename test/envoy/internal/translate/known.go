package translate

import "strings"

// rules say what is accepted. The maps are by the full name of a message.
type rules struct {
	// fields has the fields of a message that the translation reads, and those that it ignores.
	fields map[string]known
	// extensions has the messages in an Any that are accepted and not read, with the reason.
	extensions map[string]string
	// values has the messages that are accepted whole.
	values map[string]bool
}

type known map[string]use

type use bool

const (
	used    use = true
	ignored use = false
)

// row reads "used fields | ignored fields".
func row(text string) known {
	fields := known{}
	reads, ignores, _ := strings.Cut(text, "|")
	for field := range strings.FieldsSeq(reads) {
		fields[field] = used
	}
	for field := range strings.FieldsSeq(ignores) {
		fields[field] = ignored
	}
	return fields
}

// newRules returns the one table of what is accepted. Ignored fields are about statistics, logs, traces, buffers,
// sockets and connections that end between requests. The translation rejects values of the other fields that it does
// not obey.
func newRules() rules {
	fields := map[string]known{}
	for _, part := range []map[string]string{clusterFields(), listenerFields(), routeFields(), tlsFields(), commonFields()} {
		for name, text := range part {
			fields[name] = row(text)
		}
	}
	return rules{fields: fields, extensions: extensionTypes(), values: valueTypes()}
}

// extensionTypes are the extensions that are accepted and not executed. They do not change where a request goes,
// and not whether it is answered.
func extensionTypes() map[string]string {
	const telemetry, wasm = "telemetry", "a WasmPlugin. The code is not executed, see the README"
	return map[string]string{
		"envoy.extensions.access_loggers.file.v3.FileAccessLog":                             telemetry,
		"envoy.extensions.access_loggers.stream.v3.StdoutAccessLog":                         telemetry,
		"envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig":                   telemetry,
		"envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig":                    telemetry,
		"envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig":    telemetry,
		"envoy.extensions.filters.http.grpc_stats.v3.FilterConfig":                          telemetry,
		"envoy.extensions.filters.http.wasm.v3.Wasm":                                        wasm,
		"envoy.extensions.filters.network.wasm.v3.Wasm":                                     wasm,
		"envoy.extensions.filters.http.router.v3.Router":                                    "the router is the data plane itself",
		"envoy.extensions.filters.http.cors.v3.Cors":                                        "the policy is in the routes",
		"envoy.extensions.filters.http.grpc_web.v3.GrpcWeb":                                 "gRPC-Web is passed on as it is",
		"envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector":                   "the inspector has no options that matter",
		"envoy.extensions.filters.listener.http_inspector.v3.HttpInspector":                 "the codec is detected anyway",
		"envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate":              "it has no options",
		"envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig":   "a retry can stay in the same priority",
		"envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer":                        "it has no options",
		"istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig":                         "ALPN between sidecars",
		"envoy.tcp.metadataexchange.config.MetadataExchange":                                telemetry,
		"io.istio.http.peer_metadata.Config":                                                telemetry,
		"stats.PluginConfig":                                                                telemetry,
		"envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig":                           telemetry,
		"envoy.extensions.filters.http.compressor.v3.Compressor":                            "a response can stay uncompressed",
		"envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig": "the resolver of Go is used",
		"envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig":             "the resolver of Go is used",
	}
}

// valueTypes are messages without fields that the rules need to know.
func valueTypes() map[string]bool {
	return map[string]bool{
		"envoy.config.core.v3.Metadata":                                                          true,
		"envoy.config.core.v3.Http1ProtocolOptions":                                              true,
		"envoy.config.core.v3.Http2ProtocolOptions":                                              true,
		"google.protobuf.Duration":                                                               true,
		"google.protobuf.Struct":                                                                 true,
		"google.protobuf.BoolValue":                                                              true,
		"google.protobuf.UInt32Value":                                                            true,
		"google.protobuf.UInt64Value":                                                            true,
		"google.protobuf.StringValue":                                                            true,
		"google.protobuf.DoubleValue":                                                            true,
		"envoy.config.cluster.v3.Cluster.CommonLbConfig.LocalityWeightedLbConfig":                true,
		"envoy.config.cluster.v3.Cluster.LeastRequestLbConfig":                                   true,
		"envoy.config.cluster.v3.Cluster.RoundRobinLbConfig":                                     true,
		"envoy.config.route.v3.RouteMatch.GrpcRouteMatchOptions":                                 true,
		"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.SystemRootCerts": true,
	}
}

func clusterFields() map[string]string {
	const cluster, endpoint, http = "envoy.config.cluster.v3.", "envoy.config.endpoint.v3.", httpOptions
	return map[string]string{
		cluster + "Cluster": `name type eds_cluster_config connect_timeout lb_policy load_assignment transport_socket
			transport_socket_matches typed_extension_protocol_options common_lb_config dns_refresh_rate circuit_breakers
			least_request_lb_config round_robin_lb_config load_balancing_policy | alt_stat_name filters metadata
			upstream_connection_options per_connection_buffer_limit_bytes max_requests_per_connection
			close_connections_on_host_health_failure ignore_health_on_host_removal wait_for_warm_on_init track_cluster_stats
			respect_dns_ttl dns_lookup_family
			dns_failure_refresh_rate dns_jitter typed_dns_resolver_config preconnect_policy`,
		cluster + "Cluster.EdsClusterConfig": `eds_config service_name`,
		cluster + "Cluster.CommonLbConfig": `healthy_panic_threshold locality_weighted_lb_config | update_merge_window
			ignore_new_hosts_until_first_hc close_connections_on_host_set_change override_host_status`,
		cluster + "Cluster.TransportSocketMatch": `name match transport_socket`,
		cluster + "LoadBalancingPolicy":          `policies`,
		cluster + "LoadBalancingPolicy.Policy":   `typed_extension_config`,
		roundRobin:                               ``,
		overrideHost:                             `override_host_sources fallback_policy`,
		overrideHost + ".OverrideHostSource":     `metadata`,
		metadataKey:                              `key path`,
		metadataKey + ".PathSegment":             `key`,
		cluster + "CircuitBreakers":              `thresholds`,
		cluster + "CircuitBreakers.Thresholds": `max_connections max_pending_requests max_requests max_retries | priority
			track_remaining max_connection_pools`,
		endpoint + "ClusterLoadAssignment":        `cluster_name endpoints policy`,
		endpoint + "ClusterLoadAssignment.Policy": ` | overprovisioning_factor endpoint_stale_after weighted_priority_health`,
		endpoint + "LocalityLbEndpoints":          `lb_endpoints load_balancing_weight priority | locality metadata proximity`,
		endpoint + "LbEndpoint":                   `endpoint health_status metadata load_balancing_weight`,
		endpoint + "Endpoint":                     `address hostname | health_check_config additional_addresses`,
		http: `explicit_http_config use_downstream_protocol_config auto_config common_http_protocol_options
			upstream_http_protocol_options`,
		http + ".ExplicitHttpConfig":         `http_protocol_options http2_protocol_options`,
		http + ".UseDownstreamHttpConfig":    `http_protocol_options http2_protocol_options`,
		http + ".AutoHttpConfig":             `http_protocol_options http2_protocol_options`,
		core + "UpstreamHttpProtocolOptions": `auto_sni auto_san_validation`,
		core + "HttpProtocolOptions":         `idle_timeout max_connection_duration | max_headers_count max_requests_per_connection`,
		"envoy.type.v3.Percent":              `value`,
		"envoy.type.v3.FractionalPercent":    `numerator denominator`,
		core + "RuntimeFractionalPercent":    `default_value | runtime_key`,
	}
}

func listenerFields() map[string]string {
	const (
		listener = "envoy.config.listener.v3."
		hcm      = "envoy.extensions.filters.network.http_connection_manager.v3."
		tcp      = "envoy.extensions.filters.network.tcp_proxy.v3."
	)
	return map[string]string{
		listener + "Listener": `name address additional_addresses filter_chains default_filter_chain listener_filters
			listener_filters_timeout continue_on_listener_filters_timeout bind_to_port | stat_prefix traffic_direction
			max_connections_to_accept_per_socket_event access_log metadata per_connection_buffer_limit_bytes
			enable_reuse_port tcp_backlog_size ignore_global_conn_limit bypass_overload_manager drain_type socket_options
			connection_balance_config`,
		listener + "AdditionalAddress": `address | socket_options`,
		listener + "ListenerFilter":    `name typed_config`,
		listener + "FilterChain": `name filter_chain_match filters transport_socket | metadata
			transport_socket_connect_timeout`,
		listener + "FilterChainMatch": `destination_port server_names transport_protocol application_protocols`,
		listener + "Filter":           `name typed_config config_discovery`,
		hcm + "HttpConnectionManager": `codec_type stat_prefix rds route_config http_filters use_remote_address
			server_name server_header_transformation upgrade_configs normalize_path merge_slashes
			path_with_escaped_slashes_action common_http_protocol_options max_request_headers_kb request_timeout
			request_headers_timeout stream_idle_timeout http2_protocol_options | tracing
			access_log access_log_options forward_client_cert_details set_current_client_cert_details
			http_protocol_options proxy_100_continue request_id_extension internal_address_config
			generate_request_id preserve_external_request_id always_set_request_id_in_response
			drain_timeout delayed_close_timeout xff_num_trusted_hops skip_xff_append via
			add_user_agent represent_ipv4_remote_address_as_ipv4_mapped_ipv6 stream_error_on_invalid_http_message
			max_request_headers_kb`,
		hcm + "HttpConnectionManager.UpgradeConfig": `upgrade_type enabled`,
		hcm + "Rds":        `route_config_name config_source`,
		hcm + "HttpFilter": `name typed_config config_discovery disabled | is_optional`,
		tcp + "TcpProxy": `stat_prefix cluster weighted_clusters idle_timeout max_connect_attempts |
			access_log access_log_options`,
		tcp + "TcpProxy.WeightedCluster":                   `clusters`,
		tcp + "TcpProxy.WeightedCluster.ClusterWeight":     `name weight`,
		"envoy.extensions.filters.http.fault.v3.HTTPFault": ``,
		processor: `grpc_service failure_mode_allow processing_mode message_timeout metadata_options`,
		processing + "ProcessingMode": `request_header_mode request_body_mode request_trailer_mode response_header_mode
			response_body_mode response_trailer_mode`,
		processing + "MetadataOptions":                    `receiving_namespaces forwarding_namespaces`,
		processing + "MetadataOptions.MetadataNamespaces": `untyped`,
		core + "ExtensionConfigSource":                    `config_source type_urls | default_config apply_default_config_without_warming`,
		core + "TypedExtensionConfig":                     `name typed_config`,
	}
}

const (
	core         = "envoy.config.core.v3."
	processing   = "envoy.extensions.filters.http.ext_proc.v3."
	processor    = processing + "ExternalProcessor"
	overrideHost = "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost"
	roundRobin   = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
	metadataKey  = "envoy.type.metadata.v3.MetadataKey"
)

func routeFields() map[string]string {
	const route, headers = "envoy.config.route.v3.", ` request_headers_to_add request_headers_to_remove response_headers_to_add
		response_headers_to_remove `
	return map[string]string{
		route + "RouteConfiguration": `name virtual_hosts ignore_port_in_host_matching` + headers + `| validate_clusters
			max_direct_response_body_size_bytes internal_only_headers metadata`,
		route + "VirtualHost": `name domains routes require_tls include_request_attempt_count retry_policy
			typed_per_filter_config` + headers + `| include_attempt_count_in_response metadata virtual_clusters`,
		route + "Route": `name match route redirect direct_response typed_per_filter_config` + headers + `| metadata decorator
			tracing stat_prefix`,
		route + "RouteMatch": `prefix path path_separated_prefix safe_regex case_sensitive headers query_parameters grpc
			runtime_fraction`,
		route + "HeaderMatcher": `name present_match string_match invert_match treat_missing_header_as_empty exact_match
			prefix_match suffix_match contains_match safe_regex_match`,
		route + "QueryParameterMatcher": `name string_match present_match`,
		route + "RouteAction": `cluster weighted_clusters cluster_not_found_response_code prefix_rewrite regex_rewrite
			host_rewrite_literal auto_host_rewrite append_x_forwarded_host timeout idle_timeout max_grpc_timeout retry_policy
			request_mirror_policies upgrade_configs | priority`,
		route + "RouteAction.UpgradeConfig": `upgrade_type enabled`,
		route + "RouteAction.RequestMirrorPolicy": `cluster runtime_fraction disable_shadow_host_suffix_append |
			trace_sampled`,
		route + "WeightedCluster":               `clusters | total_weight runtime_key_prefix`,
		route + "WeightedCluster.ClusterWeight": `name weight host_rewrite_literal` + headers,
		route + "RetryPolicy": `retry_on num_retries per_try_timeout retry_host_predicate
			host_selection_retry_max_attempts retriable_status_codes retry_back_off | retry_priority`,
		route + "RetryPolicy.RetryHostPredicate": `name typed_config`,
		route + "RetryPolicy.RetryBackOff":       `base_interval max_interval`,
		route + "RedirectAction": `https_redirect scheme_redirect host_redirect port_redirect path_redirect prefix_rewrite
			regex_rewrite response_code strip_query`,
		route + "DirectResponseAction": `status body`,
		"envoy.extensions.filters.http.cors.v3.CorsPolicy": `allow_origin_string_match allow_methods allow_headers
			expose_headers max_age allow_credentials filter_enabled forward_not_matching_preflights`,
		processing + "ExtProcPerRoute":                  `overrides`,
		processing + "ExtProcOverrides":                 `grpc_service failure_mode_allow processing_mode`,
		core + "HeaderValueOption":                      `header append append_action keep_empty_value`,
		core + "HeaderValue":                            `key value`,
		"envoy.type.matcher.v3.RegexMatchAndSubstitute": `pattern substitution`,
	}
}

func tlsFields() map[string]string {
	const tls = "envoy.extensions.transport_sockets.tls.v3."
	return map[string]string{
		tls + "Secret": `name tls_certificate validation_context`,
		tls + "UpstreamTlsContext": `common_tls_context sni auto_host_sni auto_sni_san_validation | allow_renegotiation
			max_session_keys enforce_rsa_key_usage`,
		tls + "DownstreamTlsContext": `common_tls_context require_client_certificate | ocsp_staple_policy session_timeout
			disable_stateless_session_resumption disable_stateful_session_resumption full_scan_certs_on_sni_mismatch
			prefer_client_ciphers require_sni`,
		tls + "CommonTlsContext": `tls_params alpn_protocols tls_certificate_sds_secret_configs tls_certificates
			validation_context combined_validation_context validation_context_sds_secret_config | key_log`,
		tls + "CommonTlsContext.CombinedCertificateValidationContext": `default_validation_context
			validation_context_sds_secret_config`,
		tls + "TlsParameters": `tls_minimum_protocol_version tls_maximum_protocol_version | cipher_suites ecdh_curves
			signature_algorithms compliance_policies`,
		tls + "CertificateValidationContext": `trusted_ca match_subject_alt_names match_typed_subject_alt_names
			system_root_certs`,
		tls + "SdsSecretConfig":       `name sds_config`,
		tls + "SubjectAltNameMatcher": `san_type matcher`,
		tls + "TlsCertificate":        `certificate_chain private_key`,
	}
}

func commonFields() map[string]string {
	return map[string]string{
		core + "ConfigSource":           `ads api_config_source initial_fetch_timeout | resource_api_version`,
		core + "AggregatedConfigSource": ``,
		core + "ApiConfigSource": `api_type grpc_services | set_node_on_first_message_only transport_api_version
			config_validators rate_limit_settings request_timeout`,
		core + "GrpcService":                  `envoy_grpc | timeout initial_metadata`,
		core + "GrpcService.EnvoyGrpc":        `cluster_name | authority retry_policy max_receive_message_length`,
		core + "Address":                      `socket_address pipe`,
		core + "SocketAddress":                `address port_value protocol | ipv4_compat`,
		core + "Pipe":                         `path | mode`,
		core + "TransportSocket":              `name typed_config`,
		core + "DataSource":                   `inline_string inline_bytes filename`,
		"envoy.type.matcher.v3.StringMatcher": `exact prefix suffix contains safe_regex ignore_case`,
		"envoy.type.matcher.v3.RegexMatcher":  `regex | google_re2`,
	}
}
