package model_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/model"
)

func TestUsableProxy(t *testing.T) {
	t.Parallel()
	all := model.Proxy{
		HTTP: "http://user:secret@proxy.example.com:3128", HTTPS: "https://[2001:db8::1]:443",
		No: ".cluster.local,.svc,10.0.0.0/16,2001:db8::/32,192.0.2.1:80,[2001:db8::2]:80,2001:db8::3," +
			"*.example.com,a_b.example.com:8080,localhost",
	}
	for name, tc := range map[string]struct {
		seen, usable model.Proxy
		ignored      []string
	}{
		"none":                   {},
		"each form":              {seen: all, usable: all},
		"everything bypasses it": {seen: model.Proxy{No: "*"}, usable: model.Proxy{No: "*"}},
		"spaces and empty entries": {
			seen: model.Proxy{No: " a.example.com, ,b.example.com,"}, usable: model.Proxy{No: "a.example.com,b.example.com"},
		},
		"URLs that are not those of proxies": {
			seen: model.Proxy{HTTP: "proxy.example.com:3128", HTTPS: "socks5://user:secret@proxy"},
			ignored: []string{
				"status.httpProxy is not a URL with a host", "status.httpsProxy is not a URL with the scheme http or https",
			},
		},
		"a line break": {seen: model.Proxy{HTTP: "http://proxy\n"}, ignored: []string{"status.httpProxy is not a URL with a host"}},
		"invalid ports": {
			seen:    model.Proxy{HTTP: "http://proxy:65536", HTTPS: "http://proxy:0"},
			ignored: []string{"status.httpProxy is a URL with an invalid port", "status.httpsProxy is a URL with an invalid port"},
		},
		"invalid entries": {
			seen: model.Proxy{
				HTTP: "http://proxy", No: "http://a.example.com,b.example.com,10.0.0.0/33,c d,e..f," + strings.Repeat("x", 100) + ":y",
			},
			usable: model.Proxy{HTTP: "http://proxy", No: "b.example.com"},
			ignored: []string{
				`entry 1 of status.noProxy ("http://a.example.com") is neither a domain nor an address`,
				`entry 3 of status.noProxy ("10.0.0.0/33") is neither a domain nor an address`,
				`entry 4 of status.noProxy ("c d") is neither a domain nor an address`,
				"2 more entries of status.noProxy are invalid",
			},
		},
		"too long": {
			seen:   model.Proxy{HTTP: "http://" + strings.Repeat("a", 2<<10), HTTPS: "http://p", No: strings.Repeat("a,", 4<<10) + "b"},
			usable: model.Proxy{HTTPS: "http://p", No: strings.Repeat("a,", 4<<10-1) + "a"},
			ignored: []string{
				"status.httpProxy has more than 2048 bytes",
				"status.noProxy has more than 8192 bytes: entry 4097 and those after it have no effect",
			},
		},
		"the limit is within an entry": {
			seen:    model.Proxy{No: ".svc," + strings.Repeat("a", 8<<10)},
			usable:  model.Proxy{No: ".svc"},
			ignored: []string{"status.noProxy has more than 8192 bytes: entry 2 and those after it have no effect"},
		},
		"one entry above the limit": {
			seen:    model.Proxy{No: strings.Repeat("a", 8<<10+1)},
			ignored: []string{"status.noProxy has more than 8192 bytes: entry 1 and those after it have no effect"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			usable, ignored := model.UsableProxy(tc.seen)
			if diff := cmp.Diff(tc.usable, usable); diff != "" {
				t.Errorf("usable (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.ignored, ignored); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
			if strings.Contains(strings.Join(ignored, " "), "secret") {
				t.Error("a message contains a password")
			}
		})
	}
}

// FuzzUsableProxy checks that what is used is used again unchanged, and stays within its limits.
func FuzzUsableProxy(f *testing.F) {
	f.Add("http://proxy:3128", "https://[::1]", ".svc,10.0.0.0/8,a:80,*")
	f.Add("::", "http://\x00", "[::1]:,http://,:80")
	f.Fuzz(func(t *testing.T, http, https, no string) {
		usable, ignored := model.UsableProxy(model.Proxy{HTTP: http, HTTPS: https, No: no})
		again, none := model.UsableProxy(usable)
		if again != usable || len(none) > 0 {
			t.Errorf("%+v is used as %+v, without %q", usable, again, none)
		}
		if len(usable.HTTP) > 2<<10 || len(usable.HTTPS) > 2<<10 || len(usable.No) > 8<<10 || len(ignored) > 6 {
			t.Errorf("%d, %d and %d bytes are used, %d messages", len(usable.HTTP), len(usable.HTTPS), len(usable.No), len(ignored))
		}
		for _, text := range ignored {
			if len(text) > 512 {
				t.Errorf("a message has %d bytes", len(text))
			}
		}
		if all := usable.HTTP + usable.HTTPS + usable.No; strings.ContainsFunc(all, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q contains characters that are not printable", all)
		}
	})
}

func TestBypassing(t *testing.T) {
	t.Parallel()
	const istiod = "istiod.example.com"
	for name, tc := range map[string]struct{ seen, want model.Proxy }{
		"no proxy":     {model.Proxy{No: ".svc"}, model.Proxy{No: ".svc"}},
		"nothing else": {model.Proxy{HTTPS: "http://p"}, model.Proxy{HTTPS: "http://p", No: istiod}},
		"more":         {model.Proxy{HTTP: "http://p", No: ".svc"}, model.Proxy{HTTP: "http://p", No: ".svc," + istiod}},
		"there":        {model.Proxy{HTTP: "http://p", No: istiod + ",.svc"}, model.Proxy{HTTP: "http://p", No: istiod + ",.svc"}},
		"everything":   {model.Proxy{HTTP: "http://p", No: "*"}, model.Proxy{HTTP: "http://p", No: "*"}},
	} {
		if got := tc.seen.Bypassing(istiod); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func ExampleProxy_Environment() {
	for _, v := range (model.Proxy{HTTPS: "http://proxy:3128", No: ".svc"}).Environment() {
		fmt.Println(v.Name, v.Value)
	}
	// Output:
	// HTTPS_PROXY http://proxy:3128
	// https_proxy http://proxy:3128
	// NO_PROXY .svc
	// no_proxy .svc
}
