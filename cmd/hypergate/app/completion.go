package app

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/summary"
)

// flagValues returns the values that a shell completes for flags without a closed list, by the name of the flag.
func flagValues() map[string][]string {
	return map[string][]string{
		"istio-resources": defaultIstioResources(),
		"publish-probe":   {probeOff},
		"for":             goals(),
		"only":            onlyValues(),
		"revision":        {"openshift-gateway"},
	}
}

// goals returns the values of --for, without a status.
func goals() []string {
	types := summary.ConditionTypes()
	out := append(make([]string, 0, 1+len(types)), well)
	for _, conditionType := range types {
		out = append(out, strings.ToLower(conditionType))
	}
	return out
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

// pathFlags returns the flags whose values are paths.
func pathFlags() []string {
	return []string{"kubeconfig", "guest-kubeconfig", "certificate-authority", "ca-bundle", "charts-dir", "values", "filename"}
}

// completeValues makes the shell complete the values of a command's flags. Names, durations and the like have no list:
// for them, the shell completes nothing, and neither for arguments. For paths, it completes files.
func completeValues(cmd *cobra.Command) error {
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	var errs []error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if complete := completionOf(flag); complete != nil {
			errs = append(errs, cmd.RegisterFlagCompletionFunc(flag.Name, complete))
		}
	})
	return errors.Join(errs...)
}

// completionOf returns how the value of a flag is completed. Nil means that the shell completes files.
func completionOf(flag *pflag.Flag) cobra.CompletionFunc {
	if c, is := flag.Value.(choice); is {
		return fixed(c.values)
	}
	if values, has := flagValues()[flag.Name]; has {
		return fixed(values)
	}
	switch {
	case flag.Name == "context":
		return contextsOf("kubeconfig")
	case flag.Name == "guest-context":
		return contextsOf("guest-kubeconfig")
	case slices.Contains(pathFlags(), flag.Name), flag.Name == "output": // that of the command bundle
		return nil
	default:
		return cobra.NoFileCompletions
	}
}

// contextsOf completes the contexts of a kubeconfig: that of a flag, or else that of kubectl.
func contextsOf(kubeconfigFlag string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.WarnIfAllMissing = false
		if flag := cmd.Flags().Lookup(kubeconfigFlag); flag != nil {
			rules.ExplicitPath = flag.Value.String()
		}
		config, err := rules.Load()
		if err != nil { // the command itself reports it
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(config.Contexts)), func(name string) bool {
			return !strings.HasPrefix(name, typed)
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
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
