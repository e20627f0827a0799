package webhookurl_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserverwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/hypergate/hypergate/pkg/webhookurl"
)

func TestValidateURLAccepts(t *testing.T) {
	for _, accepted := range []string{
		"https://istiod",
		"https://istiod/",
		"https://istiod:443",
		"https://istiod-openshift-gateway:443/validate",
		"https://istiod-openshift-gateway.clusters-guest1.svc:443/inject/cluster/Kubernetes/net/default",
		"https://istiod:443/inject/:ENV:cluster=a:ENV:net=b",
		"https://istiod/a/",
		"https://istiod/..a/b..c/...",
		"https://istiod/" + "-._~!$&'()*+,;=:@",
		"https://xn--bcher-kva.example/",
		"https://1host.example",
		"https://host.1a",
		"https://127.0.0.1:4443/mutate",
		"https://[::1]:9443/x",
		"https://[fd00::1]",
		"https://h:1",
		"https://h:65535",
		"https://" + strings.Repeat("a", 63) + ".b",
		"https://" + strings.Repeat("a.", 126) + "a",
	} {
		if err := webhookurl.ValidateURL(accepted); err != nil {
			t.Errorf("%s: %v", accepted, err)
		}
		if errs := kubeAPIServerRefuses(accepted); len(errs) > 0 {
			t.Errorf("%s: kube-apiserver refuses it: %v", accepted, errs)
		}
	}
}

func TestValidateURLRefuses(t *testing.T) {
	checkRefusedURLs(t, map[string]string{
		"":                            `scheme is ""`,
		"istiod":                      `scheme is ""`,
		"//istiod/x":                  `scheme is ""`,
		"http://istiod":               `scheme is "http"`,
		"httpss://istiod":             `scheme is "httpss"`,
		" https://istiod":             "first path segment",
		"HTTPS://istiod":              "lower case",
		"https:istiod":                "https://host",
		"https:/istiod":               "https://host",
		"https://":                    "not a DNS name",
		"https:///validate":           "not a DNS name",
		"https://:443":                "not a DNS name",
		"https://user@h":              "user information",
		"https://user:hunter2@h":      "user information",
		"https://@h":                  "user information",
		"https://user:hunter2@h:x":    "invalid port",
		"https://h/?a=b":              "query",
		"https://h?":                  "query",
		"https://h#a":                 "fragment",
		"https://h/a#":                "fragment",
		"https://h:":                  "not a DNS name",
		"https://h:0":                 `port "0"`,
		"https://h:0443":              `port "0443"`,
		"https://h:65536":             `port "65536"`,
		"https://h:99999999999999999": "not in 1..65535",
		"https://h:https":             "invalid port",
		"https://h:-1":                "invalid port",
		"https://h:443:443":           "",
		"https://Istiod":              `host "Istiod"`,
		"https://h.":                  `host "h."`,
		"https://.h":                  `host ".h"`,
		"https://a..b":                `host "a..b"`,
		"https://-a":                  `host "-a"`,
		"https://a_b":                 `host "a_b"`,
		"https://*.b":                 `host "*.b"`,
		"https://bücher.example":      "not a DNS name",
		"https://istіod":              "not a DNS name", // with a Cyrillic letter
		"https://b%C3%BCcher.example": "without escapes",
		"https://h%61":                "invalid URL escape",
		"https://a b":                 "invalid character",
		"https://h\\x":                "invalid character",
		"https://h\n":                 "invalid control character",
	})
}

func TestValidateURLRefusesAddressesAndPaths(t *testing.T) {
	checkRefusedURLs(t, map[string]string{
		"https://1.2.3":            "ends in a number",
		"https://1":                "ends in a number",
		"https://010.0.0.1":        "ends in a number",
		"https://1.2.3.4.5":        "ends in a number",
		"https://h.123":            "ends in a number",
		"https://0x7f000001.1":     "ends in a number",
		"https://0.0.0.0":          `"0.0.0.0" is not a host's address`,
		"https://224.0.0.1":        `"224.0.0.1" is not a host's address`,
		"https://[::]":             `"[::]" is not a host's address`,
		"https://[ff02::1]":        `"[ff02::1]" is not a host's address`,
		"https://::1":              "",
		"https://[1.2.3.4]":        "",
		"https://[0:0::1]":         "written as [::1]",
		"https://[FD00::1]":        "written as [fd00::1]",
		"https://[fe80::1%25eth0]": "without escapes",
		"https://[h]":              "",
		"https://[::1":             "missing ']'",
		"https://[]":               "",
		"https://h/a/../b":         `".." segment`,
		"https://h/..":             `".." segment`,
		"https://h/./b":            `".." segment`,
		"https://h/a/.":            `".." segment`,
		"https://h//":              "empty",
		"https://h//a":             "empty",
		"https://h/a//":            "empty",
		"https://h/a//b":           "empty",
		"https://h/a%2Fb":          `at "%"`,
		"https://h/%2e%2e":         `at "%2e%"`,
		"https://h/a%":             "invalid URL escape",
		"https://h/ü":              `at "ü"`,
		"https://h/a b":            `at " "`,
		"https://h/a\\..\\b":       "at",
		"https://h/a|b":            `at "|"`,
		"https://h/{a}":            "at",
		"https://h/a\x7f":          "invalid control character",
		"https://" + strings.Repeat("a", 64) + ".b":  "not a DNS name",
		"https://" + strings.Repeat("a.", 127) + "a": "too long",
	})
}

// checkRefusedURLs checks that each URL is refused, with a text in the error.
func checkRefusedURLs(t *testing.T, cases map[string]string) {
	t.Helper()
	for refused, text := range cases {
		err := webhookurl.ValidateURL(refused)
		if !errors.Is(err, webhookurl.ErrInvalidURL) {
			t.Errorf("%q: got %v, want ErrInvalidURL", refused, err)
			continue
		}
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q: got %q, want %q in it", refused, err, text)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error repeats the password: %v", refused, err)
		}
	}
}

// FuzzValidateURL compares ValidateURL with kube-apiserver's own validation and with the parser of net/url.
func FuzzValidateURL(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		err := webhookurl.ValidateURL(text)
		if err != nil {
			if !errors.Is(err, webhookurl.ErrInvalidURL) {
				t.Fatalf("%q: error %v does not wrap ErrInvalidURL", text, err)
			}
			return
		}
		if errs := kubeAPIServerRefuses(text); len(errs) > 0 {
			t.Fatalf("%q is accepted, kube-apiserver refuses it: %v", text, errs)
		}
		parsed, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if plain := "https://" + parsed.Host + parsed.Path; plain != text {
			t.Fatalf("%q is accepted, but reads as %q", text, plain)
		}
		if port := parsed.Port(); port == "" && strings.HasSuffix(parsed.Host, ":") || strings.ToLower(parsed.Host) != parsed.Host {
			t.Fatalf("%q is accepted with host %q", text, parsed.Host)
		}
	})
}

// kubeAPIServerRefuses returns the API server's errors when a webhook with this URL is written.
func kubeAPIServerRefuses(text string) field.ErrorList {
	return apiserverwebhook.ValidateWebhookURL(field.NewPath("url"), text, true)
}
