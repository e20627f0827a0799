package mustfail_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/test/mustfail"
)

// recorder is a test that records its failures and does not fail. Like that of a test, its Fatalf ends the goroutine.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func TestWith(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"no error":          {nil, []string{`no error, want one that says ["a" "b"]`}},
		"both texts":        {errors.New("b a"), nil},
		"a text is missing": {errors.New("a"), []string{"the error does not say \"b\":\na"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				mustfail.With(r, tc.err, "a", "b")
			}()
			<-done
			if diff := cmp.Diff(tc.want, r.failures); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
