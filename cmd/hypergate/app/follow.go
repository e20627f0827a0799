package app

import (
	"context"
	"fmt"
	"io"
	"time"
)

// follow calls read at each interval, and prints the lines that it returns. It ends without an error when read reports
// that there is no more, or when ctx ends. An error of read is printed to errOut, once until another one or a success:
// an API server can be unavailable for some time.
func follow(
	ctx context.Context, every time.Duration, out, errOut io.Writer, read func(context.Context) (lines string, more bool, err error),
) error {
	ticker, problem := time.NewTicker(every), ""
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil // this is how it ends
		case <-ticker.C:
		}
		lines, more, err := read(ctx)
		if err != nil {
			if why := errorText(err); ctx.Err() == nil && why != problem {
				note(errOut, why)
				problem = why
			}
			continue
		}
		problem = ""
		if _, err := io.WriteString(out, lines); err != nil {
			return fmt.Errorf("printing the report: %w", err)
		}
		if !more {
			return nil
		}
	}
}
