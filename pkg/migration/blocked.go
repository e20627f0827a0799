package migration

import (
	"fmt"
	"strings"
)

// BlockedError is the error of a plan that is rejected because a migration was requested and cannot begin. Its text is
// safe to show in the guest, but for Cause.
type BlockedError struct {
	// Findings block. Cause is set if the check could not be done.
	Findings []Finding
	Cause    error
}

// fewFindings is how many findings an error names.
const fewFindings = 3

// Error returns the first findings, with what to do about each.
func (e BlockedError) Error() string {
	if e.Cause != nil {
		return "a migration was requested, and the guest cannot be checked: " + e.Cause.Error()
	}
	var out []string
	for _, f := range e.Findings[:min(len(e.Findings), fewFindings)] {
		out = append(out, f.String())
	}
	if more := len(e.Findings) - fewFindings; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return "a migration was requested, and is blocked: " + strings.Join(out, "; ")
}

// Unwrap returns the cause.
func (e BlockedError) Unwrap() error { return e.Cause }

// Fingerprint returns the codes of the findings, without the objects. A guest can change these at will, and it is still
// the same problem.
func (e BlockedError) Fingerprint() string {
	codes := make([]string, 0, len(e.Findings))
	for _, f := range e.Findings {
		codes = append(codes, string(f.Code))
	}
	return "a migration is blocked: " + strings.Join(codes, ", ")
}

// String returns the finding as one sentence, with the next step.
func (f Finding) String() string {
	f = f.clean()
	more := ""
	if f.More > 0 {
		more = fmt.Sprintf(" and %d more", f.More)
	}
	return fmt.Sprintf("%s: %s%s: %s [%s]", f.Code, f.Object, more, f.Message, f.NextStep)
}
