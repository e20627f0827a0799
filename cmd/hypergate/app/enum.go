package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/model"
)

// choice is the value of a flag with a closed list of values. The help text, the completion and the check of the flag
// follow from the list.
type choice struct {
	value  *string
	values []string
}

// choose adds a flag with a closed list of values. In usage, {values} stands for the list.
func choose(flags *pflag.FlagSet, into *string, name, shorthand, value, usage string, values ...string) {
	*into = value
	usage = strings.Replace(usage, "{values}", "One of: ("+strings.Join(values, ", ")+")", 1)
	flags.VarP(choice{into, values}, name, shorthand, usage)
}

// String returns the value.
func (c choice) String() string {
	if c.value == nil { // pflag calls it for the zero value
		return ""
	}
	return *c.value
}

// Set sets the value. It returns an unsupportedError if the list does not have it.
func (c choice) Set(value string) error {
	if !slices.Contains(c.values, value) {
		return unsupportedError{value, c.values}
	}
	*c.value = value
	return nil
}

// Type returns the type in help texts.
func (choice) Type() string { return "string" }

// unsupportedError is the error of a value that is not in the closed list of a flag.
type unsupportedError struct {
	value  string
	values []string
}

// Error returns the value, and the values that are supported.
func (e unsupportedError) Error() string {
	return fmt.Sprintf("unsupported value %q: supported values are %s", e.value, strings.Join(e.values, ", "))
}

// unsupported returns the error of a flag with several values, of which one is not in its closed list.
func unsupported(flag, value string, values []string) error {
	return fmt.Errorf("--%s: %w", flag, unsupportedError{value, values})
}

// flagError returns the error of a flag that cannot be parsed. All flags with a closed list have the same form. The
// errors of other flags name the help, as those of kubectl do.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, is := errors.AsType[*pflag.InvalidValueError](err); is {
		if cause, is := errors.AsType[unsupportedError](err); is {
			return unsupported(invalid.GetFlag().Name, cause.value, cause.values)
		}
	}
	return seeHelp(cmd, err)
}

// seeHelp adds to an error where the usage of a command is.
func seeHelp(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
}

// withHelp makes the error of surplus arguments name the help.
func withHelp(args cobra.PositionalArgs) cobra.PositionalArgs {
	if args == nil {
		args = cobra.ArbitraryArgs
	}
	return func(cmd *cobra.Command, values []string) error {
		if err := args(cmd, values); err != nil {
			return seeHelp(cmd, err)
		}
		return nil
	}
}

// stable is the promise of each command that prints JSON and YAML.
const stable = "Fields of json and yaml can be added, but existing fields are never renamed or removed."

// tables returns the formats of most commands.
func tables() []string { return []string{outputTable, outputJSON, outputYAML} }

// topologies returns the values of --topology.
func topologies() []string {
	return []string{string(model.TopologyHosted), string(model.TopologyStandalone)}
}
