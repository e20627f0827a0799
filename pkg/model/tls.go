package model

import (
	"fmt"
	"slices"
	"strings"
)

// TLSProfile is the TLS security profile of an OpenShift cluster, as spec.tlsSecurityProfile and spec.tlsAdherence of
// its APIServer object state it (openshift/api, config/v1/types_apiserver.go). The zero value means that no
// profile is set.
type TLSProfile struct {
	// Type is Old, Intermediate, Modern or Custom.
	Type string
	// Ciphers, Groups and MinVersion are set for a Custom profile.
	Ciphers, Groups []string
	MinVersion      string
	// Adherence is which components obey the profile.
	Adherence string
}

// TLSSettings are the restrictions of the TLS connections that istiod and its gateways accept. The zero value has none
// beyond Istio's own: TLS 1.2 is the oldest version.
type TLSSettings struct {
	// MinVersion is the oldest version that gateways accept. It is TLS12, TLS13, or empty.
	MinVersion TLSVersion
	// Ciphers are the cipher suites that gateways accept with TLS 1.2, with OpenSSL's names. Those of TLS 1.3 cannot be
	// selected. Curves are the curves, with Istio's names.
	Ciphers, Curves []string
	// IstiodCiphers are the cipher suites that istiod's own ports accept with TLS 1.2, with IANA's names.
	IstiodCiphers []string
}

// TLSVersion is a version of TLS, with the name that it has in Istio's mesh configuration (MeshConfig.TLSConfig).
type TLSVersion string

// The versions of TLS that a gateway can require.
const (
	TLS12 TLSVersion = "TLSV1_2"
	TLS13 TLSVersion = "TLSV1_3"
)

// Limits of what is read from a profile, and of what a description shows.
const (
	// maxTLSNames is the largest number of cipher suites, and of groups, that are read.
	maxTLSNames = 64
	// maxTLSNamed is how many names a description shows, and maxTLSNameShown how many bytes of each are kept.
	maxTLSNamed     = 5
	maxTLSNameShown = 64
)

// tlsSpec is what a profile permits. The names are OpenShift's.
type tlsSpec struct {
	ciphers, groups []string
	minVersion      string
}

// Obeyed reports whether istiod and its gateways obey the profile. cluster-ingress-operator's istiod obeys it if all
// components must, and also for a value of tlsAdherence that the operator does not know (openshift/library-go,
// pkg/crypto, ShouldHonorClusterTLSProfile).
func (p TLSProfile) Obeyed() bool {
	return p.Type != "" && p.Adherence != "" && p.Adherence != "LegacyAdheringComponentsOnly"
}

// Bounded returns the part of a profile that is kept: no name is longer than one that is known, and one name more than
// are read shows that there are too many. The result does not keep the rest of a name in memory.
func (p TLSProfile) Bounded() TLSProfile {
	cut := func(name string) string { return strings.Clone(name[:min(len(name), maxTLSNameShown)]) }
	all := func(names []string) []string {
		out := slices.Clone(names[:min(len(names), maxTLSNames+1)])
		for i, name := range out {
			out[i] = cut(name)
		}
		return out
	}
	return TLSProfile{
		Type: cut(p.Type), Ciphers: all(p.Ciphers), Groups: all(p.Groups), MinVersion: cut(p.MinVersion), Adherence: cut(p.Adherence),
	}
}

// Settings returns the settings for a profile, and a description of each part of the profile that istiod or its
// gateways cannot obey. A profile that they need not obey has no settings. A cipher suite that is not known is never
// permitted. A group is not either, but without any group that is known, gateways accept their default groups.
func (p TLSProfile) Settings() (settings TLSSettings, problems []string) {
	if !p.Obeyed() {
		return TLSSettings{}, nil
	}
	spec, problems := p.spec()
	var unknown []string
	settings.Ciphers, settings.IstiodCiphers, unknown = usableCiphers(spec.ciphers)
	if p.Type == "Custom" && len(unknown) > 0 {
		problems = append(problems, "gateways and istiod do not have the cipher suites "+quoted(unknown))
	}
	settings.Curves, unknown = usableCurves(spec.groups)
	problems = append(problems, groupProblems(settings.Curves, unknown)...)
	switch {
	case spec.minVersion == "VersionTLS13", len(spec.ciphers) > 0 && len(settings.Ciphers) == 0:
		settings.MinVersion, settings.Ciphers, settings.IstiodCiphers = TLS13, nil, nil
		problems = append(problems, "istiod's own ports also accept TLS 1.2, because this version of Istio cannot restrict them to TLS 1.3")
	default:
		settings.MinVersion = TLS12
	}
	if spec.minVersion == "VersionTLS10" || spec.minVersion == "VersionTLS11" {
		problems = append(problems, "gateways and istiod accept TLS 1.2 and later, although the profile also permits older versions")
	}
	if len(settings.IstiodCiphers) > 0 && !servesHTTP2(settings.IstiodCiphers) {
		settings.IstiodCiphers = nil
		problems = append(problems,
			"istiod's own ports accept all cipher suites of Go, because the profile has none of those that HTTP/2 requires")
	}
	return settings, problems
}

// groupProblems describes the groups of a profile that gateways do not have, beside those that they have.
func groupProblems(usable, unknown []string) (problems []string) {
	if len(unknown) > 0 {
		problems = append(problems, "gateways do not have the groups "+quoted(unknown))
		if len(usable) == 0 {
			problems = append(problems, "gateways accept their own default groups, because they have none of the profile's")
		}
	}
	return problems
}

// isTLSVersion reports whether a profile's oldest version is known. Without one, OpenShift's default applies, TLS 1.2.
func isTLSVersion(name string) bool {
	return name == "" || slices.Contains([]string{"VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"}, name)
}

// spec returns what the profile permits. A type that is not known counts as Intermediate, which is OpenShift's default.
func (p TLSProfile) spec() (tlsSpec, []string) {
	if p.Type == "Custom" {
		return p.customSpec()
	}
	if spec, known := tlsProfiles()[p.Type]; known {
		return spec, nil
	}
	return tlsProfiles()["Intermediate"], []string{"the profile's type " + quoted([]string{p.Type}) + " is not known; Intermediate is used"}
}

// customSpec returns what a Custom profile permits. A version that is not known is a later one, and counts as the
// latest that is known.
func (p TLSProfile) customSpec() (out tlsSpec, problems []string) {
	out = tlsSpec{
		ciphers: p.Ciphers[:min(len(p.Ciphers), maxTLSNames)], groups: p.Groups[:min(len(p.Groups), maxTLSNames)], minVersion: p.MinVersion,
	}
	if len(p.Ciphers) > maxTLSNames || len(p.Groups) > maxTLSNames {
		const more = "the profile has more than %d cipher suites or groups; the others are ignored"
		problems = append(problems, fmt.Sprintf(more, maxTLSNames))
	}
	if !isTLSVersion(p.MinVersion) {
		out.minVersion = "VersionTLS13"
		problems = append(problems, "the oldest version "+quoted([]string{p.MinVersion})+" is not known; gateways accept TLS 1.3 only")
	}
	return out, problems
}

// tlsProfiles returns what the types of profiles permit with TLS 1.2 or later (openshift/api,
// config/v1/types_tlssecurityprofile.go, TLSProfiles). Cipher suites that Istio does not know are left out.
func tlsProfiles() map[string]tlsSpec {
	intermediate := []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
		"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
	}
	old := append(slices.Clone(intermediate),
		"ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
		"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA",
	)
	groups := []string{"X25519MLKEM768", "X25519", "secp256r1", "secp384r1"}
	return map[string]tlsSpec{
		"Old":          {ciphers: old, groups: groups, minVersion: "VersionTLS10"},
		"Intermediate": {ciphers: intermediate, groups: groups, minVersion: "VersionTLS12"},
		"Modern":       {groups: groups, minVersion: "VersionTLS13"},
	}
}

// cipherNames returns IANA's name by OpenSSL's name for each cipher suite of TLS 1.2 that both a gateway and istiod can
// be limited to: the intersection of Istio's list (pkg/config/security/security.go, ValidCipherSuites) and crypto/tls.
func cipherNames() map[string]string {
	return map[string]string{
		"ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
		"ECDHE-RSA-AES128-GCM-SHA256":   "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
		"ECDHE-RSA-AES256-GCM-SHA384":   "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
		"ECDHE-RSA-CHACHA20-POLY1305":   "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
		"ECDHE-ECDSA-AES128-SHA":        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
		"ECDHE-RSA-AES128-SHA":          "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
		"ECDHE-ECDSA-AES256-SHA":        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
		"ECDHE-RSA-AES256-SHA":          "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
		"AES128-GCM-SHA256":             "TLS_RSA_WITH_AES_128_GCM_SHA256",
		"AES256-GCM-SHA384":             "TLS_RSA_WITH_AES_256_GCM_SHA384",
		"AES128-SHA":                    "TLS_RSA_WITH_AES_128_CBC_SHA",
		"AES256-SHA":                    "TLS_RSA_WITH_AES_256_CBC_SHA",
	}
}

// usableCiphers returns the cipher suites of TLS 1.2 among names, with OpenSSL's and with IANA's names. A profile can
// use either. unknown are the other names, without those of TLS 1.3.
func usableCiphers(names []string) (openSSL, iana, unknown []string) {
	known := cipherNames()
	byIANA := map[string]string{}
	for name, other := range known {
		byIANA[other] = name
	}
	for _, name := range names {
		if other, isIANA := byIANA[name]; isIANA {
			name = other
		}
		switch {
		case slices.Contains(openSSL, name): // one name is enough
		case known[name] != "":
			openSSL, iana = append(openSSL, name), append(iana, known[name])
		case !isTLS13Cipher(name):
			unknown = append(unknown, name)
		}
	}
	return openSSL, iana, unknown
}

// isTLS13Cipher reports whether a name is that of a cipher suite of TLS 1.3. Only these have no key exchange in their
// name: TLS_AES_128_GCM_SHA256.
func isTLS13Cipher(name string) bool {
	return strings.HasPrefix(name, "TLS_AES_") || strings.HasPrefix(name, "TLS_CHACHA20_")
}

// servesHTTP2 reports whether Go's server accepts the cipher suites for HTTP/2. Without one of these two, it does not
// start (golang.org/x/net/http2, ConfigureServer).
func servesHTTP2(iana []string) bool {
	return slices.Contains(iana, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") ||
		slices.Contains(iana, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
}

// usableCurves returns Istio's names of groups (pkg/config/security/security.go, ValidECDHCurves), and the unknown
// ones.
func usableCurves(groups []string) (curves, unknown []string) {
	names := map[string]string{
		"X25519": "X25519", "X25519MLKEM768": "X25519MLKEM768",
		"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521",
	}
	for _, group := range groups {
		switch curve := names[group]; {
		case curve == "":
			unknown = append(unknown, group)
		case !slices.Contains(curves, curve):
			curves = append(curves, curve)
		}
	}
	return curves, unknown
}

// quoted returns the first names of a list as a text.
func quoted(names []string) string {
	out := make([]string, 0, maxTLSNamed+1)
	for _, name := range names[:min(len(names), maxTLSNamed)] {
		out = append(out, fmt.Sprintf("%.*q", maxTLSNameShown, name))
	}
	if more := len(names) - maxTLSNamed; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}
