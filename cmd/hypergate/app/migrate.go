package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// newMigrate returns the command migrate, which only has subcommands.
func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Replace the istiod in a guest with a hosted one",
		Long: `Replace the istiod that a guest has with a hosted one, Gateway by Gateway, and go back.

These commands show what a migration would do, request it, and show how far it is. "hypergate run" carries requests out.`,
		Example: `  # Show whether a guest can be migrated, and what would be written
  hypergate migrate plan --guest-kubeconfig guest.kubeconfig

  # Start it, and follow it
  hypergate migrate start -n clusters-guest1 --guest-kubeconfig guest.kubeconfig
  hypergate migrate status -n clusters-guest1 --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMigratePlan(), newMigrateStart())
	for _, text := range requestTexts() {
		cmd.AddCommand(newMigrateRequest(text))
	}
	cmd.AddCommand(newMigrateStatus(), newMigrateRelease())
	return cmd
}

// migratePlanOptions holds the flags of the command migrate plan.
type migratePlanOptions struct {
	guest            guestAccess
	check            migrationCheck
	revision, output string
}

// migrationCheck holds the flags of the commands that do the check of a migration.
type migrationCheck struct {
	topology, guestNamespace, controllerName, xdsAddress string
	istioResources                                       []string
	accepted                                             migration.Waivers
	timeout                                              time.Duration
}

const migratePlanLong = `Show whether the istiod in the guest can be replaced by a hosted one, and what would be written.

The command prints the istiod that the guest has, and how it was installed: by OLM and the Sail operator, by OpenShift's
ingress operator itself, or by Helm. It prints the Gateways in the order in which they would move. The smaller ones come
first. The annotation ` + migration.OrderAnnotation + ` of a Gateway is a number that changes the order, and
` + migration.SkipAnnotation + `=true leaves a Gateway out.

A blocker is a reason why requests would fail, or why a rollback would not be possible. Each has a next step. A
warning does not block.

The command sends reads only, and reads no Secret. It needs only the guest's kubeconfig, or the Secret on the management
cluster that contains it, with the permissions of deploy/rbac/migration. Set --revision, --controller-name and
--istio-resources to the same values as for "hypergate run".

Exit codes:
  0  Nothing blocks a migration.
  1  An error occurred, for example no response.
  2  A finding blocks a migration.`

const migratePlanExample = `  # Show whether a guest can be migrated, and what would be written
  hypergate migrate plan --guest-kubeconfig guest.kubeconfig

  # On a standalone cluster
  hypergate migrate plan -n hypergate-system --topology standalone

  # With a context of your kubeconfig
  hypergate migrate plan --guest-context guest1

  # List what blocks, for use in a script
  hypergate migrate plan --guest-kubeconfig guest.kubeconfig -o json \
    | jq -r '.findings[] | select(.severity == "Blocker") | .code'`

func newMigratePlan() *cobra.Command {
	o := &migratePlanOptions{}
	cmd := &cobra.Command{
		Use:     "plan",
		Short:   "Show whether a guest can be migrated, and what would be written",
		Long:    migratePlanLong,
		Example: migratePlanExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), progressOn(cmd.ErrOrStderr()))
		},
	}
	flags := cmd.Flags()
	o.guest.addFlags(flags)
	flags.Lookup("namespace").Usage += " With --topology=standalone, the namespace of hypergate, which defaults to --guest-namespace."
	flags.StringVar(&o.revision, "revision", "openshift-gateway", "Revision of istiod: of the one in the guest, and of the hosted one.")
	choose(flags, &o.output, "output", "o", outputTable, "Output format. {values}. "+stable, tables()...)
	o.check.addFlags(flags)
	return cmd
}

func (o *migrationCheck) addFlags(flags *pflag.FlagSet) {
	choose(flags, &o.topology, "topology", "", string(model.TopologyHosted), "Topology of the installation. {values}.", topologies()...)
	flags.StringVar(&o.guestNamespace, "guest-namespace", "openshift-ingress", "System namespace of istiod in the guest.")
	flags.StringVar(&o.controllerName, "controller-name", "openshift.io/gateway-controller/v1", "Value of spec.controllerName of the "+
		"GatewayClasses to serve.")
	flags.StringSliceVar(&o.istioResources, "istio-resources", defaultIstioResources(), "Istio resources that the hosted istiod serves, "+
		"as <resource> or <resource>.<group>. An empty value means none.")
	flags.StringVar(&o.xdsAddress, "xds-address", "", "Address (host:port) at which the hosted istiod is published. "+
		"Gateways with this address have moved.")
	addWaiverFlags(flags, &o.accepted)
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "The length of time to wait for the guest.")
}

// addWaiverFlags adds the flags that accept findings of the check.
func addWaiverFlags(flags *pflag.FlagSet, accepted *migration.Waivers) {
	flags.BoolVar(&accepted.Downgrade, "allow-downgrade", false, "If true, a hosted istiod of an earlier minor does not block.")
	flags.BoolVar(&accepted.Untested, "allow-untested", false, "If true, an istiod of a minor without tests does not block.")
	flags.BoolVar(&accepted.IgnoredResources, "allow-ignored-resources", false,
		"If true, objects that the hosted istiod ignores do not block. An ignored AuthorizationPolicy permits requests that it denied.")
	flags.BoolVar(&accepted.ProxyLoss, "allow-proxy-loss", false,
		"If true, Gateways whose new pods lose the proxy of the guest do not block.")
}

// config checks the flags, and returns the settings of the check.
func (o *migrationCheck) config(revision string) (model.Config, error) {
	if o.timeout <= 0 {
		return model.Config{}, fmt.Errorf("--timeout: %s must be greater than 0", o.timeout)
	}
	for flag, value := range map[string]string{"--guest-namespace": o.guestNamespace, "--revision": revision} {
		if !model.IsLabel(value) {
			return model.Config{}, fmt.Errorf("%s: %q is not a valid name", flag, value)
		}
	}
	if !desired.IsControllerName(o.controllerName) {
		return model.Config{}, fmt.Errorf("--controller-name: "+desired.NoControllerName, o.controllerName)
	}
	resources, err := parseIstioResources(o.istioResources)
	cfg := model.Config{
		Topology: model.Topology(o.topology), GuestNamespace: o.guestNamespace, ControllerName: o.controllerName, Revision: revision,
		IstioResources: resources,
	}
	if err == nil && o.xdsAddress != "" {
		cfg.XDS, err = parseHostPort("--xds-address", o.xdsAddress)
	}
	return cfg, err
}

// readingGuest is what the check of a migration does.
const readingGuest = "reading the Gateways of the guest, and its istiod"

// inventory reads what the check follows from.
func (o *migrationCheck) inventory(ctx context.Context, cfg model.Config, access guestAccess) (migration.Inventory, error) {
	ctx, cancel := context.WithTimeoutCause(quiet(ctx), o.timeout,
		fmt.Errorf("timed out after --timeout=%s", o.timeout))
	defer cancel()
	config, err := access.config(ctx, cfg.Topology, o.timeout)
	if err != nil {
		return migration.Inventory{}, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "hypergate-migrate"
	cluster, err := guest.New(guestconn.Direct(config), cfg, nil)
	if err != nil {
		return migration.Inventory{}, err
	}
	found, err := cluster.Inventory(ctx, migration.ParseVersion(charts.EmbeddedVersion))
	if err != nil {
		return migration.Inventory{}, accessError("reading the guest", "read what deploy/rbac/migration permits", err)
	}
	return found, nil
}

func (o *migratePlanOptions) run(ctx context.Context, out io.Writer, shown progress) error {
	cfg, err := o.check.config(o.revision)
	if err != nil {
		return err
	}
	cfg.MgmtNamespace = cmp.Or(o.guest.namespace, cfg.GuestNamespace)
	done := shown.waits(readingGuest)
	found, err := o.check.inventory(ctx, cfg, o.guest)
	done()
	if err != nil {
		return err
	}
	return printed(out, o.output, newMigrationPlan(found, o.check.accepted))
}
