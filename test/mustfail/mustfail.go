// Package mustfail checks the errors of functions that must fail in a test.
package mustfail

import (
	"strings"
	"testing"
)

// With checks that there is an error that contains all wanted texts.
func With(tb testing.TB, err error, want ...string) {
	tb.Helper()
	if err == nil {
		tb.Fatalf("no error, want one that says %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			tb.Errorf("the error does not say %q:\n%v", w, err)
		}
	}
}
