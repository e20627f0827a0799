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
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/pki"
)

// renderOptions are what render needs beside the plan's flags: it has no cluster to observe.
type renderOptions struct {
	planOptions
	side, output, caBundle string
	classes                []string
	crds                   bool
}

func newRender() *cobra.Command {
	o := &renderOptions{}
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print what run would apply to each side, and what it drops and why; no cluster needed",
		Example: `  # What an installation looks like, with example images and addresses
  hypergate render

  # What goes to the management cluster
  hypergate render --side management --namespace clusters-guest1 --xds-address istiod.apps.example.com:443 \
    --pilot-image registry.example.com/pilot:` + charts.EmbeddedVersion + ` --proxy-image registry.example.com/proxyv2:` + charts.EmbeddedVersion + `

  # What goes nowhere, and why
  hypergate render --side dropped --topology standalone --pilot-image ... --proxy-image ...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.side, "side", "all", "management, guest, dropped or all")
	cmd.Flags().StringVarP(&o.output, "output", "o", "yaml", "yaml or json")
	cmd.Flags().StringVar(&o.caBundle, "ca-bundle", "", "PEM file with the mesh root that webhooks are to trust (default: a placeholder; run makes the real one)")
	cmd.Flags().StringSliceVar(&o.classes, "gateway-class", []string{"openshift-default"}, "names of the GatewayClasses that ask; an empty value shows the plan without any")
	cmd.Flags().BoolVar(&o.crds, "crds", true, "with the CRDs")
	return cmd
}

func (o *renderOptions) run(cmd *cobra.Command) error {
	if !slices.Contains([]string{"management", "guest", "dropped", "all"}, o.side) {
		return fmt.Errorf("--side: %q is none of management, guest, dropped, all", o.side)
	}
	if o.output != "yaml" && o.output != "json" {
		return fmt.Errorf("--output: %q is neither yaml nor json", o.output)
	}
	source, sourceErr := chartSource(o.chartsDir)
	if sourceErr == nil {
		o.fillIn(cmd, source.Version())
	}
	cfg, err := o.config()
	if err = cmp.Or(err, sourceErr); err != nil {
		return err
	}
	root, err := o.root()
	if err != nil {
		return err
	}
	hosted := desired.ManagementObservation{CA: pki.CA{Root: root, Cert: redacted(), Key: redacted(), Chain: redacted()}}
	guest := desired.GuestObservation{API: guestAPI()}
	for _, name := range o.classes {
		if name != "" {
			guest.Classes = append(guest.Classes, desired.GatewayClass{Name: name})
		}
	}
	state, err := desired.Compute(cfg, source, hosted, guest)
	if err != nil {
		return err
	}
	credential, err := credentialOf(cfg, state)
	if err != nil {
		return err
	}
	objects, err := o.objects(state, credential)
	if err != nil {
		return err
	}
	return o.print(cmd.OutOrStdout(), objects)
}

// fillIn sets the flags that run requires and that were not given to examples, and says so on stderr.
func (o *renderOptions) fillIn(cmd *cobra.Command, version string) {
	hosted := o.topology != string(desired.TopologyStandalone)
	var filled []string
	for _, example := range []struct {
		flag, value string
		applies     bool
	}{
		{"namespace", "clusters-guest1", hosted},
		{"xds-address", "istiod.apps.example.com:443", hosted && !cmd.Flags().Changed("publish")},
		{"pilot-image", "registry.example.com/pilot:" + version, true},
		{"proxy-image", "registry.example.com/proxyv2:" + version, true},
	} {
		if !example.applies || cmd.Flags().Changed(example.flag) {
			continue
		}
		if err := cmd.Flags().Set(example.flag, example.value); err == nil {
			filled = append(filled, "--"+example.flag+"="+example.value)
		}
	}
	if len(filled) > 0 {
		cmd.PrintErrln("hypergate: using examples for flags that were not given: " + strings.Join(filled, " "))
	}
}

// credentialOf is istiod's guest kubeconfig, which is no part of a plan because only a guest can give its token. There is none without istiod.
func credentialOf(cfg desired.Config, state desired.Plan) ([]desired.MgmtObject, error) {
	if !state.Installed {
		return nil, nil
	}
	if _, known := state.Endpoint.(desired.EndpointKnown); !known {
		return nil, errors.New("where istiod will be published is for the management cluster to say, which render does not ask: in place of --publish give --xds-address " +
			"(what publishes it is not shown then)")
	}
	secret, err := desired.CredentialSecret(cfg, desired.ControlPlane{}, desired.Credential{GuestAPI: guestAPI(), Token: string(redacted())})
	return []desired.MgmtObject{secret}, err
}

// objects are the documents to print, in the order of applying.
func (o *renderOptions) objects(state desired.Plan, credential []desired.MgmtObject) ([]any, error) {
	out := []any{}
	var errs []error
	add := func(u *unstructured.Unstructured, err error) {
		errs = append(errs, err)
		if err == nil {
			out = append(out, u.Object)
		}
	}
	if o.side == "guest" || o.side == "all" {
		stages := [][]desired.GuestObject{state.Guest, state.Admission}
		if o.crds {
			stages = append([][]desired.GuestObject{state.CRDs, state.Protection}, stages...)
		}
		for _, object := range slices.Concat(stages...) {
			add(object.Unstructured())
		}
	}
	if o.side == "management" || o.side == "all" {
		for _, object := range slices.Concat(state.Mgmt, credential, state.Workload) {
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
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	var text strings.Builder
	for i, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("printing an object: %w", err)
		}
		if i > 0 {
			text.WriteString("---\n")
		}
		text.Write(data)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// guestAPI stands for the way to a guest's API server.
func guestAPI() desired.GuestAPI {
	return desired.GuestAPI{Server: "https://guest.invalid:6443", CABundle: redacted()}
}

// redacted stands for a value that only a cluster has.
func redacted() []byte { return []byte("redacted: made by hypergate run\n") }

// root is the mesh root to show in caBundles.
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
		return nil, fmt.Errorf("--ca-bundle: %s: %w; give the mesh root, in PEM", o.caBundle, err)
	}
	return root, nil
}

// certificates are the certificates of a PEM file and nothing else of it: a key, whole or damaged, would be printed as part of an object for
// the guest.
func certificates(data []byte) ([]byte, error) {
	var out []byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a block %s in it, and must have certificates only", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("a certificate in it cannot be read: %w", err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	if len(out) == 0 {
		return nil, errors.New("it has no certificate in it")
	}
	return out, nil
}
