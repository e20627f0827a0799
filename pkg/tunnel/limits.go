package tunnel

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// Limits in counts and bytes. docs/reference/limits.md lists them, with the effects.
const (
	// maxGateways is the number of connections of gateways that a relay keeps.
	maxGateways = 1000
	// maxPerSource is the number of connections of gateways that a relay keeps from one address. A gateway needs one or
	// two, and gateways have addresses of their own unless they use their node's.
	maxPerSource = 100
	// openBurst is how many streams a relay opens at once: all gateways can connect again. After that, it opens one in
	// each streamEvery.
	openBurst = 1000
	// streamBurst is how many streams a sidecar accepts of a relay at once, and then one in each streamEvery. It is so
	// much more than openBurst that streams which arrive late, and together, do not count as abuse.
	streamBurst = 2000
	// maxBacklog is the number of streams that wait until a sidecar accepts them. yamux rejects those beyond it.
	maxBacklog = 256
	// maxHealth is the number of connections on the port for health checks and metrics.
	maxHealth = 32
	// maxStreams is the number of streams that a sidecar serves on one tunnel. A relay never needs more.
	maxStreams = 1000
	// maxRelayStreams is the number of streams that a sidecar serves on all tunnels of one relay: on a new one, and on
	// one that it replaces.
	maxRelayStreams = 2 * maxStreams
	// maxHeldStreams also counts streams that are being closed. A tunnel with more is ended.
	maxHeldStreams = 2000
	// maxUnproven is the number of connections that a relay keeps on the port for tunnels before their TLS handshake.
	maxUnproven = 32
	// maxTunnels is the number of tunnels that a relay keeps. Two istiods that both replace theirs need four.
	maxTunnels = 16
	// healthHeaderLimit is the maximum size of the head of a request on the port for health checks and metrics.
	healthHeaderLimit = 8 << 10
	// requestLimit is the maximum size of an upgrade request, and answerLimit that of the head of the answer.
	requestLimit = 8 << 10
	answerLimit  = 16 << 10
	// reasonKept is the maximum size of text from the other side in an error.
	reasonKept = 512
	// streamWindow is how much a stream buffers. yamux accepts no smaller value.
	streamWindow = 256 << 10
	// smallBuffer is the size of the buffer of an idle stream, and largeBuffer that of a stream with much data. At
	// most largeBuffers exist: the other streams use a small one, and are slower. With its frame header and TLS of the
	// tunnel, a large buffer fits into one TLS record of the connection to the API server, which is at most 16 KiB.
	smallBuffer  = 1 << 10
	largeBuffer  = 16<<10 - 128
	largeBuffers = 256
	// inboundBurst is how much a sidecar reads from the tunnels of a relay at once, and inboundRate how much per second
	// after that. Gateways send little to istiod: certificate requests, and names of resources.
	inboundBurst = 8 << 20
	inboundRate  = 8 << 20
	// maxUnread is how many bytes of a relay can wait for istiod, over all its tunnels. yamux needs up to twice as
	// much.
	maxUnread = 8 << 20
	// istiodBuffer and istiodReadBuffer are the sizes of the kernel's buffers for a stream to istiod, and from it. The
	// kernel doubles them, and adds small writes to the last one: up to 54 KiB and 40 KiB, as measured. Without these
	// limits, it would keep up to 4 MiB and 32 MiB of each stream of a hostile relay. Most data are from istiod. With
	// 4 KiB, they need twice the CPU time of 16 KiB.
	istiodBuffer     = 4 << 10
	istiodReadBuffer = 16 << 10
	// gatewayBuffer and gatewayReadBuffer are those of a relay for a gateway: up to 54 KiB and 20 KiB. Gateways send
	// little.
	gatewayBuffer     = 16 << 10
	gatewayReadBuffer = 8 << 10
	// apiBuffer is the size of each of both for a connection between an end and the API server: up to 256 KiB each. All
	// streams of a tunnel share it. A round trip of 1 ms still allows 128 MB/s, and one of 50 ms 2.6 MB/s.
	apiBuffer = 128 << 10
	// pingBurst is how many pings the other end can send in a row. yamux starts a goroutine for each.
	pingBurst = 10
	// serverLimit, certificateLimit and tokenLimit are the maximum sizes of the files that an end reads.
	serverLimit      = 2 << 10
	certificateLimit = 1 << 20
	tokenLimit       = 64 << 10
)

// Limits in time.
const (
	// proofTime is the time from accepting a connection on a relay's port for tunnels to the end of its handshake.
	proofTime = 5 * time.Second
	// healthTime is the time for a request on the port for health checks and metrics, and for its answer.
	healthTime = 5 * time.Second
	// dialTime is the time in which a sidecar gets from dialing the API server to the end of the TLS handshake.
	dialTime = 10 * time.Second
	// nextRelayTime is the time after which hypergate also tries the next relay. It is a part of the 5 s of a probe.
	nextRelayTime = time.Second
	// targetTime is the time in which istiod accepts a connection, and answers a check.
	targetTime = 5 * time.Second
	// checkEvery is how often a sidecar that has a tunnel checks that istiod answers. It is the interval of keepalives.
	checkEvery = pingEvery
	// openTime is the time in which a sidecar acknowledges a stream.
	openTime = 10 * time.Second
	// waitTime is how long a relay holds the connection of a gateway that waits for a tunnel. It is shorter than the
	// connection timeout of gRPC, which is 20 s. A relay stays ready as long if none of its tunnels accepts streams.
	waitTime = 10 * time.Second
	// placeTime is how long a connection of a gateway counts for its source, at least.
	placeTime = 10 * time.Second
	// streamEvery is the interval of new streams, after the burst.
	streamEvery = 20 * time.Millisecond
	// firstByteTime is the time to the first byte of a gateway, which begins with a TLS handshake.
	firstByteTime = 10 * time.Second
	// idleTime ends a connection without any byte. istiod and gateways send HTTP/2 pings every 30 s.
	idleTime = 5 * time.Minute
	// stallTime ends a connection whose receiver accepts nothing. A receiver that works is never that slow, and
	// the connection keeps memory.
	stallTime = 30 * time.Second
	// closeTime is the time in which the other direction of a half-closed connection ends.
	closeTime = 5 * time.Second
	// quietTime is the time without data after which a stream gives back its buffers.
	quietTime = time.Second
	// pingEvery is the interval of a sidecar's keepalives, and of pings that an end answers after pingBurst.
	pingEvery = 10 * time.Second
	// silenceTime ends a tunnel from which nothing arrives. It is longer than pingEvery, and leaves 8 s for an answer.
	silenceTime = 18 * time.Second
	// writeTime ends a tunnel that accepts no bytes.
	writeTime = 10 * time.Second
	// firstPause and longestPause are the pauses before a sidecar dials again. The pause doubles with each failure.
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// provenAfter is the age from which a tunnel counts as a success, so that the pause starts again at firstPause.
	provenAfter = 10 * time.Second
	// redialEvery is the age at which a tunnel is replaced. An open tunnel outlives the expiry and the revocation of
	// its token, so only a new request shows whether the sidecar still has its permission.
	redialEvery = time.Hour
	// endTime is the time in which the streams of a replaced tunnel end by themselves. istiod ends a connection after
	// 30 minutes (keepaliveMaxServerConnectionAge in its chart), give or take a tenth (gRPC).
	endTime = 35 * time.Minute
	// drainTime is the time in which the streams of a replaced tunnel end. Those that are left after endTime are
	// closed, one after the other. It is shorter than redialEvery, so that a sidecar has at most two tunnels to a
	// relay.
	drainTime = 50 * time.Minute
	// stopTime is the time for which a stopping sidecar keeps streams. It is shorter than the usual grace period of a
	// pod, which is 30 s.
	stopTime = 20 * time.Second
)

// limits are the limits that tests change.
type limits struct {
	gateways, streams, relayStreams, heldStreams, unproven, tunnels int
	perSource                                                       int
	inbound                                                         rate.Limit // in bytes per second
	unread                                                          int64      // in bytes

	opens, newStreams throttle.Rate

	proof, dial, target, open, wait, firstByte time.Duration
	check                                      time.Duration
	idle, stall, closing, quiet                time.Duration
	ping, silence, write                       time.Duration
	firstPause, longestPause, proven, redial   time.Duration
	end, drain, stop, place                    time.Duration
}

func defaultLimits() limits {
	return limits{
		gateways: maxGateways, streams: maxStreams, relayStreams: maxRelayStreams, heldStreams: maxHeldStreams,
		unproven: maxUnproven, tunnels: maxTunnels,
		perSource: maxPerSource, place: placeTime, inbound: inboundRate, unread: maxUnread,
		opens:      throttle.Rate{Burst: openBurst, Every: streamEvery},
		newStreams: throttle.Rate{Burst: streamBurst, Every: streamEvery},
		proof:      proofTime, dial: dialTime, target: targetTime, open: openTime, wait: waitTime, firstByte: firstByteTime,
		check: checkEvery,
		idle:  idleTime, stall: stallTime, closing: closeTime, quiet: quietTime,
		ping: pingEvery, silence: silenceTime, write: writeTime,
		firstPause: firstPause, longestPause: longestPause, proven: provenAfter, redial: redialEvery,
		end: endTime, drain: drainTime, stop: stopTime,
	}
}

// replacing returns limits for tunnels that are replaced at an age. The streams then have the same share of it as by
// default.
func (l limits) replacing(age time.Duration) limits {
	l.redial, l.end, l.drain = age, age/12*7, age/6*5
	return l
}
