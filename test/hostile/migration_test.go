package hostile_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/hang"
)

const (
	leaseAPI    = "coordination.k8s.io/v1"
	leases      = "leases"
	replicaSets = "replicasets"
	pods        = "pods"
)

// migrationWrites counts the writes to the Lease of a migration. An honest migration makes four. More show that a move
// reached a migration, which is rare: usually its reading of the guest fails.
const migrationWrites = "writes to the Lease of a migration"

// migrationMoves returns the lies in a migration. hypergate reads more kinds during one, for example pods and
// ReplicaSets.
func migrationMoves() []move {
	return []move{
		{"a migration from an istiod of the guest", func(w *hostileRun) func() { return w.requestMigration() }},
		{"a migration, with wrong types in any field", func(w *hostileRun) func() {
			honest := w.alter("wrong types in a migration", w.wrongTypes(3))
			undo := w.requestMigration()
			return func() { honest(); undo() }
		}},
		{"a migration, with lies about what is permitted", func(w *hostileRun) func() {
			honest := w.handle("reviews", w.lieInReview)
			w.putOrigin()
			w.reach(reviewLies, w.putRequest)
			return func() { honest(); w.endMigration() }
		}},
		{"a migration, with many pods, ReplicaSets and Leases", func(w *hostileRun) func() {
			const many = 2000
			for i := range many {
				long := strings.Repeat("x", 4<<10)
				metadata := fmt.Sprintf("{metadata: {namespace: %s, name: many-%d, labels: {app: istiod, istio.io/rev: rev}, "+
					"annotations: {a: %s}}}", guestNS, i, long)
				w.g.Put("v1", pods, metadata)
				w.g.Put(deployAPI, replicaSets, metadata)
				w.g.Put(leaseAPI, leases, metadata)
			}
			undo := w.requestMigration()
			return func() {
				undo()
				for i := range many {
					name := fmt.Sprintf("many-%d", i)
					w.g.Delete("v1", pods, guestNS, name)
					w.g.Delete(deployAPI, replicaSets, guestNS, name)
					w.g.Delete(leaseAPI, leases, guestNS, name)
				}
			}
		}},
	}
}

// reviewLies counts the lies in answers about what the guest permits (SelfSubjectAccessReview). A run fails if no
// migration asks.
const reviewLies = "lies about what is permitted"

// lieInReview answers what the guest permits with values of wrong types, with what contradicts itself or other answers,
// with less or more than an answer, or with another one.
func (w *hostileRun) lieInReview(rw http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
		return false
	}
	w.watcher.count(reviewLies)
	const start = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":`
	statuses := []string{
		"", "null", "7", "[]", `"allowed"`, "{}", `{"allowed":null}`, `{"allowed":"true"}`, `{"allowed":1}`, `{"allowed":{"allowed":true}}`,
		`{"allowed":false}`, `{"allowed":true}`, `{"allowed":true,"allowed":false}`, `{"allowed":true,"denied":true,"reason":7}`,
		`{"allowed":false,"denied":false,"reason":"it is allowed","evaluationError":[]}`,
		`{"allowed":true,"reason":"` + lies(w, func(l *adversary.Liar) string { return l.Long("r") }) + `"}`,
		strings.Repeat("[", 100_000),
		`{"allowed":[` + strings.Repeat("0,", 250_000) + "0]}",
	}
	answers := []func(){
		func() { cut(rw, start+`{"allowed":tr`) },
		func() { pour(rw, r, http.StatusCreated, start+`{"reason":"`, strings.Repeat("x", 64<<10), 64<<20) },
		func() {
			body(rw, http.StatusCreated, "application/json", `{"kind":"Status","apiVersion":"v1","status":{"allowed":true}}`)
		},
		func() { rw.WriteHeader(http.StatusNoContent) },
		func() { adversary.Deny(rw, lies(w, (*adversary.Liar).Text)) },
		func() { <-r.Context().Done() },
	}
	if n := lies(w, func(l *adversary.Liar) int { return l.IntN(len(answers) + len(statuses)) }); n < len(answers) {
		answers[n]()
	} else {
		body(rw, http.StatusCreated, "application/json", start+statuses[n-len(answers)]+"}")
	}
	return true
}

// requestMigration gives the guest an istiod of its own, and requests the migration from it. The returned function
// removes both while hypergate does not run, and hypergate's istiod, which has the phase of the migration. Otherwise,
// hypergate reports that the request was removed.
func (w *hostileRun) requestMigration() (undo func()) {
	w.putOrigin()
	w.reach(migrationWrites, w.putRequest)
	return w.endMigration
}

// migrated is the configuration of the installation.
func migrated() model.Config { return model.Config{Revision: "rev", GuestNamespace: guestNS} }

// putOrigin gives the guest an istiod of its own.
func (w *hostileRun) putOrigin() {
	adversary.PutOrigin(w.g, guestNS, migrated().IstiodName(), migration.OriginAddress(migrated()))
}

// putRequest requests the migration.
func (w *hostileRun) putRequest() {
	w.m.Put(leaseAPI, leases, fmt.Sprintf("{metadata: {namespace: %s, name: %s, annotations: {%s: %s, %s: %q}}}", namespace,
		migration.LeaseName(migrated().Revision), migration.GoalAnnotation, migration.Forward, migration.RequestedAtAnnotation,
		time.Now().UTC().Format(time.RFC3339)))
}

// endMigration removes the guest's istiod, the request, and hypergate's istiod, while hypergate does not run.
func (w *hostileRun) endMigration() {
	w.child.stop()
	w.m.Delete(leaseAPI, leases, namespace, migration.LeaseName(migrated().Revision))
	w.removeIstiod()
	w.g.Delete(classAPI, gateways, gatewayNS, "web")
	w.g.Delete(deployAPI, deployments, gatewayNS, "web-demo")
	w.g.Delete(leaseAPI, leases, guestNS, "istio-gateway-deployment-rev")
	w.g.Delete("v1", pods, guestNS, "origin-1")
	w.g.Delete(deployAPI, deployments, guestNS, migrated().IstiodName())
	w.start()
}

// removeIstiod removes hypergate's istiod.
func (w *hostileRun) removeIstiod() {
	w.m.Delete(deployAPI, deployments, namespace, migrated().IstiodName())
}

// migrateHonestly lets hypergate begin migrations while the guest is honest, until they wait for the lock, and takes
// the requests back. So the watcher learns what hypergate writes on the management side. The first migration begins
// beside hypergate's istiod, and the second one without it.
func (w *hostileRun) migrateHonestly() {
	w.t.Helper()
	w.requestMigration()
	w.awaitMigration()
	w.child.stop()
	w.removeIstiod()
	w.putOrigin()
	w.putRequest()
	w.start()
	w.awaitMigration()
}

// awaitMigration waits until a migration of an honest guest waits for the lock, and takes the request back.
func (w *hostileRun) awaitMigration() {
	w.t.Helper()
	waits := func() bool {
		var lease struct{ Metadata metav1.ObjectMeta }
		data, err := json.Marshal(w.m.Get(leaseAPI, leases, namespace, migration.LeaseName("rev")))
		return err == nil && json.Unmarshal(data, &lease) == nil &&
			strings.Contains(lease.Metadata.Annotations[migration.ReportAnnotation], string(migration.LockPending))
	}
	for range polls(hang.Deadline) {
		if waits() {
			break
		}
	}
	if !waits() {
		w.t.Fatal("an honest guest's migration does not reach the lock")
	}
	w.endMigration()
	for range polls(hang.Deadline) {
		if w.asHonest() {
			return
		}
	}
	w.t.Fatalf("after the migration, both sides do not have their earlier state: %s", w.difference())
}
