package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestSettingsOfTheGuestAreUsedOnceInTenMinutes checks when a guest that changes its proxy again and again gets which
// settings.
func TestSettingsOfTheGuestAreUsedOnceInTenMinutes(t *testing.T) {
	t.Parallel()
	var s gatewaySettings
	classes := []model.GatewayClass{{Name: "a"}}
	for i, step := range []struct {
		at      time.Duration
		classes []model.GatewayClass
		seen    string
		want    string
		due     time.Duration
	}{
		{0, nil, "http://a", "http://a", 0},
		{time.Second, nil, "http://b", "http://b", 0}, // without a class there are no gateways
		{2 * time.Second, classes, "http://c", "http://c", 0},
		{time.Minute, classes, "http://d", "http://d", 0}, // the first change
		{2 * time.Minute, classes, "http://e", "http://d", 11 * time.Minute},
		{3 * time.Minute, classes, "", "http://d", 11 * time.Minute},
		{4 * time.Minute, classes, "http://d", "http://d", 0}, // undone before it was used
		{5 * time.Minute, classes, "http://f", "http://d", 11 * time.Minute},
		{11*time.Minute - time.Millisecond, classes, "http://f", "http://d", 11 * time.Minute},
		{11 * time.Minute, classes, "http://f", "http://f", 0},
		{12 * time.Minute, classes, "", "http://f", 21 * time.Minute},
		{30 * time.Minute, classes, "", "", 0},
		{31 * time.Minute, nil, "http://g", "http://g", 0}, // the class is deleted and made again
		{32 * time.Minute, classes, "http://g", "", 40 * time.Minute},
		{40 * time.Minute, classes, "http://g", "http://g", 0},
		{60 * time.Minute, nil, "http://h", "http://h", 0},
		{61 * time.Minute, classes, "http://h", "http://h", 0}, // this counts as a change
		{62 * time.Minute, classes, "http://i", "http://h", 71 * time.Minute},
	} {
		seen := model.GuestObservation{Classes: step.classes, Proxy: model.Proxy{HTTP: step.seen}}
		got, due := s.use(seen, start.Add(step.at))
		want := time.Time{}
		if step.due > 0 {
			want = start.Add(step.due)
		}
		if got.HTTP != step.want || !due.Equal(want) {
			t.Errorf("step %d: %q, the next change at %s; want %q, %s", i, got.HTTP, due, step.want, want)
		}
		o := observation{now: start.Add(step.at), settingsAt: due}
		if wait := o.untilSettings(); (wait > 0) != (step.due > 0) || step.due > 0 && wait != step.due-step.at {
			t.Errorf("step %d: the next pass is due after %s", i, wait)
		}
	}
}

// TestThePaceOfSettingsSurvivesARestart checks which settings a new process uses. The defaults of the class show what
// the process before used, and the guest can write anything there.
func TestThePaceOfSettingsSurvivesARestart(t *testing.T) {
	t.Parallel()
	var none time.Time
	earlier, longAgo := start.Add(-3*time.Minute), start.Add(-10*time.Minute)
	// What LastSettings finds: a proxy that it can read, or its hash alone.
	read := func(proxy string, changed time.Time) model.LastSettings {
		of := model.Proxy{HTTP: proxy}
		return model.LastSettings{Exist: true, Hash: of.Hash(), Changed: changed, Proxy: of, Readable: true}
	}
	hash := func(proxy string, changed time.Time) model.LastSettings {
		return model.LastSettings{Exist: true, Hash: model.Proxy{HTTP: proxy}.Hash(), Changed: changed}
	}
	for name, test := range map[string]struct {
		last model.LastSettings
		seen string
		want string
		// changed is when the last change was used, and due when one that waits is used.
		changed, due time.Time
	}{
		"no defaults":                      {model.LastSettings{}, "b", "b", none, none},
		"no change, no time":               {hash("a", none), "a", "a", none, none},
		"no change within the time":        {read("a", earlier), "a", "a", earlier, none},
		"no change after the time":         {read("a", longAgo), "a", "a", longAgo, none},
		"a change within the time":         {read("a", earlier), "b", "a", earlier, earlier.Add(settingsEvery)},
		"removed within the time":          {read("a", earlier), "", "a", earlier, earlier.Add(settingsEvery)},
		"added within the time":            {read("", earlier), "b", "", earlier, earlier.Add(settingsEvery)},
		"a change after the time":          {read("a", longAgo), "b", "b", start, none},
		"a change without a time":          {hash("a", none), "b", "b", start, none},
		"the first settings":               {hash("", none), "b", "b", start, none},
		"a forged proxy":                   {hash("a", earlier), "b", "b", start, none},
		"a forged proxy without a change":  {hash("a", earlier), "a", "a", earlier, none},
		"a forged hash":                    {hash("forged", earlier), "a", "a", start, none},
		"no hash":                          {hash("", earlier), "a", "a", start, none},
		"a time in the future":             {read("a", start.Add(time.Hour)), "b", "a", start, start.Add(settingsEvery)},
		"a time in the far future":         {read("a", time.Unix(1<<62, 0)), "b", "a", start, start.Add(settingsEvery)},
		"a time in the future, not read":   {hash("a", start.Add(time.Hour)), "b", "b", start, none},
		"a time in the future, no changes": {hash("a", start.Add(time.Hour)), "a", "a", start, none},
	} {
		var s gatewaySettings
		for range 2 { // the second pass sees the same, because nothing was written yet
			o := observation{now: start, guest: model.GuestObservation{
				Classes: []model.GatewayClass{{Name: "c"}}, Proxy: model.Proxy{HTTP: test.seen}, LastSettings: test.last,
			}}
			o.useSettings(&s, &ignoring{})
			got := []any{o.guest.Proxy.HTTP, o.guest.ProxyChanged, o.settingsAt}
			if diff := cmp.Diff([]any{test.want, test.changed, test.due}, got); diff != "" {
				t.Errorf("%s: settings, when they changed, when they may change (-want +got):\n%s", name, diff)
			}
		}
	}
}

// TestUnreadSettingsStay checks which settings are used while hypergate is not allowed to read those of the guest, and
// after that. A process that read the proxy before, and one that did not, use the same.
func TestUnreadSettingsStay(t *testing.T) {
	t.Parallel()
	a, longAgo := model.Proxy{HTTP: "http://a"}, start.Add(-time.Hour)
	modern := model.TLSProfile{Type: "Modern", Adherence: "StrictAllComponents"}
	used := model.UsedSettings{Infrastructure: model.SingleNode, TLSProfile: modern}
	unread := model.UnreadSettings{Proxy: true, Infrastructure: true, TLSProfile: true}
	inUse := model.LastSettings{Exist: true, Hash: a.Hash(), Proxy: a, Readable: true, Changed: longAgo}
	first := inUse
	first.Changed = time.Time{}
	for name, test := range map[string]struct {
		memory gatewaySettings
		last   model.LastSettings
		want   model.Proxy
	}{
		"a new process":                         {gatewaySettings{}, inUse, a},
		"a new process with the first settings": {gatewaySettings{}, first, a},
		"a process that has read them":          {gatewaySettings{known: true, proxy: a, changed: longAgo}, inUse, a},
		"nothing was there before":              {gatewaySettings{}, model.LastSettings{}, model.Proxy{}},
	} {
		o := observation{now: start, mgmt: model.ManagementObservation{Used: used}, guest: model.GuestObservation{
			Classes: []model.GatewayClass{{Name: "c"}}, LastSettings: test.last, Unread: unread,
		}}
		o.useSettings(&test.memory, &ignoring{})
		if o.guest.Proxy != test.want || !o.guest.ProxyChanged.Equal(test.last.Changed) || !o.settingsAt.IsZero() {
			t.Errorf("%s: %+v is used, changed at %s, the next change at %s", name, o.guest.Proxy, o.guest.ProxyChanged, o.settingsAt)
		}
		if got := (model.UsedSettings{Infrastructure: o.guest.Infrastructure, TLSProfile: o.guest.TLSProfile}); !cmp.Equal(got, used) {
			t.Errorf("%s: %+v is used", name, got)
		}
		o.guest = model.GuestObservation{Classes: o.guest.Classes, LastSettings: test.last, Proxy: test.want}
		o.useSettings(&test.memory, &ignoring{})
		if o.guest.Proxy != test.want || !o.guest.ProxyChanged.Equal(test.last.Changed) {
			t.Errorf("%s: after that, %+v is used, changed at %s", name, o.guest.Proxy, o.guest.ProxyChanged)
		}
		if o.guest.Infrastructure != model.NotStated || o.guest.TLSProfile.Type != "" {
			t.Errorf("%s: after that, what the guest shows is not used", name)
		}
	}
}

// TestAChangeOfSettingsCountsFromTheNextSecond checks that a new process does not use the next change sooner: it reads
// the time of the last one in full seconds. A clock that is set back does not extend the wait.
func TestAChangeOfSettingsCountsFromTheNextSecond(t *testing.T) {
	t.Parallel()
	s := gatewaySettings{known: true}
	seen := model.GuestObservation{Classes: []model.GatewayClass{{Name: "c"}}, Proxy: model.Proxy{HTTP: "a"}}
	s.use(seen, start.Add(time.Nanosecond))
	if want := start.Add(time.Second); !s.changed.Equal(want) {
		t.Errorf("changed at %s, want %s", s.changed, want)
	}
	seen.Proxy.HTTP = "b"
	setBack := start.Add(-time.Hour)
	if proxy, due := s.use(seen, setBack); proxy.HTTP != "a" || !due.Equal(setBack.Add(settingsEvery)) {
		t.Errorf("after the clock was set back, %q is used, and the next change at %s", proxy.HTTP, due)
	}
	if proxy, due := s.use(seen, setBack.Add(settingsEvery)); proxy.HTTP != "b" || !due.IsZero() {
		t.Errorf("ten minutes later, %q is used, and the next change at %s", proxy.HTTP, due)
	}
}

// TestChangedSettingsRollGatewaysOneByOne checks that Gateways are held before they get changed settings of the guest,
// and released after that. The defaults of the classes show what was applied, so a new process holds them, too.
func TestChangedSettingsRollGatewaysOneByOne(t *testing.T) {
	t.Parallel()
	d := newTestDecider(t)
	d.rollout = rollout.Memo{KnownSince: start.Add(-time.Minute)}
	first, is := d.decide(d.observed(nil)).(converge)
	if !is {
		t.Fatal("no plan is carried out")
	}
	gateway := model.Gateway{
		ForeignObject: model.ForeignObject{Key: types.NamespacedName{Namespace: "n", Name: "g"}, UID: "u", ResourceVersion: "1"},
		Deployment:    model.GatewayDeployment{State: model.DeploymentComplete, Generation: 1, Wanted: 1},
	}
	check := func(when string, hold model.GatewayHold, proxy string, applied map[string]string, want string) string {
		c, is := d.decide(d.observed(func(o *observation) {
			o.guest.Classes = []model.GatewayClass{{Name: "a"}, {Name: "b"}}
			gateway.Hold = hold
			o.mgmt.IstiodConfig = first.plan.IstiodConfig
			o.guest.Gateways = model.ObservedGateways{View: model.GatewaysKnown, List: []model.Gateway{gateway}}
			o.guest.Proxy.HTTP, o.guest.AppliedTemplates = proxy, applied
		})).(converge)
		if !is {
			t.Fatal("no plan is carried out")
		}
		if got := fmt.Sprintf("%T, holds istiod: %t", c.rollout.step, rollout.HoldsIstiod(c.rollout.step)); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
		return c.plan.ClassTemplates["a"]
	}
	in := func(template string) map[string]string { return map[string]string{"a": template} }
	const done, hold, change, release = "rollout.Done, holds istiod: false", "rollout.Hold, holds istiod: true",
		"rollout.Change, holds istiod: false", "rollout.Release, holds istiod: false"
	a := check("no defaults yet", model.Free, "http://a", nil, done)
	check("the same settings", model.Free, "http://a", in(a), done)
	b := check("other settings", model.Free, "http://b", in(a), hold)
	check("all Gateways are held", model.Held, "http://b", in(a), change)
	check("one class has them, the other was refused", model.Held, "http://b", map[string]string{"a": b, "b": a}, change)
	d.rollout.Applied = in(b)
	check("the settings are applied", model.Held, "http://b", in(b), release)
	check("another client changes the defaults", model.Free, "http://b", in(a), done)
	none := check("no settings any more", model.Free, "", in(b), hold)
	check("no settings, and none before", model.Free, "", in(none), done)
	check("the first settings", model.Free, "http://a", in(none), hold)
	check("a class that is not planned", model.Free, "http://a", map[string]string{"a": a, "c": none}, done)
	d.rollout.Tries = map[string]time.Time{"b": start.Add(-2 * time.Minute)}
	check("one class was refused for two minutes", model.Held, "http://b", map[string]string{"a": b, "b": a}, release)
}

// TestTriedDefaultsAreNoted checks which outcomes of a pass count as a try to write the defaults of a class.
func TestTriedDefaultsAreNoted(t *testing.T) {
	t.Parallel()
	d := newTestDecider(t)
	of := func(class string) apply.ID {
		return apply.ID{
			GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Key: types.NamespacedName{Namespace: d.config.GuestNamespace, Name: d.config.ClassDefaultsName(class)},
		}
	}
	e := &execution{Reconciler: &Reconciler{config: d.config, memory: newMemory(Options{})}}
	e.outcome.guest = apply.ReportOf(apply.Failed(of("denied"), apply.Cause{}, errors.New("denied")), apply.Unchanged(of("reverted")),
		apply.RateLimited(of("fought over"), time.Second), apply.Skipped(of("not tried")), apply.Unchanged(of("as wanted")))
	evidence := rollout.Evidence{Now: start}
	for _, class := range []string{"denied", "reverted", "fought over", "not tried", "not planned"} {
		evidence.Defaults = append(evidence.Defaults, rollout.ClassDefaults{Class: class, Wanted: "2", Has: "1"})
	}
	evidence.Defaults = append(evidence.Defaults, rollout.ClassDefaults{Class: "as wanted", Wanted: "2", Has: "2"})
	e.noteDefaults(rolloutStep{evidence: evidence})
	want := map[string]time.Time{"denied": start, "reverted": start, "fought over": start}
	if diff := cmp.Diff(want, e.memory.rollout.Tries); diff != "" || e.outcome.requeue != 2*time.Minute {
		t.Errorf("the next pass is due after %s; tries (-want +got):\n%s", e.outcome.requeue, diff)
	}
}

// TestConditionsKnowTheProxyOfTheGuest checks that conditions learn that the guest has proxy settings, also while they
// do not learn the defaults of others, beside another istiod.
func TestConditionsKnowTheProxyOfTheGuest(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.IstiodMode{model.IstiodAlone, model.IstiodLeading} {
		for url, want := range map[string]bool{"": false, "http://a": true} {
			k := known{
				twoClusters: true, decision: noPlan{}, outcome: outcome{migration: migrationOutcome{mode: mode}},
				observed: observation{guest: model.GuestObservation{Proxy: model.Proxy{HTTP: url}}},
			}
			if got := k.result(status.Result{}).ProxyIsSet; got != want {
				t.Errorf("mode %q, proxy %q: %t", mode, url, got)
			}
		}
	}
}
