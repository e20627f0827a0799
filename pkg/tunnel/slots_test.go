package tunnel

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

func TestVictim(t *testing.T) {
	t.Parallel()
	for sources, want := range map[string]int{
		"a":       0,
		"aaaa":    0, // the oldest
		"abbb":    1, // of the source with the most
		"bbbbbba": 0,
		"abab":    0,
		"abbac":   0,
		"abcd":    0,
	} {
		var taken []*slot
		for _, s := range sources {
			taken = append(taken, &slot{source: netip.AddrFrom4([4]byte{10, 0, 0, byte(s)})})
		}
		if got := victim(taken); got != want {
			t.Errorf("%s: number %d loses its slot, want %d", sources, got, want)
		}
	}
}

// TestAFloodTakesItsOwnSlots: a pod that opens many connections does not evict the API server's.
func TestAFloodTakesItsOwnSlots(t *testing.T) {
	t.Parallel()
	api, flood := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	s := slots{most: 4}
	cut, apiCut := 0, 0
	for range 10 {
		s.take(flood, func() { cut++ })
	}
	mine, _ := s.take(api, func() { apiCut++ })
	for range 1000 {
		s.take(flood, func() { cut++ })
	}
	if cut != 10+1000+1-4 || apiCut > 0 || len(s.taken) != 4 {
		t.Errorf("the flood lost %d, the API server %d, and %d have a slot", cut, apiCut, len(s.taken))
	}
	if !s.release(mine) || s.release(mine) {
		t.Error("the API server's slot was not there, or there twice")
	}
}

// TestLimitsFitTogether checks what the comments of the limits promise of each other.
func TestLimitsFitTogether(t *testing.T) {
	t.Parallel()
	perPod := maxPerSource / placeTime.Seconds() // new connections of one pod, in a second
	inGo, inKernel := mostSidecarMemory()
	soft, hard := memoryLimits(t, model.Config{}.SidecarContainer(), model.SidecarSoftLimit)
	relaySoft, relayHard := memoryLimits(t, relayContainer(t), model.RelaySoftLimit)
	// Little is written to a connection that has proven nothing.
	const ofRelay = maxGateways*(kernelToGateway+kernelFromGateway) + (2*maxTunnels+maxUnproven)*kernelAPI
	for name, is := range map[string]bool{
		"a half-open tunnel is noticed within 20 s":            silenceTime <= 20*time.Second,
		"an answer to a keepalive has time":                    silenceTime >= pingEvery+5*time.Second,
		"a relay proves faster than a sidecar gives up":        proofTime < dialTime,
		"a relay ends a held gateway before gRPC does":         waitTime < 20*time.Second,
		"istiod's pings keep a connection":                     idleTime > 2*30*time.Second,
		"a sidecar has at most two tunnels to a relay":         drainTime < redialEvery,
		"istiod ends streams before the sidecar does":          endTime > 33*time.Minute && endTime < drainTime,
		"two istiods that replace their tunnels find room":     maxTunnels >= 4,
		"the pace of a tunnel allows one read":                 inboundBurst >= streamWindow,
		"a stopping sidecar ends before its pod":               stopTime < 30*time.Second,
		"all gateways can connect again at once":               openBurst >= maxGateways,
		"late streams of a relay are not abuse":                streamBurst >= openBurst+int(silenceTime/streamEvery),
		"ten pods are needed to fill a relay":                  maxGateways >= 10*maxPerSource,
		"streams of honest relays are never more than allowed": maxGateways <= maxStreams,
		"hostile relays do not fill the sidecar's Go memory":   inGo <= soft,
		"they leave its container 24 MiB for other sockets":    inGo+inKernel+24<<20 <= hard,
		"those to the API server, and 16 MiB, fit into these":  model.RelayReplicas*3*2*kernelAPI+16<<20 <= 24<<20,
		"the relay's sockets fit its container beside Go":      relaySoft+ofRelay <= relayHard,
		"five pods are needed to use up the new streams":       perPod*5 >= 1/streamEvery.Seconds() && perPod*4 < 1/streamEvery.Seconds(),
	} {
		if !is {
			t.Errorf("it is not true that %s", name)
		}
	}
}

// What the kernel keeps of one connection in one direction, at most, with the sizes in limits.go: measured with writes
// of 1 byte to 64 KiB, and with a page that it reserves.
const (
	kernelToIstiod, kernelFromIstiod   = 54 << 10, 40 << 10
	kernelToGateway, kernelFromGateway = 54 << 10, 20 << 10
	kernelAPI                          = 2 * apiBuffer
)

// mostSidecarMemory returns how much memory hostile relays can fill in a sidecar, in bytes: in Go, and in what the
// kernel holds for istiod and of it.
func mostSidecarMemory() (inGo, inKernel int64) {
	const empty, stream = 10 << 20, 20 << 10 // measured: docs/tunnel.md
	const streams, large = model.RelayReplicas * maxRelayStreams, largeBuffers * largeBuffer
	const unread = model.RelayReplicas * 2 * maxUnread // yamux doubles a buffer that is full
	return empty + streams*stream + unread + large, streams * (kernelToIstiod + kernelFromIstiod)
}

// relayContainer returns the container of a relay.
func relayContainer(t *testing.T) map[string]any {
	t.Helper()
	relays, err := model.NewRelays(model.Config{GuestNamespace: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := relays.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%d containers: %v", len(containers), err)
	}
	return containers[0].(map[string]any)
}

// memoryLimits returns the GOMEMLIMIT of a container, and its memory limit, in bytes.
func memoryLimits(t *testing.T, container map[string]any, goLimit string) (soft, hard int64) {
	t.Helper()
	limit, _, err := unstructured.NestedString(container, "resources", "limits", "memory")
	if err != nil {
		t.Fatal(err)
	}
	quantity := resource.MustParse(limit)
	memory := resource.MustParse(strings.TrimSuffix(goLimit, "B"))
	return memory.Value(), quantity.Value()
}
