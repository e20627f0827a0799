package translate

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// The defaults of Envoy's API.
const (
	defaultTimeout   = 15 * time.Second
	defaultRetryBase = 25 * time.Millisecond
	retryMaxFactor   = 10
)

func forward(a *routev3.RouteAction, fallback *model.Retry) (*model.Forward, error) {
	out := &model.Forward{
		NotFound: notFound(a), Timeout: defaultTimeout, IdleTimeout: a.GetIdleTimeout().AsDuration(),
		Host: a.GetHostRewriteLiteral(), HostOfEndpoint: a.GetAutoHostRewrite().GetValue(), ForwardedHost: a.GetAppendXForwardedHost(),
		Upgrades: map[string]bool{},
	}
	if a.GetTimeout() != nil {
		out.Timeout = a.GetTimeout().AsDuration()
	}
	if limit := a.GetMaxGrpcTimeout(); limit != nil { //nolint:staticcheck // Istio sends the deprecated field.
		out.GRPCTimeout = model.GRPCTimeout{Obey: true, Max: limit.AsDuration()}
	}
	for _, upgrade := range a.GetUpgradeConfigs() {
		out.Upgrades[strings.ToLower(upgrade.GetUpgradeType())] = upgrade.GetEnabled() == nil || upgrade.GetEnabled().GetValue()
	}
	var err error
	if out.Clusters, err = destinations(a); err != nil {
		return nil, err
	}
	if out.Path, err = pathRewrite(a.GetPrefixRewrite(), a.GetRegexRewrite()); err != nil {
		return nil, err
	}
	if out.Retry, err = retry(a.GetRetryPolicy()); err != nil {
		return nil, err
	}
	if out.Retry == nil {
		out.Retry = fallback
	}
	for _, policy := range a.GetRequestMirrorPolicies() {
		out.Mirrors = append(out.Mirrors, mirror(policy))
	}
	return out, nil
}

func notFound(a *routev3.RouteAction) int {
	switch a.GetClusterNotFoundResponseCode() {
	case routev3.RouteAction_NOT_FOUND:
		return http.StatusNotFound
	case routev3.RouteAction_INTERNAL_SERVER_ERROR:
		return http.StatusInternalServerError
	default:
		return http.StatusServiceUnavailable
	}
}

func destinations(a *routev3.RouteAction) ([]model.Destination, error) {
	switch specifier := a.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		return []model.Destination{{Weighted: model.Weighted{Cluster: specifier.Cluster, Weight: 1}}}, nil
	case *routev3.RouteAction_WeightedClusters:
		var all []model.Destination
		for _, weighted := range specifier.WeightedClusters.GetClusters() {
			changes, err := headers(weighted)
			if err != nil {
				return nil, fmt.Errorf("weighted cluster %s: %w", weighted.GetName(), err)
			}
			all = append(all, model.Destination{
				Weighted: model.Weighted{Cluster: weighted.GetName(), Weight: weighted.GetWeight().GetValue()},
				Headers:  changes, Host: weighted.GetHostRewriteLiteral(),
			})
		}
		if len(all) > 0 {
			return all, nil
		}
	}
	return nil, fmt.Errorf("it has no cluster")
}

func mirror(p *routev3.RouteAction_RequestMirrorPolicy) model.Mirror {
	out := model.Mirror{Cluster: p.GetCluster(), Fraction: million, KeepHost: p.GetDisableShadowHostSuffixAppend()}
	if fraction := p.GetRuntimeFraction(); fraction != nil {
		out.Fraction = millionths(fraction.GetDefaultValue())
	}
	return out
}

// retryConditions are the conditions of Envoy's headers x-envoy-retry-on and x-envoy-retry-grpc-on.
func retryConditions() map[string]model.RetryOn {
	return map[string]model.RetryOn{
		"connect-failure": model.OnConnectFailure, "refused-stream": model.OnRefusedStream, "reset": model.OnReset,
		"reset-before-request": model.OnResetBeforeRequest, "5xx": model.On5xx, "gateway-error": model.OnGatewayError,
		"retriable-4xx": model.OnRetriable4xx, "retriable-status-codes": model.OnStatuses, "cancelled": model.OnGRPCCancelled,
		"deadline-exceeded": model.OnGRPCDeadline, "internal": model.OnGRPCInternal, "resource-exhausted": model.OnGRPCExhausted,
		"unavailable": model.OnGRPCUnavailable,
	}
}

// retry returns nil without a policy.
func retry(p *routev3.RetryPolicy) (*model.Retry, error) {
	if p == nil {
		return nil, nil //nolint:nilnil // nil means without a retry
	}
	out := &model.Retry{Attempts: 1, TryTimeout: p.GetPerTryTimeout().AsDuration(), Base: defaultRetryBase}
	if p.GetNumRetries() != nil {
		out.Attempts = int(p.GetNumRetries().GetValue())
	}
	for name := range strings.SplitSeq(p.GetRetryOn(), ",") {
		condition, ok := retryConditions()[strings.TrimSpace(name)]
		if !ok && name != "" {
			return nil, fmt.Errorf("retry_policy.retry_on: %q is not supported", name)
		}
		out.On |= condition
	}
	for _, status := range p.GetRetriableStatusCodes() {
		out.Statuses = append(out.Statuses, int(status))
	}
	if base := p.GetRetryBackOff().GetBaseInterval(); base != nil {
		out.Base = base.AsDuration()
	}
	out.Max = retryMaxFactor * out.Base
	if most := p.GetRetryBackOff().GetMaxInterval(); most != nil {
		out.Max = most.AsDuration()
	}
	out.OtherHosts, out.HostPicks = len(p.GetRetryHostPredicate()) > 0, int(max(p.GetHostSelectionRetryMaxAttempts(), 1))
	return out, nil
}
