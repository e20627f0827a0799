package summary

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/hypergate/hypergate/pkg/text"
)

// State is the state of one installation in one word.
type State string

// The states.
const (
	// OK means that everything is as planned.
	OK State = "ok"
	// InProgress means that a change is in progress, or that something is awaited that usually needs no action.
	InProgress State = "progressing"
	// OnHold, Waiting and Ending mean that hypergate is on hold: the control plane is paused, not initialized yet, or
	// being deleted.
	OnHold  State = "paused"
	Waiting State = "starting"
	Ending  State = "deleting"
	// Unreported means that a pod holds the Lease, and has not written a summary yet, or not since it restarted.
	Unreported State = "unreported"
	// Overdue means that it has not written one for longer than it may take.
	Overdue State = "overdue"
	// Expiring means that a credential, the token or the mesh CA expires soon, and should have been renewed by now.
	Expiring State = "expiring"
	// IsDegraded means that the condition Degraded is True. IsUnavailable means that Available is False, and nothing is
	// in progress that changes that.
	IsDegraded    State = "degraded"
	IsUnavailable State = "unavailable"
	// Unreadable means that the Lease has no summary that this version can read.
	Unreadable State = "unreadable"
	// Silent means that no pod renews the Lease.
	Silent State = "silent"
)

// Outcome is what a state requires.
type Outcome int

// The outcomes, from the best to the worst.
const (
	// Well means that no action is required.
	Well Outcome = iota
	// UnderWay means that a change is in progress, or on hold.
	UnderWay
	// Act means that an action is required.
	Act
)

// States returns all states from the worst to the best.
func States() []State {
	return []State{
		Silent, Overdue, Unreadable, IsUnavailable, IsDegraded, Expiring, Unreported, Waiting, InProgress, OnHold, Ending, OK,
	}
}

// Outcome returns what the state requires.
func (s State) Outcome() Outcome {
	switch s {
	case OK:
		return Well
	case InProgress, OnHold, Waiting, Ending, Unreported:
		return UnderWay
	case Silent, Overdue, Unreadable, IsUnavailable, IsDegraded, Expiring:
	}
	return Act
}

// Compare orders states from the worst to the best.
func (s State) Compare(other State) int {
	return cmp.Compare(slices.Index(States(), s), slices.Index(States(), other))
}

// Reading is what the Lease of one installation shows at a time.
type Reading struct {
	// Namespace and Lease are the namespace and the name of the Lease.
	Namespace string `json:"namespace"`
	Lease     string `json:"lease"`
	// State is the state, Since the time since which it holds, if that is known, and Why its reason in a few words.
	State State     `json:"state"`
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
	// Holder is the pod that holds the Lease. It is empty if none does. Renewed is when a pod renewed the Lease last.
	Holder  string    `json:"holder,omitempty"`
	Renewed time.Time `json:"renewed,omitzero"`
	// Expiring are the credentials that expire soon.
	Expiring []Expiry `json:"expiring,omitempty"`
	// Summary is the summary. It is nil if there is none that can be read. It can be from an earlier holder, or from
	// before a restart.
	Summary *Summary `json:"summary,omitempty"`
}

// Expiry is a credential that expires soon, or has expired. Its renewal has been overdue since Overdue.
type Expiry struct {
	What    string    `json:"what"`
	Until   time.Time `json:"until"`
	Overdue time.Time `json:"overdue"`
}

// The values of Expiry.What.
const (
	expiringToken  = "istiod's token" //nolint:gosec // words, not a token
	expiringAccess = "hypergate's guest credential"
	expiringCA     = "the mesh CA"
)

// why returns what expires, and what to do about it. paused reports whether the control plane is paused.
func (e Expiry) why(paused bool, now time.Time) string {
	what := e.What + " expires soon"
	if !e.Until.After(now) {
		what = e.What + " has expired"
	}
	if paused && e.What != expiringAccess {
		return what + ", and is not renewed during a pause of the control plane: end the pause if it is not intended"
	}
	return what + ", and was not renewed: " + e.step()
}

// step returns what to do about an overdue renewal.
func (e Expiry) step() string {
	switch e.What {
	case expiringToken:
		return "see the condition Degraded"
	case expiringAccess:
		return "run hypergate guest-kubeconfig --apply with the flags of the runbook HypergateGuestCredentialExpiring"
	default:
		return "see the condition Degraded, or replace your own CA"
	}
}

const (
	// renewedWithin is the longest time between two renewals of a running pod: the duration of hypergate's Leases
	// (pkg/controller/lease.go). A longer duration in the Lease counts, up to longestDuration.
	renewedWithin   = 137 * time.Second
	longestDuration = 10 * time.Minute
	// reportedWithin is how long a pod may hold the Lease without a summary of its own. A pass may take five minutes
	// (stuckAfter in pkg/controller/durations.go), and the next renewal of the Lease writes the summary.
	reportedWithin = 6 * time.Minute
	// caLeft and credentialLeft are the times that are left when a renewal is overdue. For a credential with a short
	// life, it is a quarter of its life. For istiod's token, it is a tenth: hypergate renews it after 80 %.
	caLeft         = 30 * 24 * time.Hour
	credentialLeft = 6 * time.Hour
)

// Read returns what a Lease shows at a time. All texts are printable and have a limited size.
func Read(lease *coordinationv1.Lease, now time.Time) Reading {
	r := Reading{Namespace: text.Line(lease.Namespace, longestName), Lease: text.Line(lease.Name, longestName)}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		r.Holder = unescape().Replace(text.Line(*holder, longestName)) // as Encode writes it
	}
	if lease.Spec.RenewTime != nil {
		r.Renewed = inSeconds(lease.Spec.RenewTime.Time)
	}
	found, err := Parse(lease.Annotations[Annotation])
	if err == nil {
		r.Summary, r.Expiring = &found, found.expiring(now)
	}
	var acquired time.Time
	if lease.Spec.AcquireTime != nil {
		acquired = inSeconds(lease.Spec.AcquireTime.Time)
	}
	allowed := renewedWithin
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		allowed = min(max(allowed, time.Duration(*seconds)*time.Second), longestDuration)
	}
	from := cmp.Or(found.Holder, "an unknown pod") // a forged summary can lack it
	switch {
	case now.Sub(r.Renewed) > allowed:
		return r.withState(Silent, r.Renewed, "no pod renews the Lease: check the Deployment hypergate, and the status of its pods; "+
			"if hypergate was uninstalled, delete the Lease")
	case err == ErrNone: //nolint:errorlint // Parse returns it as it is
		return r.unreported(acquired, now, "the pod has not written a summary yet")
	case err != nil:
		return r.withState(Unreadable, time.Time{}, err.Error())
	case r.Holder == "":
		return r.withState(Unreported, r.Renewed, "no pod holds the Lease; the summary is from "+from+
			"; if this lasts longer than a minute, check the Deployment hypergate")
	case found.Holder != r.Holder:
		return r.unreported(acquired, now, "the pod has not written a summary yet; the summary is from "+from)
	case acquired.After(found.Time):
		// A container that restarts keeps the name of its pod. Each process acquires the Lease before its first pass.
		return r.unreported(acquired, now, "the pod has restarted, and has not written a summary yet")
	}
	return r.judge(now)
}

// unreported returns the reading without a current summary. since is since when the pod holds the Lease, if known.
func (r Reading) unreported(since, now time.Time, why string) Reading {
	if !since.IsZero() && now.Sub(since) > reportedWithin {
		return r.withState(Overdue, since, why+"; check the status of pod "+r.Holder+", and restart it if it does nothing")
	}
	return r.withState(Unreported, since, why+"; if this lasts longer than a minute, check the status of pod "+r.Holder)
}

// withState returns the reading with a state, since when it holds, and the reason.
func (r Reading) withState(state State, since time.Time, why string) Reading {
	r.State, r.Since, r.Why = state, since, why
	return r
}

// judge returns the reading of a current summary.
func (r Reading) judge(now time.Time) Reading {
	s := r.Summary
	failed, failure := s.failure()
	switch {
	case s.Lifecycle == Deleting:
		return r.withState(Ending, time.Time{}, "the control plane is being deleted")
	case s.Lifecycle != Paused && failed != "":
		return r.withCondition(failed, failure)
	case len(r.Expiring) > 0:
		return r.withState(Expiring, r.overdueSince(), r.Expiring[0].why(s.Lifecycle == Paused, now))
	case s.Lifecycle == Paused:
		held := r.withCondition(OnHold, s.Condition(Progressing))
		held.Since = s.PausedSince // the condition was False before, too
		return held
	case s.Lifecycle == Starting:
		return r.withState(Waiting, time.Time{}, "the control plane is not initialized yet")
	default:
		return r.progress(now)
	}
}

// SinceWhat returns what Since is the beginning of, if it is not the state itself: hypergate can run for a shorter time
// than the renewal of a credential has been overdue.
func (r Reading) SinceWhat() string {
	if r.State == Expiring {
		return "renewal overdue"
	}
	return ""
}

// overdueSince returns since when a renewal has been overdue.
func (r Reading) overdueSince() time.Time {
	return slices.MinFunc(r.Expiring, func(a, b Expiry) int { return a.Overdue.Compare(b.Overdue) }).Overdue
}

// failure returns the state that requires an action, and the condition that says why. The state is empty if there is
// none.
func (s Summary) failure() (State, Condition) {
	available, degraded := s.Condition(Available), s.Condition(Degraded)
	switch {
	case available.Status == False && degraded.Status == True:
		return IsUnavailable, degraded
	case available.Status == False && s.Condition(Progressing).Status != True:
		return IsUnavailable, available
	case degraded.Status == True:
		return IsDegraded, degraded
	default:
		return "", Condition{}
	}
}

// progress returns the reading of a summary that requires no action.
func (r Reading) progress(now time.Time) Reading {
	switch available, progressing := r.Summary.Condition(Available), r.Summary.Condition(Progressing); {
	case available.Type == "":
		return r.unreported(r.Summary.Time, now, "the summary has no conditions yet")
	case available.Status == Unknown:
		return r.withCondition(InProgress, available)
	case progressing.Status == True:
		return r.withCondition(InProgress, progressing)
	default:
		return r.withState(OK, r.Summary.calmSince(), "")
	}
}

// calmSince returns when the last of the conditions that show a problem changed.
func (s Summary) calmSince() time.Time {
	var latest time.Time
	for _, name := range []string{Available, Progressing, Degraded} {
		if since := s.Condition(name).Since; since.After(latest) {
			latest = since
		}
	}
	return latest
}

// withCondition returns the reading with a state that follows from a condition.
func (r Reading) withCondition(state State, c Condition) Reading {
	return r.withState(state, c.Since, strings.TrimSuffix(c.Reason+": "+c.Message, ": "))
}

// expiring returns the credentials whose renewal is overdue.
func (s Summary) expiring(now time.Time) []Expiry {
	var out []Expiry
	for _, v := range []struct {
		what  string
		until time.Time
		left  time.Duration
	}{
		{expiringToken, s.Token.Until, s.Token.life() / 10},
		{expiringAccess, s.GuestCredential.Until, min(s.GuestCredential.life()/4, credentialLeft)},
		{expiringCA, s.CA.Expires, caLeft},
	} {
		if !v.until.IsZero() && v.until.Sub(now) < v.left {
			out = append(out, Expiry{v.what, v.until, inSeconds(v.until.Add(-v.left))})
		}
	}
	return out
}

// life returns the time from From to Until. Without From it is unknown, and counts as an hour.
func (v Validity) life() time.Duration {
	if v.From.IsZero() {
		return time.Hour
	}
	return v.Until.Sub(v.From)
}
