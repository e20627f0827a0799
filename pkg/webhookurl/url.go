package webhookurl

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	scheme = "https://"
	// defaultPort is the port that kube-apiserver uses for a service or a URL without a port (k8s.io/apiserver,
	// pkg/util/webhook/client.go, hookClientConfig).
	defaultPort = 443
	// plainInPath has the characters that need no escape in a URL's path. "%" is not one of them: kube-apiserver
	// decodes the path of a URL but not that of a service, so that the two would differ.
	plainInPath = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@"
)

// address has the parts of a webhook URL.
type address struct {
	// host is a lower-case DNS name, an IPv4 address, or an IPv6 address in brackets.
	host string
	port uint64
	// path is empty or begins with a slash.
	path string
}

// ValidateURL returns an error unless a webhook can have this URL. The error wraps ErrInvalidURL and does not repeat
// user information.
//
// It accepts nothing that kube-apiserver refuses (k8s.io/apiserver, pkg/util/webhook/validation.go,
// ValidateWebhookURL: https, a host, no user information, fragment or query). It refuses more, so that all programs
// that compare the text agree about it, including HyperShift's substring match:
//
//   - The scheme and host are in lower case.
//   - The host is a DNS name (no trailing dot, no Unicode; IDNs as "xn--") or an IP address in canonical form.
//   - The port is not empty.
//   - The URL does not contain "?" or "#", not even as the last character.
//   - The path has no escapes, empty segments or dot segments.
func ValidateURL(rawURL string) error {
	_, err := parseURL(rawURL)
	return err
}

func parseURL(rawURL string) (address, error) {
	parsed, err := url.Parse(rawURL)
	if parseErr, isParseErr := errors.AsType[*url.Error](err); isParseErr {
		// url.Error repeats the URL, which can include a password.
		return address{}, fmt.Errorf("%w: %w", ErrInvalidURL, parseErr.Err)
	}
	path, plain := strings.CutPrefix(rawURL, scheme+parsed.Host)
	switch {
	case parsed.Scheme != "https":
		return address{}, fmt.Errorf("%w: the scheme is %q, use https", ErrInvalidURL, parsed.Scheme)
	case parsed.User != nil:
		return address{}, fmt.Errorf("%w: it has user information, remove it", ErrInvalidURL)
	case strings.ContainsAny(rawURL, "?#"):
		return address{}, fmt.Errorf("%w: it has a query or a fragment, remove it", ErrInvalidURL)
	case !plain:
		return address{}, fmt.Errorf("%w: write it as https://host[:port][/path], in lower case and without escapes", ErrInvalidURL)
	}
	at := address{host: parsed.Host, port: defaultPort, path: path}
	if port := parsed.Port(); port != "" {
		at.host = strings.TrimSuffix(parsed.Host, ":"+port)
		if at.port, err = strconv.ParseUint(port, 10, 16); err != nil || port[0] == '0' {
			return address{}, fmt.Errorf("%w: port %q is not in 1..65535", ErrInvalidURL, port)
		}
	}
	return at, errors.Join(checkHost(at.host), checkPath(path))
}

func checkHost(host string) error {
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		canonical := addr.String()
		if addr.Is6() {
			canonical = "[" + canonical + "]"
		}
		if host != canonical || addr.IsUnspecified() || addr.IsMulticast() {
			return fmt.Errorf("%w: address %q is not a host's address, or is not written as %s", ErrInvalidURL, host, canonical)
		}
		return nil
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if msgs := validation.IsDNS1123Label(label); len(msgs) > 0 {
			return fmt.Errorf("%w: host %q is not a DNS name or IP address: %s", ErrInvalidURL, host, msgs[0])
		}
	}
	// Some resolvers parse a name that ends in a number as an address.
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" || len(host) > validation.DNS1123SubdomainMaxLength {
		return fmt.Errorf("%w: host %q ends in a number or is too long", ErrInvalidURL, host)
	}
	return nil
}

// checkPath accepts every path that kube-apiserver accepts for a service (k8s.io/apiserver,
// pkg/util/webhook/validation.go, ValidateWebhookService). It also accepts paths that only a URL can have, such as
// istiod's "/inject/:ENV:cluster=a:ENV:net=b".
func checkPath(path string) error {
	if path == "" || path == "/" {
		return nil
	}
	relative, absolute := strings.CutPrefix(path, "/")
	if !absolute {
		return fmt.Errorf("%w: path %q does not begin with a slash", ErrInvalidURL, path)
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(relative, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			// kube-apiserver would remove these segments: the server would get another path than the object has.
			return fmt.Errorf(`%w: path %q has an empty, "." or ".." segment`, ErrInvalidURL, path)
		}
		if odd := strings.Trim(segment, plainInPath); odd != "" {
			return fmt.Errorf("%w: path %q has characters that are not allowed, at %q", ErrInvalidURL, path, odd)
		}
	}
	return nil
}
