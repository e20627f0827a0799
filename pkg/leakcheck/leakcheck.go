package leakcheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// Object is an object to check.
type Object interface {
	fmt.Stringer
	GVK() schema.GroupVersionKind
	Key() types.NamespacedName
	JSON() []byte
}

// secret is something that the guest must not be able to read.
type secret struct {
	description string
	// patterns are byte strings. Each of them reveals the secret.
	patterns []string
	// wholeWord is true if a pattern counts only where it is not part of a longer word.
	wholeWord bool
}

// Secrets is everything that the guest must not be able to read.
type Secrets []secret

// ShortestName is the minimum length of a name to search for, in bytes. A shorter name can be part of anything.
const ShortestName = 8

// SecretsOf returns what must not be readable in the guest. The roots of the mesh CA are public: every gateway has
// them.
func SecretsOf(cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) Secrets {
	roots := slices.Concat(mgmt.CA.Root, []byte("\n"), mgmt.Rotation.Next.Root)
	all := Secrets{
		{description: "the private key of the mesh CA", patterns: keyPatterns(mgmt.CA.Key)},
		{description: "the private key of the mesh CA that will issue next", patterns: keyPatterns(mgmt.Rotation.Next.Key)},
		{
			description: "a certificate of the mesh CA that is not a root",
			patterns:    certificatePatterns(nonRoots(mgmt.CA), nonRoots(mgmt.Rotation.Next)),
		},
		{description: "the CA of the management API", patterns: certificatePatterns(mgmt.API.CABundle)},
		{description: "the name of the management namespace", patterns: []string{cfg.MgmtNamespace}, wholeWord: true},
		{description: "the address of the management API", patterns: addressPatterns(mgmt.API.Server, cfg), wholeWord: true},
	}
	public := slices.Collect(unwrapped(string(roots), 2))
	for i, s := range all {
		all[i].patterns = slices.DeleteFunc(s.patterns, func(pattern string) bool {
			// A certificate contains half of its RSA key, and an imported CA can be its own root.
			inRoot := slices.ContainsFunc(public, func(text string) bool { return strings.Contains(text, pattern) })
			return len(pattern) < ShortestName || inRoot || s.wholeWord && knownToGuest(pattern, cfg, guest)
		})
	}
	return all
}

// nonRoots returns the certificates of a CA except for its root.
func nonRoots(ca pki.CA) []byte { return slices.Concat(ca.Cert, []byte("\n"), ca.Chain) }

// knownToGuest reports whether the guest knows a name already: it is in the flags for the guest, or its users have used
// it in the name of a GatewayClass or in their proxy settings, in any encoding. These users must not be able to block a
// plan with the name.
func knownToGuest(name string, cfg model.Config, guest model.GuestObservation) bool {
	contains := func(text string) bool { return strings.Contains(text, name) }
	if contains(cfg.GuestNamespace) || contains(cfg.ControllerName) {
		return true
	}
	texts := []string{guest.Proxy.HTTP, guest.Proxy.HTTPS, guest.Proxy.No}
	for _, class := range guest.Classes {
		texts = append(texts, class.Name)
	}
	return slices.ContainsFunc(texts, func(foreign string) bool {
		for text := range unwrapped(foreign, maxUnwrappings) {
			if contains(text) {
				return true
			}
		}
		return false
	})
}

// addressPatterns returns the host of an API server, and its host:port. It leaves the host out if it is a loopback
// address, or if istiod is published under the same host.
func addressPatterns(server string, cfg model.Config) []string {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return nil
	}
	patterns := []string{}
	if u.Port() != "" {
		patterns = append(patterns, u.Host)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if loopback := err == nil && ip.IsLoopback(); !loopback && u.Hostname() != cfg.XDS.Host {
		patterns = append(patterns, u.Hostname())
	}
	return patterns
}

// Refuse returns an error if an object for the guest contains a secret. The error names the kind of secret and where
// it is.
func (s Secrets) Refuse(o Object, cfg model.Config) error {
	for _, name := range []string{o.Key().Namespace, o.Key().Name} {
		if description := s.Find(name); description != "" {
			return fmt.Errorf("a %s would reveal %s by its name to the guest: %s", o.GVK().Kind, description, leakAdvice)
		}
	}
	var decoded any
	if err := json.Unmarshal(o.JSON(), &decoded); err != nil {
		return fmt.Errorf("checking %s for secrets: %w", o, err)
	}
	permitted := "https://" + model.HostPort{Host: cfg.WebhookHost, Port: model.WebhookPort}.String()
	if l := s.walk(decoded, nil, permitted); l != nil {
		return fmt.Errorf("%s would reveal %s in %s to the guest: %s", o, l.description, l.where, leakAdvice)
	}
	return nil
}

const leakAdvice = "remove it from the flags or from the charts in --charts-dir"

// leak is a secret that was found: its description, and where it is.
type leak struct{ description, where string }

// walk searches a JSON value and its keys, in a fixed order. It returns the first leak, or nil.
//
// permitted is the allowed beginning of the URL of a webhook. This is the only place that is allowed to contain the
// name of the management namespace.
func (s Secrets) walk(value any, at []string, permitted string) *leak {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if description := s.Find(key); description != "" {
				return &leak{description, "a key of " + path(at)}
			}
			if l := s.walk(value[key], append(slices.Clip(at), key), permitted); l != nil {
				return l
			}
		}
	case []any:
		for i, element := range value {
			if l := s.walk(element, append(slices.Clip(at), fmt.Sprint(i)), permitted); l != nil {
				return l
			}
		}
	case string:
		if isWebhookURL(at) {
			value = strings.TrimPrefix(value, permitted)
		}
		if description := s.Find(value); description != "" {
			return &leak{description, path(at)}
		}
	}
	return nil
}

// isWebhookURL reports whether a path is the URL of an admission webhook or a conversion webhook.
func isWebhookURL(at []string) bool {
	admission := len(at) == 4 && at[0] == "webhooks" && at[2] == "clientConfig" && at[3] == "url"
	return admission || strings.Join(at, ".") == "spec.conversion.webhook.clientConfig.url"
}

// path returns a path as text. It quotes keys that are empty, long, or contain a dot, slash or space.
func path(at []string) string {
	var out strings.Builder
	for _, step := range at {
		switch {
		case step == "" || strings.ContainsAny(step, "./ ") || len(step) > 63:
			fmt.Fprintf(&out, "[%.63q]", step)
		case out.Len() == 0:
			out.WriteString(step)
		default:
			out.WriteString("." + step)
		}
	}
	return out.String()
}

// NamesNamespace reports whether a host reveals the name of the management namespace to the guest. It reports false
// in the standalone topology, for a short name, and for a name that is in the flags for the guest.
func NamesNamespace(cfg model.Config, host string) bool {
	return cfg.Topology == model.TopologyHosted && len(cfg.MgmtNamespace) >= ShortestName &&
		ContainsWord(host, cfg.MgmtNamespace) && !knownToGuest(cfg.MgmtNamespace, cfg, model.GuestObservation{})
}
