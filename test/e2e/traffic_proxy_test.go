package e2e_test

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/ocpcrds"
	"github.com/hypergate/hypergate/test/world"
)

// guestsProxy gives the guest a proxy that answers nothing. Gateways get its settings, and reach istiod without
// it. The control is a gateway whose agent does not bypass the proxy for istiod: the proxy sees it.
//
// At the end, another process takes the settings away. It would wait for ten minutes after the change before, so the
// guest's admin removes the time of that change while no process runs.
func guestsProxy(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	url, requests := t.closingProxy()
	load, old := t.loaded(edge.shortStreams()), t.gatewayPod()
	t.Expect(t.ServeOpenShift(t.step(), ocpcrds.Proxies)).To(gomega.Succeed())
	// OpenShift's network operator would write the status.
	proxy := "{apiVersion: config.openshift.io/v1, kind: Proxy, metadata: {name: cluster}, spec: {}, " +
		"status: {httpProxy: '" + url + "', httpsProxy: '" + url + "', noProxy: '.svc,.cluster.local'}}"
	t.Expect(t.ApplyWithStatus(t.step(), fromyaml.Object(t.T, proxy))).To(gomega.Succeed())
	t.onePod(old.UID)
	t.more(load, 500)
	t.judge(load, 1000)
	proxied := t.gatewayPod()
	bypass := ".svc,.cluster.local," + t.XDS().Host
	for name, want := range map[string]string{
		"HTTP_PROXY": url, "https_proxy": url, "HTTPS_PROXY": url, "NO_PROXY": bypass, "no_proxy": bypass,
	} {
		t.Expect(proxied.Spec.Containers[0].Env).To(gomega.ContainElement(corev1.EnvVar{Name: name, Value: want}))
	}
	t.Expect(requests()).To(gomega.BeZero(), "a gateway asked the proxy for istiod")

	t.Expect(t.Apply(t.step(), "withoutbypass.yaml", map[string]string{
		"gateway": trafficGateway, "gatewayNamespace": world.GuestNamespace,
	})).To(gomega.Succeed())
	t.Eventually(requests).Should(gomega.BeNumerically(">", 0), "control: without the bypass, the agent asks the proxy")
	t.options("on", "after the proxy")

	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	err := t.GuestDynamic.Resource(crds).Delete(t.ctx, "proxies.config.openshift.io", metav1.DeleteOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	h.Terminate()
	_, err = t.GuestClient.CoreV1().ConfigMaps(world.GuestNamespace).Patch(t.ctx,
		model.Config{Revision: world.Revision}.ClassDefaultsName(class), types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+model.SettingsChangedAnnotation+`":null}}}`), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	proxied = t.gatewayPod()
	h = t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.onePod(proxied.UID)
	t.served(edge)
}

// closingProxy returns the URL of a server that gateways can reach, and how many requests for istiod it has got. It
// reads the first request of each connection, and closes the connection. The agent also asks for a cloud's metadata
// server.
func (t *fixture) closingProxy() (url string, requests func() int64) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.ctx, "tcp", net.JoinHostPort(t.HostAddress().String(), "0"))
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	var count atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = connection.Close() }()
				_ = connection.SetReadDeadline(time.Now().Add(hang.Deadline))
				request, err := http.ReadRequest(bufio.NewReader(connection))
				if err == nil && request.Host == t.XDS().String() {
					count.Add(1)
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String(), count.Load
}
