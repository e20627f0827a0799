package e2e_test

import (
	"fmt"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
	"github.com/hypergate/hypergate/test/xds"
)

const (
	// hostileStreams is the number of streams of the hostile pod that are read, and of those that are not.
	hostileStreams = 8
	// hostileNames is the number of resources of each kind that a stream subscribes to.
	hostileNames = 10_000
)

// hostilePod lets a pod of one gateway turn against istiod. It claims to be a pod of another gateway, which istiod
// refuses. As itself, it subscribes to 10,000 resources of each kind, and acknowledges nothing. Some of its streams do
// not even read. The other gateway loses no request, and gets new routes meanwhile. istiod works hard for it, and here
// it has the CPUs of the gateways. So requests have a minute: what is counted is whether they are lost.
func hostilePod(t *fixture, edge *edgeOfTheGuest) {
	const name = "hostile"
	t.smallGateway(name, "24h")
	defer t.deleteSmallGateway(name)
	before := edge.load(t)
	t.more(before, 2000)
	quiet := t.judge(before, 2000)

	options := t.hostileOptions(name)
	t.forgedIsRefused(options)
	istiod, memory := t.istiodPod(), t.istiodMemory("VmRSS")
	var reading []*xds.Silent
	load := t.loaded(patient(edge.streams(20*time.Second, 5*time.Second)))
	for i := range 2 * hostileStreams {
		reads := i%2 == 0
		stream, err := xds.DialSilent(t.ctx, options, hostileResources(), reads)
		t.Expect(err).NotTo(gomega.HaveOccurred())
		defer func() { _ = stream.Close() }()
		if reads {
			reading = append(reading, stream)
		}
	}
	for range 5 {
		t.reconfigured(edge)
	}
	t.more(load, 2000)
	loud := t.judge(load, 3000)
	pushed := 0
	for _, stream := range reading {
		pushed += stream.Pushes()
	}
	t.Expect(pushed).To(gomega.BeNumerically(">", 0), "the hostile pod is served, and not ignored")
	t.Expect(t.istiodPod().UID).To(gomega.Equal(istiod.UID))
	t.Expect(restartsOf(t.istiodPod())).To(gomega.Equal(restartsOf(istiod)), "istiod does not restart")
	t.Logf("%d pushes to the streams that read; memory of istiod %s before, at most %s; p99 of kept connections %s before, %s meanwhile",
		pushed, memory, t.istiodMemory("VmHWM"), keptRow(quiet).P99, keptRow(loud).P99)
}

// patient returns streams whose requests may take a minute longer.
func patient(streams []traffic.Stream) []traffic.Stream {
	for i := range streams {
		streams[i].Timeout = time.Minute
	}
	return streams
}

// hostileOptions returns the options of a connection of a gateway's pod.
func (t *fixture) hostileOptions(gateway string) xds.Options {
	t.Helper()
	pod, err := t.GatewayPod(t.step(), world.GuestNamespace, gateway)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	token, err := t.GuestToken(t.step(), pod, "istio-ca")
	t.Expect(err).NotTo(gomega.HaveOccurred())
	options, err := t.ProxyOptions(t.step(), pod, token)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	root, err := t.GuestClient.CoreV1().ConfigMaps(pod.Namespace).Get(t.ctx, world.Revision+"-ca-cert", metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	options.RootCAs = []byte(root.Data["root-cert.pem"])
	return options
}

// forgedIsRefused connects with the name and the account of the edge gateway's pod, and with the token of another one.
func (t *fixture) forgedIsRefused(options xds.Options) {
	t.Helper()
	options.Node = xds.NodeOf(t.gatewayPod())
	forged, err := xds.DialSilent(t.ctx, options, hostileResources(), true)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	defer func() { _ = forged.Close() }()
	t.Eventually(forged.Ended()).Should(gomega.BeClosed())
	t.Expect(status.Code(forged.Err())).To(gomega.Equal(codes.PermissionDenied), "%v", forged.Err())
	t.Expect(forged.Pushes()).To(gomega.BeZero(), "nothing is sent to a forged pod")
}

// hostileResources returns names of clusters, routes and secrets.
func hostileResources() []string {
	names := make([]string, hostileNames)
	for i := range names {
		names[i] = fmt.Sprintf("outbound|8080||service-%d.shop.svc.cluster.local", i)
	}
	return names
}

// keptRow returns the row of short requests over kept connections.
func keptRow(r traffic.Report) traffic.Row {
	for _, row := range r.Rows {
		if row.Stream == "HTTP, kept" {
			return row
		}
	}
	return traffic.Row{}
}
