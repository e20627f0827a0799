package values

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The kinds of providers that a user can set, by what they are for. Istio's other kinds decide about access, or send
// data to one vendor.
func tracers() []string { return []string{"opentelemetry", "zipkin"} }

func accessLogs() []string { return []string{"envoyFileAccessLog", "envoyHttpAls", "envoyOtelAls"} }

// BuiltInAccessLog is the access log provider that Istio always has.
const BuiltInAccessLog = "envoy"

// extensionProviders returns the shape of the providers for tracing and access logs. Their addresses are those of the
// guest's Services: the gateways connect to them, and istiod does not.
func extensionProviders() shape {
	format := checked{fields{"text": scalar(text), "labels": each{logLabel, scalar(text)}}, func(value any) string {
		if given, _ := value.(map[string]any); len(given) != 1 {
			return "should have either text or labels"
		}
		return ""
	}}
	server := func(more fields) shape {
		all := fields{"service": scalar(service), "port": scalar(port)}
		maps.Copy(all, more)
		return checked{all, needs("service", "port")}
	}
	return items{checked{fields{
		"name":               scalar(providerName),
		"opentelemetry":      server(fields{"maxTagLength": scalar(count)}),
		"zipkin":             server(fields{"maxTagLength": scalar(count), "path": scalar(urlPath)}),
		"envoyFileAccessLog": checked{fields{"path": scalar(text), "logFormat": format}, needs("path")},
		"envoyHttpAls":       server(fields{"logName": scalar(text)}),
		"envoyOtelAls":       server(fields{"logName": scalar(text), "logFormat": format}),
	}, func(value any) string {
		given, _ := value.(map[string]any)
		if _, named := given["name"]; !named || len(given) != 2 {
			return "should have a name and one of " + strings.Join(slices.Concat(accessLogs(), tracers()), ", ")
		}
		return ""
	}}}
}

// defaultProviders returns the shape of the providers that all gateways use. Without a Telemetry resource, the others
// are not used.
func defaultProviders() shape {
	return fields{"tracing": items{scalar(providerName)}, "accessLogging": items{scalar(providerName)}}
}

// needs returns a rule that some fields must be given.
func needs(names ...string) func(value any) string {
	return func(value any) string {
		given, _ := value.(map[string]any)
		for _, name := range names {
			if _, is := given[name]; !is {
				return "should have " + name
			}
		}
		return ""
	}
}

// checkProviders checks that names of providers are unique, and that each default provider exists and is of its kind.
func (r *reader) checkProviders(read map[string]any) {
	mesh, _ := read["meshConfig"].(map[string]any)
	providers, _ := mesh["extensionProviders"].([]any)
	kinds := map[string]string{BuiltInAccessLog: "envoyFileAccessLog"}
	for _, item := range providers {
		provider, _ := item.(map[string]any)
		name, _ := provider["name"].(string)
		if _, twice := kinds[name]; twice {
			r.errs = append(r.errs, fmt.Errorf("%s: meshConfig.extensionProviders has more than one provider with the name %s "+
				"(Istio itself has %s)", r.file, name, BuiltInAccessLog))
		}
		for _, kind := range slices.Concat(accessLogs(), tracers()) {
			if _, is := provider[kind]; is {
				kinds[name] = kind
			}
		}
	}
	defaults, _ := mesh["defaultProviders"].(map[string]any)
	for _, row := range []struct {
		use     string
		fitting []string
	}{{"accessLogging", accessLogs()}, {"tracing", tracers()}} {
		names, _ := defaults[row.use].([]any)
		for _, item := range names {
			if name, _ := item.(string); !slices.Contains(row.fitting, kinds[name]) {
				r.errs = append(r.errs, fmt.Errorf("%s: meshConfig.defaultProviders.%s names %s, and meshConfig.extensionProviders has no "+
					"provider of that name that is one of %s", r.file, row.use, name, strings.Join(row.fitting, ", ")))
			}
		}
	}
}

func providerName(n *yaml.Node) (any, string) {
	if n.ShortTag() != "!!str" || len(validation.IsDNS1123Subdomain(n.Value)) > 0 {
		return nil, "should be a name of lower case letters, digits, dots and hyphens"
	}
	return n.Value, ""
}

// service parses the name of a Service of the guest, as Istio expects it: a host name, with or without a namespace
// before it.
func service(n *yaml.Node) (any, string) {
	namespace, host, both := strings.Cut(n.Value, "/")
	if !both {
		namespace, host = "any", n.Value
	}
	if n.ShortTag() != "!!str" || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(host)) > 0 {
		return nil, "should be the host name of a Service, such as zipkin.tracing.svc.cluster.local, or <namespace>/<host name>"
	}
	return n.Value, ""
}

func port(n *yaml.Node) (any, string) {
	value, err := strconv.ParseInt(n.Value, 10, 64)
	if n.ShortTag() != "!!int" || err != nil || len(validation.IsValidPortNum(int(value))) > 0 {
		return nil, "should be a port"
	}
	return value, ""
}

func urlPath(n *yaml.Node) (any, string) {
	if n.ShortTag() != "!!str" || !strings.HasPrefix(n.Value, "/") {
		return nil, "should be a path such as /api/v2/spans"
	}
	return n.Value, ""
}

// logLabel checks the name of a field of a log entry.
func logLabel(name string) string {
	if name == "" {
		return "should have a name"
	}
	return ""
}

// percent parses a part of all requests.
func percent(n *yaml.Node) (any, string) {
	value, err := strconv.ParseFloat(n.Value, 64)
	if tag := n.ShortTag(); err != nil || tag != "!!int" && tag != "!!float" || !(value >= 0 && value <= 100) {
		return nil, "should be a percentage from 0 to 100, without a sign"
	}
	return value, ""
}
