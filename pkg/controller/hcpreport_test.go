package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/test/golden"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// writesWithin returns the number of writes that b allows within lasting, if there is always something to write.
func writesWithin(b throttle.Limiter, from time.Time, lasting time.Duration) int {
	n := 0
	for now := from; now.Before(from.Add(lasting)); n++ {
		wait := b.Wait(now)
		if now = now.Add(wait); wait == 0 {
			b.Take(now)
			continue
		}
		n--
	}
	return n
}

// TestStatusWritesOfAChangingGuestAreLimited checks the limit for a guest that causes constant changes: ten writes,
// then one in ten seconds for ten minutes, then one in ten minutes. After a quiet time, the next error is written at
// once.
func TestStatusWritesOfAChangingGuestAreLimited(t *testing.T) {
	b := newReportLimiter(lastingEvery)
	for _, step := range []struct {
		from, lasting time.Duration
		most, least   int
	}{
		{0, time.Second, 10, 10},
		{time.Second, time.Minute, 6, 5},
		{61 * time.Second, 24 * time.Hour, 200, 150},
		{48 * time.Hour, 24 * time.Hour, 210, 150},
	} {
		if got := writesWithin(b, start.Add(step.from), step.lasting); got > step.most || got < step.least {
			t.Errorf("in %s from %s: %d writes, want %d to %d", step.lasting, step.from, got, step.least, step.most)
		}
	}
	if wait := b.Wait(start.Add(73 * time.Hour)); wait != 0 {
		t.Errorf("an hour after it the next error waits for %s", wait)
	}
}

// TestAPauseIsReportedAfterManyWrites checks that a guest that used up the limit of writes does not delay the report of
// a pause, and that reports of pauses have a limit of their own.
func TestAPauseIsReportedAfterManyWrites(t *testing.T) {
	h := newHCPReporter(ReportToControlPlane)
	running, paused := h.limiter(status.Result{}), h.limiter(status.Result{Lifecycle: model.Paused{}})
	if n := writesWithin(*running, start, 25*time.Minute); n > 70 {
		t.Fatalf("%d writes in 25 minutes", n)
	}
	now := start.Add(25 * time.Minute)
	if wait := running.Wait(now); wait <= time.Minute {
		t.Errorf("the limit is not used up: the next write follows after %s", wait)
	}
	if wait := paused.Wait(now); wait != 0 {
		t.Errorf("the report of a pause waits for %s", wait)
	}
	if n := writesWithin(*paused, now, time.Minute); n < 10 || n > 16 {
		t.Errorf("%d reports of pauses in a minute", n)
	}
}

// TestAMigrationIsReportedAfterManyWrites checks that neither a guest that used up the limit of writes, nor a Gateway
// that moves every few seconds, delays a report of a migration for more than a minute.
func TestAMigrationIsReportedAfterManyWrites(t *testing.T) {
	h := newHCPReporter(ReportToControlPlane)
	writesWithin(*h.limiter(status.Result{}), start, 25*time.Minute)
	migrating := h.limiter(status.Result{Migration: status.Migration{Active: true}})
	now := start.Add(25 * time.Minute)
	if wait := migrating.Wait(now); wait != 0 {
		t.Errorf("the first report of the migration waits for %s", wait)
	}
	if n := writesWithin(*migrating, now, 24*time.Hour); n < 1440 || n > 1440+lastingBurst+1 {
		t.Errorf("%d reports of a migration in a day", n)
	}
	if wait := migrating.Wait(now.Add(24 * time.Hour)); wait > time.Minute {
		t.Errorf("after many Gateways, the next report waits for %s", wait)
	}
}

// TestARefusedReportIsRetriedWithBackoff checks that the longest delay is ten minutes for a failure that needs an
// action, and 30 s for one that may be transient.
func TestARefusedReportIsRetriedWithBackoff(t *testing.T) {
	planes := schema.GroupResource{Group: "hypershift.openshift.io", Resource: "hostedcontrolplanes"}
	for name, c := range map[string]struct {
		err  error
		want []time.Duration
	}{
		"forbidden": {
			apierrors.NewForbidden(planes, "a", errors.New(
				`User "u" cannot patch resource "hostedcontrolplanes/status" in API group "hypershift.openshift.io"`)),
			[]time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600},
		},
		"invalid": {
			apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", planes, "a", "", 0, false),
			[]time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600},
		},
		"away": {away(), []time.Duration{1, 2, 4, 8, 16, 30, 30}},
	} {
		ctx, lines := counting(t)
		var reporter hcpReporter
		var got []time.Duration
		now := start
		for range c.want {
			wait := reporter.failed(ctx, c.err, now)
			if reporter.failures.Wait(now) != wait || reporter.failures.Wait(now.Add(wait)) != 0 {
				t.Errorf("%s: it returns %s, and waits for %s", name, wait, reporter.failures.Wait(now))
			}
			got, now = append(got, wait/time.Second), now.Add(wait)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || *lines != 1 {
			t.Errorf("%s: %d lines; -want +got:\n%s", name, *lines, diff)
		}
		if wait := reporter.failed(ctx, errors.New("another"), now); wait != time.Second || *lines != 2 {
			t.Errorf("%s: another failure: %s, %d lines", name, wait, *lines)
		}
	}
}

// TestAFailureWithAnotherHolderIsLoggedOnce checks that a failure is logged once, even if the guest names another owner
// with each attempt.
func TestAFailureWithAnotherHolderIsLoggedOnce(t *testing.T) {
	owned := func(by string) error {
		return ownership.OwnedByOtherError{OwnedByOther: ownership.OwnedByOther{By: []ownership.LeaseOfOther{{
			Lease: ownership.Lease{Name: "l", Purpose: "the revision r"}, HeldLease: model.HeldLease{Holder: by},
		}}}}
	}
	conflict := func(by string) error {
		return ownership.ConflictError{Controllers: []ownership.ConflictingController{ownership.ForeignIstiod{Seen: by}}}
	}
	for name, problem := range map[string]func(string) error{"another owner": owned, "a conflict": conflict} {
		ctx, lines := counting(t)
		failures := newFailureLog()
		for _, by := range []string{"a", "b", "c"} {
			failures.report(ctx, failureOf(status.Result{PlanProblem: problem(by)}, nil), time.Unix(0, 0))
		}
		if *lines != 1 {
			t.Errorf("%s: %d lines", name, *lines)
		}
	}
}

// TestTransientKubeconfigProblems checks that two problems count as transient: the Secret has never existed, and the
// guest refuses the credentials.
func TestTransientKubeconfigProblems(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"its Secret was never there":        {guestconn.NotLoadedError{Err: mgmt.NoKubeconfigError{}}, true},
		"its Secret is gone":                {mgmt.NoKubeconfigError{}, false},
		"its Secret cannot be used":         {guestconn.NotLoadedError{Err: errors.New("it is not a kubeconfig")}, false},
		"the guest refuses its credentials": {guestconn.ErrRefused, true},
		"all is well":                       {nil, false},
	} {
		got := kubeconfigProblem(model.Config{}, c.err)
		if _, is := errors.AsType[status.AwaitedError](got); is != c.want || (got == nil) != (c.err == nil) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// sideProblem is a problem of one side, or of the guest kubeconfig.
type sideProblem struct {
	name string
	err  error
}

func cannot(verb, resource, scope string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf(
		"User %q cannot %s resource %q in API group \"\" %s", "hypergate", verb, resource, scope))
}

// identityProblems are problems of the comparison of the two clusters, as checkTwoClusters returns them.
func identityProblems(cfg model.Config) []sideProblem {
	of := func(side model.Side, err error) error { return withPermission(cfg, clusterCheckError{side, err}) }
	away := apierrors.NewInternalError(errors.New("etcd is away"))
	return []sideProblem{
		{"listing namespaces of the guest is forbidden", of(model.SideGuest, cannot("list", "namespaces", "at the cluster scope"))},
		{"reading the namespace is forbidden", of(model.SideMgmt, cannot("get", "namespaces", `in the namespace "clusters-guest1"`))},
		{"the guest answers badly", of(model.SideGuest, away)},
		{"the management side answers badly", of(model.SideMgmt, away)},
		{"the management side does not answer", of(model.SideMgmt, context.DeadlineExceeded)},
		{"it is the management cluster's", ErrSameCluster},
		{"it is another guest's", guestconn.ErrOtherGuest},
		{"the guest has no identity", of(model.SideGuest, fmt.Errorf("identifying the guest: %w", guestconn.ErrNoIdentity))},
	}
}

// degradedTexts returns Degraded after an hour of each problem.
func degradedTexts(problems []sideProblem, resultOf func(error) status.Result) string {
	var out strings.Builder
	for _, c := range problems {
		res := resultOf(c.err)
		var since status.DegradedSince
		since, _ = since.Observe(res, time.Unix(0, 0))
		all := status.ControlPlane(res, since, nil, time.Unix(0, 0).Add(time.Hour))
		degraded := meta.FindStatusCondition(all, status.ControlPlaneDegraded)
		fmt.Fprintf(&out, "%s:\n  %s %s: %s\n", c.name, degraded.Status, degraded.Reason, degraded.Message)
	}
	return out.String()
}

// TestNextStepsOfKubeconfigProblems checks what a condition says about each problem of the guest kubeconfig. A missing
// permission is named with its verb, its resource, its namespace, and the manifest that grants it.
func TestNextStepsOfKubeconfigProblems(t *testing.T) {
	t.Parallel()
	cfg := model.Config{MgmtNamespace: "clusters-guest1"}
	secret := func(verb string) error {
		key := types.NamespacedName{Namespace: "clusters-guest1", Name: "guest1-kubeconfig"}
		return mgmt.ForbiddenSecretError{Key: key, Err: cannot(verb, "secrets", `in the namespace "clusters-guest1"`)}
	}
	problems := append(identityProblems(cfg),
		sideProblem{"listing the Secret is forbidden", guestconn.NotLoadedError{Err: fmt.Errorf("waiting for it: %w", secret("list"))}},
		sideProblem{"watching the Secret is forbidden", secret("watch")},
		sideProblem{"the guest does not accept it", guestconn.ErrRefused},
		sideProblem{"it is none", errors.New("Secret guest1-kubeconfig: it has no kubeconfig")})
	golden.Equal(t, "testdata/kubeconfig-problems.txt", degradedTexts(problems, func(err error) status.Result {
		return status.Result{KubeconfigProblem: kubeconfigProblem(cfg, err)}
	}))
}

// TestNextStepsOfIdentityProblems checks the same for a kubeconfig that is used before the two clusters are compared:
// the condition names the side of the request that failed.
func TestNextStepsOfIdentityProblems(t *testing.T) {
	t.Parallel()
	problems := identityProblems(model.Config{MgmtNamespace: "clusters-guest1"})
	golden.Equal(t, "testdata/identity-problems.txt", degradedTexts(problems, func(err error) status.Result {
		k := known{decision: noPlan{problem: err}}
		return k.hcpResult(k.result(status.Result{}))
	}))
}

// TestAReportFollowsItsCause checks that hypergate itself delays a report to the HostedControlPlane for less than five
// seconds: what changes is shown by a watch, or by a look at the watches of a guest that does not answer.
func TestAReportFollowsItsCause(t *testing.T) {
	const aim = 5 * time.Second
	if longest := max(passSpacing+hcpLatest, lookEvery+passSpacing+hcpQuiet); longest >= aim {
		t.Errorf("a report follows its cause after %s, want less than %s", longest, aim)
	}
}

// TestReportsAreDebounced checks that a stable text is written after hcpQuiet, and a changing one after
// hcpLatest.
func TestReportsAreDebounced(t *testing.T) {
	var h hcpReporter
	for i, step := range []struct {
		at   time.Duration
		text string
		want time.Duration
	}{
		{0, "", 0},
		{0, "a", time.Second},
		{900 * time.Millisecond, "a", 100 * time.Millisecond},
		{950 * time.Millisecond, "", 0}, // the problem has gone
		{time.Second, "a", time.Second},
		{2 * time.Second, "a", 0},
		{2100 * time.Millisecond, "", 0}, // it was written
		{3 * time.Second, "b", time.Second},
		{3900 * time.Millisecond, "c", time.Second},
		{4800 * time.Millisecond, "b", time.Second},
		{5700 * time.Millisecond, "c", 300 * time.Millisecond},
		{6 * time.Second, "b", 0},
	} {
		if got := h.wait(step.text, nil, start.Add(step.at)); got != step.want {
			t.Errorf("step %d: waits for %s, want %s", i, got, step.want)
		}
	}
}
