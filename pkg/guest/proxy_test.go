package guest_test

import (
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const proxyCRD = "proxies.config.openshift.io"

var theProxies = fakeapi.Collection{
	Path: "/apis/config.openshift.io/v1/proxies", APIVersion: "config.openshift.io/v1", Kind: "Proxy",
}

func proxy(status string) string {
	return "{metadata: {name: cluster}, spec: {httpProxy: http://not-checked-yet}, status: " + status + "}"
}

// TestTheProxyFollowsItsObjectAndCRD checks that the settings are those of the object's status, as far as they can be
// used.
func TestTheProxyFollowsItsObjectAndCRD(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs)
		api.Put(theProxies, proxy("{httpProxy: http://a, httpsProxy: https://b, noProxy: .svc}"))
	})
	used := func() model.Proxy { return f.observed().Proxy }
	f.Expect(used()).To(gomega.Equal(model.Proxy{}))
	f.Expect(f.api.Requests(theProxies)).To(gomega.BeEmpty(), "without the CRD nothing is asked for")
	f.api.Put(theCRDs, crd(proxyCRD, ""))
	f.Eventually(used).Should(gomega.Equal(model.Proxy{HTTP: "http://a", HTTPS: "https://b", No: ".svc"}))
	f.Expect(f.observed().IgnoredProxy).To(gomega.BeEmpty())
	f.api.Put(theProxies, proxy("{httpProxy: ':', httpsProxy: {a: b}, noProxy: .svc}"))
	f.Eventually(used).Should(gomega.Equal(model.Proxy{No: ".svc"}))
	f.Expect(f.observed().IgnoredProxy).To(gomega.ConsistOf("status.httpProxy is not a URL with a host"))
	f.api.Put(theProxies)
	f.Eventually(used).Should(gomega.Equal(model.Proxy{}))
	f.api.Put(theProxies, proxy("{httpProxy: http://c}"))
	f.Eventually(used).Should(gomega.Equal(model.Proxy{HTTP: "http://c"}))
	f.api.Put(theCRDs)
	f.Eventually(used).Should(gomega.Equal(model.Proxy{}), "what was said goes with the CRD")
}

// TestAProxyThatCannotBeReadIsShown checks that a proxy that hypergate is not allowed to read is shown and not known,
// which is not the same as not set. Once it was read, it stays known.
func TestAProxyThatCannotBeReadIsShown(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(proxyCRD, ""))
		api.Fail(theProxies, forbidden(proxyCRD))
	})
	f.Expect(f.observed().Unread).To(gomega.Equal(model.UnreadSettings{Proxy: true}))
	f.Expect(f.guest.WatchProblems()).To(gomega.ContainElement(gomega.HaveField("GVK.Kind", "Proxy")))
	f.api.Put(theProxies, proxy("{httpProxy: http://a}"))
	f.api.Fail(theProxies, nil)
	f.Eventually(func() model.Proxy { return f.observed().Proxy }).Should(gomega.Equal(model.Proxy{HTTP: "http://a"}))
	f.Expect(f.observed().Unread).To(gomega.BeZero())
	f.api.Fail(theProxies, forbidden(proxyCRD))
	f.Eventually(f.guest.WatchProblems).Should(gomega.ContainElement(gomega.HaveField("GVK.Kind", "Proxy")))
	f.Expect(f.observed().Proxy).To(gomega.Equal(model.Proxy{HTTP: "http://a"}))
	f.Expect(f.observed().Unread).To(gomega.BeZero())
}
