package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Limits of the guest's proxy settings. Each gateway's pod has each of them twice.
const (
	maxProxyURL = 2 << 10
	maxNoProxy  = 8 << 10
	// maxNoProxyShown is the length at which an entry of noProxy is cut in a message. maxNoProxyNamed is the number of
	// entries that messages name.
	maxNoProxyShown = 64
	maxNoProxyNamed = 3
)

// noProxyDomain matches a domain in noProxy. Its subdomains follow a dot, or an asterisk and a dot.
var noProxyDomain = regexp.MustCompile(`^(\*?\.)?[a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9_])?(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9_])?)*$`)

// IsSet reports whether there is a proxy for any requests.
func (p Proxy) IsSet() bool { return p.HTTP != "" || p.HTTPS != "" }

// Hash returns a value that identifies the settings. It is empty without settings.
func (p Proxy) Hash() string {
	if p == (Proxy{}) {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{p.HTTP, p.HTTPS, p.No}, "\n")))
	return hex.EncodeToString(sum[:8])
}

// LastSettings are the settings of the guest that hypergate's defaults of a class have. They are in the guest, whose
// admin can change them.
type LastSettings struct {
	// Exist reports whether hypergate's defaults of a class exist.
	Exist bool
	// Hash identifies the settings, see SettingsAnnotation.
	Hash string
	// Changed is when a change of the settings was last used. Zero: that is not known.
	Changed time.Time
	// Proxy is the proxy with this hash. Readable reports whether it could be read.
	Proxy    Proxy
	Readable bool
}

// UsableProxy returns the part of a guest's proxy settings that its gateways can use, and a description of each part
// that is ignored. Go's clients ignore these parts, too (golang.org/x/net/http/httpproxy).
//
// The URLs must be those that OpenShift's network operator accepts: http or https, with a host. The descriptions do not
// contain URLs, because these can contain passwords.
func UsableProxy(seen Proxy) (usable Proxy, ignored []string) {
	for _, field := range []struct {
		name string
		seen string
		out  *string
	}{{"status.httpProxy", seen.HTTP, &usable.HTTP}, {"status.httpsProxy", seen.HTTPS, &usable.HTTPS}} {
		if problem := proxyURLProblem(field.seen); problem != "" {
			ignored = append(ignored, field.name+" "+problem)
			continue
		}
		*field.out = field.seen
	}
	var problems []string
	usable.No, problems = usableNoProxy(seen.No)
	return usable, append(ignored, problems...)
}

// proxyURLProblem returns why a text is not the URL of a proxy. The empty text means that there is no proxy.
func proxyURLProblem(text string) string {
	if len(text) > maxProxyURL {
		return fmt.Sprintf("has more than %d bytes", maxProxyURL)
	}
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || !isPrintable(text) || u.Hostname() == "":
		return "is not a URL with a host"
	case u.Scheme != "http" && u.Scheme != "https":
		return "is not a URL with the scheme http or https"
	case u.Port() != "" && !isPort(u.Port()):
		return "is a URL with an invalid port"
	}
	return ""
}

// usableNoProxy returns the valid entries of noProxy in the same order, and what is ignored. Of a longer text, it uses
// the entries that are complete within the limit: without them, gateways would reach all hosts through the proxy.
func usableNoProxy(text string) (usable string, ignored []string) {
	if len(text) > maxNoProxy {
		text = text[:strings.LastIndex(text[:maxNoProxy+1], ",")+1]
		ignored = append(ignored, fmt.Sprintf("status.noProxy has more than %d bytes: entry %d and those after it have no effect",
			maxNoProxy, strings.Count(text, ",")+1))
	}
	var kept []string
	invalid := 0
	for at, entry := range strings.Split(text, ",") {
		switch entry = strings.TrimSpace(entry); {
		case entry == "":
		case isNoProxyEntry(entry):
			kept = append(kept, entry)
		default:
			if invalid++; invalid <= maxNoProxyNamed {
				ignored = append(ignored, fmt.Sprintf(
					"entry %d of status.noProxy (%.*q) is neither a domain nor an address", at+1, maxNoProxyShown, entry))
			}
		}
	}
	if more := invalid - maxNoProxyNamed; more > 0 {
		ignored = append(ignored, fmt.Sprintf("%d more entries of status.noProxy are invalid", more))
	}
	return strings.Clone(strings.Join(kept, ",")), ignored // not a part of text, which can be long
}

// isNoProxyEntry reports whether Go's clients understand an entry: everything, an address, a network, or a domain. An
// address and a domain can have a port.
//
// Go's clients understand no zone of an address (net.ParseIP). netip does, with any text as its name.
func isNoProxyEntry(entry string) bool {
	if !isPrintable(entry) || strings.Contains(entry, "%") {
		return false
	}
	if _, err := netip.ParsePrefix(entry); err == nil || entry == "*" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return true
	}
	host, port, hasPort := cutPort(entry)
	if hasPort && !isPort(port) {
		return false
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return noProxyDomain.MatchString(host)
}

func cutPort(entry string) (host, port string, found bool) {
	at := strings.LastIndex(entry, ":")
	if at < 0 {
		return entry, "", false
	}
	return entry[:at], entry[at+1:], true
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// isPrintable reports whether a text consists of printable ASCII characters without spaces.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Bypassing returns the settings with a further host that is reached without the proxy. Without a proxy, nothing is
// added.
func (p Proxy) Bypassing(host string) Proxy {
	if !p.IsSet() {
		return p
	}
	for entry := range strings.SplitSeq(p.No, ",") {
		if entry == host || entry == "*" {
			return p
		}
	}
	if p.No != "" {
		host = p.No + "," + host
	}
	p.No = host
	return p
}

// ProxyVariable is an environment variable with a proxy setting.
type ProxyVariable struct{ Name, Value string }

// Environment returns the settings as environment variables, with the names and values that cluster-ingress-operator
// sets (pkg/operator/controller/gatewayclass/istio_sail_installer.go, buildProxyMetadata).
func (p Proxy) Environment() []ProxyVariable {
	var out []ProxyVariable
	for _, v := range []struct{ upper, lower, value string }{
		{"HTTP_PROXY", "http_proxy", p.HTTP}, {"HTTPS_PROXY", "https_proxy", p.HTTPS}, {"NO_PROXY", "no_proxy", p.No},
	} {
		if v.value != "" {
			out = append(out, ProxyVariable{v.upper, v.value}, ProxyVariable{v.lower, v.value})
		}
	}
	return out
}
