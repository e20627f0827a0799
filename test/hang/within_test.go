package hang_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
)

// TestWithin checks that the limit counts rounds and not time: each round here takes a second.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := ""
		g := gomega.NewWithT(failer(func(message string) { failed = message }))
		looks := 0
		look := func() int { looks++; return looks }
		slow := func() { <-time.After(time.Second) }
		if took := hang.Within(g, 5*time.Second, slow, look, gomega.Equal(51)); took != 5*time.Second || failed != "" {
			t.Errorf("it took %s: %s", took, failed)
		}
		looks = 0
		hang.Within(g, 5*time.Second, slow, look, gomega.Equal(52))
		if looks != 51 || !strings.Contains(failed, "after 5s") {
			t.Errorf("%d looks; failed: %q", looks, failed)
		}
	})
}

// failer is a test that keeps its failure.
type failer func(string)

func (f failer) Helper() {}

func (f failer) Fatalf(_ string, args ...any) { f(args[0].(string)) }
