package controller

import "time"

// This table has every delay, rate and limit of time of the reconciler, with its reason. The leader election has its
// own in lease.go, the transport in bounded.go (TestDurationsAreInOneFile).

// Passes that events request. The first event after a quiet time begins a pass at once.
const (
	// passSpacing is the shortest time between the beginnings of two passes. Events in between share a pass. A chain of
	// events within an installation loses nothing by it, since each of those passes takes longer. It is also the quiet
	// time after which an event begins a pass at once.
	passSpacing = 100 * time.Millisecond
	// passBurst is how many passes may follow each other that closely while events come without a quiet time. An
	// installation takes fewer. After that there is one pass per passEvery, until the next quiet time.
	passBurst = 30
	passEvery = time.Second
	// longBurst and longEvery limit all passes, for a guest that leaves quiet times between its events. A person who
	// changes objects does not reach them.
	longBurst = 300
	longEvery = 500 * time.Millisecond
	// stuckAfter is how long a pass may run, or be due and not begin, before /healthz fails. It is several times what a
	// pass may take, because each request has a deadline (requestLimit).
	stuckAfter = 5 * time.Minute
	// restingAfter is how long after the last pass memory is given back to the system. A pass that follows sooner would
	// need it again.
	restingAfter = 5 * time.Second
)

// How long a pass may work in the guest, and what runs outside of passes.
const (
	// guestTime is how long a pass may work in the guest. It is longer than the longest request (35 s, see package
	// apply). So an object that a slow webhook of the guest's admin delays can be written.
	//
	// What is left then is left for the next pass. That pass begins with a new observation, renews what is due, and
	// continues with the remaining work in the guest.
	guestTime = 40 * time.Second
	// startupCheck is how long the comparison of the two clusters at startup may take. After it the controller starts
	// without the result, and the first pass compares them.
	startupCheck = 5 * time.Second
	// previewQuiet is the time without another write after which a preview is complete. It is longer than a status
	// waits until it is written (hcpQuiet).
	previewQuiet = 2 * time.Second
)

// What a guest that is seen in part, or owned by another hypergate, has to do with time.
const (
	// notSyncedLimit is how long a guest that answers may take to list everything. Usually it takes no time.
	notSyncedLimit = 5 * time.Second
	// outageAtLeast is how long the guest's API server must not answer before that counts as an outage. After a shorter
	// one, other clients connect again within seconds, too.
	outageAtLeast = 3 * time.Second
	// standbyTime is how long a hypergate on standby lets the hypergate that owned the guest go first. Its
	// Leases can be deleted by mistake, and its installation must not move.
	standbyTime = 5 * time.Second
	// acquireBurst and acquireEvery limit how often a guest is acquired, and released. It may delete a Lease, or create
	// one in our name, in a loop.
	acquireBurst = 10
	acquireEvery = 10 * time.Second
	// releaseRetry is when a Lease that the guest refuses to release is tried again. Another hypergate waits for it,
	// and its admin can delete the Lease.
	//
	// After a failure that usually ends without an action, it is tried again after acquireEvery: after a rollback, the
	// conditions show the other istiod once the guest is released.
	releaseRetry = 5 * time.Minute
	// identityTimeout is how long the guest has to list its namespaces.
	identityTimeout = 10 * time.Second
)

// Tokens. A new token is due after 80 % of the old one's life, and when the guest's admin has replaced istiod's
// account.
const (
	// tokenBurst and tokenEvery limit the requests. An admin who replaces accounts gets a burst, and one who does it in
	// a loop gets one in a while.
	tokenBurst = 5
	tokenEvery = 30 * time.Second
	// shortestLifetime is the shortest that Kubernetes grants, and what istiod can live with: it reads the file once a
	// minute.
	shortestLifetime = 10 * time.Minute
	// tokenRetry is when a token is requested again after that failed. Most causes end within seconds, and a Limiter
	// bounds the requests.
	tokenRetry = 5 * time.Second
	// formerAccessTime is how long istiod's former service account exists after istiod's Secret has a token of its new
	// one. A kubelet brings a changed Secret within 90 seconds, and client-go reads the file again after 50 seconds.
	// The rest is for a busy node.
	//
	// A kubelet looks at each pod once a minute, with a jitter of half of that (kubernetes pkg/kubelet/pod_workers.go).
	// For client-go, see transport/token_source.go.
	formerAccessTime = 3 * time.Minute
	// usualTokenPickup and lateTokenPickup are the times after which an istiod whose account was replaced has its
	// new token. A kubelet takes up to a minute to bring it, and client-go reads the file again after fifty seconds
	// (transport/token_source.go).
	//
	// Until then each of istiod's writes is refused, and it gives up on what it was to write. It looks at everything
	// again when the class changes, see status.Result.Since.
	usualTokenPickup = 65 * time.Second
	lateTokenPickup  = 125 * time.Second
)

// The renewal of hypergate's own kubeconfig.
const (
	// ownPickup is how long it may take until a kubeconfig that was written is in use. The kubelet brings a mounted
	// Secret within two minutes, and hypergate reads the file every ten seconds.
	ownPickup = 5 * time.Minute
	// ownBurst and ownEvery limit the renewals, also those that fail.
	ownBurst = 3
	ownEvery = 2 * time.Minute
)

// A rotation of the mesh CA.
const (
	// firstRotationDelay and maxRotationDelay are the delays while it waits for a state without an event: everything is
	// applied, and istiod has published the roots.
	firstRotationDelay = time.Second
	maxRotationDelay   = 5 * time.Second
	// rotationPatience is how long a phase may last beyond its overlap before a condition reports what it waits for as
	// a problem. A longer overlap takes its place. The rollout of istiod takes less.
	rotationPatience = 15 * time.Minute
	// shortOverlap is the lifetime of a gateway's certificate. A gateway needs at most this long to learn a new root. A
	// shorter overlap is an insecure setting.
	shortOverlap = 24 * time.Hour
)

// Probes of the webhook, and of istiod where it is published.
const (
	// firstProbeDelay and maxProbeDelay are the delays between attempts that fail. The first failures are normal: the
	// guest's API server takes some time to load a new webhook.
	firstProbeDelay = 500 * time.Millisecond
	maxProbeDelay   = 30 * time.Second
	// probePatience is the number of failed attempts after which a condition reports the failure.
	probePatience = 4
	// probeTimeout ends a handshake that gets no answer, and then the request for istiod's version.
	probeTimeout = 5 * time.Second
	// probeEvery is how often an endpoint that was reached is probed again, but for the tunnel: its relays report
	// themselves. The probe is one connection to istiod, and no request to an API server. The alert
	// HypergateEndpointUnreachable can fire this much later.
	probeEvery = 5 * time.Minute
	// versionAttempts is how often an istiod that can be reached is asked for its version until it answers.
	versionAttempts = 8
	// relayPatience is how long no relay of the tunnel may be ready before a condition reports it. A relay's node may
	// have to pull its image first.
	relayPatience = time.Minute
)

// Writes to Gateways, which are not hypergate's own.
const (
	// foreignBurst and foreignEvery limit them: the guest may undo each. The burst holds and releases all Gateways of
	// the largest rollout.
	foreignBurst = 1000
	foreignEvery = time.Second
	// foreignPerPass is how many are made in one pass, and foreignAtOnce at the same time: a webhook of the guest may
	// delay each for ten seconds.
	foreignPerPass = 16
	foreignAtOnce  = 8
)

// Dry runs of defaults of a class that the guest has refused.
const (
	// trialEvery is the time between two of them. It is that between two writes of an object that others revert.
	trialEvery = 10 * time.Second
	// trialAccepted is the same after one that succeeded: if the write that follows is refused, Gateways were held for
	// two minutes in vain.
	trialAccepted = 10 * time.Minute
)

// Writes of the condition of ListenerSets, which istiod ignores. No gateway depends on them.
const (
	// refuseBurst and refuseEvery limit them: the guest may undo each.
	refuseBurst = 64
	refuseEvery = 5 * time.Second
	// operatorRefuses is how old a ListenerSet is before hypergate writes its condition beside OpenShift's ingress
	// operator. The operator writes its own within seconds, unless it is older than 4.23.
	operatorRefuses = 30 * time.Second
	// refuseRetry and maxRefuseRetry are the delays after writes that fail, for example without the permission.
	refuseRetry    = 15 * time.Second
	maxRefuseRetry = 10 * time.Minute
)

// A migration from an istiod in the guest. Each step follows from a reading of the guest of about twenty requests.
const (
	// migrationAfterAct is when the guest is read again after an action, and migrationWaiting while something is in
	// progress.
	migrationAfterAct = 500 * time.Millisecond
	migrationWaiting  = 2 * time.Second
	// migrationStopped is the same while a person is needed: what blocks may have been removed.
	migrationStopped = 15 * time.Second
	// migrationAtRest is the same while the origin is parked, or the migration is paused: an operator may start the
	// origin again.
	migrationAtRest = time.Minute
	// migrationCheck is how old what the check follows from may be.
	migrationCheck = 15 * time.Second
	// migrationBurst and migrationEvery limit the writes of the state to the Lease, by the pace of readings. Each
	// Gateway that moves takes about four, so the burst is enough for the limit of Gateways (500), with a rollback.
	// After it, no time limit of a phase is missed: the shortest is rootsTime (25 s).
	migrationBurst = 4000
	migrationEvery = 5 * time.Second
	// migrationReadingTime limits a reading. Each request has a timeout of ten seconds.
	migrationReadingTime = time.Minute
	// unreadTime is how long readings may fail before conditions report it. A restart of the guest's API server is
	// shorter.
	unreadTime = time.Minute
	// migrationDenied is how long the guest must deny a write before conditions report it. A webhook that restarts is
	// back by then.
	migrationDenied = 15 * time.Second
	// migrationCause is how long the report keeps the cause of a denial. The guest chooses it, and another one is a
	// write to the management side.
	migrationCause = time.Minute
	// proxiesAsked is how often istiod is asked in one reading which pods are connected to it. Of two istiods, either
	// can answer.
	proxiesAsked = 6
)

// settingsEvery is how often the guest's settings for the pods of gateways may change: each change replaces the pods of
// all gateways. The first change after that time is used at once.
const settingsEvery = 10 * time.Minute

// replacingTime is how long istiod stays as it is while hypergate writes a CRD that istiod cannot read. The write takes
// less, unless the guest denies it.
const replacingTime = 15 * time.Second

// What is reported only after it has lasted.
const (
	// transientTime is for states that usually end soon: objects that are deleted and created again, a rollout, a
	// probe.
	transientTime = 10 * time.Second
	// readingTime is the same for CRDs while istiod is on its way: all are read within it, and each would change the
	// status.
	readingTime = 3 * time.Second
	// hcpQuiet and hcpLatest debounce what is written to the HostedControlPlane: it must last for hcpQuiet, and what
	// keeps changing is written after hcpLatest.
	hcpQuiet  = time.Second
	hcpLatest = 3 * time.Second
	// lookEvery is how often the state of the guest's watches is looked at while the guest does not answer.
	lookEvery = 3 * time.Second
)

// Statuses. Another client may rewrite a status again and again, and each write wakes istiod, or HyperShift's
// operators.
const (
	// statusBurst and statusEvery are for the status of one class, and for the HostedControlPlane.
	statusBurst = 10
	statusEvery = 10 * time.Second
	// mostChanges is how many attempts in a row to write a status can find that the class has changed meanwhile. Then
	// the status is written to any version.
	mostChanges = 3
	// lastingBurst and lastingEvery limit the HostedControlPlane, and the log, further: what a guest does decides what
	// there is to say. Ten minutes of one write in ten seconds are enough for an installation with its failures.
	lastingBurst = 60
	lastingEvery = 10 * time.Minute
	// migratingEvery takes the place of lastingEvery during a migration. Each Gateway that moves is a write, and a
	// migration that has stopped must not stay unreported for ten minutes.
	migratingEvery = time.Minute
	// beyondBurst and beyondEvery are for all classes together that are not managed because there are too many.
	beyondBurst = 64
	beyondEvery = time.Second
	// statusesAtOnce is how many are written at the same time, as many as objects are.
	statusesAtOnce = 8
	// statusesPerPass is how many are written in one pass: the guest's admin may create many classes, and a webhook
	// that is slow for each. The next pass writes the rest first.
	statusesPerPass = 64
	// statusTime is for how long a pass begins to write them. Each request has its own timeout of three seconds.
	statusTime = 10 * time.Second
)

// Failures. A failure that needs an action is retried slowly, a transient one soon.
const (
	firstPermanentRetry = time.Second
	maxPermanentRetry   = 30 * time.Second
	firstTransientRetry = 100 * time.Millisecond
	maxTransientRetry   = 10 * time.Second
	// maxForbiddenReport is the longest delay between attempts to write to a HostedControlPlane that is forbidden.
	maxForbiddenReport = 10 * time.Minute
)
