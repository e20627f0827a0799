// Package app is hypergate's command line. It turns flags into a model.Config and clients, and each command calls the
// packages under pkg.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hypergate/hypergate/pkg/logs"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	// exitAct means that an action is required. What was asked for was printed.
	exitAct = 2
)

// longestError is the maximum size of a printed error, in bytes. An API server controls the text of its errors.
const longestError = 8 << 10

// codeError ends the process with an exit code, without an error message.
type codeError int

// Error returns a text that is never printed.
func (c codeError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Main runs the process's command line until it ends or a signal arrives, and returns the exit code. Call it once.
func Main() int {
	return Execute(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr)
}

// Execute runs a command line and returns the exit code. args does not include the program's name. The output of the
// command goes to out, errors go to errOut.
func Execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	root := newRoot() //nolint:contextcheck // cobra passes the context to each command
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if cmd == root {
		err = unknownCommand(root, err)
	}
	if code, ok := errors.AsType[codeError](err); ok {
		return int(code)
	}
	if err != nil {
		message := errorText(err)
		if ctx.Err() != nil { // a signal
			message = strings.Replace(message, context.Canceled.Error(), "interrupted", 1)
		}
		printError(errOut, args, message)
		return exitError
	}
	return exitOK
}

// unknownCommand makes the error of an unknown command one line, and adds where the commands are listed. Other errors,
// and nil, stay as they are.
func unknownCommand(root *cobra.Command, err error) error {
	if err == nil || !strings.HasPrefix(err.Error(), "unknown command") {
		return err
	}
	what, similar, _ := strings.Cut(err.Error(), "Did you mean this?")
	what = strings.TrimSpace(what)
	if names := strings.Fields(similar); len(names) > 0 {
		what += " (similar: " + strings.Join(names, ", ") + ")"
	}
	return seeHelp(root, errors.New(what))
}

// printError prints the error that ends the process: as a line of the log if the log is JSON, so that a log collector
// reads it, too.
func printError(errOut io.Writer, args []string, message string) {
	if logsJSON(args) {
		slog.New(logs.Handler(errOut, logs.JSON, 0)).Error("hypergate ends", "err", message)
		return
	}
	note(errOut, message)
}

// note prints an error or what the user must know. A text of an API server can have line breaks, and must not pass for
// another line of hypergate.
func note(errOut io.Writer, message string) {
	fmt.Fprintf(errOut, "hypergate: %s\n", strings.ReplaceAll(message, "\n", "\n  "))
}

// logsJSON reports whether a command line is of `hypergate run` with a log of JSON. It reads the arguments themselves:
// another flag that is wrong ends the process before the flags are known.
func logsJSON(args []string) (is bool) {
	if len(args) == 0 || args[0] != "run" {
		return false
	}
	for i, arg := range args {
		switch value, inOne := strings.CutPrefix(arg, "--log-format="); {
		case arg == "--":
			return is
		case inOne:
			is = value == string(logs.JSON)
		case arg == "--log-format" && i+1 < len(args):
			is = args[i+1] == string(logs.JSON)
		}
	}
	return is
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "hypergate",
		Short: "Install Istio's Gateway API control plane for hosted clusters",
		Long: `hypergate installs Istio's control plane for the Gateway API in two parts:

  * istiod, in the namespace of a hosted control plane on the management cluster
  * RBAC, webhooks and CRDs, in the guest, where the gateways run

A standalone cluster is both the management cluster and the guest.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.Flags().Bool("version", false, "Print the version.") // without a shorthand: -v is the log level
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newRun(), newRender(), newStatus(), newFleet(), newPreflight(), newDiff(), newProxies(), newBundle(),
		newGuestKubeconfig(), newCRDs(), newMigrate(), newRotateCA(), newRelease(), newVersion())
	root.InitDefaultCompletionCmd()
	for _, cmd := range allCommands(root) {
		cmd.Args = withHelp(cmd.Args)
		if !cmd.Runnable() { // without it, cobra prints the help for an unknown shell, and the exit code is 0
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		if err := completeValues(cmd); err != nil {
			cmd.Long += "\n\n" + err.Error() // TestCompletion checks that there is none
		}
	}
	checkHelpTopics(root)
	return root
}

// checkHelpTopics makes help for an unknown command an error. Without it, cobra prints the usage, and the exit code is
// 0.
func checkHelpTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, topic []string) error {
				_, _, err := root.Find(topic)
				return unknownCommand(root, err)
			}
		}
	}
}

// allCommands returns the commands below one, and those below them.
func allCommands(root *cobra.Command) (out []*cobra.Command) {
	for _, cmd := range root.Commands() {
		out = append(append(out, cmd), allCommands(cmd)...)
	}
	return out
}

// versionReport is the output of the command version.
type versionReport struct {
	Hypergate string `json:"hypergate"`
	Istio     string `json:"istio"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
}

func (r versionReport) code() int { return exitOK }

func (r versionReport) table(out io.Writer) {
	fmt.Fprintf(out, "hypergate %s (Istio %s)\n", r.Hypergate, r.Istio)
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of hypergate and of the embedded Istio charts",
		Example: `  hypergate version
  hypergate version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := chartSource("")
			if err != nil {
				return err
			}
			report := versionReport{version, source.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return printed(cmd.OutOrStdout(), output, report)
		},
	}
	choose(cmd.Flags(), &output, "output", "o", outputTable, "Output format. {values}.", tables()...)
	return cmd
}
