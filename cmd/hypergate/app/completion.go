package app

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/logs"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/summary"
)

// flagValues returns the values that a shell completes, by the name of the flag. Those of --output differ by command.
func flagValues() map[string][]string {
	return map[string][]string{
		"topology":        {string(model.TopologyHosted), string(model.TopologyStandalone)},
		"side":            {"management", "guest", "dropped", "all"},
		"publish":         strategyNames(),
		"gateway-rollout": {string(model.OneByOne), string(model.AllAtOnce)},
		"webhooks":        {string(model.WebhooksManaged), string(model.WebhooksExternal)},
		"crd-management":  {string(crds.Managed), string(crds.Unmanaged)},
		"istio-resources": defaultIstioResources(),
		"publish-probe":   {probeOff},
		"for": {
			well, strings.ToLower(summary.Available), strings.ToLower(summary.Progressing), strings.ToLower(summary.Degraded),
			strings.ToLower(summary.Upgradeable),
		},
		"only":       append(stateNames(), onlyOld),
		"sort":       {"state", "since", "name"},
		"revision":   {"openshift-gateway"},
		"log-format": {string(logs.Text), string(logs.JSON)},
	}
}

// outputsOf returns the values of --output, by the command.
func outputsOf() map[string][]string {
	return map[string][]string{
		"status":    {outputTable, outputWide, outputJSON, outputYAML, outputHTML},
		"fleet":     {outputTable, outputWide, outputJSON, outputYAML, outputHTML},
		"preflight": {outputTable, outputJSON, outputYAML},
		"diff":      {outputTable, outputJSON, outputYAML},
		"crds":      {outputTable, outputJSON, outputYAML},
		"render":    {outputYAML, outputJSON},
		"proxies":   {outputTable, outputJSON, outputYAML},
		"version":   {outputTable, outputJSON, outputYAML},
		// The commands of migrate but release, which has no --output.
		"migrate plan":     {outputTable, outputJSON, outputYAML},
		"migrate start":    {outputTable, outputJSON, outputYAML},
		"migrate pause":    {outputTable, outputJSON, outputYAML},
		"migrate resume":   {outputTable, outputJSON, outputYAML},
		"migrate rollback": {outputTable, outputJSON, outputYAML},
		"migrate retire":   {outputTable, outputJSON, outputYAML},
		"migrate status":   {outputTable, outputJSON, outputYAML},
	}
}

func strategyNames() (out []string) {
	for _, s := range publish.Strategies() {
		out = append(out, string(s))
	}
	return out
}

func stateNames() (out []string) {
	for _, s := range summary.States() {
		out = append(out, string(s))
	}
	return out
}

// completeValues makes the shell complete the values of a command's flags. Names, durations and the like have no list:
// for them, the shell completes nothing. For paths, it completes files.
func completeValues(cmd *cobra.Command) error {
	for name, values := range flagValues() {
		if cmd.Flags().Lookup(name) != nil {
			if err := cmd.RegisterFlagCompletionFunc(name, fixed(values)); err != nil {
				return err
			}
		}
	}
	if values, has := outputsOf()[strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")]; has {
		return cmd.RegisterFlagCompletionFunc("output", fixed(values))
	}
	return nil
}

// fixed completes a list, in its order. Of a list of values with commas, the last one is completed.
func fixed(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before, last := "", typed
		if i := strings.LastIndex(typed, ","); i >= 0 {
			before, last = typed[:i+1], typed[i+1:]
		}
		var out []string
		for _, value := range values {
			if strings.HasPrefix(value, last) && !slices.Contains(strings.Split(before, ","), value) {
				out = append(out, before+value)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
