package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestTroubleThatComesAndGoesIsBounded: two in turn, and one that ends each time, as a claim that another hypergate, or the guest, takes and frees in a loop.
func TestTroubleThatComesAndGoesIsBounded(t *testing.T) {
	taken := status.Result{Refused: desired.TakenError{}}
	for name, between := range map[string]status.Result{"free": {}, "another trouble": {Refused: errors.New("it would leak")}} {
		var lines []string
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		var trouble trouble
		now := time.Unix(0, 0)
		tell := func(r status.Result) { trouble.tell(ctx, failureOf(r, nil), now) }
		for range 3600 {
			tell(taken)
			tell(between)
			now = now.Add(time.Second)
		}
		// Ten at once, then one in ten seconds up to sixty or so, then one in ten minutes.
		if n := len(lines); n < 60 || n > 70 {
			t.Errorf("%s: %d lines in an hour", name, n)
		}
		if !strings.Contains(lines[len(lines)-1], "leftOutBefore") {
			t.Errorf("%s: it is not said that lines were left out: %s", name, lines[len(lines)-1])
		}
		n := len(lines)
		for range 30 {
			tell(status.Result{Refused: errors.New("what stands")})
			now = now.Add(30 * time.Second)
		}
		if len(lines) != n+1 || !strings.Contains(lines[n], "what stands") {
			t.Errorf("%s: what goes on is told in %d lines", name, len(lines)-n)
		}
	}
}
