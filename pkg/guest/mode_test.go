package guest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const modeCRD = "ingresses.operator.openshift.io"

var theModes = fakeapi.Collection{
	Path: "/apis/operator.openshift.io/v1alpha1/ingresses", APIVersion: "operator.openshift.io/v1alpha1", Kind: "Ingress",
}

func modeObject(spec string) string { return "{metadata: {name: cluster}, spec: " + spec + "}" }

// TestManagementModes checks that an unknown mode counts as none. The flags then decide.
func TestManagementModes(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		want   crds.Mode
	}{
		"managed":        {modeObject("{gatewayAPI: {managementMode: Managed}}"), crds.Managed},
		"unmanaged":      {modeObject("{gatewayAPI: {managementMode: Unmanaged}}"), crds.Unmanaged},
		"unknown":        {modeObject("{gatewayAPI: {managementMode: Dreaming}}"), ""},
		"no text":        {modeObject("{gatewayAPI: {managementMode: {a: b}}}"), ""},
		"nothing":        {modeObject("{gatewayAPI: {}}"), ""},
		"another object": {"{metadata: {name: another}, spec: {gatewayAPI: {managementMode: Unmanaged}}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(api *fakeapi.Server) {
				api.Put(theNamespaces)
				api.Put(theCRDs, crd(modeCRD, ""))
				api.Put(theModes, tc.object)
			})
			f.Expect(f.observed().Mode).To(gomega.Equal(tc.want))
		})
	}
}

func TestTheManagementModeFollowsItsObjectAndCRD(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs)
		api.Put(theModes, modeObject("{gatewayAPI: {managementMode: Unmanaged}}"))
	})
	mode := func() crds.Mode { return f.observed().Mode }
	f.Expect(mode()).To(gomega.BeEmpty())
	f.Expect(f.api.Requests(theModes)).To(gomega.BeEmpty(), "without the CRD nothing is asked for")
	f.api.Put(theCRDs, crd(modeCRD, ""))
	f.Eventually(mode).Should(gomega.Equal(crds.Unmanaged))
	f.api.Put(theModes, modeObject("{gatewayAPI: {managementMode: Managed}}"))
	f.Eventually(mode).Should(gomega.Equal(crds.Managed))
	f.api.Put(theModes)
	f.Eventually(mode).Should(gomega.BeEmpty())
	f.api.Put(theModes, modeObject("{gatewayAPI: {managementMode: Unmanaged}}"))
	f.Eventually(mode).Should(gomega.Equal(crds.Unmanaged))
	f.api.Put(theCRDs)
	f.Eventually(mode).Should(gomega.BeEmpty(), "what was said goes with the CRD")
}

func TestAManagementModeThatCannotBeRead(t *testing.T) {
	prepare := func(err *apierrors.StatusError) func(*fakeapi.Server) {
		return func(api *fakeapi.Server) {
			api.Put(theNamespaces)
			api.Put(theCRDs, crd(modeCRD, ""))
			if err != nil {
				api.Fail(theModes, err)
			}
		}
	}
	t.Run("another version", func(t *testing.T) {
		f := start(t, prepare(nil))
		f.Expect(f.observed().Mode).To(gomega.BeEmpty())
		f.Expect(f.guest.Check()).To(gomega.Succeed())
		f.Expect(f.guest.WatchProblems()).NotTo(gomega.ContainElement(gomega.HaveField("GVK.Kind", "Ingress")))
	})
	t.Run("forbidden", func(t *testing.T) {
		f := start(t, prepare(forbidden("ingresses.operator.openshift.io")))
		f.Expect(f.observed().Mode).To(gomega.BeEmpty())
		f.Expect(f.guest.Check()).To(gomega.MatchError(gomega.ContainSubstring("watching ingresses: ")))
		f.Expect(f.guest.WatchProblems()).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("GVK.Kind", "Ingress"),
			gomega.WithTransform(
				func(p apply.WatchProblem) string { return p.Cause.String() },
				gomega.Equal("not allowed to list ingresses.operator.openshift.io (RBAC)"),
			),
		)))
		f.api.Put(theModes, modeObject("{gatewayAPI: {managementMode: Unmanaged}}"))
		f.api.Fail(theModes, nil)
		f.Eventually(func() crds.Mode { return f.observed().Mode }).Should(gomega.Equal(crds.Unmanaged))
	})
	t.Run("out of order", func(t *testing.T) {
		f := start(t, prepare(apierrors.NewInternalError(errors.New("out of order"))))
		f.Eventually(func() error {
			_, err := f.guest.Observe()
			return err
		}).Should(gomega.MatchError(gomega.And(
			gomega.ContainSubstring("(waiting for "+modeCRD+")"), gomega.ContainSubstring("out of order"))))
		_, err := f.guest.Observe()
		_, unknown := errors.AsType[guest.NotSyncedError](err)
		f.Expect(unknown).To(gomega.BeTrue())
		f.Eventually(f.awaited).Should(gomega.Equal(modeCRD), "what else there is is known")
	})
}

// awaited returns the resources that cannot be listed while the guest answers. It returns "" in any other state.
func (f *fixture) awaited() string {
	_, err := f.guest.Observe()
	if notSynced, is := errors.AsType[guest.NotSyncedError](err); is && notSynced.Answers {
		return strings.Join(notSynced.Missing, ", ")
	}
	return ""
}

// TestClassesThatCannotBeListed covers a guest that answers but does not list GatewayClasses. It counts neither as
// unreachable nor as a guest without classes.
func TestClassesThatCannotBeListed(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(classCRD, ""), crd(modeCRD, ""))
		api.Put(theModes, modeObject("{gatewayAPI: {managementMode: Unmanaged}}"))
		api.Fail(theClasses, apierrors.NewInternalError(errors.New("conversion webhook failed")))
	})
	f.Eventually(f.awaited).Should(gomega.Equal("gatewayclasses"))
	f.Eventually(func() crds.Mode {
		seen, _ := f.guest.Observe()
		return seen.Mode
	}).Should(gomega.Equal(crds.Unmanaged), "the mode is known all the same")
	f.Eventually(f.guest.Check).Should(gomega.MatchError(gomega.ContainSubstring("conversion webhook failed")))
	for len(f.notified) > 0 {
		<-f.notified
	}
	f.api.Fail(theCRDs, apierrors.NewInternalError(errors.New("away")))
	f.Eventually(f.awaited).Should(gomega.BeEmpty(), "a guest that does not answer at all is another thing")
	f.api.Fail(theCRDs, nil)
	f.api.Put(theClasses)
	f.api.Fail(theClasses, nil)
	f.observed()
}
