package e2e_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/world"
)

func TestMain(m *testing.M) {
	cluster.MaybeRunNode()
	ctrllog.SetLogger(logr.Discard()) // what plays the guest's nodes
	flag.Parse()
	os.Exit(m.Run())
}

// Limits of what a story waits for. They are for when something hangs; nothing is measured by them.
const (
	storyTimeout = 4 * time.Minute
	stepTimeout  = 90 * time.Second
)

func TestHosted(t *testing.T) {
	tell(t, desired.TopologyHosted, "e2e-hosted", append(common(), hostedOnly()...))
}

func TestStandalone(t *testing.T) {
	tell(t, desired.TopologyStandalone, "e2e-alone", common())
}

// story is one test on running clusters.
type story struct {
	name string
	tell func(*teller)
}

// common are the stories of both topologies.
func common() []story {
	return []story{
		{"a GatewayClass installs both sides and a Gateway is programmed", install},
		{"a proxy in the guest gets certificate, listener, route and endpoints", proxy},
		{"the guest's API server calls the webhook", webhook},
		{"what is changed by hand is put back", drift},
		{"killed at any moment, it converges", restarts},
		{"with istiod away, the guest's writes go on", istiodAway},
		{"gateways that were there first are programmed", gatewaysFirst},
		{"a mesh of the user's own keeps its default revision", foreignMesh},
		{"without its kubeconfig istiod does not start", missingKubeconfig},
		{"the last GatewayClass clears both sides", uninstall},
	}
}

// hostedOnly are the stories about two clusters.
func hostedOnly() []story {
	return []story{
		{"the guest's API goes away and comes back", guestOutage},
		{"the management API goes away and comes back", mgmtOutage},
		{"istiod never asked the management API", istiodAsksNoMgmt},
		{"a guest kubeconfig of the management cluster is refused", sameCluster},
	}
}

// teller is what a story is told with.
type teller struct {
	*testing.T
	gomega.Gomega
	*world.World
	ctx context.Context
}

// Context is the story's, with its time limit.
func (t *teller) Context() context.Context { return t.ctx }

// step is a context for one thing that is waited for.
func (t *teller) step() context.Context {
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	t.Cleanup(cancel)
	return ctx
}

func tell(t *testing.T, topology desired.Topology, name string, stories []story) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real clusters: run without -short")
	}
	w, err := world.Start(t.Context(), world.Options{Name: name, Topology: topology, Binary: build(t), Progress: t.Output(), Dir: artifacts(t, name)})
	if errors.Is(err, cluster.ErrNeedsRoot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), storyTimeout)
			defer cancel()
			teller := &teller{T: t, Gomega: gomega.NewWithT(t), World: w, ctx: ctx}
			teller.SetDefaultEventuallyTimeout(stepTimeout)
			teller.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
			s.tell(teller)
			if t.Failed() {
				teller.explain()
			}
		})
	}
}

// artifacts is where the logs of the run are kept, if E2E_ARTIFACTS names a folder.
func artifacts(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("E2E_ARTIFACTS"); dir != "" {
		return filepath.Join(dir, name)
	}
	return t.TempDir()
}

// build builds hypergate as a release is built.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "hypergate")
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, "github.com/hypergate/hypergate/cmd/hypergate")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building hypergate: %v\n%s", err, out)
	}
	return binary
}
