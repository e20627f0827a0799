package webpage

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// TestStatesOfBoxes checks the state of each box for what the conditions say.
func TestStatesOfBoxes(t *testing.T) {
	t.Parallel()
	is := func(s *summary.Summary, kind, status, reason string) {
		for i := range s.Conditions {
			if c := &s.Conditions[i]; c.Type == kind {
				c.Status, c.Reason = status, reason
			}
		}
	}
	for name, tc := range map[string]struct {
		edit func(*summary.Reading, *summary.Summary)
		// want are the states of hypergate, istiod, published, mesh CA, API server, gateways, and CRDs.
		want [7]boxState
	}{
		"well": {func(*summary.Reading, *summary.Summary) {}, [7]boxState{well, well, well, well, well, well, well}},
		"a permission is missing": {func(_ *summary.Reading, s *summary.Summary) {
			is(s, summary.Degraded, summary.True, "Forbidden")
		}, [7]boxState{failing, well, well, well, well, well, well}},
		"the address is not reached yet": {func(_ *summary.Reading, s *summary.Summary) {
			s.Published.State = summary.PublishedUnreached
			is(s, summary.Available, summary.Unknown, "EndpointUnreachable")
			is(s, summary.Progressing, summary.True, "Waiting")
		}, [7]boxState{progressing, well, progressing, well, well, unknown, well}},
		"the address is degraded": {func(_ *summary.Reading, s *summary.Summary) {
			s.Published.State = summary.PublishedUnreached
			is(s, summary.Degraded, summary.True, "EndpointUnreachable")
		}, [7]boxState{well, well, failing, well, well, well, well}},
		"the guest does not answer": {func(_ *summary.Reading, s *summary.Summary) {
			is(s, summary.Available, summary.Unknown, "GuestUnreachable")
			is(s, summary.Progressing, summary.True, "WaitingForGuest")
		}, [7]boxState{progressing, well, well, well, unknown, unknown, well}},
		"a rollout of gateways stopped": {func(_ *summary.Reading, s *summary.Summary) {
			s.Gateways.State = summary.GatewaysStopped
			is(s, summary.Degraded, summary.True, "GatewayRolloutStuck")
		}, [7]boxState{well, well, well, well, well, failing, well}},
		"istiod is being installed": {func(_ *summary.Reading, s *summary.Summary) {
			s.Istiod.State, s.Published.State = summary.IstiodUnavailable, summary.PublishedPending
			is(s, summary.Available, summary.False, "Installing")
			is(s, summary.Progressing, summary.True, "Installing")
		}, [7]boxState{progressing, progressing, progressing, well, well, unknown, well}},
		"istiod is unavailable": {func(_ *summary.Reading, s *summary.Summary) {
			s.Istiod.State = summary.IstiodUnavailable
			is(s, summary.Available, summary.False, "Installing")
		}, [7]boxState{well, failing, well, well, well, unknown, well}},
		"nothing is installed": {func(_ *summary.Reading, s *summary.Summary) {
			s.Istiod, s.Published, s.CA, s.Classes = summary.Istiod{State: summary.IstiodAbsent}, summary.Published{}, summary.CA{}, 0
		}, [7]boxState{well, off, off, off, well, off, well}},
		"a paused control plane": {func(_ *summary.Reading, s *summary.Summary) {
			s.Lifecycle = summary.Paused
		}, [7]boxState{paused, well, unknown, well, unknown, unknown, unknown}},
		"a restart during a pause, and the guest does not answer": {func(_ *summary.Reading, s *summary.Summary) {
			s.Lifecycle, s.Istiod, s.CA = summary.Paused, summary.Istiod{Version: "1.28.3"}, summary.CA{} // as a pause keeps them
		}, [7]boxState{paused, unknown, unknown, unknown, unknown, unknown, unknown}},
		"only the management side was not observed": {func(_ *summary.Reading, s *summary.Summary) {
			s.Istiod, s.CA = summary.Istiod{}, summary.CA{}
		}, [7]boxState{well, unknown, well, unknown, well, well, well}},
		"a control plane that is being deleted": {func(_ *summary.Reading, s *summary.Summary) {
			s.Lifecycle = summary.Deleting
		}, [7]boxState{progressing, well, well, well, well, well, well}},
		"hypergate ended during a pause": {func(r *summary.Reading, s *summary.Summary) {
			r.State, s.Lifecycle = summary.Silent, summary.Paused
		}, [7]boxState{failing, unknown, unknown, unknown, unknown, unknown, unknown}},
		"hypergate ended": {func(r *summary.Reading, _ *summary.Summary) {
			r.State = summary.Silent
		}, [7]boxState{failing, unknown, unknown, unknown, unknown, unknown, unknown}},
		"CRDs are blocked": {func(_ *summary.Reading, s *summary.Summary) {
			s.CRDs.Blocked = 1
		}, [7]boxState{well, well, well, well, well, well, failing}},
	} {
		r := summary.Reading{State: summary.OK, Summary: working()}
		tc.edit(&r, r.Summary)
		var got [7]boxState
		for i := range got {
			got[i] = judge(r, part(i))
		}
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestAPartThatWasNotObservedIsUnknown checks the boxes while the guest was not observed. The guest answers in one of
// the cases, and then the management side was observed.
func TestAPartThatWasNotObservedIsUnknown(t *testing.T) {
	t.Parallel()
	conditions := []summary.Condition{
		{Type: summary.Available, Status: summary.Unknown, Reason: "GuestUnreachable"},
		{Type: summary.Progressing, Status: summary.True, Reason: "WaitingForGuest"},
	}
	for state, want := range map[string][7]boxState{
		"":                    {progressing, unknown, unknown, unknown, unknown, unknown, unknown},
		summary.IstiodAbsent:  {progressing, off, unknown, off, unknown, unknown, unknown},
		summary.IstiodServing: {progressing, well, unknown, off, unknown, unknown, unknown},
	} {
		r := summary.Reading{State: summary.InProgress, Summary: &summary.Summary{
			Lifecycle: summary.Active, GuestUnobserved: true, Conditions: conditions, Istiod: summary.Istiod{State: state},
		}}
		var got [7]boxState
		for i := range got {
			got[i] = judge(r, part(i))
		}
		if got != want {
			t.Errorf("istiod %q: %v, want %v", state, got, want)
		}
	}
}

func working() *summary.Summary {
	return &summary.Summary{
		Lifecycle: summary.Active, Classes: 1, Istiod: summary.Istiod{State: summary.IstiodServing},
		Published: summary.Published{State: summary.PublishedReached}, CA: summary.CA{Expires: time.Unix(1, 0), Phase: summary.PhaseSteady},
		Conditions: []summary.Condition{
			{Type: summary.Available, Status: summary.True},
			{Type: summary.Progressing, Status: summary.False},
			{Type: summary.Degraded, Status: summary.False},
		},
	}
}

// ofNoOtherPart returns the reasons that are about hypergate, or about nothing that fails: no other part has them.
func ofNoOtherPart() []string {
	return []string{
		"AdoptionUnfinished", "AsExpected", "Blocked", "CARotation", "CRDOwnerUnknown", "CRDsNotRead", "Cancelled",
		"Conflict", "DeletionBlocked", "Denied", "DeniedByAdmissionPolicy", "Enlarged", "FieldsWouldBeDropped", "Forbidden",
		"GatewayRollout", "GuestCancelled", "GuestNamespaceTerminating", "IngressDisabled", "Installing",
		"Invalid", "Managed", "ManagedByOLM", "ManagementSideUnknown", "Migrating", "MigrationBlocked",
		"MigrationStopped", "NamespaceMissing", "NamespaceTerminating", "NotEnabled", "NotRequested", "NotServed",
		"Oversized", "PlanRejected", "ReconciliationPaused", "Refused", "RollingOut", "Unauthorized",
		"Uninstalling", "UnknownError", "Unmanaged", "UnplannedVersion", "Unreachable", "UnsupportedCRDVersion",
		"UnsupportedTLSProfile", "Waiting", "WriteConflict",
	}
}

// TestReasonsOfPartsExist checks that the reasons by which a part is found are those of the conditions, and that each
// of these belongs to a part.
func TestReasonsOfPartsExist(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, reason := range ofNoOtherPart() {
		count[reason]++
	}
	for _, reasons := range subjects() {
		for _, reason := range reasons {
			count[reason]++
		}
	}
	for _, reason := range status.Reasons() {
		if count[reason] != 1 {
			t.Errorf("%s is %d times in subjects and ofNoOtherPart, want once", reason, count[reason])
		}
		delete(count, reason)
	}
	for reason := range count {
		t.Errorf("no condition has the reason %s", reason)
	}
}
