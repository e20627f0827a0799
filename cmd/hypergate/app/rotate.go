package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/summary"
)

// rotateOptions holds the flags of the command rotate-ca.
type rotateOptions struct {
	cluster  clusterFlags
	revision string
	wait     time.Duration
}

const (
	// usualRotation is what --wait without a value waits for: twice the default of --ca-overlap, and a day more.
	usualRotation = 72 * time.Hour
	// untilSeen is how long a request can take to appear in the summary.
	untilSeen = time.Minute
	// rotationEvery is the interval between two reads while the command waits.
	rotationEvery = 5 * time.Second
)

const rotateLong = `Request a new mesh CA with a new root.

The controller carries out the rotation in phases:

  1. spreading: all clients trust the new root in addition to the old one. The old CA still issues certificates.
  2. settling: the new CA issues certificates. All clients still trust the old root.
  3. The old root is removed.

Each of the first two phases lasts as long as --ca-overlap of "hypergate run", a day by default. The rotation continues
after a restart of the controller. A command with --wait that finds a rotation in progress follows that one.

The request is the annotation ` + model.RotateAnnotation + ` on hypergate's Lease, with a value that
is new. hypergate sees it within half a minute. The command needs the permission to get and update that Lease, and no
Secret. A hypergate without a Lease (--leader-elect=false) takes the same annotation on the Secret ` + model.CASecretName + `.

Exit codes:
  0  The rotation is requested. With --wait: it is complete, even if another action is required (hypergate status).
  1  An error occurred. For example, the mesh CA does not exist, or another party created it. Without --wait, also if a
     rotation is already in progress.
  2  With --wait: the time has expired before it is complete, and an action is required (hypergate status).
  3  With --wait: the time has expired, and the rotation is in progress.`

func newRotateCA() *cobra.Command {
	o := &rotateOptions{}
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Request a rotation of the mesh CA",
		Long:  rotateLong,
		Example: `  # Rotate the mesh CA
  hypergate rotate-ca -n clusters-guest1

  # Rotate the mesh CA, and wait until that is done
  hypergate rotate-ca -n clusters-guest1 --wait

  # Request the same with kubectl
  kubectl -n clusters-guest1 annotate --overwrite lease hypergate-openshift-gateway ` + model.RotateAnnotation + `=$(date +%s)`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), time.Now(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *rotateOptions) addFlags(flags *pflag.FlagSet) {
	o.cluster.addFlags(flags)
	flags.StringVar(&o.revision, "revision", "openshift-gateway", "Revision of istiod. It is part of the name of hypergate's Lease.")
	flags.DurationVar(&o.wait, "wait", 0, "Wait until the rotation is complete, at most this long. Without a value: 72h.")
	flags.Lookup("wait").NoOptDefVal = usualRotation.String()
}

func (o *rotateOptions) run(ctx context.Context, now time.Time, out, errOut io.Writer) error {
	if o.wait < 0 {
		return fmt.Errorf("--wait: %s must not be negative", o.wait)
	}
	config, namespace, err := o.cluster.config()
	if err != nil {
		return err
	}
	client, err := fleet.New(config)
	if err != nil {
		return err
	}
	request := now.UTC().Format(time.RFC3339)
	reading, err := client.Installation(ctx, namespace, o.revision)
	switch {
	case apierrors.IsNotFound(err):
		return o.withoutLease(ctx, config, namespace, request, out)
	case err != nil:
		return err
	}
	done := "rotation requested at " + request
	err = mayRotate(reading)
	if err == nil {
		err = annotateLease(ctx, config, reading, request, now)
	}
	if under, is := errors.AsType[underWayError](err); is && o.wait > 0 {
		request, done, err = under.request, "following the rotation in progress", nil
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "lease/%s: %s\n", reading.Lease, done); err != nil || o.wait == 0 {
		return err
	}
	return o.follow(ctx, client, namespace, request, out, errOut)
}

// underWayError reports that a rotation is requested, or in progress.
type underWayError struct {
	// request is the request that hypergate follows, or will follow.
	request string
	why     string
}

func (e underWayError) Error() string {
	return e.why + `: follow it with "hypergate status --watch", or with --wait`
}

// mayRotate returns an error if a summary shows that there is nothing to rotate, or that a rotation is in progress. A
// summary that cannot be read shows nothing.
func mayRotate(reading summary.Reading) error {
	switch s := reading.Summary; {
	case s == nil:
		return nil
	case s.CA.ByOther:
		return fmt.Errorf("hypergate did not create the mesh CA in namespace %s, and does not rotate it: "+
			"rotate it with the tool that created the Secret %s", reading.Namespace, model.CASecretName)
	case s.IsCAUnobserved():
		return fmt.Errorf("hypergate has not observed the mesh CA in namespace %s since it started, for example because the guest "+
			"does not answer: try again when the command status shows the CA", reading.Namespace)
	case s.CA.Phase == "":
		return fmt.Errorf("the mesh CA does not exist in namespace %s: hypergate creates it with the first GatewayClass that it serves; "+
			"its report can be half a minute old", reading.Namespace)
	case s.CA.Phase != summary.PhaseSteady:
		return underWayError{s.CA.Request, "a rotation is already in progress, in phase " + s.CA.Phase}
	default:
		return nil
	}
}

// annotateLease writes the request to a Lease. hypergate writes the same Lease, so a conflict is tried again.
func annotateLease(ctx context.Context, config *rest.Config, reading summary.Reading, request string, now time.Time) error {
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	leases, followed := client.Leases(reading.Namespace), ""
	if reading.Summary != nil {
		followed = reading.Summary.CA.Request
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(ctx, reading.Lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		last := lease.Annotations[model.RotateAnnotation]
		if at, err := time.Parse(time.RFC3339, last); err == nil && last != followed && now.Sub(at) < untilSeen {
			return underWayError{last, fmt.Sprintf("a rotation was requested at %s, and hypergate begins within a minute", last)}
		}
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, model.RotateAnnotation, request)
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: "hypergate-rotate-ca"})
		return err
	})
	if _, under := errors.AsType[underWayError](err); under || err == nil {
		return err
	}
	return fmt.Errorf("requesting a rotation: %w", err)
}

// follow waits until the rotation is complete, and prints each phase.
func (o *rotateOptions) follow(ctx context.Context, client *fleet.Client, namespace, request string, out, errOut io.Writer) error {
	waiting, printed, outcome := waitOptions{wait: o.wait}, "", summary.UnderWay
	err := waiting.until(ctx, rotationEvery, errOut, func(ctx context.Context) (summary.Outcome, string, error) {
		reading, err := client.Installation(ctx, namespace, o.revision)
		if err != nil {
			return outcome, "", err
		}
		var step string
		outcome, step = progressOf(reading, request)
		if step != printed {
			printed = step
			if _, err := fmt.Fprintln(out, step); err != nil {
				return outcome, "", fmt.Errorf("printing the progress: %w", err)
			}
		}
		return outcome, "", nil
	})
	if err != nil {
		return err
	}
	if code := exitCode(outcome); code != exitOK {
		return codeError(code)
	}
	return nil
}

// progressOf returns what is done of a requested rotation, and the same in words. Another problem does not keep a
// rotation from being complete. Before that, it is named, because it can be what the rotation waits for.
func progressOf(r summary.Reading, request string) (summary.Outcome, string) {
	begun := r.Summary != nil && r.Summary.CA.Request == request
	if begun && r.Summary.CA.Phase == summary.PhaseSteady && isCurrent(r) {
		return summary.Well, "done: the old root is removed"
	}
	outcome, step := max(summary.UnderWay, r.State.Outcome()), "waiting until hypergate begins; it does not rotate a CA of your own"
	if begun {
		step = phaseText(r.Summary.CA.Phase)
	}
	if outcome == summary.Act {
		step += fmt.Sprintf("; %s: %s", stateWord(r.State), oneLine(r.Why))
	}
	return outcome, step
}

// phaseText returns a phase of a rotation in words.
func phaseText(phase string) string {
	switch phase {
	case "spreading":
		return phase + ": the clients get the new root; the old CA issues certificates"
	case "settling":
		return phase + ": the new CA issues certificates; the old root is still trusted"
	default:
		return oneLine(phase)
	}
}

// withoutLease requests a rotation by an annotation on the Secret of the mesh CA.
func (o *rotateOptions) withoutLease(ctx context.Context, config *rest.Config, namespace, request string, out io.Writer) error {
	if o.wait > 0 {
		return fmt.Errorf("--wait needs hypergate's Lease %s in namespace %s, which does not exist: %w",
			fleet.LeaseName(o.revision), namespace, errNotInstalled)
	}
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	secrets := client.Secrets(namespace)
	secret, err := secrets.Get(ctx, model.CASecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the mesh CA does not exist: neither the Lease %s nor the Secret %s exists in namespace %s; "+
			"check the namespace, and --revision", fleet.LeaseName(o.revision), model.CASecretName, namespace)
	case err != nil:
		return fmt.Errorf("reading the mesh CA: %w", err)
	case secret.Labels[model.OwnerLabel] == "":
		return fmt.Errorf("the Secret %s in namespace %s does not belong to hypergate: rotate the CA with the tool that created it",
			model.CASecretName, namespace)
	case secret.Annotations[model.PhaseAnnotation] != "":
		return fmt.Errorf("a rotation is already in progress, in phase %s since %s: wait until it is complete",
			secret.Annotations[model.PhaseAnnotation], secret.Annotations[model.PhaseSinceAnnotation])
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": secret.ResourceVersion,
		"annotations":     map[string]string{model.RotateAnnotation: request},
	}})
	if err != nil {
		return fmt.Errorf("requesting a rotation: %w", err)
	}
	options := metav1.PatchOptions{FieldManager: "hypergate-rotate-ca"}
	if _, err := secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, options); err != nil {
		return fmt.Errorf("requesting a rotation: %w", err)
	}
	_, err = fmt.Fprintf(out, "secret/%s: rotation requested at %s\n", secret.Name, request)
	return err
}
