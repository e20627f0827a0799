package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestTheReleasedGatewayIsReadFirst checks that Gateways which have moved, and whose pods are not connected, do not
// keep those of the Gateway from being listed that was released last.
func TestTheReleasedGatewayIsReadFirst(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	var gateways, deployments, sets, pods []string
	for i := range 12 {
		name := fmt.Sprintf("g%02d", i)
		gateways = append(gateways, w.gateway(name, "ours", "", "HTTPS"))
		deployments = append(deployments, w.deployment(name, "hosted:15012"))
		sets = append(sets, labelled(name, "set", "d-"+name))
		pods = append(pods, labelled(name, "pod", name+"-set"))
	}
	w.putGateways(gateways, deployments)
	w.api.Put(theSets(), sets...)
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

func theSets() fakeapi.Collection {
	return collection("apps", "v1", "shop", "replicasets", "ReplicaSet")
}

// labelled returns an object with the label of a Gateway. Its name is also its UID.
func labelled(gateway, suffix, owner string) string {
	return fmt.Sprintf(`{metadata: {namespace: shop, name: %[1]s-%[2]s, uid: %[1]s-%[2]s,
		labels: {gateway.networking.k8s.io/gateway-name: %[1]s}, ownerReferences: [{uid: %[3]s, controller: true}]}}`,
		gateway, suffix, owner)
}

// TestOnlyPodsOfTheDeploymentCount checks that a pod of another Deployment, as one that istiod has left, and a pod that
// a tenant has created, are not expected at the hosted istiod.
func TestOnlyPodsOfTheDeploymentCount(t *testing.T) {
	t.Parallel()
	w := newInventoried(t)
	w.putGateways([]string{w.gateway("web", "ours", "", "HTTPS")}, []string{w.deployment("web", "hosted:15012")})
	w.api.Put(theSets(), labelled("web", "new", "d-web"), labelled("web", "old", "d-web"), labelled("web", "left", "d-former"))
	w.api.Put(collection("", "v1", "shop", "pods", "Pod"),
		labelled("web", "one", "web-new"), labelled("web", "two", "web-old"), labelled("web", "former", "web-left"),
		strings.Replace(labelled("web", "foreign", "web-new"), "controller: true", "controller: false", 1))
	facts, err := w.cluster().Migration(t.Context(), guest.MigrationQuestion{Published: "hosted:15012"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(facts.GatewayPods).To(gomega.Equal(map[types.UID][]string{"u-web": {"web-one.shop", "web-two.shop"}}))
}

// TestForeignPodsAreLimited checks that pods and ReplicaSets of others that have the label of a Gateway count towards
// the limits of a reading. What is beyond a limit is not listed, so it does not count as connected.
func TestForeignPodsAreLimited(t *testing.T) {
	t.Parallel()
	foreign := func(n int) (out []string) {
		for i := range n {
			out = append(out, labelled("web", fmt.Sprintf("foreign-%d", i), "other"))
		}
		return out
	}
	for name, c := range map[string]struct {
		sets, pods int
		want       []string
	}{
		"within the limits":    {99, 999, []string{"web-one.shop"}},
		"too many ReplicaSets": {100, 0, []string{}},
		"too many pods":        {0, 1000, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newInventoried(t)
			w.putGateways([]string{w.gateway("web", "ours", "", "HTTPS")}, []string{w.deployment("web", "hosted:15012")})
			w.api.Put(theSets(), append(foreign(c.sets), labelled("web", "new", "d-web"))...)
			w.api.Put(collection("", "v1", "shop", "pods", "Pod"), append(foreign(c.pods), labelled("web", "one", "web-new"))...)
			facts, err := w.cluster().Migration(t.Context(), guest.MigrationQuestion{Published: "hosted:15012"})
			w.Expect(err).NotTo(gomega.HaveOccurred())
			w.Expect(facts.GatewayPods).To(gomega.Equal(map[types.UID][]string{"u-web": c.want}))
		})
	}
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
