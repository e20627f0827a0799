package model_test

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"

	"github.com/hypergate/hypergate/pkg/model"
)

const (
	strict      = "StrictAllComponents"
	onlyIstiod  = "istiod's own ports also accept TLS 1.2, because this version of Istio cannot restrict them to TLS 1.3"
	onlyNewer   = "gateways and istiod accept TLS 1.2 and later, although the profile also permits older versions"
	withoutHTTP = "istiod's own ports accept all cipher suites of Go, because the profile has none of those that HTTP/2 requires"
)

func TestTLSSettings(t *testing.T) {
	t.Parallel()
	curves := []string{"X25519MLKEM768", "X25519", "P-256", "P-384"}
	custom := func(minVersion string, ciphers ...string) model.TLSProfile {
		return model.TLSProfile{Type: "Custom", Adherence: strict, MinVersion: minVersion, Ciphers: ciphers}
	}
	one := model.TLSSettings{
		MinVersion: model.TLS12, Ciphers: []string{"ECDHE-RSA-AES128-GCM-SHA256"},
		IstiodCiphers: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
	}
	withCurves := one
	withCurves.Curves = []string{"P-521", "X25519"}
	intermediate, _ := model.TLSProfile{Type: "Intermediate", Adherence: strict}.Settings()
	for name, tc := range map[string]struct {
		profile  model.TLSProfile
		want     model.TLSSettings
		problems []string
	}{
		"no opinion":                 {profile: model.TLSProfile{Type: "Modern"}},
		"only adhering components":   {profile: model.TLSProfile{Type: "Modern", Adherence: "LegacyAdheringComponentsOnly"}},
		"an adherence of the future": {profile: model.TLSProfile{Type: "Intermediate", Adherence: "StrictestOfAll"}, want: intermediate},
		"Modern": {
			model.TLSProfile{Type: "Modern", Adherence: strict},
			model.TLSSettings{MinVersion: model.TLS13, Curves: curves},
			[]string{onlyIstiod},
		},
		"a type of the future": {
			model.TLSProfile{Type: "Postmodern", Adherence: strict},
			intermediate,
			[]string{`the profile's type "Postmodern" is not known; Intermediate is used`},
		},
		"one cipher suite, also of TLS 1.3": {custom("VersionTLS12", "TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"), one, nil},
		"with two names":                    {custom("VersionTLS12", "ECDHE-RSA-AES128-GCM-SHA256", one.IstiodCiphers[0]), one, nil},
		"older versions":                    {custom("VersionTLS11", "ECDHE-RSA-AES128-GCM-SHA256"), one, []string{onlyNewer}},
		"unknown cipher suites": {
			custom("VersionTLS12", "DES-CBC3-SHA", "ECDHE-RSA-AES128-GCM-SHA256", "\x1b[31m"), one,
			[]string{`gateways and istiod do not have the cipher suites "DES-CBC3-SHA", "\x1b[31m"`},
		},
		"only unknown cipher suites are not all cipher suites": {
			custom("VersionTLS12", "DES-CBC3-SHA"),
			model.TLSSettings{MinVersion: model.TLS13},
			[]string{`gateways and istiod do not have the cipher suites "DES-CBC3-SHA"`, onlyIstiod},
		},
		"only cipher suites of TLS 1.3": {
			custom("VersionTLS12", "TLS_AES_128_GCM_SHA256"), model.TLSSettings{MinVersion: model.TLS13}, []string{onlyIstiod},
		},
		"no profile":       {profile: model.TLSProfile{Adherence: strict}},
		"no cipher suites": {custom("VersionTLS12"), model.TLSSettings{MinVersion: model.TLS12}, nil},
		"none for HTTP/2": {
			custom("VersionTLS12", "ECDHE-RSA-AES256-GCM-SHA384"),
			model.TLSSettings{MinVersion: model.TLS12, Ciphers: []string{"ECDHE-RSA-AES256-GCM-SHA384"}},
			[]string{withoutHTTP},
		},
		"groups": {
			model.TLSProfile{
				Type: "Custom", Adherence: strict, MinVersion: "VersionTLS12", Ciphers: one.Ciphers,
				Groups: []string{"secp521r1", "SecP256r1MLKEM768", "X25519", "X25519"},
			},
			withCurves,
			[]string{`gateways do not have the groups "SecP256r1MLKEM768"`},
		},
		"too many": {
			custom("VersionTLS12", append(slices.Repeat([]string{"ECDHE-RSA-AES128-GCM-SHA256"}, 64), "AES128-SHA")...), one,
			[]string{"the profile has more than 64 cipher suites or groups; the others are ignored"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := tc.profile.Settings()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnlyUnknownGroups checks that a profile without a known group names what gateways accept.
func TestOnlyUnknownGroups(t *testing.T) {
	t.Parallel()
	profile := model.TLSProfile{
		Type: "Custom", Adherence: strict, Ciphers: []string{"ECDHE-RSA-AES128-GCM-SHA256"}, Groups: []string{"SecP256r1MLKEM768"},
	}
	settings, problems := profile.Settings()
	want := []string{
		`gateways do not have the groups "SecP256r1MLKEM768"`,
		"gateways accept their own default groups, because they have none of the profile's",
	}
	if diff := cmp.Diff(want, problems); diff != "" || len(settings.Curves) > 0 {
		t.Errorf("curves %q, problems (-want +got):\n%s", settings.Curves, diff)
	}
}

// TestTheOldestVersionOfACustomProfile checks that a version that is not known is never read as an older one.
func TestTheOldestVersionOfACustomProfile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		want     model.TLSVersion
		problems []string
	}{
		"":             {model.TLS12, nil},
		"VersionTLS12": {model.TLS12, nil},
		"VersionTLS13": {model.TLS13, []string{onlyIstiod}},
		"VersionTLS14": {model.TLS13, []string{`the oldest version "VersionTLS14" is not known; gateways accept TLS 1.3 only`, onlyIstiod}},
	} {
		got, problems := model.TLSProfile{
			Type: "Custom", Adherence: strict, MinVersion: name, Ciphers: []string{"ECDHE-RSA-AES128-GCM-SHA256"},
		}.Settings()
		if diff := cmp.Diff(tc.problems, problems); got.MinVersion != tc.want || diff != "" {
			t.Errorf("%q: %s, want %s, problems (-want +got):\n%s", name, got.MinVersion, tc.want, diff)
		}
	}
}

// TestManyUnknownCipherSuites checks that a description is short.
func TestManyUnknownCipherSuites(t *testing.T) {
	t.Parallel()
	_, problems := model.TLSProfile{
		Type: "Custom", Adherence: strict, MinVersion: "VersionTLS12",
		Ciphers: []string{"1", "2", "3", strings.Repeat("x", 1000), "5", "6", "7", "ECDHE-RSA-AES128-GCM-SHA256"},
	}.Settings()
	want := []string{`gateways and istiod do not have the cipher suites "1", "2", "3", "` + strings.Repeat("x", 64) + `", "5", and 2 more`}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestTLSProfilesAreBounded checks what is kept of a large profile. It still shows that there are too many names.
func TestTLSProfilesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	many := slices.Repeat([]string{long}, 1000)
	kept := model.TLSProfile{Type: long, Ciphers: many, Groups: many, MinVersion: long, Adherence: long}.Bounded()
	name := long[:64]
	want := model.TLSProfile{
		Type: name, MinVersion: name, Adherence: name,
		Ciphers: slices.Repeat([]string{name}, 65), Groups: slices.Repeat([]string{name}, 65),
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	kept.Type = "Custom"
	if _, problems := kept.Settings(); !strings.HasPrefix(problems[0], "the profile has more than 64 cipher suites or groups") {
		t.Errorf("problems: %q", problems)
	}
}

// TestIstiodCanServeTLSProfiles checks that Go's server, which istiod uses, starts with the settings: it knows the
// names, and serves HTTP/2.
func TestIstiodCanServeTLSProfiles(t *testing.T) {
	t.Parallel()
	known := map[string]uint16{}
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		known[suite.Name] = suite.ID
	}
	old, _ := model.TLSProfile{Type: "Old", Adherence: strict}.Settings()
	if len(old.IstiodCiphers) != 14 {
		t.Errorf("Old has %d cipher suites", len(old.IstiodCiphers))
	}
	for _, openSSL := range append(old.Ciphers, "") {
		one := model.TLSProfile{Type: "Custom", Adherence: strict, MinVersion: "VersionTLS12", Ciphers: []string{openSSL}}
		settings, _ := one.Settings()
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		for _, name := range settings.IstiodCiphers {
			if known[name] == 0 {
				t.Errorf("crypto/tls does not know %q", name)
			}
			config.CipherSuites = append(config.CipherSuites, known[name])
		}
		if err := http2.ConfigureServer(&http.Server{TLSConfig: config}, nil); err != nil {
			t.Errorf("%s: %v", openSSL, err)
		}
	}
}
