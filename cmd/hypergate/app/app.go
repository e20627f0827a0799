// Package app is hypergate's command line: flags become a desired.Config and clients, and each verb calls the packages below.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hypergate/hypergate/pkg/text"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	// exitAct says that somebody must act: everything was printed, and something of it is Blocked or Undetermined.
	exitAct = 2
)

// longestError is how much of an error is printed, in bytes: an API server decides what it answers.
const longestError = 8 << 10

// codeError ends the process with this exit code, and says nothing more.
type codeError int

// Error is never printed.
func (c codeError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Main runs the process's command line, until a signal ends it, and returns the exit code. Call it once.
func Main() int {
	return Execute(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr)
}

// Execute runs a command line, without the program's name, and returns the exit code. What was asked for goes to out, an error to errOut.
func Execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	root := newRoot() //nolint:contextcheck // cobra hands the context to each verb
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if code, ok := errors.AsType[codeError](err); ok {
		return int(code)
	}
	if err != nil {
		fmt.Fprintf(errOut, "hypergate: %s\n", text.Lines(text.Cut(err.Error(), longestError)))
		return exitError
	}
	return exitOK
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "hypergate",
		Short: "Gateway API for hosted clusters: istiod on the management cluster, gateways in the guest",
		Long: `hypergate installs Istio's control plane split in two: istiod in the namespace of a hosted control plane on the management cluster,
and what must stand beside the gateways - RBAC, webhooks, CRDs - in the guest. Standalone clusters are both sides at once.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newRun(), newRender(), newCRDs(), newRotateCA(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of hypergate and of the Istio charts that it embeds",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := chartSource("")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "hypergate %s (Istio %s)\n", version, source.Version())
			return err
		},
	}
}
