package app

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestDocumentedCommands checks that each command line of hypergate in the documentation, with its flags, exists.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range pages(t) {
		for _, line := range commandLines(t, page) {
			found++
			checkCommandLine(t, page, line)
		}
	}
	if found < 120 {
		t.Errorf("only %d command lines were found", found)
	}
}

// TestCommandsAreInTheTable checks that docs/development.md names each command in its table of folders.
func TestCommandsAreInTheTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/development.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, found := strings.Cut(string(page), "| `cmd/hypergate` |")
	row, _, _ = strings.Cut(row, "\n")
	if !found {
		t.Fatal("the table has no row of cmd/hypergate")
	}
	for _, cmd := range newRoot().Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "completion" && !strings.Contains(row, "`"+cmd.Name()+"`") {
			t.Errorf("the row of cmd/hypergate lacks the command %s", cmd.Name())
		}
	}
}

// pages returns the paths of the pages for users.
func pages(t *testing.T) (out []string) {
	t.Helper()
	const root = "../../.."
	for _, from := range []string{"README.md", "docs", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, from), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				out = append(out, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// commandLines returns what follows the word hypergate at the start of a line of a code block, or of a code span.
func commandLines(t *testing.T, page string) (out []string) {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(content), "\\\n", " ")
	for i, part := range strings.Split(text, "```") {
		start := regexp.MustCompile("`(?:bin/)?hypergate ([^`]+)`") // in a paragraph
		if i%2 == 1 {
			start = regexp.MustCompile(`(?m)^(?:\$ )?(?:bin/)?hypergate ([a-z-]+(?: .*)?)$`)
		}
		for _, match := range start.FindAllStringSubmatch(part, -1) {
			out = append(out, match[1])
		}
	}
	return out
}

// checkCommandLine checks the command and the flags of a line. Arguments, and what follows a pipe, are not checked.
func checkCommandLine(t *testing.T, page, line string) {
	t.Helper()
	line = regexp.MustCompile(`\s(#|\||&&|>|2>|;).*`).ReplaceAllString(" "+line, "")
	words := strings.Fields(line)
	cmd, _, err := newRoot().Find(words)
	if err != nil || cmd.Name() == "hypergate" && !strings.HasPrefix(words[0], "-") {
		t.Errorf("%s: hypergate %s: no such command", page, line)
		return
	}
	for _, word := range words {
		name, _, _ := strings.Cut(strings.Trim(word, "[]"), "=")
		if strings.HasPrefix(name, "-") && !hasFlag(cmd, strings.Trim(name, ",.")) {
			t.Errorf("%s: hypergate %s: no flag %s", page, line, name)
		}
	}
}

func hasFlag(cmd *cobra.Command, name string) bool {
	cmd.InitDefaultHelpFlag()
	if long, is := strings.CutPrefix(name, "--"); is {
		return cmd.Flags().Lookup(long) != nil
	}
	return cmd.Flags().ShorthandLookup(strings.TrimPrefix(name, "-")) != nil
}
