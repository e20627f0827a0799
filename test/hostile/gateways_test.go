package hostile_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/hang"
)

const (
	deployAPI   = "apps/v1"
	deployments = "deployments"
	gateways    = "gateways"
	configAPI   = "config.openshift.io/v1"
	operatorAPI = "operator.openshift.io/v1alpha1"
)

// gatewayMoves returns the lies about Gateways, their Deployments, and the settings that gateways follow from.
//
// hypergate watches Gateways only during a rollout of gateways, and once after its start. So these moves restart it
// while Gateways are held, or change the guest's proxy, which makes it hold all Gateways.
func gatewayMoves() []move {
	return []move{
		{"many Gateways", func(w *hostileRun) func() {
			undo := w.putGateways(model.MaxGateways+100, func(i int) bool { return i < 100 })
			w.restartForGateways()
			return undo
		}},
		{"Gateways and their Deployments have wrong types and long texts", func(w *hostileRun) func() {
			undo := w.putGateways(50, func(i int) bool { return i%2 == 0 })
			honest := w.alter("gateways", w.hostileGateways)
			w.restart()
			return func() { undo(); honest() }
		}},
		{"Deployments of Gateways change all the time", func(w *hostileRun) func() {
			undo := w.putGateways(20, func(i int) bool { return i > 0 })
			w.restart()
			n := 0
			stop := w.repeat(5*time.Millisecond, func() {
				n++
				o := w.g.Get(deployAPI, deployments, gatewayNS, gatewayName(n%20)+"-demo")
				if m, ok := o["metadata"].(map[string]any); ok {
					m["generation"] = n
					w.g.PutObject(deployAPI, deployments, o)
				}
			})
			return func() { stop(); undo() }
		}},
		{"Gateways lose their hold as soon as they are held", func(w *hostileRun) func() {
			undo := w.putGateways(20, func(int) bool { return false })
			settings := w.putProxy(0)
			stop := w.repeat(50*time.Millisecond, func() {
				for i := range 20 {
					w.g.Put(classAPI, gateways, gatewayYAML(i, false))
				}
			})
			w.restartForGateways()
			return func() { stop(); settings(); undo(); w.restart() }
		}},
		{"patches of Gateways fail, or are not answered", func(w *hostileRun) func() {
			undo := w.putGateways(50, func(i int) bool { return i%2 == 0 })
			answer := w.handle("patches of Gateways", w.refusePatches)
			settings := w.putProxy(0)
			w.restartForGateways()
			return func() { settings(); answer(); undo(); w.restart() }
		}},
		{"the guest's proxy changes all the time", func(w *hostileRun) func() {
			undo := w.putGateways(20, func(int) bool { return false })
			settings := w.putProxy(0)
			w.restartForGateways()
			n := 0
			stop := w.repeat(20*time.Millisecond, func() { n++; w.putProxy(n) })
			return func() { stop(); settings(); undo(); w.restart() }
		}},
	}
}

// restart ends hypergate and starts it again. In between, it removes the time of the last change of the proxy from the
// defaults of the class. So the new process uses the next change at once.
func (w *hostileRun) restart() {
	w.stop()
	for key, o := range w.g.Objects() {
		metadata, _ := o["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if _, is := annotations[model.SettingsChangedAnnotation]; is {
			delete(annotations, model.SettingsChangedAnnotation)
			resource, _, _ := strings.Cut(key, " ")
			put(w.g, resource, o)
		}
	}
	w.start()
}

// restartForGateways restarts hypergate and waits until it writes to a Gateway.
func (w *hostileRun) restartForGateways() {
	w.reach(gatewayWrites, w.restart)
}

// reach begins a move, and waits until hypergate makes such a write, or meets such a lie. While the guest lies, it does
// not wait for long, because another lie can keep hypergate from it.
func (w *hostileRun) reach(kind string, begin func()) {
	writes := func() int { return w.watcher.total(kind) }
	before := writes()
	begin()
	for range polls(w.patience) {
		if writes() > before {
			return
		}
	}
}

// reachable returns the kinds of writes and lies that moves reach, each with one of these moves.
func reachable() map[string]string {
	return map[string]string{
		gatewayWrites:     "Gateways lose their hold as soon as they are held",
		poolWrites:        "the CRD of InferencePools comes and goes, with any versions",
		rollLies:          "a migration, with wrong types once it moves a Gateway",
		listenerSetWrites: "patches of ListenerSets fail, are cut, or are not what was asked for",
		reviewLies:        "a migration, with lies about what is permitted",
		writesUnderWay:    "the HostedControlPlane is paused",
	}
}

// reached returns how many of each kind there were.
func (w *hostileRun) reached() map[string]int {
	out := map[string]int{}
	for kind := range reachable() {
		out[kind] = w.watcher.total(kind)
	}
	return out
}

// reachAll fails if the moves of a whole run reached none of a kind. In the run, other lies can have kept hypergate
// from it. So it makes such a move again, alone and with time, after the guest has become honest.
func (w *hostileRun) reachAll(before map[string]int) {
	w.t.Helper()
	w.patience = hang.Deadline
	for _, kind := range slices.Sorted(maps.Keys(reachable())) {
		if w.watcher.total(kind) > before[kind] {
			continue
		}
		w.t.Logf("no move has reached %s, so one is made alone", kind)
		all := moves()
		again := all[slices.IndexFunc(all, func(m move) bool { return m.name == reachable()[kind] })]
		undo := again.make(w)
		if w.watcher.total(kind) == before[kind] {
			w.t.Errorf("no move reaches %s, even alone: %s", kind, again.name)
		}
		undo()
		w.check(again.name)
	}
}

// gatewayWrites counts the writes to Gateways. A run fails if no move reaches one.
const gatewayWrites = "writes to Gateways"

// gatewayNS is the namespace of the Gateways.
const gatewayNS = "shop"

func gatewayName(i int) string { return fmt.Sprintf("gateway-%d", i) }

// gatewayYAML returns a Gateway of hypergate's class. hypergate holds it, or does not.
func gatewayYAML(i int, held bool) string {
	metadata := ""
	if held {
		metadata = fmt.Sprintf(", annotations: {%s: '%s'}", model.HoldAnnotation, model.HoldValue("rev"))
	}
	return adversary.Gateway(gatewayNS, gatewayName(i), "demo", metadata)
}

// putGateways creates n Gateways with their Deployments. It returns a function that deletes them.
func (w *hostileRun) putGateways(n int, held func(i int) bool) func() {
	for i := range n {
		w.g.Put(classAPI, gateways, gatewayYAML(i, held(i)))
		w.g.Put(deployAPI, deployments,
			adversary.GatewayDeployment(gatewayNS, gatewayName(i), "demo", "istiod.apps.example.com:443", "istio-ca-root-cert"))
	}
	return func() {
		for i := range n {
			w.g.Delete(classAPI, gateways, gatewayNS, gatewayName(i))
			w.g.Delete(deployAPI, deployments, gatewayNS, gatewayName(i)+"-demo")
		}
	}
}

// hostileGateways puts a wrong value into a field that hypergate reads of a Gateway or of a Deployment.
func (w *hostileRun) hostileGateways(key string, o map[string]any) map[string]any {
	fields := map[string][][]string{
		classAPI + "/" + gateways: {
			{"metadata", "annotations"},
			{"metadata", "annotations", model.HoldAnnotation},
			{"metadata", "uid"},
			{"spec"},
			{"spec", "gatewayClassName"},
		},
		deployAPI + "/" + deployments: {
			{"metadata", "generation"},
			{"metadata", "ownerReferences"},
			{"spec", "replicas"},
			{"status"},
			{"status", "conditions"},
			{"status", "observedGeneration"},
			{"status", "replicas"},
			{"status", "updatedReplicas"},
			{"status", "availableReplicas"},
		},
	}[key]
	if m, ok := o["metadata"].(map[string]any); !ok || m["namespace"] != gatewayNS || len(fields) == 0 {
		return o
	}
	path := lies(w, func(l *adversary.Liar) []string { return fields[l.IntN(len(fields))] })
	setField(o, path, lies(w, hostileValue))
	return o
}

// setField sets a field of an object. What is on the way to it becomes an object, if it is not one.
func setField(o map[string]any, path []string, value any) {
	for _, field := range path[:len(path)-1] {
		inner, ok := o[field].(map[string]any)
		if !ok {
			inner = map[string]any{}
			o[field] = inner
		}
		o = inner
	}
	o[path[len(path)-1]] = value
}

// hostileValue returns a value of a wrong type, or one that is out of range or long.
func hostileValue(l *adversary.Liar) any {
	values := []any{
		nil, 7.0, -1.0, 1e300, float64(1 << 62), true, "0", l.Text(), l.Long("g"),
		[]any{nil, 7.0, map[string]any{"kind": "Gateway"}},
		map[string]any{"x": l.Long("g")},
		[]any{map[string]any{"kind": "Gateway", "uid": l.Long("u")}, map[string]any{"type": "Progressing", "status": 7.0}},
	}
	return values[l.IntN(len(values))]
}

// refusePatches answers the patches of Gateways with an error, late, or not at all.
func (w *hostileRun) refusePatches(rw http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/"+gateways+"/") {
		return false
	}
	switch lies(w, func(l *adversary.Liar) int { return l.IntN(6) }) {
	case 0:
		adversary.Deny(rw, lies(w, func(l *adversary.Liar) string { return l.Long("p") }))
	case 1:
		adversary.Fail(rw, http.StatusConflict, "Conflict", lies(w, (*adversary.Liar).Text))
	case 2:
		adversary.Fail(rw, http.StatusInternalServerError, "InternalError", lies(w, func(l *adversary.Liar) string { return l.Long("p") }))
	case 3:
		body(rw, http.StatusOK, "application/json", `{"kind":"Gateway","apiVersion":"`+classAPI+`","metadata":7}`)
	case 4:
		select {
		case <-time.After(time.Second):
			return false
		case <-r.Context().Done():
		}
	default:
		<-r.Context().Done()
	}
	return true
}

// putProxy gives the guest OpenShift's configuration, with proxy settings that differ with n. It returns a function
// that removes the configuration.
//
// hypergate uses a change of the settings at most once in ten minutes, but a process that restart starts uses them at
// once. So a move that removes the settings restarts hypergate. Otherwise the guest would get its earlier state late.
func (w *hostileRun) putProxy(n int) func() {
	no := lies(w, (*adversary.Liar).Text)
	for _, kind := range more {
		if kind[0] != configAPI {
			continue
		}
		w.g.Put(crdAPI, crdResource, "{metadata: {name: "+kind[1]+"."+kind[3]+"}, spec: {group: "+kind[3]+", names: {plural: "+kind[1]+
			", kind: "+kind[2]+"}}}")
		w.g.PutObject(configAPI, kind[1], map[string]any{
			"metadata": map[string]any{"name": "cluster"},
			"spec":     map[string]any{"tlsSecurityProfile": no},
			"status": map[string]any{
				"httpsProxy": fmt.Sprintf("http://proxy-%d.example.com:3128", n), "httpProxy": no, "noProxy": "example.com," + no,
				"infrastructureTopology": []any{"SingleReplica", "HighlyAvailable", no, 7.0}[n%4],
			},
		})
	}
	return w.removeProxy
}

// removeProxy removes OpenShift's configuration from the guest.
func (w *hostileRun) removeProxy() {
	for _, kind := range more {
		if kind[0] == configAPI {
			w.g.Delete(kind[0], kind[1], "", "cluster")
			w.g.Delete(crdAPI, crdResource, "", kind[1]+"."+kind[3])
		}
	}
}
