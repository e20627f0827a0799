package model_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

func TestChainFor(t *testing.T) {
	t.Parallel()
	chain := func(name string, match model.ChainMatch) *model.FilterChain {
		return &model.FilterChain{Name: name, Match: match}
	}
	listener := &model.Listener{
		Chains: []*model.FilterChain{
			chain("any", model.ChainMatch{TransportProtocol: "tls"}),
			chain("wide", model.ChainMatch{ServerNames: []string{"*.example"}}),
			chain("wider", model.ChainMatch{ServerNames: []string{"*.a.example"}}),
			chain("exact", model.ChainMatch{ServerNames: []string{"b.a.example"}}),
			chain("exact h2", model.ChainMatch{ServerNames: []string{"b.a.example"}, ALPN: []string{"h2"}}),
			chain("port", model.ChainMatch{Port: 8443}),
		},
		Default: chain("default", model.ChainMatch{}),
	}
	for name, test := range map[string]struct {
		connection model.Connection
		want       string
	}{
		"exact name":              {model.Connection{TLS: true, ServerName: "b.a.example"}, "exact"},
		"exact name and ALPN":     {model.Connection{TLS: true, ServerName: "b.a.example", ALPN: []string{"h2", "http/1.1"}}, "exact h2"},
		"long wildcard":           {model.Connection{TLS: true, ServerName: "c.a.example"}, "wider"},
		"short wildcard":          {model.Connection{TLS: true, ServerName: "c.example"}, "wide"},
		"a wildcard needs a name": {model.Connection{TLS: true, ServerName: ".example"}, "any"},
		"other name":              {model.Connection{TLS: true, ServerName: "other.test"}, "any"},
		"plain text":              {model.Connection{}, "default"},
		"the port counts first":   {model.Connection{TLS: true, ServerName: "b.a.example", Port: 8443}, "port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := listener.ChainFor(test.connection)
			if got == nil || got.Name != test.want {
				t.Errorf("chain = %+v, want %s", got, test.want)
			}
		})
	}
}

func TestHostFor(t *testing.T) {
	t.Parallel()
	table := &model.RouteTable{IgnorePort: true}
	for _, domain := range []string{"*", "*.example", "*.a.example", "b.a.example", "www.*"} {
		table.Hosts = append(table.Hosts, &model.VirtualHost{Name: domain, Domains: []string{domain}})
	}
	for authority, want := range map[string]string{
		"b.a.example": "b.a.example", "B.A.example:8080": "b.a.example", "c.a.example": "*.a.example", "c.example": "*.example",
		"www.test": "www.*", "other.test": "*", "example": "*", "[::1]:80": "*",
	} {
		if got := table.HostFor(authority); got == nil || got.Name != want {
			t.Errorf("HostFor(%q) = %+v, want %s", authority, got, want)
		}
	}
	table.Hosts = table.Hosts[1:]
	if got := table.HostFor("other.test"); got != nil {
		t.Errorf("without *, HostFor = %s, want none", got.Name)
	}
}

func TestMatchTakes(t *testing.T) {
	t.Parallel()
	exact := func(value string) model.StringMatch { return model.StringMatch{Kind: model.StringExact, Value: value} }
	header := func(h model.HeaderMatch) model.Match { return model.Match{Headers: []model.HeaderMatch{h}} }
	request := &model.Request{
		Method: "GET", Scheme: "http", Authority: "a.example", Path: "/a/b", RawQuery: "x=1&x=2&y=%20&z",
		Header: http.Header{"Color": {"blue"}, "Twice": {"1", "2"}},
	}
	for name, test := range map[string]struct {
		match model.Match
		want  bool
	}{
		"prefix":                {model.Match{Path: model.PathMatch{Value: "/a/"}}, true},
		"prefix of characters":  {model.Match{Path: model.PathMatch{Value: "/a"}}, true},
		"segments":              {model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: "/a"}}, true},
		"segments, all":         {model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: "/a/b"}}, true},
		"segments, part of one": {model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: "/a/"}}, false},
		"exact":                 {model.Match{Path: model.PathMatch{Kind: model.PathExact, Value: "/a/b"}}, true},
		"exact, other case":     {model.Match{Path: model.PathMatch{Kind: model.PathExact, Value: "/A/b"}}, false},
		"exact, any case":       {model.Match{Path: model.PathMatch{Kind: model.PathExact, Value: "/A/b", IgnoreCase: true}}, true},
		"regex": {
			model.Match{Path: model.PathMatch{Kind: model.PathRegex, Regex: regexp.MustCompile(`^(?:/a/.*)$`)}}, true,
		},
		"regex of a part":      {model.Match{Path: model.PathMatch{Kind: model.PathRegex, Regex: regexp.MustCompile(`/a`)}}, false},
		"header":               {header(model.HeaderMatch{Name: "color", Match: exact("blue")}), true},
		"header, inverted":     {header(model.HeaderMatch{Name: "color", Match: exact("blue"), Invert: true}), false},
		"two values":           {header(model.HeaderMatch{Name: "twice", Match: exact("1,2")}), true},
		"missing":              {header(model.HeaderMatch{Name: "none", Match: exact("")}), false},
		"missing, inverted":    {header(model.HeaderMatch{Name: "none", Match: exact("a"), Invert: true}), false},
		"missing is empty":     {header(model.HeaderMatch{Name: "none", Match: exact("a"), Invert: true, MissingIsEmpty: true}), true},
		"present":              {header(model.HeaderMatch{Name: "color", Match: model.StringMatch{Kind: model.StringAny}}), true},
		"not present":          {header(model.HeaderMatch{Name: "none", Match: model.StringMatch{Kind: model.StringAny}}), false},
		"absent":               {header(model.HeaderMatch{Name: "none", Absent: true}), true},
		"method":               {header(model.HeaderMatch{Name: ":method", Match: exact("GET")}), true},
		"query, first value":   {model.Match{Query: []model.QueryMatch{{Name: "x", Match: exact("1")}}}, true},
		"query, second value":  {model.Match{Query: []model.QueryMatch{{Name: "x", Match: exact("2")}}}, false},
		"query, decoded":       {model.Match{Query: []model.QueryMatch{{Name: "y", Match: exact(" ")}}}, true},
		"query, without value": {model.Match{Query: []model.QueryMatch{{Name: "z", Match: exact("")}}}, true},
		"query, missing":       {model.Match{Query: []model.QueryMatch{{Name: "q", Match: exact("")}}}, false},
		"gRPC alone":           {model.Match{GRPC: true}, false},
		"fraction of all":      {model.Match{Fraction: 1}, true},
		"all parts must hold":  {model.Match{Path: model.PathMatch{Value: "/b"}, Headers: header(model.HeaderMatch{}).Headers}, false},
		"string prefix": {
			header(model.HeaderMatch{Name: "color", Match: model.StringMatch{Kind: model.StringPrefix, Value: "bl"}}), true,
		},
		"string suffix": {
			header(model.HeaderMatch{Name: "color", Match: model.StringMatch{Kind: model.StringSuffix, Value: "bl"}}), false,
		},
		"string contains": {
			header(model.HeaderMatch{Name: "color", Match: model.StringMatch{Kind: model.StringContains, Value: "lu"}}), true,
		},
		"string of any case": {
			header(model.HeaderMatch{Name: "color", Match: model.StringMatch{Value: "BLUE", IgnoreCase: true}}), true,
		},
		"the authority is a part": {header(model.HeaderMatch{Name: ":authority", Match: exact("a.example")}), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.match.Takes(request); got != test.want {
				t.Errorf("Takes = %t, want %t", got, test.want)
			}
		})
	}
}

func TestLocation(t *testing.T) {
	t.Parallel()
	request := &model.Request{Scheme: "http", Authority: "a.example:80", Path: "/old/b", RawQuery: "q=1"}
	match := &model.PathMatch{Kind: model.PathSegments, Value: "/old"}
	for name, test := range map[string]struct {
		redirect model.Redirect
		want     string
	}{
		"nothing":            {model.Redirect{}, "http://a.example:80/old/b?q=1"},
		"scheme":             {model.Redirect{Scheme: "https"}, "https://a.example/old/b?q=1"},
		"https":              {model.Redirect{HTTPS: true}, "https://a.example/old/b?q=1"},
		"host":               {model.Redirect{Host: "b.example"}, "http://b.example/old/b?q=1"},
		"port":               {model.Redirect{Port: 8080}, "http://a.example:8080/old/b?q=1"},
		"path":               {model.Redirect{Path: "/new"}, "http://a.example:80/new?q=1"},
		"path with query":    {model.Redirect{Path: "/new?r=2"}, "http://a.example:80/new?r=2"},
		"prefix":             {model.Redirect{Rewrite: model.PathRewrite{Prefix: "/new"}}, "http://a.example:80/new/b?q=1"},
		"query is taken off": {model.Redirect{StripQuery: true}, "http://a.example:80/old/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.redirect.Location(match, request); got != test.want {
				t.Errorf("Location = %s, want %s", got, test.want)
			}
		})
	}
}

func TestPathRewrite(t *testing.T) {
	t.Parallel()
	segments := &model.PathMatch{Kind: model.PathSegments, Value: "/strip"}
	strip := model.PathRewrite{Regex: regexp.MustCompile(`^/strip(/?)(.*)`), Substitution: "/${2}"}
	for name, test := range map[string]struct {
		rewrite    model.PathRewrite
		match      *model.PathMatch
		path, want string
	}{
		"prefix of segments":  {model.PathRewrite{Prefix: "/one"}, segments, "/strip/two", "/one/two"},
		"all of the path":     {model.PathRewrite{Prefix: "/one"}, segments, "/strip", "/one"},
		"exact":               {model.PathRewrite{Prefix: "/one"}, &model.PathMatch{Kind: model.PathExact, Value: "/a"}, "/a", "/one"},
		"regex":               {strip, segments, "/strip/two", "/two"},
		"regex, nothing left": {strip, segments, "/strip", "/"},
		"none":                {model.PathRewrite{}, segments, "/strip/two", "/strip/two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.rewrite.Apply(test.match, test.path); got != test.want {
				t.Errorf("path = %s, want %s", got, test.want)
			}
		})
	}
}

func TestHeaderChanges(t *testing.T) {
	t.Parallel()
	header := http.Header{"A": {"1"}, "B": {"1"}, "C": {"1"}}
	changes := model.HeaderChanges{
		RequestRemove: []string{"a"},
		RequestAdd: []model.HeaderValue{
			{Name: "b", Value: "2"},
			{Name: "c", Value: "2", Action: model.HeaderSet},
			{Name: "b", Value: "3", Action: model.HeaderAddIfAbsent},
			{Name: "d", Value: "3", Action: model.HeaderSetIfPresent},
			{Name: "e", Value: "3", Action: model.HeaderAddIfAbsent},
			{Name: "f"},
		},
	}
	changes.ApplyRequest(header)
	want := map[string]string{"A": "", "B": "1 2", "C": "2", "D": "", "E": "3", "F": ""}
	for name, values := range want {
		got := ""
		for i, value := range header.Values(name) {
			if i > 0 {
				got += " "
			}
			got += value
		}
		if got != values {
			t.Errorf("%s = %q, want %q", name, got, values)
		}
	}
}

func TestNormalPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/": "/", "/a/./b": "/a/b", "/a/../b": "/b", "/a/..": "/", "/../../a": "/a", "/a/.": "/a/", "/a//b": "/a//b", "/a/.b": "/a/.b",
	} {
		if got := model.NormalPath(path, false); got != want {
			t.Errorf("NormalPath(%s) = %s, want %s", path, got, want)
		}
	}
	if got := model.NormalPath("/a//b/", true); got != "/a/b/" {
		t.Errorf("merged = %s, want /a/b/", got)
	}
}
