package status_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

func TestSettingsApplied(t *testing.T) {
	t.Parallel()
	for _, c := range status.Conditions(model.GatewayClass{}, status.Result{}, nil, now) {
		if c.Type == status.SettingsApplied {
			t.Errorf("all settings are in use: %+v", c)
		}
	}
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	const delayed = "gateways get the new proxy settings at 2026-02-03T04:05:06Z; hypergate applies such changes at most every " +
		"10 minutes, because each one replaces their pods"
	const ignored = "gateways ignore a part of the guest's proxy settings: "
	const step = " [correct proxies.config.openshift.io cluster (with HyperShift, in the HostedCluster)]"
	invalid := []string{"status.httpProxy is not a URL with a host", `entry 1 of status.noProxy ("[x") is neither`}
	const both = `status.httpProxy is not a URL with a host; entry 1 of status.noProxy ("(x") is neither`
	checkCondition(t, status.Result{SettingsAt: at}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonChangeDelayed, delayed})
	checkCondition(t, status.Result{IgnoredProxy: invalid}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonInvalidProxy, ignored + both + step})
	checkCondition(t, status.Result{SettingsAt: at, IgnoredProxy: invalid}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonInvalidProxy, delayed + "; " + ignored + both + step})
	const profile = "a part of the TLS security profile is not applied: x; y"
	const another = " [set another TLS security profile (with HyperShift, in the HostedCluster), or accept the difference]"
	checkCondition(t, status.Result{TLSProblems: []string{"x", "y"}}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonUnsupportedTLSProfile, profile + another})
	checkCondition(t, status.Result{TLSProblems: []string{"x", "y"}, IgnoredProxy: invalid}, status.SettingsApplied,
		want{metav1.ConditionFalse, status.ReasonUnsupportedTLSProfile, ignored + both + "; " + profile + another + step})
}

// TestTheControlPlaneNamesAnUnsupportedTLSProfile checks the warning for those who can change the profile on
// HyperShift, beside that for the guest.
func TestTheControlPlaneNamesAnUnsupportedTLSProfile(t *testing.T) {
	t.Parallel()
	const warning = "; a part of the TLS security profile is not applied: x [set another TLS security profile " +
		"(with HyperShift, in the HostedCluster), or accept the difference]"
	for name, tc := range map[string]struct {
		problems []string
		running  status.RunningVersion
		reason   string
		end      string
	}{
		"none": {nil, status.VersionReported("1.20.3"), status.ReasonAsExpected, "serving since 2026-11-21T10:00:00Z"},
		"one":  {[]string{"x"}, status.VersionReported("1.20.3"), status.ReasonUnsupportedTLSProfile, warning},
		"hostile": {
			[]string{"x\n[run it]"}, status.VersionReported("1.20.3"), status.ReasonUnsupportedTLSProfile, ": x (run it) [set another",
		},
		"another version, too": {
			[]string{"x"}, status.VersionReported("1.19.8"), status.ReasonUnplannedVersion, "charts of Istio 1.19.8]" + warning,
		},
	} {
		r := serving()
		r.TLSProblems, r.Running = tc.problems, tc.running
		conditions := status.ControlPlane(r, status.DegradedSince{}, nil, now)
		available := meta.FindStatusCondition(conditions, status.ControlPlaneAvailable)
		if available.Status != metav1.ConditionTrue || available.Reason != tc.reason || !strings.Contains(available.Message, tc.end) {
			t.Errorf("%s: %s %s: %s", name, available.Status, available.Reason, available.Message)
		}
		if !status.MeansServing(available.Reason) {
			t.Errorf("%s: %s does not mean that istiod serves", name, available.Reason)
		}
	}
	if status.MeansServing(status.ReasonNotRequested) {
		t.Error("NotRequested means that istiod serves")
	}
}

// TestIgnoredInferencePools checks what both sides say about a guest whose CRD of InferencePools istiod cannot read.
func TestIgnoredInferencePools(t *testing.T) {
	t.Parallel()
	const ignored = "istiod ignores InferencePools, because the guest's CRD inferencepools.inference.networking.k8s.io does not " +
		"serve version v1"
	const unread = "istiod ignores InferencePools; hypergate has not read the guest's CRD inferencepools.inference.networking.k8s.io yet"
	const step = " [install a version of this CRD that serves v1, or delete the CRD]"
	const correct = " [correct proxies.config.openshift.io cluster (with HyperShift, in the HostedCluster)]"
	const later = "istiod serves InferencePools again from 2026-02-03T04:05:06Z; hypergate waits 10 minutes, because each change " +
		"replaces istiod's pods"
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for name, tc := range map[string]struct {
		change         func(*status.Result)
		reason, class  string
		end, available string
	}{
		"another version": {
			func(*status.Result) {}, status.ReasonUnsupportedCRDVersion, ignored + step,
			ignored + step, status.ReasonUnsupportedCRDVersion,
		},
		"after a restart": {
			func(r *status.Result) { r.UnreadCRDs = r.IgnoredCRDs }, status.ReasonUnsupportedCRDVersion, unread,
			unread, status.ReasonUnsupportedCRDVersion,
		},
		"it waits": {
			func(r *status.Result) { r.ResumedCRDs, r.ResumedAt = r.IgnoredCRDs, at }, status.ReasonUnsupportedCRDVersion, later, later,
			status.ReasonUnsupportedCRDVersion,
		},
		"a proxy as well": {
			func(r *status.Result) { r.IgnoredProxy = []string{"x"} }, status.ReasonInvalidProxy,
			ignored + "; gateways ignore a part of the guest's proxy settings: x" + correct + step, ignored + step,
			status.ReasonUnsupportedCRDVersion,
		},
		"a TLS profile as well": {
			func(r *status.Result) { r.TLSProblems = []string{"y"} }, status.ReasonUnsupportedTLSProfile,
			ignored + "; a part of the TLS security profile is not applied: y [set another TLS security profile " +
				"(with HyperShift, in the HostedCluster), or accept the " +
				"difference]" + step, ignored + step, status.ReasonUnsupportedTLSProfile,
		},
	} {
		r := serving()
		r.IgnoredCRDs = []string{model.InferencePoolCRD}
		tc.change(&r)
		checkCondition(t, r, status.SettingsApplied, want{metav1.ConditionFalse, tc.reason, tc.class})
		conditions := status.ControlPlane(r, status.DegradedSince{}, nil, now)
		available := meta.FindStatusCondition(conditions, status.ControlPlaneAvailable)
		ends := strings.HasSuffix(available.Message, "; "+tc.end)
		if available.Status != metav1.ConditionTrue || available.Reason != tc.available || !ends {
			t.Errorf("%s: %s %s: %s", name, available.Status, available.Reason, available.Message)
		}
		if !status.MeansServing(available.Reason) {
			t.Errorf("%s: %s does not mean that istiod serves", name, available.Reason)
		}
	}
}

// TestIgnoredKinds checks that both sides name each kind that istiod ignores, those that restrict access first, the
// version that its CRD should serve, and the next step.
func TestIgnoredKinds(t *testing.T) {
	t.Parallel()
	const rules, policies, filters = "destinationrules.networking.istio.io", "authorizationpolicies.security.istio.io",
		"envoyfilters.networking.istio.io"
	const upgrade = " [upgrade the Istio that installed these CRDs to 1.22 or later; or, if no OLM operator owns them, let hypergate " +
		"take them over with their annotation gateway.hypergate.dev/manage=true]"
	const ignoredRules = "istiod ignores DestinationRules, because the guest's CRD " + rules + " does not serve version v1"
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for name, tc := range map[string]struct {
		ignored, resumed []string
		want             string
	}{
		"one": {[]string{rules}, nil, ignoredRules + upgrade},
		"some": {
			[]string{rules, filters, model.InferencePoolCRD, policies},
			nil,
			"istiod ignores AuthorizationPolicies, because the guest's CRD " + policies + " does not serve version v1: they have no " +
				"effect, and restrict nothing; istiod ignores EnvoyFilters, because the guest's CRD " + filters + " does not serve " +
				"version v1alpha3; " + ignoredRules + "; istiod ignores InferencePools, because the guest's CRD " +
				model.InferencePoolCRD + " does not serve version v1" + upgrade +
				" [install a version of this CRD that serves v1, or delete the CRD]",
		},
		"some wait": {
			[]string{rules, filters, policies},
			[]string{policies, filters},
			ignoredRules + "; istiod serves AuthorizationPolicies, EnvoyFilters again from 2026-02-03T04:05:06Z; hypergate waits " +
				"10 minutes, because each change replaces istiod's pods" + upgrade,
		},
	} {
		r := serving()
		r.IgnoredCRDs, r.ResumedCRDs, r.ResumedAt = tc.ignored, tc.resumed, at
		checkCondition(t, r, status.SettingsApplied, want{metav1.ConditionFalse, status.ReasonUnsupportedCRDVersion, tc.want})
		conditions := status.ControlPlane(r, status.DegradedSince{}, nil, now)
		available := meta.FindStatusCondition(conditions, status.ControlPlaneAvailable)
		if available.Reason != status.ReasonUnsupportedCRDVersion || !strings.HasSuffix(available.Message, "; "+tc.want) {
			t.Errorf("%s: %s: %s", name, available.Reason, available.Message)
		}
	}
}

func TestOtherDefaults(t *testing.T) {
	t.Parallel()
	const parameters = "; a Gateway can name its own ConfigMap in spec.infrastructure.parametersRef]"
	const step = " [delete these ConfigMaps" + parameters
	used := model.OtherDefaults{Class: "a", ConfigMap: "openshift-ingress/mine", Used: true}
	broken := used
	broken.Problem = `"deploymnet" is not one of the keys deployment`
	ignored := model.OtherDefaults{Class: "b", ConfigMap: "openshift-ingress/late"}
	for name, test := range map[string]struct {
		result status.Result
		want   string
	}{
		"used": {
			status.Result{OtherDefaults: []model.OtherDefaults{used}},
			"gateways of class a have the defaults in ConfigMap openshift-ingress/mine, which is older than hypergate's and " +
				"replaces them" + step,
		},
		"rejected": {
			status.Result{OtherDefaults: []model.OtherDefaults{broken}},
			"ConfigMap openshift-ingress/mine replaces hypergate's defaults for class a and is not valid " +
				`("deploymnet" is not one of the keys deployment): istiod neither creates nor updates gateways of this class` + step,
		},
		"ignored, and a proxy": {
			status.Result{OtherDefaults: []model.OtherDefaults{ignored}, IgnoredProxy: []string{"x"}},
			"istiod ignores ConfigMap openshift-ingress/late: of defaults for gateways of class b, it reads only the oldest; " +
				"gateways ignore a part of the guest's proxy settings: x" + step +
				" [correct proxies.config.openshift.io cluster (with HyperShift, in the HostedCluster)]",
		},
		"used, and a proxy": {
			status.Result{OtherDefaults: []model.OtherDefaults{used}, ProxyIsSet: true, SettingsAt: now},
			"gateways of class a have the defaults in ConfigMap openshift-ingress/mine, which is older than hypergate's and " +
				"replaces them; the guest's proxy settings have no effect on these gateways; all other gateways get the new proxy " +
				"settings at " + now.UTC().Format(time.RFC3339) + "; hypergate applies such changes at most every 10 minutes, because " +
				"each one replaces their pods [delete these ConfigMaps, or add the variables of the proxy to them" + parameters,
		},
		"ignored, and a valid proxy": {
			status.Result{OtherDefaults: []model.OtherDefaults{ignored}, ProxyIsSet: true},
			"istiod ignores ConfigMap openshift-ingress/late: of defaults for gateways of class b, it reads only the oldest" + step,
		},
		"a proxy beside another istiod": {
			status.Result{ProxyIsSet: true, SettingsAt: now, Migration: status.Migration{Beside: true, Report: migration.Report{Moved: 1}}},
			"gateways that have moved lack the guest's proxy settings, unless their own ConfigMap has them, because the class " +
				"defaults are those of the other istiod, " +
				"until its installation is removed [for a Gateway that needs them earlier, set the variables of the proxy in its own " +
				"ConfigMap (spec.infrastructure.parametersRef)]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkCondition(t, test.result, status.SettingsApplied, want{metav1.ConditionFalse, status.ReasonOtherDefaults, test.want})
		})
	}
}

// TestNoProxyChangeIsPromisedBesideAnotherIstiod checks that a change that waits is not announced while the defaults of
// another istiod count, and that nothing is missing before a gateway has moved.
func TestNoProxyChangeIsPromisedBesideAnotherIstiod(t *testing.T) {
	t.Parallel()
	result := status.Result{ProxyIsSet: true, SettingsAt: now, Migration: status.Migration{Beside: true}}
	for _, c := range status.Conditions(model.GatewayClass{}, result, nil, now) {
		if c.Type == status.SettingsApplied {
			t.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
}

// TestIgnoredParameters checks that only a class with a spec.parametersRef says that istiod does not read it.
func TestIgnoredParameters(t *testing.T) {
	t.Parallel()
	const ignored = "istiod does not read spec.parametersRef of this GatewayClass"
	const step = " [remove spec.parametersRef of the class; a Gateway can name a ConfigMap in spec.infrastructure.parametersRef]"
	const pools = "istiod ignores InferencePools, because the guest's CRD inferencepools.inference.networking.k8s.io does not serve " +
		"version v1"
	others := []string{model.InferencePoolCRD}
	const install = " [install a version of this CRD that serves v1, or delete the CRD]"
	for name, test := range map[string]struct {
		class         model.GatewayClass
		ignored       []string
		reason, means string
	}{
		"without":         {model.GatewayClass{}, nil, "", ""},
		"with":            {model.GatewayClass{Parameters: true}, nil, status.ReasonIgnoredParameters, ignored + step},
		"another setting": {model.GatewayClass{}, others, status.ReasonUnsupportedCRDVersion, pools + install},
		"and another setting": {
			model.GatewayClass{Parameters: true}, others, status.ReasonUnsupportedCRDVersion, ignored + "; " + pools + install + step,
		},
	} {
		classes := status.OfClasses(status.Result{IgnoredCRDs: test.ignored})
		for at, conditions := range map[string][]metav1.Condition{
			"served": classes.Of(test.class, nil, now), "beyond": classes.Beyond(test.class, nil, now),
		} {
			var reason, message string
			if c := meta.FindStatusCondition(conditions, status.SettingsApplied); c != nil {
				reason, message = c.Reason, c.Message
			}
			if reason != test.reason || message != test.means {
				t.Errorf("%s, %s: %s: %s", name, at, reason, message)
			}
		}
	}
}
