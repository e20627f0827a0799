package app

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

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
		Example: `  # What goes to the management cluster
  hypergate render --side management --namespace clusters-guest1 --xds-address istiod.apps.example.com:443 \
    --pilot-image registry.example.com/pilot:1.29.1 --proxy-image registry.example.com/proxyv2:1.29.1

  # What goes nowhere, and why
  hypergate render --side dropped --topology standalone --pilot-image ... --proxy-image ...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.side, "side", "all", "management, guest, dropped or all")
	cmd.Flags().StringVarP(&o.output, "output", "o", "yaml", "yaml or json")
	cmd.Flags().StringVar(&o.caBundle, "ca-bundle", "", "PEM file with the mesh root that webhooks are to trust (default: a placeholder; run makes the real one)")
	cmd.Flags().StringSliceVar(&o.classes, "gateway-class", []string{"openshift-default"}, "names of the GatewayClasses that ask; an empty value shows the plan without any")
	cmd.Flags().BoolVar(&o.crds, "crds", true, "with the CRDs")
	return cmd
}

func (o *renderOptions) run(out io.Writer) error {
	if !slices.Contains([]string{"management", "guest", "dropped", "all"}, o.side) {
		return fmt.Errorf("--side: %q is none of management, guest, dropped, all", o.side)
	}
	if o.output != "yaml" && o.output != "json" {
		return fmt.Errorf("--output: %q is neither yaml nor json", o.output)
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	source, err := chartSource(o.chartsDir)
	if err != nil {
		return err
	}
	root, err := o.root()
	if err != nil {
		return err
	}
	hosted := desired.Hosted{CA: pki.CA{Root: root, Cert: redacted(), Key: redacted(), Chain: redacted()}}
	guest := desired.Guest{}
	for _, name := range o.classes {
		if name != "" {
			guest.Classes = append(guest.Classes, desired.GatewayClass{Name: name})
		}
	}
	state, err := desired.Compute(cfg, source, hosted, guest)
	if err != nil {
		return err
	}
	objects, err := o.objects(state)
	if err != nil {
		return err
	}
	return o.print(out, objects)
}

// objects are the documents to print, in the order of applying.
func (o *renderOptions) objects(state desired.State) ([]any, error) {
	var out []any
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
			stages = append([][]desired.GuestObject{state.CRDs}, stages...)
		}
		for _, object := range slices.Concat(stages...) {
			add(object.Unstructured())
		}
	}
	if o.side == "management" || o.side == "all" {
		for _, object := range slices.Concat(state.Mgmt, state.Workload) {
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
	return data, nil
}
