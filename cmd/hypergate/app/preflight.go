package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	answers "github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/dryrun"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/text"
)

// leastKubernetes is the oldest version of Kubernetes that a guest can have (README.md).
const leastKubernetes = "1.30"

// longestVersion is the limit of a version that is printed, in bytes. A version can have any number of parts.
const longestVersion = 64

// preflightOptions holds the flags of the command preflight: those of run that decide what is written.
type preflightOptions struct{ diffOptions }

const preflightLong = `Check whether "hypergate run" can work, before it is installed.

The command uses the flags and the credentials of "hypergate run". It checks that both API servers answer, that they are
different clusters, that the guest is new enough and belongs to no other controller, and that both accept the writes of
"hypergate run". Each write is sent as a server-side dry run, so the command changes nothing, and requests no token. If
no GatewayClass requests an installation yet, the command checks the writes of the first installation.

It warns of Gateways whose parameters (spec.infrastructure.parametersRef) istiod
rejects, or with which a drain can wait without an end. For that, you need the
permission to get the ConfigMaps with these parameters, which hypergate does not have.

Exit codes:
  0  All checks passed. There can be warnings.
  1  An error occurred, for example an invalid flag.
  2  A check failed. The line of the check says why.
  3  The control plane is on hold, so the writes were not checked.`

func newPreflight() *cobra.Command {
	o := &preflightOptions{}
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether hypergate can work, before it is installed",
		Long:  preflightLong,
		Example: `  # Check both clusters with the credentials that hypergate will have
  hypergate preflight --context mgmt -n clusters-guest1 --guest-context guest1 \
    ` + exampleImages + `

  # Install only if all checks pass
  hypergate preflight ... && kubectl apply -k deploy/hosted/example`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.preflight(cmd.Context(), cmd.OutOrStdout(), progressOn(cmd.ErrOrStderr()))
		},
	}
	o.addDiffFlags(cmd.Flags())
	return cmd
}

func (o *preflightOptions) preflight(ctx context.Context, out io.Writer, shown progress) error {
	options, err := o.checked()
	if err != nil {
		return err
	}
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	report := preflightReport{}
	guestConfig := options.GuestConfig
	if guestConfig == nil {
		guestConfig, err = (&guestAccess{secret: o.guestSecret, namespace: o.namespace, mgmtConfig: options.MgmtConfig}).
			config(ctx, options.Config.Topology, o.timeout)
		if err != nil {
			return printed(out, o.output, report.with("guest kubeconfig", "", err))
		}
	}
	guestConfig = guestconn.Limited(guestConfig)
	done := shown.waits("asking both API servers for their version")
	report = report.with(versionOf(ctx, "management cluster", options.MgmtConfig, "")).
		with(versionOf(ctx, "guest", guestConfig, leastKubernetes))
	done()
	if report.code() == exitOK {
		done = shown.waits(previewing)
		found, err := controller.PreviewInstallation(ctx, options)
		done()
		report = report.previewed(found, err)
		if err == nil {
			done = shown.waits("reading the parameters of Gateways")
			report = report.withParameters(readGatewayParameters(ctx, guestConfig, options.Config))
			done()
		}
	}
	return printed(out, o.output, report)
}

// versionOf returns the result of the check of one API server: its version, and why that is not enough.
func versionOf(ctx context.Context, name string, config *rest.Config, least string) (check, message string, problem error) {
	config = rest.CopyConfig(config)
	config.Wrap(answers.Limit("the API server of the " + name))
	if deadline, has := ctx.Deadline(); has {
		config.Timeout = max(time.Until(deadline), time.Millisecond)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return name, "", fmt.Errorf("creating a client: %w", err)
	}
	got, err := client.ServerVersion()
	if err != nil {
		return name, "", accessError("reading its version", "get /version there", err)
	}
	found, err := utilversion.ParseGeneric(got.GitVersion)
	if err != nil {
		return name, "", fmt.Errorf("its version cannot be read: %w", err)
	}
	if least != "" && found.LessThan(utilversion.MustParseGeneric(least)) {
		return name, "", fmt.Errorf("it has Kubernetes %s: hypergate needs %s or later", found, least)
	}
	return name, "Kubernetes " + text.Line(found.String(), longestVersion), nil
}

// preflightReport is the output of the command preflight.
type preflightReport struct {
	Checks []preflightCheck `json:"checks"`
}

// preflightCheck is one check. Message is what was found, or why the check failed. A check with a warning has passed. A
// check on hold has neither passed nor failed.
type preflightCheck struct {
	Name    string `json:"name"`
	Passed  bool   `json:"passed"`
	Warning bool   `json:"warning,omitempty"`
	OnHold  bool   `json:"onHold,omitempty"`
	Message string `json:"message,omitempty"`
}

func (r preflightReport) with(name, message string, problem error) preflightReport {
	if problem != nil {
		message = errorText(problem)
	}
	r.Checks = append(slices.Clone(r.Checks), preflightCheck{Name: name, Passed: problem == nil, Message: message})
	return r
}

// previewed adds the checks that a preview makes.
func (r preflightReport) previewed(found controller.Previewed, err error) preflightReport {
	const different, unopposed = "two clusters", "no other controller serves the guest"
	switch {
	case errors.Is(err, controller.ErrSameCluster):
		return r.with(different, "", err)
	case err != nil:
		return r.with("observation of both sides", "", previewError(err))
	}
	if found.Unread != nil {
		r = r.with("Lease", "", leaseError(found.Unread)) // without it, hypergate run cannot lead
	}
	switch {
	case found.Refusal != nil:
		return r.with(different, "", nil).with("plan", "", found.Refusal)
	case found.OnHold:
		r = r.with(different, "", nil)
		r.Checks = append(r.Checks, preflightCheck{
			Name: "plan", OnHold: true, Message: oneLine(found.Idle) + ": neither the plan nor its writes were checked " +
				"(run this command again when the hold ends)",
		})
		return r
	}
	r = r.with(different, "", nil)
	switch {
	case found.Idle != "":
		r = r.warns("plan", oneLine(found.Idle)+": nothing would be installed, so the writes of an installation were not checked "+
			"(run this command again after you change that)")
	case found.Pending != "":
		r = r.with("plan", unopposed, nil).
			warns("istiod", "its writes were not checked, because an installation first waits for "+oneLine(found.Pending)+
				" (run this command again when that exists)")
	default:
		r = r.with("plan", unopposed, nil)
	}
	return r.withWrites(found.Writes)
}

// withWrites adds a check for each write that is refused, and one for all of them.
func (r preflightReport) withWrites(writes []dryrun.Write) preflightReport {
	refused, later := 0, 0
	for _, w := range writes {
		switch {
		case w.Later, w.Status == http.StatusNotFound:
			later++ // its namespace, or an object that it refers to, is created first
		case w.Refusal == "":
		default:
			refused++
			name := fmt.Sprintf("%s %s %s", w.Side, w.Resource, strings.Trim(w.Namespace+"/"+w.Name, "/"))
			r = r.with(name, "", errors.New(w.Refusal))
		}
	}
	message := fmt.Sprintf("%d of %d accepted", len(writes)-refused-later, len(writes))
	if later > 0 {
		message += fmt.Sprintf(", %d cannot be checked before an earlier write", later)
	}
	if refused > 0 {
		return r.with("writes", "", fmt.Errorf("%s: grant the missing permissions (deploy/README.md)", message))
	}
	return r.with("writes", message, nil)
}

func (r preflightReport) code() int {
	switch {
	case slices.ContainsFunc(r.Checks, func(c preflightCheck) bool { return !c.Passed && !c.OnHold }):
		return exitAct
	case slices.ContainsFunc(r.Checks, func(c preflightCheck) bool { return c.OnHold }):
		return exitUnderWay
	default:
		return exitOK
	}
}

func (r preflightReport) table(out io.Writer) {
	for _, c := range r.Checks {
		mark := "ok    "
		switch {
		case c.OnHold:
			mark = "hold  "
		case !c.Passed:
			mark = "FAILED"
		case c.Warning:
			mark = "warn  "
		}
		fmt.Fprintf(out, "%s  %s\n", mark, strings.TrimSuffix(oneLine(c.Name)+": "+oneLine(c.Message), ": "))
	}
}
