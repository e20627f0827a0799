package model

import "k8s.io/apimachinery/pkg/util/validation"

// IsLabel reports whether s is a DNS label (RFC 1123), such as the name of a namespace.
func IsLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// IsHost reports whether s is a host name or an IP address.
func IsHost(s string) bool {
	return len(validation.IsDNS1123Subdomain(s)) == 0 || len(validation.IsValidIP(nil, s)) == 0
}
