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

// Object is an object that is looked through.
type Object interface {
	fmt.Stringer
	GVK() schema.GroupVersionKind
	Key() types.NamespacedName
	JSON() []byte
}

// secretForms is something that the guest must not be able to read.
type secretForms struct {
	description string
	// forms are byte strings that give it away, each alone.
	forms []string
	// word is whether a form counts only where it is no part of a longer word.
	word bool
}

type Secrets []secretForms

// ShortestName is how long a name must be to be looked for: a shorter one may be part of anything.
const ShortestName = 8

// SecretsOf lists what must not be readable in the guest. The roots of the mesh CA are public: every gateway has them.
func SecretsOf(cfg model.Config, hosted model.ManagementObservation, guest model.GuestObservation) Secrets {
	roots := slices.Concat(hosted.CA.Root, []byte("\n"), hosted.Rotation.Next.Root)
	all := Secrets{
		{description: "the private key of the mesh CA", forms: keyForms(hosted.CA.Key)},
		{description: "the private key of the mesh CA that will issue next", forms: keyForms(hosted.Rotation.Next.Key)},
		{description: "a certificate of the mesh CA that is no root", forms: certificateForms(nonRoots(hosted.CA), nonRoots(hosted.Rotation.Next))},
		{description: "the CA of the management API", forms: certificateForms(hosted.API.CABundle)},
		{description: "the name of the management namespace", forms: []string{cfg.MgmtNamespace}, word: true},
		{description: "the address of the management API", forms: addressForms(hosted.API.Server, cfg), word: true},
	}
	public := slices.Collect(unwrapped(string(roots), 2))
	for i, s := range all {
		all[i].forms = slices.DeleteFunc(s.forms, func(form string) bool {
			// Half of an RSA key is in its certificate, and an imported CA may be its own root.
			inRoot := slices.ContainsFunc(public, func(text string) bool { return strings.Contains(text, form) })
			return len(form) < ShortestName || inRoot || s.word && knownToGuest(form, cfg, guest)
		})
	}
	return all
}

func nonRoots(ca pki.CA) []byte { return slices.Concat(ca.Cert, []byte("\n"), ca.Chain) }

// knownToGuest says that the guest's users have said the name themselves, in whatever encoding: it is theirs already, and they must not be able
// to stop a plan by it.
func knownToGuest(name string, cfg model.Config, guest model.GuestObservation) bool {
	says := func(text string) bool { return strings.Contains(text, name) }
	return says(cfg.GuestNamespace) || says(cfg.ControllerName) || slices.ContainsFunc(guest.Classes, func(c model.GatewayClass) bool {
		for text := range unwrapped(c.Name, maxUnwrappings) {
			if says(text) {
				return true
			}
		}
		return false
	})
}

// addressForms are the API server's host, and host:port; the host alone does not count where istiod is published under it, too.
func addressForms(server string, cfg model.Config) []string {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return nil
	}
	forms := []string{}
	if u.Port() != "" {
		forms = append(forms, u.Host)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if loopback := err == nil && ip.IsLoopback(); !loopback && u.Hostname() != cfg.XDS.Host {
		forms = append(forms, u.Hostname())
	}
	return forms
}

// Refuse returns an error that says where an object of the guest holds a secret.
func (s Secrets) Refuse(o Object, cfg model.Config) error {
	for _, name := range []string{o.Key().Namespace, o.Key().Name} {
		if what := s.Find(name); what != "" {
			return fmt.Errorf("a %s would tell the guest %s by its name; %s", o.GVK().Kind, what, leakAdvice)
		}
	}
	var decoded any
	if err := json.Unmarshal(o.JSON(), &decoded); err != nil {
		return fmt.Errorf("looking through %s: %w", o, err)
	}
	if l := s.walk(decoded, nil, "https://"+model.HostPort{Host: cfg.WebhookHost, Port: model.WebhookPort}.String()); l != nil {
		return fmt.Errorf("%s would tell the guest %s in %s; %s", o, l.what, l.where, leakAdvice)
	}
	return nil
}

const leakAdvice = "look for it in the flags and in the charts of --charts-dir"

// leak is where a secret was found.
type leak struct{ what, where string }

// walk looks through a JSON value, its keys too, in a fixed order. permitted is what the URL of a webhook may begin with: the one place that
// may name the management namespace.
func (s Secrets) walk(value any, at []string, permitted string) *leak {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if what := s.Find(key); what != "" {
				return &leak{what, "a key of " + path(at)}
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
		if what := s.Find(value); what != "" {
			return &leak{what, path(at)}
		}
	}
	return nil
}

// isWebhookURL says whether a path is that of the URL of an admission or a conversion webhook.
func isWebhookURL(at []string) bool {
	p := strings.Join(at, ".")
	return len(at) == 4 && at[0] == "webhooks" && at[2] == "clientConfig" && at[3] == "url" || p == "spec.conversion.webhook.clientConfig.url"
}

// path shows a path, with keys that are no words in quotes.
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

// NamesNamespace says that a host gives the management namespace away.
func NamesNamespace(cfg model.Config, host string) bool {
	return cfg.Topology == model.TopologyHosted && len(cfg.MgmtNamespace) >= ShortestName && ContainsWord(host, cfg.MgmtNamespace) && !knownToGuest(cfg.MgmtNamespace, cfg, model.GuestObservation{})
}
