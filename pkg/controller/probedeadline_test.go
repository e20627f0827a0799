package controller

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// TestEveryProbeHasADeadline checks that a probe of istiod ends in time although its context has no deadline: while the
// connection is not made, as through a relay of the tunnel that does not answer, and while the other end is silent.
func TestEveryProbeHasADeadline(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"no connection": func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"no handshake": func(context.Context) (net.Conn, error) {
			here, _ := net.Pipe()
			return here, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now() // the time of the bubble
				ca, err := pki.New(begun)
				if err != nil {
					t.Fatal(err)
				}
				about := probeTarget{at: model.HostPort{Host: publishedName, Port: 443}}
				result := probeResult{about: about, began: begun}
				result = ask(context.WithoutCancel(t.Context()), overTLS(dial), result, ca, plannedVersion)
				if took := time.Since(begun); result.err == nil || took != probeTimeout {
					t.Errorf("it ended after %s with %v, want %s", took, result.err, probeTimeout)
				}
			})
		})
	}
}
