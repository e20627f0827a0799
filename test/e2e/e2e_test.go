package e2e_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/world"
)

func TestMain(m *testing.M) {
	cluster.MaybeRunNode()
	ctrllog.SetLogger(logr.Discard()) // the simulation of the guest's nodes logs there
	flag.Parse()
	os.Exit(m.Run())
}

// Timeouts of the stories. They only end a story that hangs. Nothing is measured by them.
const (
	storyTimeout = 30 * time.Minute
	stepTimeout  = hang.Deadline
	// pollOften is the polling interval for short-lived states.
	pollOften = 5 * time.Millisecond
)

func TestHosted(t *testing.T) {
	runStories(t, model.TopologyHosted, "e2e-hosted", slices.Concat(common(), hostedOnly(), last()))
}

func TestStandalone(t *testing.T) {
	runStories(t, model.TopologyStandalone, "e2e-alone", slices.Concat(common(), standaloneOnly(), last()))
}

// story is one test on running clusters.
type story struct {
	name string
	run  func(*fixture)
	// provokes are the refusals that this story causes. All other requests must succeed.
	provokes []refusal
}

// refusal describes whose requests an API server may answer with 403 during a story, and why.
type refusal struct {
	whose func(*world.World) string
	why   string
}

// common returns the stories of both topologies.
func common() []story {
	istiodsRoleGoes := refusal{(*world.World).IstiodUser, "its ClusterRole is deleted, and away for a moment"}
	return []story{
		{name: "a GatewayClass installs both sides and a Gateway is programmed", run: install},
		{name: "a proxy in the guest gets certificate, listener, route and endpoints", run: proxy},
		{name: "the other routes and policies get status, too", run: otherKinds},
		{name: "the guest's API server calls the webhook", run: webhook},
		{name: "diff shows no write at rest", run: diffAtRest},
		{name: "manual changes are reverted", run: drift, provokes: []refusal{istiodsRoleGoes}},
		{name: "a forbidden kind is reported, and the rest converges", run: forbiddenKind, provokes: []refusal{
			{(*world.World).GuestUser, "it is not allowed to patch RoleBindings"},
		}},
		{name: "with --sidecar-injection the guest's API server calls the webhook for pods", run: injection},
		{name: "the mesh CA is rotated while the guest works", run: rotateCA},
		{name: "CRDs are protected from accidents, and handed over on purpose", run: protectedCRDs},
		{name: "OLM takes over a CRD and is removed", run: olm},
		{name: "in mode Unmanaged istiod goes and gateways stay", run: unmanaged},
		{name: "killed at any moment, it converges", run: restarts},
		{name: "guest writes continue while istiod is down", run: istiodAway},
		{name: "killed during an uninstallation, it finishes the rest", run: killedUninstalling},
		{name: "gateways from before the installation are programmed", run: gatewaysFirst},
		{name: "a mesh of the user's own keeps its default revision", run: foreignMesh},
		{name: "without its kubeconfig istiod does not start", run: missingKubeconfig},
		{name: "the last GatewayClass clears both sides", run: uninstall},
	}
}

// hostedOnly returns the stories about two clusters.
func hostedOnly() []story {
	return []story{
		{name: "the guest's API goes away and comes back", run: guestOutage, provokes: []refusal{
			{(*world.World).IstiodUser, "its ClusterRole is deleted, and away for a moment"},
		}},
		{name: "the management API goes away and comes back", run: mgmtOutage, provokes: []refusal{
			{(*world.World).MgmtUser, "an API server that starts may answer before it has read its roles"},
		}},
		{name: "only its peers reach istiod, and istiod reaches only its peers", run: fenced},
		{name: "a hostile guest changes nothing on the management side", run: hostileGuest},
		{name: "istiod connects to no address from the guest", run: dialsNoGuestAddress, provokes: []refusal{
			{(*world.World).IstiodUser, "it is no longer allowed to read RequestAuthentications, and is replaced a moment later"},
		}},
		{name: "istiod sent no request to the management API", run: istiodAsksNoMgmt},
		{name: "nothing of the management side can be read in the guest", run: nothingLeaks, provokes: []refusal{
			{(*world.World).IstiodUser, "its ClusterRole is deleted, and away for a moment"},
		}},
		{name: "a guest kubeconfig of the management cluster is refused", run: sameCluster},
		// This story runs after nothingLeaks. There is only one node, so the guest gets an address that the
		// management API also has.
		{name: "istiod is reached at its published endpoint", run: published},
	}
}

// standaloneOnly returns long stories for which one topology is sufficient. This topology has time for them during
// the outages of the other one.
func standaloneOnly() []story {
	return []story{
		// client-go reads a token file again after fifty seconds, and not earlier if the token is refused.
		{name: "istiod takes up a new token without a restart", run: newToken},
		{name: "two istiods roll and are drained one after the other", run: twoIstiods},
	}
}

// last returns the stories that check the audit logs and the observations of all earlier stories.
func last() []story {
	return []story{
		{name: "no request was forbidden", run: nothingForbidden},
		{name: "istiod used all of its permissions", run: istiodUsesAll},
		{name: "management workloads follow HyperShift's rules", run: goodCitizens},
	}
}

// suite holds the results of one topology's stories for the last ones.
type suite struct {
	// finished are the stories so far.
	finished []finished
	// granted are istiod's permissions in the guest.
	granted []audit.Role
	// citizens are the Deployments and pods on the management side.
	citizens *citizens
}

// finished is a finished story with its start and end. ran is false if -run left it out.
type finished struct {
	story
	from, to time.Time
	ran      bool
}

// fixture holds everything that a story needs.
type fixture struct {
	*testing.T
	gomega.Gomega
	*world.World
	*suite
	ctx context.Context
	// settings are arguments of each hypergate, besides those that a story adds.
	settings []string
	// stopOperators stops the guest's own operators, and returns how to start them again. Nil: it has none.
	stopOperators func() (restart func())
}

// Context returns the story's context, with its timeout.
func (t *fixture) Context() context.Context { return t.ctx }

// step returns a context with the timeout for one wait.
func (t *fixture) step() context.Context {
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	t.Cleanup(cancel)
	return ctx
}

func runStories(t *testing.T, topology model.Topology, name string, stories []story) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real clusters: run without -short")
	}
	t.Parallel() // a story spends most of its time waiting
	w, err := world.Start(t.Context(),
		world.Options{Name: name, Topology: topology, Binary: build(t), AsPod: true, Progress: t.Output(), Dir: artifacts(t, name)})
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
	if topology == model.TopologyHosted {
		if err := w.AddControlPlane(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all := &suite{citizens: watchCitizens(t, w)}
	for _, s := range stories {
		begin, ran := time.Now(), false
		t.Run(s.name, func(t *testing.T) {
			ran = true
			ctx, cancel := context.WithTimeout(t.Context(), storyTimeout)
			defer cancel()
			fixture := &fixture{T: t, Gomega: hang.Gomega(t), World: w, suite: all, ctx: ctx}
			fixture.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
			s.run(fixture)
			if t.Failed() {
				fixture.explain()
			}
		})
		all.finished = append(all.finished, finished{s, begin, time.Now(), ran})
	}
}

// artifacts returns the folder for the logs of the run. E2E_ARTIFACTS can name a folder that is kept.
func artifacts(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("E2E_ARTIFACTS"); dir != "" {
		return filepath.Join(dir, name)
	}
	return t.TempDir()
}

// build builds the binaries of hypergate in the same way as a release, and returns the file of the controller.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", dir+"/", "github.com/hypergate/hypergate/cmd/...")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building hypergate: %v\n%s", err, out)
	}
	return filepath.Join(dir, "hypergate")
}
