package hostile_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

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
	configMaps  = "configmaps"
	// lockName is the name of the Lease by which istiods decide which of them deploys Gateways. rootsLock is the
	// ConfigMap by which they decide which of them publishes its roots, and holderAnnotation its record of the holder.
	lockName         = "istio-gateway-deployment-rev"
	rootsLock        = "istio-namespace-controller-election"
	holderAnnotation = "control-plane.alpha.kubernetes.io/leader"
)

// migrationRolls counts the writes to the Lease of a migration in the phase Roll. All Gateways were held before, the
// origin was scaled to 0, and the hosted istiod has the lock. A migration does not get further here: only istiod says
// which gateways are connected to it, and none runs.
const migrationRolls = "writes to the Lease of a migration that moves Gateways"

// rollLies counts the lies about the pods and ReplicaSets of a Gateway in that phase. Only a migration reads these. A
// run fails if no migration gets there, which is rare while the guest lies: usually a reading fails before.
const rollLies = "lies in a migration that moves Gateways"

// rolls reports whether the body of a write to the Lease of a migration has the state of the phase Roll.
func rolls(body []byte) bool {
	var lease struct{ Metadata metav1.ObjectMeta }
	if yaml.Unmarshal(body, &lease) != nil {
		return false
	}
	memo, err := migration.ParseMemo(lease.Metadata.Annotations[migration.MemoAnnotation])
	return err == nil && memo.Phase == migration.Roll
}

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
		{"a migration, with wrong types once it moves a Gateway", func(w *hostileRun) func() {
			honest := w.alter("wrong types in the phase Roll", w.wrongTypesInRoll())
			undo := w.requestMigrationUntil(rollLies)
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
				o := map[string]any{"metadata": map[string]any{
					"namespace": guestNS, "name": fmt.Sprintf("many-%d", i),
					"labels":      map[string]any{"app": "istiod", "istio.io/rev": "rev"},
					"annotations": map[string]any{"a": strings.Repeat("x", 4<<10)},
				}}
				w.g.PutObject("v1", pods, o)
				w.g.PutObject(deployAPI, replicaSets, o)
				w.g.PutObject(leaseAPI, leases, o)
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

// wrongTypesInRoll puts a wrong type into what belongs to a Gateway, while a migration moves Gateways. It begins with
// the pods and the ReplicaSets: a lie about the number of replicas can end the phase before these are read.
func (w *hostileRun) wrongTypesInRoll() func(key string, o map[string]any) map[string]any {
	before := w.watcher.total(rollLies)
	return func(key string, o map[string]any) map[string]any {
		m, _ := o["metadata"].(map[string]any)
		isOfPods := strings.HasSuffix(key, "/"+pods) || strings.HasSuffix(key, "/"+replicaSets)
		begins := isOfPods || w.watcher.total(rollLies) > before
		if shape := w.shapes[key]; shape != nil && m["namespace"] == gatewayNS && w.watcher.isRolling() && begins && w.chance(50) {
			lies(w, func(l *adversary.Liar) string { return l.Lie(o, shape) })
			if isOfPods {
				w.watcher.count(rollLies)
			}
		}
		return o
	}
}

// requestMigration gives the guest an istiod of its own, and requests the migration from it. The returned function
// removes both while hypergate does not run, and hypergate's istiod, which has the phase of the migration. Otherwise,
// hypergate reports that the request was removed.
func (w *hostileRun) requestMigration() (undo func()) { return w.requestMigrationUntil(migrationRolls) }

// requestMigrationUntil requests a migration, and waits until it reaches a kind.
func (w *hostileRun) requestMigrationUntil(kind string) (undo func()) {
	w.putOrigin()
	stop := w.repeat(100*time.Millisecond, w.followMigration)
	w.reach(kind, w.putRequest)
	return func() { stop(); w.endMigration() }
}

// followMigration does what Kubernetes and the two istiods do in a migration. The pod of the origin comes and goes with
// the replicas of its Deployment. Once it has gone, the hosted istiod gets both locks, and publishes its roots. Then it
// deploys the Gateway, if that is not held.
func (w *hostileRun) followMigration() {
	cfg := migrated()
	origin := w.g.Get(deployAPI, deployments, guestNS, cfg.IstiodName())
	replicas, exists, _ := unstructured.NestedFloat64(origin, "spec", "replicas")
	if !exists {
		return
	}
	if existing, _, _ := unstructured.NestedFloat64(origin, "status", "replicas"); existing != replicas {
		origin["status"] = map[string]any{
			"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
			"availableReplicas": replicas,
		}
		w.g.PutObject(deployAPI, deployments, origin)
		w.g.Delete("v1", pods, guestNS, "origin-1")
		if replicas > 0 {
			w.g.Put("v1", pods, "{metadata: {namespace: "+guestNS+", name: origin-1, labels: {app: istiod, istio.io/rev: rev}}}")
		} else {
			w.g.Put(leaseAPI, leases, "{metadata: {namespace: "+guestNS+", name: "+lockName+"}, spec: {holderIdentity: '"+
				model.HostedIdentity+"istiod-1'}}")
			w.g.Put("v1", configMaps, "{metadata: {namespace: "+guestNS+", name: "+rootsLock+", annotations: {"+holderAnnotation+
				": '{\"holderIdentity\": \""+model.HostedIdentity+"istiod-1\"}'}}}")
			root, _ := base64.StdEncoding.DecodeString(w.meshRoot())
			w.g.PutObject("v1", configMaps, map[string]any{
				"metadata": map[string]any{"namespace": guestNS, "name": cfg.TrustBundleName()},
				"data":     map[string]any{"root-cert.pem": string(root)},
			})
		}
	}
	holder, _, _ := unstructured.NestedString(w.g.Get(leaseAPI, leases, guestNS, lockName), "spec", "holderIdentity")
	gateway := w.g.Get(classAPI, gateways, gatewayNS, "web")
	if _, held, _ := unstructured.NestedString(gateway, "metadata", "annotations", model.HoldAnnotation); gateway != nil && !held &&
		strings.HasPrefix(holder, model.HostedIdentity) {
		w.g.Put(deployAPI, deployments,
			adversary.GatewayDeployment(gatewayNS, "web", "demo", "istiod.apps.example.com:443", cfg.TrustBundleName()))
		const metadata = "{metadata: {namespace: " + gatewayNS + ", name: web-demo-1, " +
			"labels: {gateway.networking.k8s.io/gateway-name: web}}}"
		w.g.Put(deployAPI, replicaSets, metadata)
		w.g.Put("v1", pods, metadata)
	}
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
	w.stop()
	w.m.Delete(leaseAPI, leases, namespace, migration.LeaseName(migrated().Revision))
	w.removeIstiod()
	w.g.Delete(classAPI, gateways, gatewayNS, "web")
	w.g.Delete(deployAPI, deployments, gatewayNS, "web-demo")
	w.g.Delete(deployAPI, replicaSets, gatewayNS, "web-demo-1")
	w.g.Delete("v1", pods, gatewayNS, "web-demo-1")
	w.g.Delete(leaseAPI, leases, guestNS, lockName)
	w.g.Delete("v1", configMaps, guestNS, rootsLock)
	w.g.Delete("v1", configMaps, guestNS, migrated().TrustBundleName())
	w.g.Delete("v1", pods, guestNS, "origin-1")
	w.g.Delete(deployAPI, deployments, guestNS, migrated().IstiodName())
	w.start()
}

// removeIstiod removes hypergate's istiod.
func (w *hostileRun) removeIstiod() {
	w.m.Delete(deployAPI, deployments, namespace, migrated().IstiodName())
}

// migrateHonestly lets hypergate begin migrations while the guest is honest, until they move a Gateway, and takes the
// requests back. So the watcher learns what hypergate writes on the management side. The first migration begins
// beside hypergate's istiod, and the second one without it.
func (w *hostileRun) migrateHonestly() {
	w.t.Helper()
	w.awaitMigration(w.requestMigration)
	w.awaitMigration(func() func() {
		w.stop()
		w.removeIstiod()
		w.putOrigin()
		w.putRequest()
		w.start()
		return w.requestMigration()
	})
}

// awaitMigration begins a migration of an honest guest, waits until it moves a Gateway, and takes the request back.
func (w *hostileRun) awaitMigration(begin func() (undo func())) {
	w.t.Helper()
	before := w.watcher.total(migrationRolls)
	undo := begin()
	for range polls(hang.Deadline) {
		if w.watcher.total(migrationRolls) > before {
			break
		}
	}
	if w.watcher.total(migrationRolls) == before {
		w.t.Fatalf("an honest guest's migration does not move a Gateway: %s",
			text(w.m.Get(leaseAPI, leases, namespace, migration.LeaseName("rev"))))
	}
	undo()
	for range polls(hang.Deadline) {
		if w.asHonest() {
			return
		}
	}
	w.t.Fatalf("after the migration, both sides do not have their earlier state: %s", w.difference())
}
