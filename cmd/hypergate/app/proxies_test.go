package app

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/proxies"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/golden"
)

// TestProxiesOutput checks the tables and exit codes of the command proxies.
func TestProxiesOutput(t *testing.T) {
	synced := proxies.Proxy{Name: "gw-a.demo", Version: "1.28.3", Istiod: "istiod-1", Types: []proxies.Type{
		{Name: "Cluster", State: proxies.Synced}, {Name: "Secret", State: proxies.NotSent},
	}}
	stale := proxies.Proxy{Name: "gw-b.demo", Types: []proxies.Type{{Name: "Listener", State: proxies.Stale}}}
	rejected := proxies.Proxy{Name: "gw-c.shop", Version: "1.28.3", Types: []proxies.Type{
		{Name: "Cluster", State: proxies.Stale}, {Name: "Listener", State: proxies.Rejected, Error: "no such cluster"},
	}}
	unknown := proxies.Proxy{Name: "gw-d.demo", Types: []proxies.Type{
		{Name: "Cluster", State: proxies.Synced}, {Name: "Listener", State: proxies.Unknown},
	}}
	for name, tc := range map[string]struct {
		proxies []proxies.Proxy
		code    int
	}{
		"none":     {[]proxies.Proxy{}, exitOK},
		"synced":   {[]proxies.Proxy{synced}, exitOK},
		"stale":    {[]proxies.Proxy{synced, stale}, exitUnderWay},
		"unknown":  {[]proxies.Proxy{unknown, {Name: "gw-e.demo"}}, exitUnderWay},
		"rejected": {[]proxies.Proxy{synced, rejected, stale}, exitAct},
	} {
		var out strings.Builder
		if err := printed(&out, outputTable, proxiesReport{Proxies: tc.proxies}); !endsWith(err, tc.code) {
			t.Errorf("%s: %v", name, err)
		}
		golden.Equal(t, "testdata/proxies-"+name+".table", out.String())
	}
	var out strings.Builder
	if err := printed(&out, outputJSON, proxiesReport{Proxies: []proxies.Proxy{synced, rejected}}); !endsWith(err, exitAct) {
		t.Error(err)
	}
	golden.Equal(t, "testdata/proxies.json", out.String())
}

// TestWhichIstiodIsAsked checks which Lease of a namespace has the address: that of the revision first, and then one
// that is not silent.
func TestWhichIstiodIsAsked(t *testing.T) {
	t.Parallel()
	reading := func(lease, address string, state summary.State) summary.Reading {
		return summary.Reading{
			Lease: lease, State: state, Summary: &summary.Summary{Published: summary.Published{Address: address}},
		}
	}
	first, wanted := reading("hypergate-canary", "canary:443", summary.OK), reading("hypergate-stable", "stable:443", summary.OK)
	gone, silent := reading("hypergate-canary", "canary:443", summary.Silent), reading("hypergate-stable", "stable:443", summary.Silent)
	for name, tc := range map[string]struct {
		readings []summary.Reading
		want     string
	}{
		"that of the revision":          {[]summary.Reading{first, wanted}, "stable:443"},
		"it is silent":                  {[]summary.Reading{first, silent}, "stable:443"},
		"it has no address":             {[]summary.Reading{reading("hypergate-stable", "", summary.OK), first}, "canary:443"},
		"it has no summary":             {[]summary.Reading{{Lease: "hypergate-stable", State: summary.Unreadable}, first}, "canary:443"},
		"another one is silent":         {[]summary.Reading{gone}, ""},
		"a silent one, and another one": {[]summary.Reading{gone, reading("hypergate-x", "x:443", summary.OK)}, "x:443"},
		"without a Lease":               {nil, ""},
	} {
		if got, found := publishedOf(tc.readings, "stable"); got.Address != tc.want || found != (tc.want != "") {
			t.Errorf("%s: %q, %t, want %q", name, got.Address, found, tc.want)
		}
	}
}
