package app

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
)

// renderOptions holds the flags of the command render. They include values that only a cluster could provide.
type renderOptions struct {
	planOptions
	side, output, caBundle string
	classes                []string
	crds                   bool
	filename, published    string
}

func newRender() *cobra.Command {
	o := &renderOptions{}
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print the objects that hypergate installs in each cluster",
		Long: `Print the objects that "hypergate run" applies to the management cluster and to the guest.

With --filename, print exactly those for a HostedControlPlane: its nodes, tolerations, labels, priority, replicas and
owner, and how istiod is published. Without it, print those of a plan without a HostedControlPlane. Values that only a
cluster has are placeholders: keys, tokens, and the address of the guest's API server.

With --side=dropped, print the objects of Istio's charts that hypergate does not apply, each with the reason.

The command does not access any cluster. It uses example values for required flags that are not set, and lists them on
stderr.`,
		Example: `  # Print an installation with example images and addresses
  hypergate render

  # Print the objects of the management cluster
  hypergate render --side management --namespace clusters-guest1 --xds-address istiod.apps.example.com:443 \
    ` + exampleImages + `

  # Print what hypergate run applies for a HostedControlPlane, with the address that its load balancer would have
  kubectl -n clusters-guest1 get hostedcontrolplane guest1 -o yaml |
    hypergate render -f - --published-host 192.0.2.44

  # Print the objects of Istio's charts that are not applied, with the reasons
  hypergate render --side dropped --topology standalone --pilot-image ... --proxy-image ...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.addFlags(cmd.Flags())
	choose(cmd.Flags(), &o.side, "side", "", "all", "Objects to print. {values}.", "management", "guest", "dropped", "all")
	choose(cmd.Flags(), &o.output, "output", "o", outputYAML, "Output format. {values}.", outputYAML, outputJSON)
	cmd.Flags().StringVar(&o.caBundle, "ca-bundle", "", "Path to a PEM file with the mesh root for the webhooks' caBundle. "+
		"Defaults to a placeholder. hypergate run creates the actual root.")
	cmd.Flags().StringSliceVar(&o.classes, "gateway-class", []string{"openshift-default"}, "Names of the GatewayClasses to assume in "+
		"the guest. "+
		"An empty value prints the plan without a GatewayClass.")
	cmd.Flags().BoolVar(&o.crds, "crds", true, "If true, include the CRDs.")
	cmd.Flags().StringVarP(&o.filename, "filename", "f", "", "Path to a file with a HostedControlPlane, as YAML or JSON. - is stdin. "+
		"It can also contain the Namespace. --namespace defaults to that of the HostedControlPlane.")
	cmd.Flags().StringVar(&o.published, "published-host", "", "What the management cluster would allocate for istiod: "+
		"the address of the load balancer, :<port> of the nodes, or the host of the Route istiod of the control-plane-operator.")
	return cmd
}

func (o *renderOptions) run(cmd *cobra.Command) error {
	file, err := readControlPlaneFile(o.filename, cmd.InOrStdin())
	if err != nil {
		return err
	}
	source, sourceErr := chartSource(o.chartsDir)
	if sourceErr == nil {
		o.fillIn(cmd, source.Version(), file)
	}
	cfg, err := o.config()
	if err = cmp.Or(err, sourceErr); err != nil {
		return err
	}
	root, err := o.root()
	if err != nil {
		return err
	}
	hosted, nothing, err := file.observation(cmd, cfg, o.published)
	if err != nil {
		return err
	}
	if nothing != "" {
		cmd.PrintErrln("hypergate: run applies nothing for this HostedControlPlane now: " + nothing)
		return o.print(cmd.OutOrStdout(), []any{})
	}
	hosted.CA = pki.CA{Root: root, Cert: redacted(), Key: redacted(), Chain: redacted()}
	return o.render(cmd.OutOrStdout(), cfg, source, hosted)
}

// render prints the plan for an observation of the management side.
func (o *renderOptions) render(out io.Writer, cfg model.Config, source *charts.Source, hosted model.ManagementObservation) error {
	classes, err := o.gatewayClasses()
	if err != nil {
		return err
	}
	guest := model.GuestObservation{API: guestAPI(), Classes: classes}
	state, err := desired.Compute(cfg, source, hosted, guest)
	if err != nil {
		return err
	}
	credentials, err := credentialsOf(cfg, hosted.ControlPlane, state)
	if err != nil {
		return err
	}
	objects, err := o.objects(state, credentials)
	if err != nil {
		return err
	}
	return o.print(out, objects)
}

// gatewayClasses returns the classes to assume in the guest.
func (o *renderOptions) gatewayClasses() (out []model.GatewayClass, err error) {
	for _, name := range o.classes {
		if problems := validation.IsDNS1123Subdomain(name); name != "" && len(problems) > 0 {
			return nil, fmt.Errorf("--gateway-class: %q is not a name: %s", name, problems[0])
		}
		if name != "" {
			out = append(out, model.GatewayClass{Name: name})
		}
	}
	return out, nil
}

// fillIn sets each flag that the command run requires and that is not set to an example value. It lists them on stderr.
func (o *renderOptions) fillIn(cmd *cobra.Command, version string, file controlPlaneFile) {
	hosted := o.topology != string(model.TopologyStandalone)
	if file.plane != nil && file.plane.GetNamespace() != "" && !cmd.Flags().Changed("namespace") {
		_ = cmd.Flags().Set("namespace", file.plane.GetNamespace()) // any text is accepted here, and checked later
	}
	var filled []string
	for _, example := range []struct {
		flag, value string
		applies     bool
	}{
		{"namespace", "clusters-guest1", hosted},
		{"xds-address", "istiod.apps.example.com:443", hosted && !cmd.Flags().Changed("publish") && file.plane == nil},
		{"pilot-image", "registry.example.com/pilot:" + version, true},
		{"proxy-image", "registry.example.com/proxyv2:" + version, true},
		{"relay-image", "registry.example.com/hypergate:dev", o.publish.strategy == string(model.PublishTunnel)},
	} {
		if !example.applies || cmd.Flags().Changed(example.flag) {
			continue
		}
		if err := cmd.Flags().Set(example.flag, example.value); err == nil {
			filled = append(filled, "--"+example.flag+"="+example.value)
		}
	}
	if len(filled) > 0 {
		cmd.PrintErrln("hypergate: using example values for flags that are not set: " + strings.Join(filled, " "))
	}
}

// credentialsOf returns the Secrets with the credentials of istiod's pod for the guest. They are not part of a plan,
// because only a guest can issue their tokens. Without istiod, the result is empty.
func credentialsOf(cfg model.Config, plane model.ControlPlane, state desired.Plan) ([]model.MgmtObject, error) {
	if !state.Installed {
		return nil, nil
	}
	if _, known := state.Endpoint.(publish.EndpointKnown); !known {
		return nil, errors.New("the address of istiod depends on the management cluster, which render does not access: " +
			"set --published-host to what that cluster would allocate, " +
			"or use --xds-address instead of --publish (the objects that publish istiod are then omitted)")
	}
	credential := model.Credential{GuestAPI: guestAPI(), Token: string(redacted())}
	secret, err := model.CredentialSecret(cfg, plane, credential)
	if err != nil || !publish.UsesTunnel(cfg, plane) {
		return []model.MgmtObject{secret}, err
	}
	tunnel, err := model.TunnelSecret(cfg, plane, credential, pki.Serving{Cert: redacted(), Key: redacted()})
	return []model.MgmtObject{secret, tunnel}, err
}

// sideTitle is a comment between the documents of YAML. It says to which cluster the objects that follow belong.
type sideTitle string

// title returns the title of a side, if both are printed.
func (o *renderOptions) title(side sideTitle) []any {
	if o.side != "all" {
		return nil
	}
	return []any{side}
}

// objects returns the documents to print, in the order in which hypergate applies them.
func (o *renderOptions) objects(state desired.Plan, credentials []model.MgmtObject) ([]any, error) {
	out := []any{}
	var errs []error
	add := func(u *unstructured.Unstructured, err error) {
		errs = append(errs, err)
		if err == nil {
			out = append(out, u.Object)
		}
	}
	out = append(out, o.title("the guest")...)
	if o.side == "guest" || o.side == "all" {
		stages := [][]model.GuestObject{state.Guest, state.Admission}
		if o.crds {
			stages = append([][]model.GuestObject{state.CRDs, state.Protection}, stages...)
		}
		for _, object := range slices.Concat(stages...) {
			add(object.Unstructured())
		}
	}
	out = append(out, o.title("the management cluster")...)
	if o.side == "management" || o.side == "all" {
		for _, object := range slices.Concat(state.Mgmt, state.Routes, credentials, state.Workload) {
			add(object.Unstructured())
		}
	}
	if o.side == "dropped" {
		for _, d := range state.Dropped {
			out = append(out, d)
		}
	}
	return out, errors.Join(errs...)
}

func (o *renderOptions) print(out io.Writer, objects []any) error {
	if o.output == "json" {
		objects = slices.DeleteFunc(objects, func(object any) bool { _, is := object.(sideTitle); return is })
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	var text strings.Builder
	begun, title := false, ""
	for _, object := range objects {
		if side, is := object.(sideTitle); is {
			title = "# Objects of " + string(side) + "\n"
			continue
		}
		data, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("printing an object: %w", err)
		}
		if begun {
			text.WriteString("---\n")
		}
		text.WriteString(title)
		text.Write(data)
		begun, title = true, ""
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// guestAPI returns a placeholder for the address of a guest's API server.
func guestAPI() model.GuestAPI {
	return model.GuestAPI{Server: "https://guest.invalid:6443", CABundle: redacted()}
}

// redacted returns a placeholder for a value that only exists in a cluster.
func redacted() []byte { return []byte("redacted: created by hypergate run\n") }

// root returns the mesh root to print in caBundles.
func (o *renderOptions) root() ([]byte, error) {
	if o.caBundle == "" {
		return base64.StdEncoding.DecodeString(placeholderRoot)
	}
	data, err := os.ReadFile(o.caBundle)
	if err != nil {
		return nil, fmt.Errorf("--ca-bundle: %w", err)
	}
	root, err := certificates(data)
	if err != nil {
		return nil, fmt.Errorf("--ca-bundle: %s %w: use a PEM file with the mesh root", o.caBundle, err)
	}
	return root, nil
}

// certificates returns the certificates of a PEM file. It rejects files with other blocks, because a key, even a
// damaged one, would be printed in an object for the guest.
func certificates(data []byte) ([]byte, error) {
	var out []byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("contains a PEM block %s, but only certificates are allowed", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("contains an invalid certificate: %w", err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	if len(out) == 0 {
		return nil, errors.New("contains no certificate")
	}
	return out, nil
}
