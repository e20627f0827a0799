package controller

import (
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// memory is what is remembered between passes. One goroutine uses it. Each field names the parts of a pass that write
// it. newMemory, newReconciler and Run set what does not change.
type memory struct {
	// twoClusters reports whether the two sides were found to be different clusters. Written by observe, once.
	twoClusters bool
	// notSynced is since when a guest that answers does not list something. Written by observe.
	notSynced throttle.Debounce
	// outage is since when the guest's API server does not answer, and when it answered again. Written by observe.
	outage guestOutage
	// settings are the settings of the guest that gateways have. Written by observe.
	settings gatewaySettings
	// ignoring is which CRDs istiod was made to ignore, and when. Written by observe.
	ignoring ignoring
	// webhookProbe is what is known of the path from the guest's API server to istiod's webhook. Written by observe,
	// and by execute when it has written the webhook or pruned istiod.
	webhookProbe webhookProbe
	// secrets is the mesh CA and the tokens in use, as they were read or made. Written by observe, which reads them
	// when this process begins to lead and when the CA was unusable. Written by execute, before it applies another CA,
	// token or key pair of the tunnel, when a CA was unusable or a token was refused, and when nothing is installed any
	// more.
	secrets mgmt.Secrets
	// plans remembers the last plan. Written by decide: what it returns depends on its arguments alone. prepare writes
	// what its planner has rendered.
	plans planCache
	// standby is another hypergate that owned the guest. Written by pass, from the observation.
	standby standby
	// ca is the state of the mesh CA. Written by execute. Its next CA is also written by decide for a first
	// installation, and by prepare, which makes that CA in advance.
	ca meshCA
	// rotation is what was logged of a rotation that waits. Written by execute.
	rotation rotationDelay
	// tokens is what is known of the tokens of each bearer. Written by execute.
	tokens [model.Bearers]tokens
	// own is what is known of the renewal of hypergate's own credential. Written by execute.
	own ownCredential
	// acquiring and releasing limit how often ownership Leases are written. Written by execute.
	acquiring, releasing throttle.Limiter
	// istiodCurrent reports whether istiod and its RBAC of this version were applied: then there is nothing left that
	// CRDs of the version before could meet. Written by execute.
	istiodCurrent bool
	// rollout is what is remembered of a rollout of gateways. foreignPatches limits the writes to objects of other
	// owners, and foreignLogged is what was logged of them. Written by execute.
	rollout        rollout.Memo
	foreignPatches throttle.Limiter
	foreignLogged  lastLogged
	// trials is when the guest is asked again whether it would accept the defaults of a class, by class. Written by
	// execute.
	trials map[string]trial
	// refusals is when ListenerSets get their condition. Written by execute.
	refusals refusals
	// migration is what is remembered of a migration. Written by observe, which takes what a reading has found, by
	// execute, and by pass, which begins the next reading.
	migration migrationMemory
	// endpointProbe is what is known of the path to istiod's endpoint. Written by pass, after execute.
	endpointProbe endpointProbe
	// relayProbe is what is known of it if the endpoint is a Service of the guest. Written by pass, after execute.
	relayProbe relayProbe
}

// reports is what was reported, so that nothing is reported twice, too soon or too often. Written after execute, by
// pass and by report. Before it, pass writes lifecycle.
type reports struct {
	classes   classes
	hcp       hcpReporter
	lifecycle lifecycle
	notSynced lastLogged
	transient transientSince
	failures  failureLog
	metrics   exporter
	summary   summarizer
	// degraded is since when there has been a transient problem.
	degraded status.DegradedSince
}

func newMemory(o Options) memory {
	m := memory{
		plans:     planCache{planner: desired.NewPlanner(o.Config, o.Source)},
		ca:        meshCA{overlap: o.CAOverlap},
		acquiring: throttle.NewLimiter(throttle.Rate{Burst: acquireBurst, Every: acquireEvery}),
		releasing: throttle.NewLimiter(throttle.Rate{Burst: acquireBurst, Every: acquireEvery}),

		foreignPatches: throttle.NewLimiter(throttle.Rate{Burst: foreignBurst, Every: foreignEvery}),

		refusals: refusals{writes: throttle.NewLimiter(throttle.Rate{Burst: refuseBurst, Every: refuseEvery})},

		migration:     newMigrationMemory(),
		endpointProbe: endpointProbe{probe: o.Probe},
		own:           ownCredential{requests: throttle.NewLimiter(throttle.Rate{Burst: ownBurst, Every: ownEvery})},
	}
	for of := range m.tokens {
		m.tokens[of] = tokens{
			lifetime: o.TokenLifetime, requests: throttle.NewLimiter(throttle.Rate{Burst: tokenBurst, Every: tokenEvery}),
		}
	}
	return m
}

func newReports(o Options, credential validity) reports {
	return reports{
		classes: newClasses(), failures: newFailureLog(),
		hcp:     newHCPReporter(o.Reporting),
		summary: newSummarizer(o),
		metrics: exporter{Collector: o.metrics, credential: credential},
	}
}

// soonest returns the shortest of some delays. Zero means no delay.
func soonest(delays ...time.Duration) time.Duration {
	var out time.Duration
	for _, delay := range delays {
		if out == 0 || delay != 0 && delay < out {
			out = delay
		}
	}
	return out
}
