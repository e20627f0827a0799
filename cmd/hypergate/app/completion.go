package app

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/summary"
)

// flagValues returns the values that a shell completes for flags without a closed list, by the name of the flag.
func flagValues() map[string][]string {
	return map[string][]string{
		"istio-resources": defaultIstioResources(),
		"publish-probe":   {probeOff},
		"for": {
			well, strings.ToLower(summary.Available), strings.ToLower(summary.Progressing), strings.ToLower(summary.Degraded),
			strings.ToLower(summary.Upgradeable),
		},
		"only":     onlyValues(),
		"revision": {"openshift-gateway"},
	}
}

func strategyNames() (out []string) {
	for _, s := range publish.Strategies() {
		out = append(out, string(s))
	}
	return out
}

func onlyValues() []string { return append(stateNames(), onlyOld) }

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
	var errs []error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if c, is := flag.Value.(choice); is {
			errs = append(errs, cmd.RegisterFlagCompletionFunc(flag.Name, fixed(c.values)))
		}
	})
	return errors.Join(errs...)
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
