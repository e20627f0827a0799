package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

// releaseOptions holds the flags of the command release.
type releaseOptions struct {
	guest              guestAccess
	topology, revision string
	dryRun             bool
	timeout            time.Duration
}

const releaseLong = `Release all Gateways that hypergate holds in the guest.

With --gateway-rollout=OneByOne, "hypergate run" holds Gateways while istiod is changed: an annotation makes istiod leave
the Deployments of these Gateways as they are. Their traffic is not affected. The controller releases one Gateway after
another.

Use this command if a rollout of gateways stopped, and the remaining Gateways should roll at once. Use it also if hypergate
was removed during a rollout. While the controller still waits to change istiod, it holds Gateways again.

The command needs only the guest's kubeconfig, or the Secret on the management cluster that contains it. Set --revision to
the same value as for "hypergate run". Holds of other clients, and of other revisions, stay.

Exit codes:
  0  No Gateway is held any more.
  1  An error occurred, for example a missing permission. Some Gateways may still be held.
  2  With --dry-run: Gateways are held.`

const releaseExample = `  # Show which Gateways are held
  hypergate release --guest-kubeconfig guest.kubeconfig --dry-run

  # Release all of them
  hypergate release --guest-kubeconfig guest.kubeconfig

  # Release all of them, with a context of your kubeconfig
  hypergate release --guest-context guest1

  # On a standalone cluster
  hypergate release --topology standalone --guest-kubeconfig ~/.kube/config`

func newRelease() *cobra.Command { return newReleaseOf(releaseLong, releaseExample) }

// newReleaseOf returns the command release with a help text.
func newReleaseOf(long, example string) *cobra.Command {
	o := &releaseOptions{}
	cmd := &cobra.Command{
		Use:     "release",
		Short:   "Release all Gateways that hypergate holds",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	o.guest.addFlags(flags)
	choose(flags, &o.topology, "topology", "", string(model.TopologyHosted), "Topology of the installation. {values}.", topologies()...)
	flags.StringVar(&o.revision, "revision", "openshift-gateway", "Revision of istiod.")
	flags.BoolVar(&o.dryRun, "dry-run", false, "If true, only print which Gateways are held.")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "The length of time to wait for the guest.")
	return cmd
}

func (o *releaseOptions) run(ctx context.Context, out io.Writer) error {
	topology := model.Topology(o.topology)
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: %s must be greater than 0", o.timeout)
	}
	if !model.IsLabel(o.revision) {
		return fmt.Errorf("--revision: %q is not a valid name", o.revision)
	}
	ctx, cancel := context.WithTimeout(quiet(ctx), o.timeout)
	defer cancel()
	config, err := o.guest.config(ctx, topology, o.timeout)
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "hypergate-release"
	cluster, err := guest.New(guestconn.Direct(config), model.Config{Topology: topology, Revision: o.revision}, nil)
	if err != nil {
		return err
	}
	return o.release(ctx, cluster, out)
}

// releaseRounds is how often the held Gateways are listed. A Gateway that changed since it was listed is released in
// the next round.
const releaseRounds = 5

// release releases all held Gateways, and prints each.
func (o *releaseOptions) release(ctx context.Context, cluster *guest.Cluster, out io.Writer) error {
	for range releaseRounds {
		held, err := cluster.HeldGateways(ctx)
		if err != nil {
			return accessError("reading the guest", "list Gateways there", err)
		}
		if len(held) == 0 {
			_, err := fmt.Fprintf(out, "No Gateway is held for the revision %s.\n", o.revision)
			return err
		}
		if o.dryRun {
			return printHeld(out, held)
		}
		if err := o.releaseEach(ctx, cluster, held, out); err != nil {
			return err
		}
	}
	return errors.New("releasing Gateways: some change so often that they are still held: run the command again")
}

// mostReleaseErrors is how many errors are kept of one round. The guest decides how many Gateways are held.
const mostReleaseErrors = 10

// releaseEach releases the given Gateways, except those that have changed since they were listed.
func (o *releaseOptions) releaseEach(ctx context.Context, cluster *guest.Cluster, held []model.ForeignObject, out io.Writer) error {
	var errs []error
	more := 0
	for _, of := range held {
		patch, err := model.ReleasePatch(of)
		if err == nil {
			err = cluster.PatchForeign(ctx, patch)
		}
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		case err != nil && len(errs) == mostReleaseErrors:
			more++
		case err != nil:
			errs = append(errs, accessError("releasing the Gateway", "patch Gateways in the guest", err))
		default:
			if _, err := fmt.Fprintf(out, "gateway/%s released\n", text.Line(of.Key.String(), longestCell)); err != nil {
				return err
			}
		}
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("%s could not be released", counted(more, "more Gateway")))
	}
	return errors.Join(errs...)
}

func printHeld(out io.Writer, held []model.ForeignObject) error {
	for _, of := range held {
		if _, err := fmt.Fprintf(out, "gateway/%s is held\n", text.Line(of.Key.String(), longestCell)); err != nil {
			return err
		}
	}
	return codeError(exitAct)
}
