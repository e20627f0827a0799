package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
)

// checkWatch refuses --watch with a flag that excludes it.
func (o *waitOptions) checkWatch() error {
	switch tables := []string{outputTable, outputWide}; {
	case o.watch && o.wait > 0:
		return errors.New("--watch and --wait are mutually exclusive")
	case o.watch && !slices.Contains(tables, o.output):
		return fmt.Errorf("--watch prints lines of a table: use -o %s, or omit --watch", strings.Join(tables, " or -o "))
	}
	return nil
}

// followStatus prints each change of the installations, until ctx ends.
func (o *waitOptions) followStatus(
	ctx context.Context, last []summary.Reading, out, errOut io.Writer,
	read func(context.Context) ([]summary.Reading, time.Time, error),
) error {
	return follow(ctx, statusEvery, out, errOut, func(ctx context.Context) (string, bool, error) {
		readings, now, err := read(ctx)
		if err != nil {
			return "", true, err
		}
		var lines strings.Builder
		for _, change := range changesOf(last, readings) {
			fmt.Fprintf(&lines, "%s  %s\n", now.UTC().Format(time.RFC3339), oneLine(change))
		}
		last = readings
		return lines.String(), true, nil
	})
}

// changesOf returns what has changed between two readings of the installations, one line each. Times alone, and numbers
// of writes, are no change.
func changesOf(before, after []summary.Reading) (out []string) {
	key := func(r summary.Reading) string { return r.Namespace + "/" + r.Lease }
	indexIn := func(all []summary.Reading, r summary.Reading) int {
		return slices.IndexFunc(all, func(o summary.Reading) bool { return key(o) == key(r) })
	}
	for _, r := range after {
		var had []labelled
		name := nameOf(r)
		if i := indexIn(before, r); i >= 0 {
			had = watchedOf(before[i])
			if !knowsGuest(r) {
				name = nameOf(before[i])
			}
		}
		for _, has := range watchedOf(r) {
			if !slices.Contains(had, has) {
				out = append(out, fmt.Sprintf("%s  %s: %s", name, has.label, has.text))
			}
		}
	}
	for _, r := range before {
		if indexIn(after, r) < 0 {
			out = append(out, nameOf(r)+"  its Lease does not exist any more")
		}
	}
	return out
}

// labelled is a line of the table.
type labelled struct{ label, text string }

// watchedOf returns what --watch prints of an installation if it changes.
func watchedOf(r summary.Reading) []labelled {
	state := string(r.State)
	if r.Why != "" {
		state += ": " + r.Why
	}
	out := []labelled{{"state", state}}
	s := r.Summary
	if s == nil {
		return out
	}
	istiod := strings.TrimSpace(s.Istiod.StateText() + " " + s.Istiod.Version)
	if pods := s.Istiod.PodsText(); pods != "" {
		istiod += ", " + pods
	}
	ca := s.CA.Phase
	if s.IsCAUnobserved() {
		ca = summary.NotObserved
	}
	out = append(out,
		labelled{"lifecycle", string(s.Lifecycle)},
		labelled{"istiod", istiod + ", planned version " + s.Istio},
		labelled{"published", s.Published.Text()},
		labelled{"API", s.GuestAPI.State},
		labelled{"owner", s.Owner},
		labelled{"classes", s.ClassesText()},
		labelled{"CRDs", crdsText(s)},
		labelled{"webhook", s.Webhook.Policy},
		labelled{"gateways", s.Gateways.Text()},
		labelled{"mesh CA", ca},
	)
	for _, c := range s.Conditions {
		out = append(out, labelled{c.Type, c.Status + " " + c.Reason + ": " + c.Message})
	}
	return slices.DeleteFunc(out, func(l labelled) bool { return l.text == "" })
}
