package app

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is a heading of the help text of a command with many flags, and the flags below it.
type flagGroup struct {
	title string
	flags []string
}

// flagGroups returns the groups of the commands that have the flags of run. A flag without a group is a general flag.
func flagGroups() []flagGroup {
	return []flagGroup{
		{"Clusters", strings.Fields(`topology namespace guest-namespace kubeconfig context guest-kubeconfig guest-context
			guest-kubeconfig-secret istiod-guest-server controller-name revision`)},
		{"Images and charts", strings.Fields("pilot-image proxy-image relay-image sidecar-image release-version charts-dir values")},
		{"Publishing istiod", strings.Fields(`publish publish-host publish-gateway publish-node-port publish-probe xds-address
			webhook-host webhooks`)},
		{"Network policy", strings.Fields("network-policies xds-peers guest-api-peers metrics-peers dns-peers")},
		{"What is installed", strings.Fields(`crd-management adopt-crds protect-crds crd-writers istio-resources
			sidecar-injection install removal-id replicas`)},
		{"Rollouts and credentials", strings.Fields("gateway-rollout token-lifetime renew-guest-kubeconfig ca-overlap")},
		{"Process", strings.Fields("leader-elect report-to-hcp health-address metrics-address log-format v")},
	}
}

// groupsFrom is the number of flags from which a help text has groups.
const groupsFrom = 20

// helpWidth is the width of help texts that are not printed to a terminal.
const helpWidth = 100

// printUsage prints the usage of a command: as cobra does, with lines that fit the terminal, and flags in groups if
// there are many.
func printUsage(cmd *cobra.Command) error {
	var out strings.Builder
	width := screenOf(os.Stdout).width
	if width == 0 {
		width = helpWidth
	}
	out.WriteString("Usage:\n")
	if cmd.Runnable() {
		out.WriteString("  " + cmd.UseLine() + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		out.WriteString("  " + cmd.CommandPath() + " [command]\n\nAvailable Commands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				out.WriteString("  " + padded(sub.Name(), sub.NamePadding()) + " " + sub.Short + "\n")
			}
		}
	}
	if cmd.HasExample() {
		out.WriteString("\nExamples:\n" + cmd.Example + "\n")
	}
	for _, group := range grouped(cmd.LocalFlags()) {
		out.WriteString("\n" + group.title + ":\n" + flagUsages(group.flags, width))
	}
	if cmd.HasAvailableSubCommands() {
		out.WriteString("\nUse \"" + cmd.CommandPath() + " [command] --help\" for more information about a command.\n")
	}
	_, err := io.WriteString(cmd.OutOrStderr(), out.String())
	return err
}

// flagUsages returns the help texts of flags. On a narrow screen, each text begins below the name of its flag: pflag
// would not wrap it there.
func flagUsages(flags *pflag.FlagSet, width int) string {
	if width >= narrow {
		return flags.FlagUsagesWrapped(width)
	}
	const indent = "          "
	var out strings.Builder
	for line := range strings.Lines(flags.FlagUsages()) {
		name, usage := strings.TrimRight(line, " \n"), ""
		if column := regexp.MustCompile(`\S {3,}\S`).FindStringIndex(name); column != nil {
			name, usage = name[:column[0]+1], name[column[0]+1:]
		}
		out.WriteString(name + "\n")
		length := 0
		for word := range strings.FieldsSeq(usage) {
			switch {
			case length == 0:
				out.WriteString(indent)
			case len(indent)+length+1+len(word) > width:
				out.WriteString("\n" + indent)
				length = 0
			default:
				out.WriteString(" ")
				length++
			}
			out.WriteString(word)
			length += len(word)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// shownGroup is a group with the flags that a command has of it.
type shownGroup struct {
	title string
	flags *pflag.FlagSet
}

// grouped returns the flags of a command in groups. Few flags are one group.
func grouped(all *pflag.FlagSet) (out []shownGroup) {
	n := 0
	all.VisitAll(func(*pflag.Flag) { n++ })
	general := shownGroup{"Flags", pflag.NewFlagSet("", pflag.ContinueOnError)}
	groups := flagGroups()
	if n < groupsFrom {
		groups = nil
	}
	for _, group := range groups {
		shown := shownGroup{group.title, pflag.NewFlagSet("", pflag.ContinueOnError)}
		shown.flags.SortFlags = false
		for _, name := range group.flags {
			if flag := all.Lookup(name); flag != nil {
				shown.flags.AddFlag(flag)
			}
		}
		out = append(out, shown)
	}
	all.VisitAll(func(flag *pflag.Flag) {
		if !slices.ContainsFunc(groups, func(g flagGroup) bool { return slices.Contains(g.flags, flag.Name) }) {
			general.flags.AddFlag(flag)
		}
	})
	out = append(out, general)
	return slices.DeleteFunc(out, func(g shownGroup) bool { return !g.flags.HasAvailableFlags() })
}
