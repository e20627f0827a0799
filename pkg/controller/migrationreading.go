package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/proxies"
)

// migrationReading is what a reading of the guest, and a question to istiod, have found.
type migrationReading struct {
	facts guest.MigrationFacts
	// checked is what the check follows from: this reading, with what an earlier one has found of other resources.
	checked migration.Inventory
	// connected are the Gateways all of whose pods are connected to the hosted istiod, and have acknowledged what it
	// sent, with the generation of their Deployment.
	connected map[types.UID]int64
	// err is why the guest could not be read. unasked is why istiod did not answer.
	err, unasked error
	// session is the session of the guest in which the reading began, and intent the request that it was for. ended is
	// why it was ended early. Nil: it was not.
	session uint64
	intent  migration.Intent
	ended   error
}

// readsMigration reports whether the next step of a migration follows from a reading of the guest.
func (r *Reconciler) readsMigration(o observation) bool {
	m := o.migration
	if m.goal() == migration.NoGoal || !r.mayMigrate(o) {
		return false
	}
	origin := len(ownership.Conflicts(r.config, o.guest.Foreign)) > 0
	deployed := o.mgmt.Istiod != model.Absent
	if !hasEnded(m.record) {
		return origin || deployed
	}
	switch m.record.Report.Why {
	case migration.Finished:
		return origin || o.mgmt.IstiodMode.IsBeside()
	case migration.RolledBack:
		return deployed
	default:
		return origin || deployed
	}
}

// mayMigrate reports whether both sides are known, and allow a step of a migration.
func (r *Reconciler) mayMigrate(o observation) bool {
	for _, problem := range []error{o.guestProblem, o.mgmtProblem, o.identityProblem, o.hold} {
		if problem != nil {
			return false
		}
	}
	switch o.ownership.(type) {
	case ownership.Owned, ownership.Unowned:
		return o.wantsInstallation(r.config)
	default:
		return false
	}
}

// errUnwanted ends a reading from which no step of a migration follows any more.
var errUnwanted = errors.New("no step of a migration follows from it any more")

// errOtherSession ends a reading that began before another guest kubeconfig was used.
var errOtherSession = errors.New("the guest kubeconfig was replaced")

// isUrgent reports whether the proxies of an origin with 0 replicas wait for the next step: no istiod configures them.
func isUrgent(m migration.Memo) bool { return m.Phase == migration.Lead && !m.Unneeded }

// readMigration begins a reading of the guest if one is due, in a goroutine of its own: a guest that answers slowly
// delays no pass. It returns when the next one is due. Zero: it is not.
//
// The reading ends early when ctx ends, when nothing may be written in the guest any more, and when another session
// with the guest begins. A pass also ends a reading from which no step follows any more.
func (r *Reconciler) readMigration(ctx context.Context, o observation) time.Duration {
	m, now := &r.memory.migration, r.clock.Now()
	if !r.readsMigration(o) {
		r.readingContext.endNow(errUnwanted)
		return 0
	}
	if m.result != nil {
		return 0 // its end wakes a pass
	}
	m.answer(o.migration.record.Intent, now)
	if wait := m.next.Sub(now); wait > 0 {
		return wait
	}
	m.next = now.Add(migrationWaiting) // if it fails
	m.result = make(chan migrationReading, 1)
	question := m.question(o, now)
	ask, session, intent := r.proxiesQuestion(o, now), m.session, m.intent
	ctx, over := r.readingContext.begin(ctx)
	r.readingContext.endWhen(func() error { return r.unreadableNow(o.mgmt, session) })
	go func(to chan<- migrationReading) {
		inTime, cancel := context.WithTimeout(ctx, migrationReadingTime)
		out := read(inTime, r.guest, question, ask)
		cancel()
		out.session, out.intent, out.ended = session, intent, context.Cause(ctx)
		over() // before the result, after which another reading can begin
		to <- out
		r.notify()
	}(m.result)
	return 0
}

// question returns what the next reading depends on.
func (m *migrationMemory) question(o observation, now time.Time) guest.MigrationQuestion {
	out := guest.MigrationQuestion{
		Ours: migration.ParseVersion(charts.EmbeddedVersion), Check: now.Sub(m.checkedAt) >= migrationCheck || m.checkedAt.IsZero(),
		Seen: m.connected, Roots: o.mgmt.CA.Root, Released: o.migration.record.Memo.Released,
		NoPods: o.migration.goal() == migration.Backward, Urgent: isUrgent(o.migration.record.Memo),
	}
	if m.published != (model.HostPort{}) {
		out.Published = m.published.String()
	}
	return out
}

// unreadableNow reports why a reading of the guest that began in a session must end. before is what the management side
// showed then.
func (r *Reconciler) unreadableNow(before model.ManagementObservation, session uint64) error {
	if r.guest.Session() != session {
		return errOtherSession
	}
	return r.lostNow(before)
}

// read reads the guest, and asks istiod about pods that it has deployed.
func read(
	ctx context.Context, g *guest.Cluster, q guest.MigrationQuestion,
	ask func(ctx context.Context, wanted func(pod string) bool) (proxies.Answer, error),
) migrationReading {
	out := migrationReading{connected: map[types.UID]int64{}}
	if out.facts, out.err = g.Migration(ctx, q); out.err != nil || len(out.facts.GatewayPods) == 0 {
		return out
	}
	ofGateways, synced := map[string]bool{}, map[string]bool{}
	for _, pods := range out.facts.GatewayPods {
		for _, pod := range pods {
			ofGateways[pod] = true
		}
	}
	for range proxiesAsked { // there can be two istiods, and one of them answers
		answer, err := ask(ctx, func(pod string) bool { return ofGateways[pod] })
		if out.unasked = err; err != nil {
			break // no pod counts as connected
		}
		for _, p := range answer.Proxies {
			synced[p.Name] = synced[p.Name] || isSynced(p)
		}
		if out.connected = connectedGateways(out.facts, synced); len(out.connected) == len(out.facts.GatewayPods) {
			break
		}
	}
	return out
}

// connectedGateways returns the Gateways all of whose pods are synced, with the generation of their Deployment.
func connectedGateways(facts guest.MigrationFacts, synced map[string]bool) map[types.UID]int64 {
	out := map[types.UID]int64{}
	for _, g := range facts.Inventory.Gateways {
		pods, listed := facts.GatewayPods[g.UID]
		missing := slices.ContainsFunc(pods, func(pod string) bool { return !synced[pod] })
		if listed && !missing && len(pods) >= int(g.Deployment.Wanted) {
			out[g.UID] = g.Deployment.Generation
		}
	}
	return out
}

// isSynced reports whether a proxy has acknowledged all that istiod has sent it. istiod reports the kinds that a proxy
// watches, and sends each gateway clusters and listeners, also if it has none of its own (pilot/pkg/xds/statusgen.go,
// cds.go, lds.go). Before that, the proxy has nothing to serve with.
func isSynced(p proxies.Proxy) bool {
	states := map[string]proxies.State{}
	for _, t := range p.Types {
		if states[t.Name] = t.State; t.State != proxies.Synced && t.State != proxies.NotSent {
			return false
		}
	}
	return states["Cluster"] == proxies.Synced && states["Listener"] == proxies.Synced
}

// proxiesQuestion returns how istiod is asked which proxies are connected to it: where gateways reach it, with a client
// certificate of the mesh. istiod answers clients in its own namespace for all proxies (pilot/pkg/xds/debug.go).
func (r *Reconciler) proxiesQuestion(
	o observation, now time.Time,
) func(ctx context.Context, wanted func(pod string) bool) (proxies.Answer, error) {
	published, ca := r.memory.migration.published, o.mgmt.CA
	dial, namespace := r.dialer(o.mgmt.ControlPlane, published), r.config.GuestNamespace
	return func(ctx context.Context, wanted func(pod string) bool) (proxies.Answer, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		certificate, err := clientOf(ca, namespace, now)
		if err != nil {
			return proxies.Answer{}, err
		}
		return proxies.Ask(ctx, proxies.Question{
			Address: published.String(), Roots: ca.Root, Namespace: namespace, Certificate: &certificate, Wanted: wanted,
			Dial: dial,
		})
	}
}

// clientOf returns a client certificate for an account in a namespace. It is made for one question, and kept nowhere.
// Unlike a token of istiod's account, it needs no request to the guest.
func clientOf(ca pki.CA, namespace string, now time.Time) (tls.Certificate, error) {
	identity := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/hypergate-migration"}
	certificate, err := ca.Client(now, identity)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a client certificate: %w", err)
	}
	return certificate, nil
}
