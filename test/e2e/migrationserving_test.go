package e2e_test

import (
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/world"
)

// poolManager is the field manager with which istiod applies the Services of InferencePools, which have the label
// istio.io/inferencepool-name (pilot/pkg/config/kube/gateway/inferencepool_collection.go). The audit log does not have
// the labels of Services.
const poolManager = "istio.io/inference-pool-controller"

// leadingEnds is how long a pod of the hosted istiod that led can still run in a rollback that moves Gateways. No
// request is judged before that.
const leadingEnds = time.Minute

// servesAt reports whether the hosted istiod only serves at a time, by the versions of the Lease. Its mode is not in
// the guest's audit log, so only these times count:
//
//   - to the hosted istiod, in the phases StandBy and Hold before Lead;
//   - in a rollback, in the phase Roll. It follows another phase of the rollback, in which the mode was changed.
//
// A time is not judged if another version follows so soon that the watch can be late.
func servesAt(versions []leaseSeen, at time.Time) bool {
	var from time.Time
	var last migration.Record
	serves := false
	for _, l := range versions {
		if l.err != nil {
			continue
		}
		goal, phase := l.record.Intent.Goal, l.record.Memo.Phase
		isSame := last.Intent.Goal == goal && last.Memo.Phase == phase
		now := false
		switch isForward := goal == migration.Forward || goal == migration.Retired; {
		case isForward && phase == migration.StandBy:
			now = true
		case isForward && phase == migration.Hold:
			now = serves
		case goal == migration.Backward && phase == migration.Roll:
			now = serves && isSame || last.Intent.Goal == goal && !isSame
		}
		if now && !serves {
			from = l.at
			if goal == migration.Backward {
				from = l.at.Add(leadingEnds)
			}
		}
		if l.at.After(at.Add(memoFirst)) {
			break
		}
		if !now && l.at.After(at) {
			return false // the watch can be late
		}
		serves, last = now, l.record
	}
	return serves && at.After(from)
}

// beyondServing returns the writes of the hosted istiod that it must not send while it only serves: all but its roots,
// reviews, and the Services of InferencePools, for which no istiod takes a lock. In particular, it writes no Lease, no
// ConfigMap of an election, and no status.
func beyondServing(all []audit.Request, hosted string, serves func(time.Time) bool) (out []string) {
	for _, r := range all {
		if r.User != hosted || !r.IsWrite() || !serves(r.At) {
			continue
		}
		permitted := false
		switch r.Resource {
		case "configmaps":
			permitted = r.Name == world.Revision+"-ca-cert"
		case "tokenreviews", "subjectaccessreviews":
			permitted = r.Verb == "create"
		case "services":
			permitted = r.Subresource == "" && r.Manager == poolManager
		}
		if !permitted {
			out = append(out, line(r))
		}
	}
	return out
}

// TestTimesOfAnIstiodThatOnlyServes checks at which times the hosted istiod is judged.
func TestTimesOfAnIstiodThatOnlyServes(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var versions []leaseSeen
	for _, v := range []struct {
		at    time.Duration
		goal  migration.Goal
		phase migration.Phase
	}{
		{0, migration.NoGoal, ""},
		{10 * time.Second, migration.Forward, migration.StandBy},
		{30 * time.Second, migration.Forward, migration.Hold},
		{50 * time.Second, migration.Forward, migration.Lead},
		{60 * time.Second, migration.Forward, migration.Hold}, // another client has removed a hold
		{70 * time.Second, migration.Forward, migration.Roll},
		{100 * time.Second, migration.Backward, migration.Roll}, // the request, before hypergate has answered it
		{110 * time.Second, migration.Backward, migration.Lead},
		{150 * time.Second, migration.Backward, migration.Roll},
		{230 * time.Second, migration.Backward, migration.Roll},
		{300 * time.Second, migration.Backward, migration.StandBy},
		{310 * time.Second, migration.Backward, migration.Check},
	} {
		record := migration.Record{Intent: migration.Intent{Goal: v.goal}, Memo: migration.Memo{Phase: v.phase}}
		versions = append(versions, leaseSeen{at: begin.Add(v.at), record: record})
	}
	for second, want := range map[int]bool{
		5: false, 11: true, 20: true, 31: true, 47: true, 49: false, 51: false, 65: false, 80: false, 105: false, 120: false,
		160: false, 209: false, 211: true, 240: true, 297: true, 299: false, 305: false, 400: false,
	} {
		if got := servesAt(versions, begin.Add(time.Duration(second)*time.Second)); got != want {
			t.Errorf("after %d seconds: %t, want %t", second, got, want)
		}
	}
}

// TestWritesOfAnIstiodThatOnlyServes checks which writes it may send.
func TestWritesOfAnIstiodThatOnlyServes(t *testing.T) {
	t.Parallel()
	hosted := deploy.UserOf(world.GuestNamespace, world.GuestIstiod)
	write := func(verb, resource, name string) audit.Request {
		return audit.Request{User: hosted, Verb: verb, Resource: resource, Namespace: "shop", Name: name, Code: 200}
	}
	pool, status := write("patch", "services", "pool-ip-1"), write("update", "gateways", "edge")
	pool.Manager, status.Subresource = poolManager, "status"
	other := write("update", "leases", lockOfDeployments)
	other.User = originUser()
	always := func(time.Time) bool { return true }
	good := []audit.Request{
		write("create", "configmaps", world.Revision+"-ca-cert"), write("update", "configmaps", world.Revision+"-ca-cert"),
		write("create", "tokenreviews", ""), write("create", "subjectaccessreviews", ""), pool, other,
		write("get", "leases", lockOfDeployments),
	}
	gomega.NewWithT(t).Expect(beyondServing(good, hosted, always)).To(gomega.BeEmpty())
	for _, bad := range []audit.Request{
		write("create", "configmaps", "istio-namespace-controller-election"), write("update", "leases", lockOfDeployments),
		write("create", "leases", "istio-gateway-status-leader-"+world.Revision), status, write("patch", "services", "edge-"+class),
		write("patch", "deployments", "edge-"+class),
	} {
		gomega.NewWithT(t).Expect(beyondServing([]audit.Request{bad}, hosted, always)).To(gomega.HaveLen(1), bad.String())
		gomega.NewWithT(t).Expect(beyondServing([]audit.Request{bad}, hosted, func(time.Time) bool { return false })).To(gomega.BeEmpty())
	}
}
