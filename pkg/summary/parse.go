package summary

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hypergate/hypergate/pkg/text"
)

// ErrNone reports that a Lease has no summary.
var ErrNone = errors.New("the Lease has no summary: hypergate writes it within a minute after it started; " +
	"if it does not, upgrade hypergate")

// InvalidError reports that an annotation is not a summary.
type InvalidError struct{ Why string }

// Error returns the reason and the next step.
func (e InvalidError) Error() string {
	return "the annotation " + Annotation + " is not a summary of hypergate: " + e.Why +
		"; if hypergate runs, it replaces the annotation within a minute"
}

// NewerError reports that a summary has a later schema.
type NewerError struct{ Schema int }

// Error returns both schemas and the next step.
func (e NewerError) Error() string {
	return fmt.Sprintf("the summary has schema %d, and this command reads schema %d: use a later version of hypergate",
		e.Schema, Schema)
}

// Parse reads a summary. The result is cleaned as by Encode, so that all of it can be printed. Unknown fields are
// ignored. The error is ErrNone, an InvalidError or a NewerError.
func Parse(annotation string) (Summary, error) {
	if annotation == "" {
		return Summary{}, ErrNone
	}
	if len(annotation) > MaxSize {
		return Summary{}, InvalidError{fmt.Sprintf("it has %d bytes, and the limit is %d", len(annotation), MaxSize)}
	}
	var version struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal([]byte(annotation), &version); err != nil {
		return Summary{}, invalid(err)
	}
	switch {
	case version.Schema > Schema:
		return Summary{}, NewerError{version.Schema}
	case version.Schema < 1:
		return Summary{}, InvalidError{"it has no schema"}
	}
	var out Summary
	if err := json.Unmarshal([]byte(annotation), &out); err != nil {
		return Summary{}, invalid(err)
	}
	return out.clean(), nil
}

func invalid(err error) error { return InvalidError{text.Line(err.Error(), longestName)} }
