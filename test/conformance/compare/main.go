// Command compare judges results of the conformance suite. It prints them, and fails if a test fails that is not known
// to fail. With the results of both sides, it also fails if the split loses a test that passes with an istiod in the
// guest.
//
//	compare SPLIT.json [IN-GUEST.json]
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/hypergate/hypergate/test/conformance"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) != 1 && len(files) != 2 {
		return errors.New("usage: compare SPLIT.json [IN-GUEST.json]")
	}
	all := make([]conformance.Results, 0, len(files))
	for _, file := range files {
		results, err := conformance.Read(file)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, results)
		all = append(all, results)
	}
	var wrong []string
	if len(all) == 1 {
		wrong = conformance.Failures(all[0], conformance.Known())
	} else {
		wrong = conformance.Compare(all[0], all[1], conformance.Known())
	}
	for _, line := range wrong {
		fmt.Fprintln(os.Stdout, "WRONG: "+line)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d results are wrong", len(wrong))
	}
	if len(all) == 2 {
		fmt.Fprintln(os.Stdout, "the split loses no test")
	}
	return nil
}
