package webpage

import (
	"slices"

	"github.com/hypergate/hypergate/pkg/summary"
)

// boxState is the state of a part of the two clusters. It follows from the conditions of the summary, and from what the
// summary says of the part.
type boxState int

const (
	// off is a part that nothing requests.
	off boxState = iota
	well
	progressing
	// paused is hypergate during a pause of the control plane.
	paused
	failing
	// unknown is a part whose state was not observed, or is from before a pause or before hypergate ended.
	unknown
)

// word returns the state as a word, beside its color. It is empty for a part that nothing requests.
func (s boxState) word() string {
	switch s {
	case well:
		return "ok"
	case progressing:
		return "progressing"
	case paused:
		return string(summary.Paused)
	case failing:
		return "failing"
	case unknown:
		return "unknown"
	case off:
	}
	return ""
}

// class returns the class in the style sheet.
func (s boxState) class() string {
	switch s {
	case well:
		return classOK
	case progressing, paused:
		return classBusy
	case failing:
		return classAct
	case off, unknown:
	}
	return classNone
}

// part is a box of the picture.
type part int

const (
	partHypergate part = iota
	partIstiod
	partPublished
	partCA
	partAPI
	partGateways
	partCRDs
)

// subjectOf returns the part that a reason of Degraded, or of an unknown Available, is about (pkg/status). All other
// reasons are about hypergate: it cannot do what it should.
func subjectOf(reason string) part {
	for subject, reasons := range subjects() {
		if slices.Contains(reasons, reason) {
			return subject
		}
	}
	return partHypergate
}

func subjects() map[part][]string {
	return map[part][]string{
		partIstiod:    {"RolloutStuck"},
		partPublished: {"EndpointUnreachable", "EndpointPending"},
		partAPI:       {"GuestKubeconfig", "GuestUnreachable", "GuestUnauthorized", "WaitingForGuest", "WaitingForControlPlane"},
		partGateways:  {"GatewayRolloutStuck", "GatewayRolloutForbidden", "GatewayDefaultsRefused"},
		partCRDs:      {"TakeoverBlocked", "UnknownManagement", "NotReady"},
	}
}

// judge returns the state of a part.
func judge(r summary.Reading, p part) boxState {
	if p == partHypergate {
		return ofHypergate(r)
	}
	s := r.Summary
	switch state := own(s, p); {
	case isUnobserved(s, p):
		return unknown
	case state == off:
		return off
	case r.State == summary.Silent || r.State == summary.Overdue || isOld(s, p):
		return unknown
	default:
		return max(state, degradedState(s, p))
	}
}

// isOld reports whether the summary has a part as it was before a pause. The management side is observed during a
// pause.
func isOld(s *summary.Summary, p part) bool {
	return s.HasOldConditions() && p != partIstiod && p != partCA
}

// isUnobserved reports whether a part is not known, because the guest was not observed. Otherwise a part would be blank
// that something requests. istiod and the mesh CA show by themselves that they were not observed (own): after a restart
// during a pause, GuestUnobserved is the one of the process before.
func isUnobserved(s *summary.Summary, p part) bool {
	if !s.GuestUnobserved {
		return false
	}
	switch p {
	case partPublished:
		return s.Published.State == ""
	case partGateways, partCRDs:
		return true
	case partHypergate, partIstiod, partCA, partAPI:
	}
	return false
}

// degradedState returns failing for the part that Degraded is about, and unknown for the one that cannot be observed.
func degradedState(s *summary.Summary, p part) boxState {
	degraded, available := s.Condition(summary.Degraded), s.Condition(summary.Available)
	switch {
	case degraded.Status == summary.True && subjectOf(degraded.Reason) == p:
		return failing
	case available.Status == summary.Unknown && subjectOf(available.Reason) == p && p == partAPI:
		return unknown
	default:
		return off
	}
}

// ofHypergate returns the state of hypergate itself.
func ofHypergate(r summary.Reading) boxState {
	s := r.Summary
	degraded, changing := s.Condition(summary.Degraded), s.Condition(summary.Progressing)
	switch {
	case r.State == summary.Silent, r.State == summary.Overdue:
		return failing
	case r.State == summary.Unreported, changing.Type == "":
		return unknown
	case s.Lifecycle == summary.Paused:
		return paused
	case s.Lifecycle.IsOnHold():
		return progressing
	case degraded.Status == summary.True && subjectOf(degraded.Reason) == partHypergate:
		return failing
	case changing.Status == summary.True:
		return progressing
	default:
		return well
	}
}

// own returns the state of a part as its own fields of the summary show it.
func own(s *summary.Summary, p part) boxState {
	switch p {
	case partIstiod:
		return ofIstiod(s)
	case partPublished:
		return ofPublished(s)
	case partCA:
		return ofCA(s)
	case partGateways:
		return ofGateways(s)
	case partCRDs:
		if s.CRDs.Blocked+s.CRDs.Undetermined > 0 {
			return failing
		}
	case partAPI:
		if s.Condition(summary.Available).Type == "" {
			return unknown
		}
	case partHypergate:
	}
	return well
}

// ofIstiod returns the state of istiod. One that does not serve is progressing only while Progressing says so. One that
// was not observed is unknown.
func ofIstiod(s *summary.Summary) boxState {
	switch s.Istiod.State {
	case summary.IstiodServing:
		return well
	case summary.IstiodRolling:
		return progressing
	case summary.IstiodUnavailable:
		if s.Condition(summary.Progressing).Status == summary.True {
			return progressing
		}
		return failing
	case summary.IstiodStuck:
		return failing
	case summary.IstiodAbsent:
		return off
	default:
		return unknown
	}
}

// ofPublished returns the state of the published address. One that is not reached has some time before Degraded.
func ofPublished(s *summary.Summary) boxState {
	switch s.Published.State {
	case summary.PublishedReached:
		return well
	case summary.PublishedProbing, summary.PublishedPending, summary.PublishedUnreached:
		return progressing
	case summary.PublishedUnavailable:
		return failing
	case "":
		return off
	default:
		return unknown
	}
}

func ofCA(s *summary.Summary) boxState {
	switch {
	case s.IsCAUnobserved():
		return unknown
	case s.CA.Expires.IsZero():
		return off
	case s.CA.Phase == summary.PhaseSteady:
		return well
	default:
		return progressing
	}
}

// ofGateways returns the state of the rollout of gateways. Without one, gateways have what is planned while istiod
// serves and nothing is in progress.
func ofGateways(s *summary.Summary) boxState {
	switch s.Gateways.State {
	case summary.GatewaysHolding, summary.GatewaysRolling:
		return progressing
	case summary.GatewaysStopped:
		return failing
	}
	available := s.Condition(summary.Available)
	switch {
	case s.Classes == 0:
		return off
	case available.Status == summary.True && s.Condition(summary.Progressing).Status == summary.False:
		return well
	default:
		return unknown
	}
}
