package hostile_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing/iotest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/leak"
	"github.com/hypergate/hypergate/test/proc"
)

// The limits that must hold after each step. With -race, memory use is several times higher, so the limits only
// detect a leak.
const (
	// mostLogged is the log limit for one step, in bytes. loggedPerSecond is added for each second of the step.
	mostLogged, loggedPerSecond = 256 << 10, 64 << 10
	// longestLine is the limit for one line of the log, including time and level.
	longestLine = 4 << 10
	// mostGoroutines is twice the number that an honest guest needs. A client has several for each connection and
	// each watch.
	mostGoroutines = 600
	// longestCondition is the longest message that the Kubernetes API accepts.
	longestCondition = 32 << 10
	// largestWrite is the limit for one request to the management side, in bytes.
	largestWrite = 1 << 20
	// mostRequests is the limit for requests to the guest in one step. requestsPerSecond is added for each second of
	// the step. About 40 watches start again after a change of the guest.
	mostRequests, requestsPerSecond = 600, 100
	// mostWrites is the limit for writes to the management side in one step. writesPerSecond is added for each second
	// of the step. An uninstallation and an installation together take about 40 writes. Passes that write all their
	// objects again can be below this limit, because hypergate paces its passes. The limits of a run show them.
	mostWrites, writesPerSecond = 100, 5
)

// managementWrites counts the writes to the management side, without those of the Lease of the leader election.
const managementWrites = "writes to the management side"

// watcher sees every request to both sides.
type watcher struct {
	w *hostileRun

	mu       sync.Mutex
	problems []string
	// known holds the bodies that hypergate applied on the management side while the guest was honest, by path.
	known    map[string]map[string]bool
	learning bool
	// renewed reports whether hypergate removed the mesh CA, as an uninstallation does. Only then may a different CA
	// follow.
	renewed bool
	// rolling reports whether a migration is in the phase Roll.
	rolling  bool
	secrets  *leak.Secrets
	searched map[[32]byte]bool
	pauses   pauses
	totals   map[string]int
	// counted is the number of requests to the guest before the step.
	counted int
	// wrote is the number of writes to the management side before the step.
	wrote    int
	mostRSS  int64
	mostHeap uint64
	mostLine int
}

func newWatcher(w *hostileRun) *watcher {
	s := leak.NewSecrets()
	s.AddName("the management namespace", namespace)
	s.AddName("the management API server", strings.TrimPrefix(w.m.URL(), "https://"))
	s.Add("hypergate's token of the management side", []byte(tokenOf("management")))
	return &watcher{
		w: w, known: map[string]map[string]bool{}, learning: true, secrets: s, searched: map[[32]byte]bool{},
		totals: map[string]int{}, pauses: newPauses(),
	}
}

func (x *watcher) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(x.problems, text) && len(x.problems) < mostFailures {
		x.problems = append(x.problems, text)
	}
}

// takeBody reads a request's body and restores it, with its error, for the next reader. whole is false if the client
// ended the request before it had sent all of the body.
func takeBody(r *http.Request) (data []byte, whole bool) {
	data, err := io.ReadAll(r.Body)
	restored := io.Reader(bytes.NewReader(data))
	if err != nil {
		restored = io.MultiReader(restored, iotest.ErrReader(err))
	}
	r.Body = io.NopCloser(restored)
	return data, err == nil
}

func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == ""
}

// guest searches a request to the guest for data of the management side.
func (x *watcher) guest(r *http.Request) {
	if isWrite(r) {
		x.begins(r)
	}
	body, whole := takeBody(r)
	var head bytes.Buffer
	fmt.Fprintln(&head, r.Method, r.URL.String(), r.Host)
	_ = r.Header.Write(&head)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.totals["guest "+r.Method]++
	if isWrite(r) && strings.Contains(r.URL.Path, "/gateways/") {
		x.totals[gatewayWrites]++
	}
	if _, is := isRefusal(r); is {
		x.totals[listenerSetWrites]++
	}
	for _, part := range [][]byte{head.Bytes(), body} {
		sum := sha256.Sum256(part)
		if x.searched[sum] {
			continue
		}
		x.searched[sum] = true
		for _, found := range x.secrets.Search(leak.Entry{Where: r.Method + " " + r.URL.Path, Data: part}) {
			x.problem("the guest is sent what is the management side's: %s", found)
		}
	}
	if strings.Contains(r.URL.Path, "/gatewayclasses/") && isWrite(r) && whole {
		x.texts(r, body)
	}
}

// management checks a request to the management side.
func (x *watcher) management(_ http.ResponseWriter, r *http.Request) bool {
	if isWrite(r) && !isOwnLease(r) && !isStatus(r) {
		x.begins(r)
	}
	body, whole := takeBody(r)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.totals["management "+r.Method]++
	if r.Header.Get("Authorization") != "Bearer "+tokenOf("management") {
		x.problem("the management side is asked without hypergate's token: %s %s", r.Method, r.URL.Path)
	}
	if !whole {
		return false // for example, a pause ended the pass, which ended the write
	}
	if strings.HasSuffix(r.URL.Path, "/token") || strings.Contains(r.URL.Path, "/secrets") {
		x.keep(body)
	}
	if !isWrite(r) || isOwnLease(r) {
		return false
	}
	if len(body) > largestWrite {
		x.problem("%s %s has %d bytes", r.Method, r.URL.Path, len(body))
	}
	x.totals[managementWrites]++
	if isStatus(r) {
		x.texts(r, body)
		if !x.pauses.reports(body) {
			x.pauses.begins(r)
		}
		return false
	}
	if bytes.Contains(body, []byte(model.IgnoredCRDsAnnotation)) {
		x.totals[poolWrites]++
	}
	if strings.HasSuffix(r.URL.Path, "/leases/"+migration.LeaseName("rev")) {
		if x.rolling = rolls(body); x.rolling {
			x.totals[migrationRolls]++
		}
		return false // it has the progress of a migration, which follows from the guest
	}
	if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/secrets/cacerts") {
		x.renewed = true
	}
	shape := planned(body)
	switch {
	case x.learning && x.known[r.URL.Path] == nil:
		x.known[r.URL.Path] = map[string]bool{shape: true}
	case x.learning:
		x.known[r.URL.Path][shape] = true
	case x.known[r.URL.Path] == nil:
		x.problem("%s %s: no honest guest leads to it", r.Method, r.URL.Path)
	case r.Method != http.MethodDelete && !x.known[r.URL.Path][shape]:
		was := slices.Sorted(maps.Keys(x.known[r.URL.Path]))
		x.problem("%s %s is not what an honest guest leads to (-honest +now):\n%s", r.Method, r.URL.Path,
			short(cmp.Diff(was[0], shape), 4000))
	}
	return false
}

// keep records the private part of a Secret, which must never reach the guest. The caller holds the lock.
func (x *watcher) keep(body []byte) {
	var secret struct{ Data map[string][]byte }
	if yaml.Unmarshal(body, &secret) != nil {
		return
	}
	for key, value := range secret.Data {
		if strings.Contains(key, "key") {
			x.secrets.Add("the mesh CA's "+key, value)
		}
	}
}

// isStatus reports whether a request to the management side is about the HostedControlPlane.
func isStatus(r *http.Request) bool { return strings.Contains(r.URL.Path, "/hostedcontrolplanes/") }

// isOwnLease reports whether a request to the management side is about the Lease of hypergate's leader election.
func isOwnLease(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/leases") || strings.HasSuffix(r.URL.Path, "/leases/hypergate-rev")
}

// texts checks the conditions that hypergate writes. The caller holds the lock.
func (x *watcher) texts(r *http.Request, body []byte) {
	var o struct {
		Status struct {
			Conditions []struct{ Type, Reason, Message string }
		}
	}
	if err := yaml.Unmarshal(body, &o); err != nil {
		x.problem("%s %s has a body that cannot be read: %v", r.Method, r.URL.Path, err)
		return
	}
	for _, c := range o.Status.Conditions {
		if len(c.Message) > longestCondition {
			x.problem("%s: condition %s has a message of %d bytes", r.URL.Path, c.Type, len(c.Message))
		}
		if i := strings.IndexFunc(c.Message, func(c rune) bool { return unicode.In(c, unicode.Cc, unicode.Cf) }); i >= 0 {
			x.problem("%s: condition %s has a control character: %.300q", r.URL.Path, c.Type, c.Message[max(0, i-100):])
		}
	}
}

// learn ends the phase in which the guest is honest.
func (x *watcher) learn() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.learning = false
	x.requests()
	x.writes()
}

// planned returns the content of an apply without values that change each time: dates, tokens and their hashes.
func planned(body []byte) string {
	var o map[string]any
	if yaml.Unmarshal(body, &o) != nil {
		return string(body)
	}
	hideIgnored(o)
	return text(normal(o))
}

// normal removes from an object the values that differ between installations or change over time.
func normal(o map[string]any) map[string]any {
	if m, ok := o["metadata"].(map[string]any); ok {
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "ownerReferences"} {
			delete(m, field)
		}
		hideAnnotations(m)
	}
	if data, ok := o["data"].(map[string]any); ok && o["kind"] == "Secret" {
		for key := range data {
			data[key] = "…"
		}
	}
	hideRoot(o)
	delete(o, "status")
	return o
}

// hideAnnotations replaces the values of hypergate's annotations. The time of the last change of the proxy is removed:
// a guest whose proxy never changed has none. So is a topology of OpenShift's, which a guest can state.
func hideAnnotations(metadata map[string]any) {
	annotations, _ := metadata["annotations"].(map[string]any)
	if named, _ := annotations[model.InfrastructureAnnotation].(string); model.TopologyNamed(named) != model.NotStated {
		delete(annotations, model.InfrastructureAnnotation)
	}
	for key := range annotations {
		if strings.HasPrefix(key, "gateway.hypergate.dev/") {
			annotations[key] = "…"
		}
	}
	delete(annotations, model.SettingsChangedAnnotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

// hideRoot replaces the mesh CA's root in an object. A guest without a class is uninstalled and later gets another
// CA. rightRoot checks that the objects have the right one.
func hideRoot(o any) {
	switch o := o.(type) {
	case map[string]any:
		for key, value := range o {
			if key == "caBundle" || key == "gateway.hypergate.dev/ca-root-hash" {
				o[key] = "…"
			} else {
				hideRoot(value)
			}
		}
	case []any:
		for _, value := range o {
			hideRoot(value)
		}
	}
}

// meshRoot returns the root of the mesh CA on the management side, or an empty string.
func (w *hostileRun) meshRoot() string {
	data, _ := w.m.Get("v1", "secrets", namespace, "cacerts")["data"].(map[string]any)
	root, _ := data["root-cert.pem"].(string)
	return root
}

// rightRoot reports whether the mesh CA is the one of the first installation and the guest's webhook trusts its root.
// After an uninstallation removed the first CA, another one is right too.
func (w *hostileRun) rightRoot() bool {
	root := w.meshRoot()
	if root != w.root && !w.watcher.mayRenew() {
		return false
	}
	webhook := text(w.g.Get(webhookAPI, "validatingwebhookconfigurations", "", "hypergate-validator-rev"))
	return root != "" && strings.Contains(webhook, `"caBundle": "`+root+`"`)
}

// mayRenew reports whether hypergate removed the mesh CA.
func (x *watcher) mayRenew() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.renewed
}

func text(o any) string {
	data, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func short(s string, most int) string { return s[:min(len(s), most)] }

// snapshot returns all objects of both sides, without values that change over time.
func (w *hostileRun) snapshot() map[string]string {
	out := map[string]string{}
	for _, s := range []struct {
		side string
		all  map[string]map[string]any
	}{{"management", w.m.Objects()}, {"guest", w.g.Objects()}} {
		for key, o := range s.all {
			if strings.Contains(key, "/leases") && s.side == "management" {
				continue
			}
			out[s.side+" "+key] = text(normal(o))
		}
	}
	return out
}

// asHonest reports whether both sides have the state that an honest guest leads to.
func (w *hostileRun) asHonest() bool {
	return w.settled() && w.rightRoot() && maps.Equal(w.honest, w.snapshot())
}

// difference describes how both sides differ from the state that an honest guest leads to.
func (w *hostileRun) difference() string {
	now := w.snapshot()
	all := maps.Clone(w.honest)
	maps.Copy(all, now)
	var out strings.Builder
	fmt.Fprintln(&out, "the mesh CA is right:", w.rightRoot())
	fmt.Fprintln(&out, "status:", w.m.Get(hcpVersion, hcps, namespace, "guest1")["status"])
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if want, got := w.honest[key], now[key]; want != got {
			from := max(0, commonPrefix(want, got)-50)
			fmt.Fprintf(&out, "%s: want %.200q, got %.200q\n", key, want[min(from, len(want)):], got[min(from, len(got)):])
		}
	}
	return short(out.String(), 6000)
}

// commonPrefix returns the length of the common prefix of two texts, in bytes.
func commonPrefix(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// settled reports whether the conditions of the HostedControlPlane show that hypergate has finished its work.
func (w *hostileRun) settled() bool {
	var o struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	data, err := json.Marshal(w.m.Get(hcpVersion, hcps, namespace, "guest1"))
	if err != nil || json.Unmarshal(data, &o) != nil {
		return false
	}
	seen := 0
	for _, c := range o.Status.Conditions {
		switch {
		case strings.HasSuffix(c.Type, "Progressing") && c.Status == "False", strings.HasSuffix(c.Type, "Available") && c.Status == "True",
			strings.HasSuffix(c.Type, "Degraded") && c.Status == "False":
			seen++
		}
	}
	return seen == 3
}

// check checks the invariants after a step, and counts it in the run. The step began at the last check: on a busy
// machine, a move that stores thousands of objects takes longer than the step waits.
func (w *hostileRun) check(step string) {
	w.t.Helper()
	now := w.measure(step)
	kept := w.kept(step, now.Heap)
	used := w.sinceCheck()
	lasted := time.Since(w.checked)
	w.checked = w.checked.Add(lasted)
	x := w.watcher
	x.mu.Lock()
	requests, writes := x.requests(), x.writes()
	w.whole.add(used.logged, requests, writes)
	problems := x.problems
	x.problems = nil
	x.mostRSS, x.mostHeap, x.mostLine = max(x.mostRSS, used.rss), max(x.mostHeap, now.Heap), max(x.mostLine, used.longest)
	x.mu.Unlock()
	w.t.Logf("%s: RssAnon %d MiB, heap %d MiB, %d goroutines, log %d KiB, longest line %d, %d writes",
		step, used.rss>>20, now.Heap>>20, now.Goroutines, used.logged>>10, used.longest, writes)
	for _, bound := range []struct {
		what      string
		is, bound int64
	}{
		{"RssAnon (bytes)", used.rss, mostRSS},
		{"heap that is kept (bytes)", int64(kept), mostHeap},
		{"goroutines", int64(now.Goroutines), mostGoroutines},
		{"log (bytes)", int64(used.logged), mostLogged + int64(lasted.Seconds()*loggedPerSecond)},
		{"requests to the guest", int64(requests), mostRequests + int64(lasted.Seconds()*requestsPerSecond)},
		{"writes to the management side", int64(writes), mostWrites + int64(lasted.Seconds()*writesPerSecond)},
		{"longest line of the log (bytes)", int64(used.longest), longestLine},
		{"requests to where the guest redirects", int64(len(w.elsewhere.Log())), 0},
	} {
		if bound.is > bound.bound {
			problems = append(problems, fmt.Sprintf("%s: %d, and at most %d may be", bound.what, bound.is, bound.bound))
		}
	}
	if kept > mostHeap {
		problems = append(problems, w.child.keepProfile(w.t.Context()))
	}
	for _, problem := range problems {
		w.t.Errorf("%s: %s", step, problem)
	}
}

// checkRun checks the limits of a whole run.
func (w *hostileRun) checkRun() {
	w.t.Helper()
	lasted := time.Since(w.began)
	w.t.Logf("in %d steps and %s: log %d KiB, %d requests to the guest, %d writes to the management side", w.whole.steps,
		lasted.Round(time.Second), w.whole.logged>>10, w.whole.requests, w.whole.writes)
	for _, problem := range w.whole.problems(lasted) {
		w.t.Errorf("the whole run: %s", problem)
	}
}

// measure returns what hypergate reports about itself.
func (w *hostileRun) measure(step string) measured {
	w.t.Helper()
	now, err := w.child.measure(w.t.Context())
	if err != nil && w.running() {
		w.t.Fatalf("%s: hypergate does not answer: %v", step, err)
	}
	return now
}

// kept returns the heap that hypergate keeps, given the heap in use at one moment. At a moment, the heap can also hold
// one large message of a watch and one large answer with their decoded forms: 36 MiB (docs/reference/limits.md). They
// are garbage soon after, while memory that is kept is in each of the measurements. mostRSS limits both together.
func (w *hostileRun) kept(step string, heap uint64) uint64 {
	w.t.Helper()
	for range polls(5 * time.Second) {
		if heap <= mostHeap {
			break
		}
		heap = min(heap, w.measure(step).Heap)
	}
	return heap
}

// requests returns the number of requests to the guest since the last call. The caller holds the lock.
func (x *watcher) requests() int {
	sum := -x.counted
	for key, n := range x.totals {
		if strings.HasPrefix(key, "guest ") {
			sum += n
		}
	}
	x.counted += sum
	return sum
}

// writes returns the number of writes to the management side since the last call. The caller holds the lock.
func (x *watcher) writes() int {
	n := x.totals[managementWrites] - x.wrote
	x.wrote += n
	return n
}

// total returns how many of a kind there were.
func (x *watcher) total(kind string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.totals[kind]
}

// isRolling reports whether a migration is in the phase Roll.
func (x *watcher) isRolling() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rolling
}

// count counts one more of a kind.
func (x *watcher) count(kind string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.totals[kind]++
}

// summary logs the totals of a run.
func (x *watcher) summary() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.w.t.Logf("requests: %v; most RssAnon %d MiB, most live heap %d MiB, longest line %d", x.totals, x.mostRSS>>20,
		x.mostHeap>>20, x.mostLine)
}

// tail returns the end of the log.
func (c *child) tail() string { return proc.Tail(c.Log(), 40) }
