package translate

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

const million = 1_000_000

// Routes translates a route configuration.
func (t *Translator) Routes(r *routev3.RouteConfiguration) (*model.RouteTable, error) {
	path := fmt.Sprintf("route configuration %q", r.GetName())
	if err := t.check(path, r.ProtoReflect()); err != nil {
		return nil, err
	}
	out := &model.RouteTable{Name: r.GetName(), IgnorePort: r.GetIgnorePortInHostMatching()}
	var err error
	if out.Headers, err = headers(r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	domains := map[string]string{}
	for _, host := range r.GetVirtualHosts() {
		translated, err := t.host(host)
		if err != nil {
			return nil, fmt.Errorf("%s: virtual host %q: %w", path, host.GetName(), err)
		}
		for _, domain := range lower(host.GetDomains()) {
			if other, twice := domains[domain]; twice { // Envoy rejects it, too.
				return nil, fmt.Errorf("%s: the virtual hosts %q and %q have the same domain %s", path, other, host.GetName(), domain)
			}
			domains[domain] = host.GetName()
		}
		out.Hosts = append(out.Hosts, translated)
	}
	return out, nil
}

func (t *Translator) host(h *routev3.VirtualHost) (*model.VirtualHost, error) {
	out := &model.VirtualHost{Name: h.GetName(), Domains: h.GetDomains(), AttemptCount: h.GetIncludeRequestAttemptCount()}
	switch h.GetRequireTls() {
	case routev3.VirtualHost_NONE:
	case routev3.VirtualHost_ALL:
		out.HTTPSOnly = true
	default:
		return nil, fmt.Errorf("require_tls %s is not supported", h.GetRequireTls())
	}
	var err error
	if out.Headers, err = headers(h); err != nil {
		return nil, err
	}
	var processor *model.Processor
	if out.CORS, processor, err = perFilter(h.GetTypedPerFilterConfig()); err != nil {
		return nil, err
	}
	if processor != nil {
		return nil, fmt.Errorf("an external processor of a virtual host is not supported")
	}
	if out.Retry, err = retry(h.GetRetryPolicy()); err != nil {
		return nil, err
	}
	for i, route := range h.GetRoutes() {
		translated, err := t.route(route, out.Retry)
		if err != nil {
			return nil, fmt.Errorf("routes[%d] (%s): %w", i, route.GetName(), err)
		}
		out.Routes = append(out.Routes, translated)
	}
	return out, nil
}

// perFilter returns the CORS policy and the external processor. Settings of other filters are not supported.
func perFilter(configs map[string]*anypb.Any) (policy *model.CORS, processor *model.Processor, err error) {
	for name, config := range configs {
		switch {
		case config.MessageIs(&corsv3.CorsPolicy{}):
			var cors *corsv3.CorsPolicy
			if cors, err = unpack(config, &corsv3.CorsPolicy{}); err == nil {
				policy, err = newCORS(cors)
			}
		case config.MessageIs(&extprocv3.ExtProcPerRoute{}):
			processor, err = processorOfRoute(config)
		default:
			err = fmt.Errorf("type %s is not supported", TypeName(config))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("typed_per_filter_config[%q]: %w", name, err)
		}
	}
	return policy, processor, nil
}

func newCORS(c *corsv3.CorsPolicy) (*model.CORS, error) {
	if c.GetFilterEnabled() != nil && millionths(c.GetFilterEnabled().GetDefaultValue()) < million {
		return nil, fmt.Errorf("filter_enabled below 100%% is not supported")
	}
	out := &model.CORS{
		Methods: c.GetAllowMethods(), Headers: c.GetAllowHeaders(), Expose: c.GetExposeHeaders(), MaxAge: c.GetMaxAge(),
		Credentials:      c.GetAllowCredentials().GetValue(),
		ForwardPreflight: c.GetForwardNotMatchingPreflights() == nil || c.GetForwardNotMatchingPreflights().GetValue(),
	}
	for _, origin := range c.GetAllowOriginStringMatch() {
		match, err := stringMatch(origin)
		if err != nil {
			return nil, err
		}
		out.Origins = append(out.Origins, match)
	}
	return out, nil
}

func (t *Translator) route(r *routev3.Route, fallback *model.Retry) (*model.Route, error) {
	out := &model.Route{Name: r.GetName()}
	var err error
	if out.Match, err = newMatch(r.GetMatch()); err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	if out.Headers, err = headers(r); err != nil {
		return nil, err
	}
	if out.CORS, out.Processor, err = perFilter(r.GetTypedPerFilterConfig()); err != nil {
		return nil, err
	}
	switch action := r.GetAction().(type) {
	case *routev3.Route_Route:
		out.Action, err = forward(action.Route, fallback)
	case *routev3.Route_Redirect:
		out.Action, err = redirect(action.Redirect)
	case *routev3.Route_DirectResponse:
		var body []byte
		body, err = data(action.DirectResponse.GetBody())
		out.Action = &model.Direct{Status: int(action.DirectResponse.GetStatus()), Body: body}
	default:
		err = fmt.Errorf("it has no action")
	}
	return out, err
}

func newMatch(m *routev3.RouteMatch) (model.Match, error) {
	out := model.Match{GRPC: m.GetGrpc() != nil}
	var err error
	if out.Path, err = pathMatch(m); err != nil {
		return out, err
	}
	if fraction := m.GetRuntimeFraction(); fraction != nil {
		if out.Fraction = millionths(fraction.GetDefaultValue()); out.Fraction == 0 {
			return out, fmt.Errorf("runtime_fraction 0 is not supported")
		}
	}
	for _, header := range m.GetHeaders() {
		translated, err := headerMatch(header)
		if err != nil {
			return out, fmt.Errorf("header %s: %w", header.GetName(), err)
		}
		out.Headers = append(out.Headers, translated)
	}
	for _, query := range m.GetQueryParameters() {
		translated, err := queryMatch(query)
		if err != nil {
			return out, fmt.Errorf("query parameter %s: %w", query.GetName(), err)
		}
		out.Query = append(out.Query, translated)
	}
	return out, nil
}

func pathMatch(m *routev3.RouteMatch) (model.PathMatch, error) {
	out := model.PathMatch{IgnoreCase: m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()}
	var err error
	switch path := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		out.Kind, out.Value = model.PathPrefix, path.Prefix
	case *routev3.RouteMatch_Path:
		out.Kind, out.Value = model.PathExact, path.Path
	case *routev3.RouteMatch_PathSeparatedPrefix:
		out.Kind, out.Value = model.PathSegments, path.PathSeparatedPrefix
	case *routev3.RouteMatch_SafeRegex:
		out.Kind = model.PathRegex
		out.Regex, err = whole(path.SafeRegex.GetRegex())
	default:
		err = fmt.Errorf("this kind of path is not supported")
	}
	return out, err
}

// whole compiles a regular expression that must match the whole string, as Envoy's do.
func whole(text string) (*regexp.Regexp, error) {
	return regexp.Compile(`^(?:` + text + `)$`)
}

func stringMatch(m *matcherv3.StringMatcher) (model.StringMatch, error) {
	out := model.StringMatch{IgnoreCase: m.GetIgnoreCase()}
	var err error
	switch pattern := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		out.Kind, out.Value = model.StringExact, pattern.Exact
	case *matcherv3.StringMatcher_Prefix:
		out.Kind, out.Value = model.StringPrefix, pattern.Prefix
	case *matcherv3.StringMatcher_Suffix:
		out.Kind, out.Value = model.StringSuffix, pattern.Suffix
	case *matcherv3.StringMatcher_Contains:
		out.Kind, out.Value = model.StringContains, pattern.Contains
	case *matcherv3.StringMatcher_SafeRegex:
		out.Kind = model.StringRegex
		out.Regex, err = whole(pattern.SafeRegex.GetRegex())
	default:
		err = fmt.Errorf("a string matcher without a pattern is not supported")
	}
	return out, err
}

func headerMatch(h *routev3.HeaderMatcher) (model.HeaderMatch, error) {
	out := model.HeaderMatch{
		Name: strings.ToLower(h.GetName()), Invert: h.GetInvertMatch(), MissingIsEmpty: h.GetTreatMissingHeaderAsEmpty(),
	}
	var err error
	//nolint:staticcheck // EnvoyFilters can still use the deprecated fields.
	switch match := h.GetHeaderMatchSpecifier().(type) {
	case nil:
		out.Match.Kind = model.StringAny
	case *routev3.HeaderMatcher_PresentMatch:
		out.Match.Kind, out.Absent = model.StringAny, !match.PresentMatch
	case *routev3.HeaderMatcher_StringMatch:
		out.Match, err = stringMatch(match.StringMatch)
	case *routev3.HeaderMatcher_ExactMatch:
		out.Match = model.StringMatch{Kind: model.StringExact, Value: match.ExactMatch}
	case *routev3.HeaderMatcher_PrefixMatch:
		out.Match = model.StringMatch{Kind: model.StringPrefix, Value: match.PrefixMatch}
	case *routev3.HeaderMatcher_SuffixMatch:
		out.Match = model.StringMatch{Kind: model.StringSuffix, Value: match.SuffixMatch}
	case *routev3.HeaderMatcher_ContainsMatch:
		out.Match = model.StringMatch{Kind: model.StringContains, Value: match.ContainsMatch}
	case *routev3.HeaderMatcher_SafeRegexMatch:
		out.Match.Kind = model.StringRegex
		out.Match.Regex, err = whole(match.SafeRegexMatch.GetRegex())
	default:
		err = fmt.Errorf("this kind of match is not supported")
	}
	return out, err
}

func queryMatch(q *routev3.QueryParameterMatcher) (model.QueryMatch, error) {
	out := model.QueryMatch{Name: q.GetName()}
	switch match := q.GetQueryParameterMatchSpecifier().(type) {
	case *routev3.QueryParameterMatcher_StringMatch:
		var err error
		out.Match, err = stringMatch(match.StringMatch)
		return out, err
	case *routev3.QueryParameterMatcher_PresentMatch:
		if !match.PresentMatch {
			return out, fmt.Errorf("present_match false is not supported")
		}
	}
	out.Match.Kind = model.StringAny
	return out, nil
}

func millionths(f *typev3.FractionalPercent) uint32 {
	scale := map[typev3.FractionalPercent_DenominatorType]uint32{
		typev3.FractionalPercent_HUNDRED: 10_000, typev3.FractionalPercent_TEN_THOUSAND: 100, typev3.FractionalPercent_MILLION: 1,
	}
	return min(f.GetNumerator()*scale[f.GetDenominator()], million)
}

// withHeaders is what route configurations, virtual hosts, routes and weighted clusters have in common.
type withHeaders interface {
	GetRequestHeadersToAdd() []*corev3.HeaderValueOption
	GetRequestHeadersToRemove() []string
	GetResponseHeadersToAdd() []*corev3.HeaderValueOption
	GetResponseHeadersToRemove() []string
}

func headers(from withHeaders) (model.HeaderChanges, error) {
	out := model.HeaderChanges{RequestRemove: from.GetRequestHeadersToRemove(), ResponseRemove: from.GetResponseHeadersToRemove()}
	var err error
	if out.RequestAdd, err = headerValues(from.GetRequestHeadersToAdd()); err != nil {
		return out, fmt.Errorf("request_headers_to_add: %w", err)
	}
	if out.ResponseAdd, err = headerValues(from.GetResponseHeadersToAdd()); err != nil {
		return out, fmt.Errorf("response_headers_to_add: %w", err)
	}
	return out, nil
}

func headerValues(options []*corev3.HeaderValueOption) ([]model.HeaderValue, error) {
	actions := map[corev3.HeaderValueOption_HeaderAppendAction]model.HeaderAction{
		corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:    model.HeaderAppend,
		corev3.HeaderValueOption_ADD_IF_ABSENT:              model.HeaderAddIfAbsent,
		corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD: model.HeaderSet,
		corev3.HeaderValueOption_OVERWRITE_IF_EXISTS:        model.HeaderSetIfPresent,
	}
	var all []model.HeaderValue
	for _, option := range options {
		value, err := literal(option.GetHeader().GetValue())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", option.GetHeader().GetKey(), err)
		}
		if strings.HasPrefix(option.GetHeader().GetKey(), ":") || strings.EqualFold(option.GetHeader().GetKey(), "host") {
			return nil, fmt.Errorf("%s: Envoy rejects changes of this header", option.GetHeader().GetKey())
		}
		out := model.HeaderValue{
			Name: option.GetHeader().GetKey(), Value: value, Action: actions[option.GetAppendAction()],
			KeepEmpty: option.GetKeepEmptyValue(),
		}
		if appendTo := option.GetAppend(); appendTo != nil && !appendTo.GetValue() { //nolint:staticcheck // EnvoyFilters can use it.
			out.Action = model.HeaderSet
		}
		all = append(all, out)
	}
	return all, nil
}

// literal returns the text of a header value. In Envoy, % begins a command, and %% is a percent sign.
func literal(value string) (string, error) {
	rest := strings.ReplaceAll(value, "%%", "")
	if strings.Contains(rest, "%") {
		return "", fmt.Errorf("commands in header values are not supported: %q", value)
	}
	return strings.ReplaceAll(value, "%%", "%"), nil
}

func redirect(r *routev3.RedirectAction) (*model.Redirect, error) {
	statuses := map[routev3.RedirectAction_RedirectResponseCode]int{
		routev3.RedirectAction_MOVED_PERMANENTLY: http.StatusMovedPermanently, routev3.RedirectAction_FOUND: http.StatusFound,
		routev3.RedirectAction_SEE_OTHER:          http.StatusSeeOther,
		routev3.RedirectAction_TEMPORARY_REDIRECT: http.StatusTemporaryRedirect,
		routev3.RedirectAction_PERMANENT_REDIRECT: http.StatusPermanentRedirect,
	}
	out := &model.Redirect{
		Status: statuses[r.GetResponseCode()], Scheme: r.GetSchemeRedirect(), HTTPS: r.GetHttpsRedirect(), Host: r.GetHostRedirect(),
		Port: r.GetPortRedirect(), Path: r.GetPathRedirect(), StripQuery: r.GetStripQuery(),
	}
	var err error
	out.Rewrite, err = pathRewrite(r.GetPrefixRewrite(), r.GetRegexRewrite())
	return out, err
}

// group is a reference to a group in the syntax of RE2.
var group = regexp.MustCompile(`\\(\d)`)

func pathRewrite(prefix string, regex *matcherv3.RegexMatchAndSubstitute) (model.PathRewrite, error) {
	out := model.PathRewrite{Prefix: prefix}
	if regex == nil {
		return out, nil
	}
	var err error
	if out.Regex, err = regexp.Compile(regex.GetPattern().GetRegex()); err != nil {
		return out, fmt.Errorf("regex_rewrite: %w", err)
	}
	out.Substitution = group.ReplaceAllStringFunc(strings.ReplaceAll(regex.GetSubstitution(), "$", "$$"), func(reference string) string {
		number, _ := strconv.Atoi(reference[1:])
		return "${" + strconv.Itoa(number) + "}"
	})
	return out, nil
}
