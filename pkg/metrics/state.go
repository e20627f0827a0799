package metrics

import (
	"regexp"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/summary"
)

// State is what the last pass left. It is not changed after Collector.Set.
type State struct {
	// Summary is the summary of the pass. Its GuestCredential is not used.
	Summary summary.Summary
	// Credential is when hypergate's credential for the guest is valid. Zero: it does not say, or there is none.
	Credential summary.Validity
	// Sides are the numbers of each side (model.Side).
	Sides map[string]Numbers
	// RotationSince is when the phase of the rotation of the mesh CA began. NextCA is when the next CA expires. Both
	// are zero if there is none.
	RotationSince, NextCA time.Time
	// PublishedSeen is when istiod last answered the endpoint probe.
	PublishedSeen time.Time
	// Guest is what hypergate decided about the CRDs of the guest.
	Guest Guest
	// Migration is the state of a migration from an istiod in the guest.
	Migration Migration
}

// Numbers are the numbers of one side.
type Numbers struct {
	RateLimited, WatchFailing int
	// Failing is the number of objects that could not be written, or whose deletion is blocked, and of GatewayClasses
	// whose status could not be written, by the class of the error.
	Failing map[string]int
}

// Guest is what hypergate decided about the CRDs of the guest. Mode is empty while there is no plan.
type Guest struct {
	Mode      crds.Mode
	Decisions []crds.CRD
	// InUse is the number of objects that use what istiod ignores, by CRD.
	InUse map[string]int
}

// Migration is the state of a migration. Without a phase, there is none.
type Migration struct {
	Phase string
	// Since is the beginning of the phase. Moved are the Gateways at the hosted istiod, of Moving ones.
	Since         time.Time
	Moved, Moving int
}

// The values of the label at of the metric of a migration's Gateways.
const (
	atHosted = "hosted"
	atOrigin = "origin"
)

// ofMigration adds the series of a migration. Without one, there are none.
func (s samples) ofMigration(m Migration) {
	if m.Phase == "" {
		return
	}
	s.set("hypergate_migration_phase", 1, m.Phase)
	s.setTime("hypergate_migration_since_timestamp_seconds", m.Since)
	s.set("hypergate_migration_gateways", float64(m.Moved), atHosted)
	s.set("hypergate_migration_gateways", float64(max(0, m.Moving-m.Moved)), atOrigin)
}

// none is the owner of a CRD that does not exist.
const none = "none"

// ownerLabel returns the kind of an owner. Its name is not exported: a guest can have many owners.
func ownerLabel(kind crds.OwnerKind) string {
	if kind == crds.Unowned {
		return none
	}
	return string(kind)
}

// versionLabel returns the version that a CRD claims. It is an annotation that the guest's admin can set to any
// value, and each value is a separate series over time. So only the wanted version, and what can be a release of the
// Gateway API, is exported.
func versionLabel(claimed, wanted string) string {
	if claimed == "" || claimed == wanted || regexp.MustCompile(`^v[01]\.[0-9]\.[0-9]$`).MatchString(claimed) {
		return claimed
	}
	return Other
}

// releaseLabel returns the release of Istio that a version names, without a vendor's suffix. What cannot be a release
// is not exported: each value is a separate series over time.
func releaseLabel(version string) string {
	release, _, _ := strings.Cut(strings.NewReplacer("_", "-", "+", "-").Replace(version), "-")
	if regexp.MustCompile(`^1\.[0-9]{1,2}\.[0-9]{1,2}$`).MatchString(release) {
		return release
	}
	return Other
}

// sample is the value of one series.
type sample struct {
	name   string
	labels [maxLabels]string
}

// maxLabels is the largest number of labels of a metric.
const maxLabels = 6

// samples are series with their values. Two values with the same labels, after the labels were restricted to their
// closed lists, are one series: a scrape with the same series twice would fail.
type samples struct {
	definitions map[string]Definition
	values      map[sample]float64
}

func (s samples) key(name string, labels []string) sample {
	k := sample{name: name}
	for i, label := range s.definitions[name].Labels {
		k.labels[i] = label.admits(labels[i])
	}
	return k
}

// set sets a series to a value. add adds to it.
func (s samples) set(name string, value float64, labels ...string) {
	s.values[s.key(name, labels)] = value
}

func (s samples) add(name string, value float64, labels ...string) {
	s.values[s.key(name, labels)] += value
}

// setTime sets a series to a time in seconds. A zero time sets nothing.
func (s samples) setTime(name string, t time.Time, labels ...string) {
	if !t.IsZero() {
		s.set(name, float64(t.Unix()), labels...)
	}
}

// one sets, of several series, the one with a value to 1, and the others to 0. An empty value sets all to 0.
func (s samples) one(name, value string, all []string, labels ...string) {
	for _, other := range all {
		s.set(name, 0, append(labels, other)...)
	}
	if value != "" {
		s.set(name, 1, append(labels, value)...)
	}
}

// ofState adds the series of a state.
func (s samples) ofState(state State) {
	s.ofConditions(state.Summary)
	s.ofMigration(state.Migration)
	s.ofSides(state.Sides)
	s.ofCredentials(state)
	s.ofServing(state)
	s.ofGuest(state.Guest)
}

func (s samples) ofConditions(shown summary.Summary) {
	for _, t := range summary.ConditionTypes() {
		c := shown.Condition(t)
		status := c.Status
		if status == "" {
			status = summary.Unknown // nothing is known before the end of the first pass
		}
		s.one("hypergate_condition", status, statuses(), t)
		if c.Reason != "" {
			s.set("hypergate_condition_reason", 1, t, c.Reason)
		}
	}
	by := ""
	if shown.Lifecycle.IsOnHold() {
		by = string(shown.Lifecycle)
	}
	s.one("hypergate_on_hold", by, holds())
}

func (s samples) ofSides(all map[string]Numbers) {
	for _, side := range sides() {
		numbers := all[side]
		s.set("hypergate_rate_limited_objects", float64(numbers.RateLimited), side)
		s.set("hypergate_watch_failing", float64(numbers.WatchFailing), side)
		for class, n := range numbers.Failing {
			s.add("hypergate_failing_objects", float64(n), side, class)
		}
	}
}

func (s samples) ofCredentials(state State) {
	shown := state.Summary
	s.setTime("hypergate_guest_credential_issued_timestamp_seconds", state.Credential.From)
	s.setTime("hypergate_guest_credential_expiry_timestamp_seconds", state.Credential.Until)
	s.setTime("hypergate_istiod_token_issued_timestamp_seconds", shown.Token.From)
	s.setTime("hypergate_istiod_token_expiry_timestamp_seconds", shown.Token.Until)
	if shown.CA.Phase == "" {
		return
	}
	s.setTime("hypergate_mesh_ca_expiry_timestamp_seconds", shown.CA.Expires, currentCA)
	s.setTime("hypergate_mesh_ca_expiry_timestamp_seconds", state.NextCA, nextCA)
	s.one("hypergate_mesh_ca_rotation_phase", shown.CA.Phase, phases())
	if shown.CA.Phase != summary.PhaseSteady {
		s.setTime("hypergate_mesh_ca_rotation_since_timestamp_seconds", state.RotationSince)
	}
}

func (s samples) ofServing(state State) {
	shown := state.Summary
	s.one("hypergate_istiod_state", shown.Istiod.State, istiodStates())
	if running := shown.Istiod.Version; running != "" {
		s.set("hypergate_istiod_running_info", 1, releaseLabel(running))
	}
	if published := shown.Published; published.Strategy != "" {
		s.set("hypergate_published_info", 1, published.Strategy)
		probed := published.State != summary.PublishedProbing && published.State != summary.PublishedUnprobed
		if !shown.Istiod.Since.IsZero() && probed {
			s.set("hypergate_published_reachable", boolean(published.State == summary.PublishedReached))
		}
		s.setTime("hypergate_published_last_seen_timestamp_seconds", state.PublishedSeen)
	}
	if shown.Webhook.Policy == "" {
		return
	}
	s.one("hypergate_webhook_failure_policy", shown.Webhook.Policy, webhookPolicies())
	if shown.Webhook.Policy == summary.WebhookFail {
		s.setTime("hypergate_webhook_proven_timestamp_seconds", shown.Webhook.Since)
	}
}

func (s samples) ofGuest(g Guest) {
	if g.Mode != "" {
		s.set("hypergate_guest_management_mode", 1, string(g.Mode))
	}
	for _, crd := range g.Decisions {
		s.set("hypergate_guest_crd_info", 1, crd.Name, ownerLabel(crd.Owner.Kind), string(crd.Verdict), string(crd.Reason),
			versionLabel(crd.Metadata.Version, crd.Wanted.Version), crd.Wanted.Version)
	}
	for crd, count := range g.InUse {
		s.add("hypergate_guest_unsupported_objects", float64(count), crd)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
