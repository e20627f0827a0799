package guest_test

import (
	"fmt"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestTheReleasedGatewayIsReadFirst checks that Gateways which have moved, and whose pods are not connected, do not
// keep those of the Gateway from being listed that was released last.
func TestTheReleasedGatewayIsReadFirst(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	var gateways, deployments, pods []string
	for i := range 12 {
		name := fmt.Sprintf("g%02d", i)
		gateways = append(gateways, w.gateway(name, "ours", "", "HTTPS"))
		deployments = append(deployments, w.deployment(name, "hosted:15012"))
		pods = append(pods, fmt.Sprintf(
			"{metadata: {namespace: shop, name: %[1]s-pod, labels: {gateway.networking.k8s.io/gateway-name: %[1]s}}}", name))
	}
	w.putGateways(gateways, deployments)
	w.api.Put(collection("", "v1", "shop", "pods", "Pod"), pods...)
	read := func(released types.UID) map[types.UID][]string {
		facts, err := w.cluster().Migration(t.Context(), guest.MigrationQuestion{Published: "hosted:15012", Released: released})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return facts.GatewayPods
	}
	got := read("u-g11")
	w.Expect(got).To(gomega.HaveLen(10))
	w.Expect(got).To(gomega.HaveKeyWithValue(types.UID("u-g11"), []string{"g11-pod.shop"}))
	w.Expect(got).NotTo(gomega.HaveKey(types.UID("u-g09")))
	w.Expect(read("")).To(gomega.HaveKey(types.UID("u-g09")), "in order otherwise")
}

// TestGatewaysOfOtherClasses checks which Gateways are of another controller by now. A class that does not exist may
// come back. One that is not held is not read.
func TestGatewaysOfOtherClasses(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	hold := fmt.Sprintf("%s: %q", model.HoldAnnotation, model.HoldValue(w.cfg.Revision))
	w.putGateways([]string{
		w.gateway("a", "ours", hold, "HTTPS"), w.gateway("b", "theirs", hold, "HTTPS"), w.gateway("c", "deleted", hold, "HTTPS"),
		w.gateway("d", "theirs", "", "HTTPS"),
	}, nil)
	got := map[string]bool{}
	for _, g := range w.read().Gateways {
		got[g.Key.Name] = g.Elsewhere
	}
	w.Expect(got).To(gomega.Equal(map[string]bool{"a": false, "b": true, "c": false}))
}
