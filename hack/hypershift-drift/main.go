// Command hypershift-drift says which rules of HyperShift have changed since the commit from which test/hypershift has
// them. It reads a tree of HyperShift from a folder. With -record, it writes the record of that tree instead.
//
// It also names what the rules use and that has changed, and new functions and files in the folders with rules. It ends
// with code 1 if there is any difference.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hypergate/hypergate/test/hypershift"
	"github.com/hypergate/hypergate/test/hypershift/drift"
)

// errDrift means that there are differences, which were printed.
var errDrift = errors.New("read what is listed, change test/hypershift accordingly, and write the record again with -record")

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hypershift-drift:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("hypershift-drift", flag.ContinueOnError)
	tree := flags.String("tree", "", "Folder with the source of HyperShift.")
	path := flags.String("file", filepath.Join("test", "hypershift", "testdata", "rules.txt"), "File with the record.")
	record := flags.Bool("record", false, "If true, write the record of the tree.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if info, err := os.Stat(*tree); err != nil || !info.IsDir() {
		return fmt.Errorf("-tree: %q is not a folder: give the path of a checkout of github.com/openshift/hypershift", *tree)
	}
	if *record {
		return write(*path, *tree, out)
	}
	return compare(*path, *tree, out)
}

func write(path, tree string, out io.Writer) error {
	taken, err := drift.Take(os.DirFS(tree), hypershift.Commit, hypershift.Recorded())
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(drift.Write(file, taken), file.Close()); err != nil {
		return err
	}
	fmt.Fprintf(out, "recorded as %s: if the tree has another commit, set Commit in test/hypershift/rules.go, and record again\n",
		taken.Commit)
	return nil
}

func compare(path, tree string, out io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	recorded, err := drift.Parse(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	differences, err := drift.Compare(os.DirFS(tree), recorded)
	if err != nil {
		return err
	}
	for _, d := range differences {
		fmt.Fprintln(out, d)
	}
	fmt.Fprintf(out, "%d differences from %s\n", len(differences), recorded.Commit)
	if len(differences) > 0 {
		return errDrift
	}
	return nil
}
