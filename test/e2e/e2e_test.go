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

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/hang"
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
	storyTimeout = 10 * time.Minute
	stepTimeout  = hang.Deadline
	// pollOften is for moments that pass.
	pollOften = 5 * time.Millisecond
)

func TestHosted(t *testing.T) {
	tell(t, desired.TopologyHosted, "e2e-hosted", slices.Concat(common(), hostedOnly(), last()))
}

func TestStandalone(t *testing.T) {
	tell(t, desired.TopologyStandalone, "e2e-alone", slices.Concat(common(), standaloneOnly(), last()))
}

// story is one test on running clusters.
type story struct {
	name string
	tell func(*teller)
	// provokes are the requests that this story gets refused; in all others nobody may be.
	provokes []refusal
}

// refusal says whose requests an API server may answer with 403 while a story is told, and why.
type refusal struct {
	whose func(*world.World) string
	why   string
}

// common are the stories of both topologies.
func common() []story {
	istiodsRoleGoes := refusal{(*world.World).IstiodUser, "its ClusterRole is deleted, and away for a moment"}
	return []story{
		{name: "a GatewayClass installs both sides and a Gateway is programmed", tell: install},
		{name: "a proxy in the guest gets certificate, listener, route and endpoints", tell: proxy},
		{name: "the other routes and policies get status, too", tell: otherKinds},
		{name: "the guest's API server calls the webhook", tell: webhook},
		{name: "what is changed by hand is put back", tell: drift, provokes: []refusal{istiodsRoleGoes}},
		{name: "a kind that hypergate may not write is named, and the rest converges", tell: forbiddenKind, provokes: []refusal{
			{(*world.World).GuestUser, "it may not patch RoleBindings"},
		}},
		{name: "with --sidecar-injection the guest's API server calls the webhook for pods", tell: injection},
		{name: "the mesh CA is rotated while the guest works", tell: rotateCA},
		{name: "CRDs are protected from accidents, and handed over on purpose", tell: protectedCRDs},
		{name: "OLM brings a CRD of ours and goes again", tell: olm},
		{name: "in mode Unmanaged istiod goes and gateways stay", tell: unmanaged},
		{name: "killed at any moment, it converges", tell: restarts},
		{name: "with istiod away, the guest's writes go on", tell: istiodAway},
		{name: "killed while it uninstalls, it clears the rest", tell: killedUninstalling},
		{name: "gateways that were there first are programmed", tell: gatewaysFirst},
		{name: "a mesh of the user's own keeps its default revision", tell: foreignMesh},
		{name: "without its kubeconfig istiod does not start", tell: missingKubeconfig},
		{name: "the last GatewayClass clears both sides", tell: uninstall},
	}
}

// hostedOnly are the stories about two clusters.
func hostedOnly() []story {
	return []story{
		{name: "the guest's API goes away and comes back", tell: guestOutage, provokes: []refusal{
			{(*world.World).IstiodUser, "its ClusterRole is deleted, and away for a moment"},
		}},
		{name: "the management API goes away and comes back", tell: mgmtOutage, provokes: []refusal{
			{(*world.World).MgmtUser, "an API server that starts may answer before it has read its roles"},
		}},
		{name: "nobody but its peers reaches istiod, and istiod nobody else", tell: fenced},
		{name: "a hostile guest changes nothing on the management side", tell: hostileGuest},
		{name: "istiod dials nobody whom the guest names", tell: dialsNobody, provokes: []refusal{
			{(*world.World).IstiodUser, "it may no longer read RequestAuthentications, and is replaced a moment later"},
		}},
		{name: "istiod never asked the management API", tell: istiodAsksNoMgmt},
		{name: "nothing of the management side can be read in the guest", tell: nothingLeaks, provokes: []refusal{
			{(*world.World).IstiodUser, "its ClusterRole is deleted, and away for a moment"},
		}},
		{name: "a guest kubeconfig of the management cluster is refused", tell: sameCluster},
		// After nothingLeaks: there is one node only, so the guest is told the address that the management API has as well.
		{name: "istiod is seen where it is published, and published where it is seen", tell: published},
	}
}

// standaloneOnly are long stories that one topology is enough for: this one has the time, while the other's outages are told.
func standaloneOnly() []story {
	return []story{
		// client-go reads a token file again after fifty seconds, and not sooner when the token is refused.
		{name: "istiod takes up a new token without a restart", tell: newToken},
	}
}

// last is what the audit logs, and what was watched, say about all the stories before.
func last() []story {
	return []story{
		{name: "nobody was refused anything", tell: nobodyRefused},
		{name: "istiod used all that it may", tell: istiodUsesAll},
		{name: "what ran on the management side kept to HyperShift's rules", tell: goodCitizens},
	}
}

// suite is what the stories of one topology leave for the last ones.
type suite struct {
	// told are the stories so far.
	told []told
	// granted is what istiod may do in the guest.
	granted []audit.Role
	// citizens are what ran on the management side.
	citizens *citizens
}

// told is a story that was told from one moment to another, unless -run left it out.
type told struct {
	story
	from, to time.Time
	ran      bool
}

// teller is what a story is told with.
type teller struct {
	*testing.T
	gomega.Gomega
	*world.World
	*suite
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
	t.Parallel() // most of a story is waiting
	w, err := world.Start(t.Context(), world.Options{Name: name, Topology: topology, Binary: build(t), AsPod: true, Progress: t.Output(), Dir: artifacts(t, name)})
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
	if topology == desired.TopologyHosted {
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
			teller := &teller{T: t, Gomega: hang.Gomega(t), World: w, suite: all, ctx: ctx}
			teller.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
			s.tell(teller)
			if t.Failed() {
				teller.explain()
			}
		})
		all.told = append(all.told, told{s, begin, time.Now(), ran})
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
