package guest_test

import (
	"errors"
	"testing"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const infrastructureCRD = "infrastructures.config.openshift.io"

var theInfrastructures = fakeapi.Collection{
	Path: "/apis/config.openshift.io/v1/infrastructures", APIVersion: "config.openshift.io/v1", Kind: "Infrastructure",
}

func infrastructure(status string) string {
	return "{metadata: {name: cluster}, status: " + status + "}"
}

func TestInfrastructureTopologies(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		want   model.InfrastructureTopology
	}{
		"a single node":  {infrastructure("{infrastructureTopology: SingleReplica}"), model.SingleNode},
		"several nodes":  {infrastructure("{infrastructureTopology: HighlyAvailable}"), model.SeveralNodes},
		"another one":    {infrastructure("{infrastructureTopology: External}"), model.NotStated},
		"no text":        {infrastructure("{infrastructureTopology: {a: b}}"), model.NotStated},
		"nothing":        {infrastructure("{}"), model.NotStated},
		"another object": {"{metadata: {name: another}, status: {infrastructureTopology: SingleReplica}}", model.NotStated},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) {
				api.Put(theNamespaces)
				api.Put(theCRDs, crd(infrastructureCRD, ""))
				api.Put(theInfrastructures, tc.object)
			})
			f.Expect(f.observed().Infrastructure).To(gomega.Equal(tc.want))
		})
	}
}

// TestTheIngressOperatorIsKnownByItsCRD checks that the CRD of the ingress operator is seen when it comes and goes,
// each time with a new pass.
func TestTheIngressOperatorIsKnownByItsCRD(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd("things.example.com", ""))
	})
	f.Expect(f.observed().IngressOperator).To(gomega.Equal(model.Missing))
	for _, want := range []model.Presence{model.Present, model.Missing} {
		f.quiet()
		for len(f.notified) > 0 {
			<-f.notified
		}
		if want == model.Present {
			f.api.Put(theCRDs, crd("dnsrecords.ingress.operator.openshift.io", ""))
		} else {
			f.api.Put(theCRDs)
		}
		f.Eventually(func() model.Presence { return f.observed().IngressOperator }).Should(gomega.Equal(want))
		f.Eventually(f.notified).Should(gomega.Receive())
	}
}

func TestTheTopologyFollowsItsObjectAndCRD(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs)
		api.Put(theInfrastructures, infrastructure("{infrastructureTopology: SingleReplica}"))
	})
	topology := func() model.InfrastructureTopology { return f.observed().Infrastructure }
	f.Expect(topology()).To(gomega.Equal(model.NotStated))
	f.Expect(f.api.Requests(theInfrastructures)).To(gomega.BeEmpty(), "without the CRD nothing is asked for")
	f.api.Put(theCRDs, crd(infrastructureCRD, ""))
	f.Eventually(topology).Should(gomega.Equal(model.SingleNode))
	f.api.Put(theInfrastructures, infrastructure("{infrastructureTopology: HighlyAvailable}"))
	f.Eventually(topology).Should(gomega.Equal(model.SeveralNodes))
	f.api.Put(theInfrastructures, infrastructure("{infrastructureTopology: SingleReplica}"))
	f.Eventually(topology).Should(gomega.Equal(model.SingleNode))
	f.api.Put(theCRDs)
	f.Eventually(topology).Should(gomega.Equal(model.NotStated), "what was said goes with the CRD")
}

func TestATopologyThatCannotBeRead(t *testing.T) {
	prepare := func(err *apierrors.StatusError) func(*fakeapi.Server) {
		return func(api *fakeapi.Server) {
			api.Put(theNamespaces)
			api.Put(theCRDs, crd(infrastructureCRD, ""))
			if err != nil {
				api.Fail(theInfrastructures, err)
			}
		}
	}
	isShown := gomega.ContainElement(gomega.HaveField("GVK.Kind", "Infrastructure"))
	t.Run("not served", func(t *testing.T) {
		f := start(t, prepare(nil))
		f.Expect(f.observed().Infrastructure).To(gomega.Equal(model.NotStated))
		f.Expect(f.observed().Unread).To(gomega.BeZero())
		f.Expect(f.guest.WatchProblems()).NotTo(isShown)
	})
	t.Run("forbidden", func(t *testing.T) {
		f := start(t, prepare(forbidden(infrastructureCRD)))
		f.Expect(f.observed().Unread).To(gomega.Equal(model.UnreadSettings{Infrastructure: true}))
		f.Expect(f.guest.WatchProblems()).To(isShown)
	})
	t.Run("out of order", func(t *testing.T) {
		f := start(t, prepare(apierrors.NewInternalError(errors.New("out of order"))))
		f.Eventually(f.awaited).Should(gomega.Equal(infrastructureCRD), "the replicas of gateways do not change while it is not known")
		f.api.Put(theInfrastructures, infrastructure("{infrastructureTopology: SingleReplica}"))
		f.api.Fail(theInfrastructures, nil)
		f.Eventually(func() model.InfrastructureTopology {
			seen, _ := f.guest.Observe()
			return seen.Infrastructure
		}).Should(gomega.Equal(model.SingleNode))
	})
}
