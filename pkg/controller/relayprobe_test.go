package controller

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestRelayProbe checks that istiod counts as reached while a relay is ready, and as unreached only after no relay was
// ready for a while.
func TestRelayProbe(t *testing.T) {
	t.Parallel()
	var probe relayProbe
	for _, step := range []struct {
		at     time.Duration
		istiod model.Availability
		ready  int
		want   status.EndpointProbe
		again  time.Duration
	}{
		{0, model.Absent, 0, status.EndpointReached(), 0},
		{time.Second, model.Available, 0, status.EndpointProbing(), relayPatience},
		{2 * time.Second, model.Available, 0, status.EndpointProbing(), relayPatience - time.Second},
		{3 * time.Second, model.Available, 1, status.EndpointReached(), 0},
		{4 * time.Second, model.Available, 0, status.EndpointProbing(), relayPatience},
		{4*time.Second + relayPatience, model.Available, 0, status.EndpointWithoutRelays(), 0},
		{time.Hour, model.Available, 0, status.EndpointWithoutRelays(), 0},
		{2 * time.Hour, model.Available, 2, status.EndpointReached(), 0},
		{3 * time.Hour, model.Unavailable, 0, status.EndpointReached(), 0},
	} {
		got, again := probe.observe(Probe{}, step.istiod, step.ready, start.Add(step.at))
		if got != step.want || again != step.again {
			t.Errorf("after %s with %d relays: %+v, again in %s; want %+v, %s", step.at, step.ready, got, again, step.want, step.again)
		}
	}
	if got, again := probe.observe(Probe{Off: true}, model.Available, 0, start); got != status.EndpointReached() || again != 0 {
		t.Errorf("the probe is off, and says %+v", got)
	}
}
