package xds_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/test/xds"
)

func TestReach(t *testing.T) {
	t.Parallel()
	config := &xds.Config{
		Listeners: []xds.Listener{
			{Name: "plain", Port: 80, Chains: []xds.FilterChain{{RouteName: "http.80"}}},
			{Name: "secure", Port: 443, Chains: []xds.FilterChain{
				{SNI: []string{"*.example.com"}, Secrets: []string{"there"}, RouteName: "https.443"},
				{SNI: []string{"other.test"}, Secrets: []string{"awaited"}, RouteName: "https.443"},
			}},
		},
		Routes: []xds.RouteConfig{{Name: "https.443"}, {Name: "http.80", VirtualHosts: []xds.VirtualHost{
			{Domains: []string{"*"}, Routes: []xds.Route{{Match: xds.Prefix, Path: "/", Answer: "status 404"}}},
			{Domains: []string{"*.example.com"}, Routes: []xds.Route{{Match: xds.Prefix, Path: "/", Clusters: []string{"any"}}}},
			{Domains: []string{"echo.example.com"}, Routes: []xds.Route{
				{Match: xds.Prefix, Path: "/", Conditional: true, Clusters: []string{"never"}},
				{Match: xds.Exact, Path: "/api", Clusters: []string{"exact"}},
				{Match: xds.Prefix, Path: "/api", Clusters: []string{"blue", "green"}},
				{Match: xds.Prefix, Path: "/empty", Clusters: []string{"empty"}},
			}},
		}}},
		Endpoints: []xds.Endpoints{
			{Cluster: "any", Addresses: []string{"10.0.0.1:80"}},
			{Cluster: "blue", Addresses: []string{"10.0.0.2:80"}},
			{Cluster: "empty"},
			{Cluster: "exact", Addresses: []string{"10.0.0.4:80"}},
			{Cluster: "green", Addresses: []string{"10.0.0.3:80"}},
		},
		Secrets: []xds.Secret{{Name: "there", HasKey: true}, {Name: "awaited"}},
	}
	for name, test := range map[string]struct {
		port       uint32
		host, path string
		want       []string
		err        string
	}{
		"exact path before prefix": {80, "echo.example.com", "/api", []string{"10.0.0.4:80"}, ""},
		"prefix of whole segments": {80, "echo.example.com", "/api/v1", []string{"10.0.0.2:80", "10.0.0.3:80"}, ""},
		"no prefix of characters": {
			80, "echo.example.com", "/apiary", nil,
			"route http.80 of listener plain does not lead echo.example.com/apiary anywhere",
		},
		"wildcard host before every host": {80, "x.example.com", "/api", []string{"10.0.0.1:80"}, ""},
		"the proxy answers":               {80, "other.test", "/", nil, "status 404"},
		"no endpoints":                    {80, "echo.example.com", "/empty", nil, "no endpoints in empty"},
		"no listener":                     {81, "echo.example.com", "/", nil, "no listener on port 81, of 2 listeners"},
		"no filter chain": {
			443, "example.org", "/", nil,
			"listener secure has no filter chain for server name example.org",
		},
		"certificate not received":         {443, "other.test", "/", nil, "listener secure lacks its certificate awaited"},
		"certificate received, but no way": {443, "x.example.com", "/", nil, "route https.443 of listener secure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Reach(test.port, test.host, test.path)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error = %v, want %q in it", err, test.err)
			}
		})
	}
}
