package desired_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// defaultsWith returns the defaults of a class for the gateways of a guest with these settings.
func defaultsWith(t *testing.T, proxy model.Proxy, changed time.Time) *corev1.ConfigMap {
	t.Helper()
	cfg, guest := config(model.TopologyHosted), withForeignCRDs(withClasses("a"))
	guest.Proxy, guest.ProxyChanged = proxy, changed
	for _, o := range compute(t, cfg, embedded(t), installed(t), guest).Guest {
		if o.GVK().Kind == "ConfigMap" && o.Key().Name == cfg.ClassDefaultsName("a") {
			var out corev1.ConfigMap
			if err := json.Unmarshal(o.JSON(), &out); err != nil {
				t.Fatal(err)
			}
			return &out
		}
	}
	t.Fatal("the class has no defaults")
	return nil
}

// TestTheLastSettingsAreInTheDefaults checks that a new process finds the settings, and when they changed, in what an
// earlier one wrote.
func TestTheLastSettingsAreInTheDefaults(t *testing.T) {
	t.Parallel()
	changed := time.Date(2026, 11, 21, 12, 0, 1, 0, time.UTC)
	host := config(model.TopologyHosted).XDS.Host
	for name, proxy := range map[string]model.Proxy{
		"none":                  {},
		"all":                   guestsProxy(),
		"without noProxy":       {HTTP: "http://a"},
		"only noProxy":          {No: ".svc,10.0.0.0/16"},
		"noProxy without comma": {HTTPS: "https://a", No: ".svc"},
		"everything bypasses":   {HTTP: "http://a", No: ".svc,*"},
		"istiod bypasses":       {HTTP: "http://a", No: ".svc," + host},
		"istiod bypasses twice": {HTTP: "http://a", No: ".svc," + host + "," + host},
		"a long one":            {HTTP: "http://a", No: strings.Repeat("10.0.0.0/16,", 600) + ".svc"},
		"a text like a number":  {HTTP: "http://a", No: "1.5"},
	} {
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("east", 7200)} {
			defaults := defaultsWith(t, proxy, changed.In(zone))
			want := model.LastSettings{Exist: true, Hash: proxy.Hash(), Changed: changed, Proxy: proxy, Readable: true}
			if diff := cmp.Diff(want, desired.LastSettings(defaults.Annotations, defaults.Data)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		defaults := defaultsWith(t, proxy, time.Time{})
		want := model.LastSettings{Exist: true, Hash: proxy.Hash(), Proxy: proxy, Readable: true}
		if diff := cmp.Diff(want, desired.LastSettings(defaults.Annotations, defaults.Data)); diff != "" {
			t.Errorf("%s, without a time (-want +got):\n%s", name, diff)
		}
		if _, is := defaults.Annotations[model.SettingsChangedAnnotation]; is {
			t.Errorf("%s: without a time, the defaults have %v", name, defaults.Annotations)
		}
	}
}

// TestForgedLastSettings checks that the guest's admin cannot pass anything on that the guest's own settings could not.
func TestForgedLastSettings(t *testing.T) {
	t.Parallel()
	changed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	type edit func(annotations, data map[string]string)
	at := func(text string) edit {
		return func(a, _ map[string]string) { a[model.SettingsChangedAnnotation] = text }
	}
	deployment := func(text string) edit { return func(_, d map[string]string) { d["deployment"] = text } }
	renamed := func(_, d map[string]string) {
		d["deployment"] = strings.ReplaceAll(d["deployment"], "istio-proxy", "other")
	}
	forged := func(proxy model.Proxy) edit {
		defaults := defaultsWith(t, proxy, changed)
		return func(a, d map[string]string) { maps.Copy(a, defaults.Annotations); maps.Copy(d, defaults.Data) }
	}
	for name, test := range map[string]struct {
		edit      edit
		time      time.Time
		readable  bool
		otherHash bool
	}{
		"nothing":           {func(_, _ map[string]string) {}, changed, true, false},
		"another zone":      {at("2026-11-21T13:00:00+01:00"), changed, true, false},
		"no time":           {at(""), time.Time{}, true, false},
		"another text":      {at("yesterday"), time.Time{}, true, false},
		"a number":          {at("1795262400"), time.Time{}, true, false},
		"before 1970":       {at("0000-01-01T00:00:00+23:00"), time.Time{}, true, false},
		"a long time":       {at(strings.Repeat("2026-11-21T12:00:00Z", 1000)), time.Time{}, true, false},
		"the far future":    {at("9999-12-31T23:59:59-23:00"), time.Date(10000, 1, 1, 22, 59, 59, 0, time.UTC), true, false},
		"no deployment":     {deployment(""), changed, false, false},
		"no YAML":           {deployment("spec: ["), changed, false, false},
		"a wrong type":      {deployment("spec: {template: {spec: {containers: {env: 7}}}}"), changed, false, false},
		"another container": {renamed, changed, false, false},
		"an alias":          {deployment("a: &a {}\nspec: *a"), changed, false, false},
		"a long one":        {deployment(strings.Repeat("#\n", 1<<16)), changed, false, false},
		"no hash":           {func(a, _ map[string]string) { delete(a, model.SettingsAnnotation) }, changed, false, true},
		"no URL":            {forged(model.Proxy{HTTP: "not a URL"}), changed, false, true},
		"a long URL":        {forged(model.Proxy{HTTP: "http://" + strings.Repeat("a", 4<<10)}), changed, false, true},
		"an invalid entry":  {forged(model.Proxy{HTTP: "http://a", No: "a b"}), changed, false, true},
	} {
		was := defaultsWith(t, guestsProxy(), changed)
		test.edit(was.Annotations, was.Data)
		got := desired.LastSettings(was.Annotations, was.Data)
		want := model.LastSettings{Exist: true, Hash: was.Annotations[model.SettingsAnnotation], Changed: test.time}
		if test.readable {
			want.Proxy, want.Readable = guestsProxy(), true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if other := got.Hash != guestsProxy().Hash(); other != test.otherHash {
			t.Errorf("%s: hash %q", name, got.Hash)
		}
	}
}
