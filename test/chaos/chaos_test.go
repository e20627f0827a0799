package chaos_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

var (
	all    = flag.Bool("chaos.all", false, "cause all faults, in an order that follows from the seed")
	seed   = flag.Uint64("chaos.seed", 0, "what is random follows from this; 0: of the clock, or 1 without -chaos.all")
	rounds = flag.Int("chaos.rounds", 1, "how often to cause each fault")
	kills  = flag.Int("chaos.kills", 20, "at how many requests of an installation hypergate is killed")
)

// run holds the world of a test and its random numbers.
type run struct {
	*chaosRun
	random *rand.Rand
	// h is the active hypergate. standBy is one that waits for the Lease.
	h, standBy *hypergate
	// names counts the hypergates, because each needs its own name.
	names int
}

// TestChaos causes one fault after another.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real servers: run without -short")
	}
	switch {
	case *seed == 0 && *all:
		*seed = uint64(time.Now().UnixNano())
	case *seed == 0:
		*seed = 1
	}
	t.Logf("seed %d; to repeat this run: make chaos SEED=%d ROUNDS=%d", *seed, *seed, *rounds)
	r := &run{chaosRun: newChaosRun(t, embeddedIstio()), random: rand.New(rand.NewPCG(*seed, 0))}
	r.createControlPlane()
	total := r.install()
	table := slices.Concat(killed(r.random, *kills, total), faults())
	if !*all {
		table = slices.DeleteFunc(table, func(f fault) bool { return !f.quick })
	}
	var report strings.Builder
	for range *rounds {
		if *all {
			r.random.Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
		}
		for _, f := range table {
			if !r.inject(t, f, &report) {
				t.FailNow() // the next fault would start from a broken state
			}
		}
	}
	t.Logf("recovery after the end of each fault:\n%s", report.String())
}

// inject causes a fault and checks the result. It returns true if both sides reached the planned state in the end, even
// if they were too late.
func (r *run) inject(t *testing.T, f fault, report *strings.Builder) bool {
	t.Helper()
	settled := false
	passed := t.Run(f.name, func(t *testing.T) {
		r.use(t)
		defer r.use(r.root)
		t.Cleanup(func() {
			if t.Failed() {
				r.explain(t)
			}
		})
		was, began := r.remember(), time.Now()
		ended := f.run(r)
		lasted := ended.Sub(began)
		took := r.check(f, was, ended)
		fmt.Fprintf(report, "%8s  (the fault lasted %s)  %s\n", took, lasted.Round(100*time.Millisecond), f.name)
		t.Logf("as planned %s after the end of the fault, which lasted %s", took, lasted.Round(time.Millisecond))
		settled = true
	})
	return passed || settled
}

// install installs without disturbance and records the result as the reference. It returns the number of requests of
// an installation.
func (r *run) install() int {
	r.Helper()
	r.names++
	name := fmt.Sprintf("hypergate-%d", r.names)
	first := r.start(direct, name)
	r.ready(first)
	r.Eventually(func() error {
		_, err := r.gateways.GatewayClasses().List(r.Context(), metav1.ListOptions{})
		return err
	}).Should(gomega.Succeed(), "the Gateway API's CRDs stay when hypergate is uninstalled, so their requests are not counted")
	r.settled()
	first.Kill()
	r.stile.arm(0, false, nil)
	began := time.Now()
	r.h = r.start(gated, name)
	r.createClass()
	r.reported()
	r.reportedOnControlPlane()
	r.enforced()
	r.undisturbed = time.Since(began).Round(100 * time.Millisecond)
	r.reference = r.settled()
	total, _ := r.stile.passed()
	r.Logf("an installation takes %d requests and %s, and leaves %d objects", total, r.undisturbed, len(r.reference))
	r.Expect(total).To(gomega.BeNumerically(">", *kills))
	r.h.Kill()
	r.h = r.start(direct, name)
	r.ready(r.h)
	return total
}

// reported waits until hypergate reports on the class that istiod is installed.
func (w *chaosRun) reported() {
	w.Helper()
	w.Eventually(func() (string, error) {
		class, err := w.gateways.GatewayClasses().Get(w.Context(), className, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for _, c := range class.Status.Conditions {
			if c.Type == "ControllerInstalled" {
				return c.Reason, nil
			}
		}
		return "", nil
	}).Should(gomega.Equal("Installed"))
}

// enforced waits until the webhook fails closed, which means that hypergate has proven it.
func (w *chaosRun) enforced() {
	w.Helper()
	w.Eventually(func() (string, error) {
		list, err := w.guest.clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().
			List(w.Context(), metav1.ListOptions{LabelSelector: model.OwnerLabel})
		if err != nil || len(list.Items) != 1 {
			return "", err
		}
		return string(*list.Items[0].Webhooks[0].FailurePolicy), nil
	}).Should(gomega.Equal("Fail"))
}

// choose returns n elements, chosen by the seed.
func (r *run) choose(from []string, n int) []string {
	slices.Sort(from)
	r.random.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	return from[:n]
}

// spoil deletes an object, or removes the label by which hypergate recognises it.
func (r *run) spoil(s *side, id string) {
	r.Helper()
	_, path, _ := strings.Cut(id, ": ")
	resource, name, _ := strings.Cut(path, " ")
	group, resource, _ := strings.Cut(resource, "/")
	namespace, name, _ := strings.Cut(name, "/")
	i := slices.IndexFunc(s.kinds, func(k model.Kind) bool { return k.GVK.Group == group && k.Resource == resource })
	client := s.objects.Resource(s.kinds[i].GVK.GroupVersion().WithResource(resource)).Namespace(namespace)
	unlabel := []byte(`{"metadata":{"labels":{"` + model.OwnerLabel + `":null}}}`)
	r.Eventually(func() error {
		var err error
		if r.random.IntN(2) == 0 {
			err = client.Delete(r.Context(), name, metav1.DeleteOptions{})
		} else {
			_, err = client.Patch(r.Context(), name, types.MergePatchType, unlabel, metav1.PatchOptions{FieldManager: "chaos"})
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}).Should(gomega.Succeed())
}

// explain logs the end of the processes' logs.
func (r *run) explain(t *testing.T) {
	t.Helper()
	for _, name := range []string{r.h.hostname + ".log", "istiod.log"} {
		data, _ := os.ReadFile(r.dir + "/" + name)
		lines := strings.Split(string(data), "\n")
		t.Logf("the end of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}
