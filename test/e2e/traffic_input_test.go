package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// badInput checks what clients get for routes that cannot be served, and that a listener without a certificate takes
// nothing from the other listeners.
func badInput(t *fixture, edge *edgeOfTheGuest) {
	const elsewhere = "elsewhere"
	values := map[string]string{
		"namespace": backends, "elsewhere": elsewhere, "gateway": trafficGateway, "gatewayNamespace": world.GuestNamespace,
	}
	t.undisturbed(edge, func() {
		t.Expect(t.Apply(t.step(), "badinput.yaml", values)).To(gomega.Succeed())
		for _, c := range []struct {
			why, host string
			status    int
		}{
			{"no route has the host", "unknown.guest1.example.com", http.StatusNotFound},
			{"the Service has no endpoints", "empty.guest1.example.com", http.StatusServiceUnavailable},
			{"the Service does not exist", "missing.guest1.example.com", http.StatusInternalServerError},
			{"there is no ReferenceGrant for the namespace", "elsewhere.guest1.example.com", http.StatusInternalServerError},
		} {
			t.Eventually(edge.status).WithArguments(t.ctx, c.host).Should(gomega.Equal(c.status), c.why)
		}
		t.Log("with a ReferenceGrant, the Service is used, and it has no endpoints")
		t.Expect(t.Apply(t.step(), "grant.yaml", values)).To(gomega.Succeed())
		t.Eventually(edge.status).WithArguments(t.ctx, "elsewhere.guest1.example.com").Should(gomega.Equal(http.StatusServiceUnavailable))
		t.withoutCertificate(edge)
		t.manyListeners(edge)
	})
	t.Expect(t.GuestClient.CoreV1().Namespaces().Delete(t.ctx, elsewhere, metav1.DeleteOptions{})).To(gomega.Succeed())
	for _, name := range []string{"empty", "missing", elsewhere} {
		t.Expect(t.Gateways.HTTPRoutes(backends).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}
}

// status returns the status of a GET request at port 80.
func (e *edgeOfTheGuest) status(ctx context.Context, host string) (int, error) {
	return statusAt(ctx, net.JoinHostPort(e.address, "80"), host)
}

// statusAt returns the status of a GET request.
func statusAt(ctx context.Context, address, host string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Host = host
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// handshake connects with TLS, and closes the connection.
func handshake(ctx context.Context, address, host string, roots *x509.CertPool) error {
	dialer := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 5 * time.Second},
		Config:    &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12},
	}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// withoutCertificate adds a listener whose Secret has no certificate, and removes it. With a certificate, the same
// listener serves: without that control, a listener that never works would do.
func (t *fixture) withoutCertificate(edge *edgeOfTheGuest) {
	t.Helper()
	const name, port = "no-certificate", "8444"
	address := net.JoinHostPort(edge.address, port)
	certificate, key, roots := t.certificate(trafficHost)
	remove := t.addListener(name, port, certificate, key)
	t.Eventually(handshake).WithArguments(t.ctx, address, trafficHost, roots).Should(gomega.Succeed(), "control: with a certificate")
	remove()
	t.Eventually(handshake).WithArguments(t.ctx, address, trafficHost, roots).ShouldNot(gomega.Succeed())

	remove = t.addListener(name, port, []byte("not a certificate"), []byte("not a key"))
	t.Eventually(func(g gomega.Gomega) {
		gateway, err := t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, trafficGateway, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(gateway.Status.Listeners).To(gomega.HaveLen(3))
		refused := gateway.Status.Listeners[2]
		g.Expect(string(refused.Name)).To(gomega.Equal(name))
		g.Expect(meta.IsStatusConditionFalse(refused.Conditions, string(gatewayv1.ListenerConditionResolvedRefs))).To(gomega.BeTrue())
	}).Should(gomega.Succeed())
	t.reconfigured(edge) // so the gateway has what istiod made of the listener
	t.Expect(handshake(t.ctx, address, trafficHost, roots)).NotTo(gomega.Succeed())
	remove()
}

// addListener adds a listener with a Secret of the same name to the gateway's two. remove removes both.
func (t *fixture) addListener(name, port string, certificate, key []byte) (remove func()) {
	t.Helper()
	secrets := t.GuestClient.CoreV1().Secrets(world.GuestNamespace)
	_, err := secrets.Create(t.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.patchGateway(`[{"op":"add","path":"/spec/listeners/-","value":{"name":"` + name + `","port":` + port + `,"protocol":"HTTPS",
		"tls":{"certificateRefs":[{"name":"` + name + `"}]}}}]`)
	return func() {
		t.Helper()
		t.patchGateway(`[{"op":"test","path":"/spec/listeners/2/name","value":"` + name + `"},{"op":"remove","path":"/spec/listeners/2"}]`)
		t.Expect(secrets.Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}
}

// manyListeners gives the gateway 200 listeners, which the guest's API server refuses, and then as many as Gateway API
// allows. All of these serve.
func (t *fixture) manyListeners(edge *edgeOfTheGuest) {
	t.Helper()
	const allowed, tooMany, firstPort = 64, 200, 9000
	gateways := t.Gateways.Gateways(world.GuestNamespace)
	with := func(count int) error {
		gateway, err := gateways.Get(t.ctx, trafficGateway, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		gateway.Spec.Listeners = gateway.Spec.Listeners[:2]
		for i := 2; i < count; i++ {
			gateway.Spec.Listeners = append(gateway.Spec.Listeners, gatewayv1.Listener{
				Name: gatewayv1.SectionName(fmt.Sprintf("many-%d", i)), Port: gatewayv1.PortNumber(firstPort + i),
				Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: gateway.Spec.Listeners[0].AllowedRoutes,
			})
		}
		_, err = gateways.Update(t.ctx, gateway, metav1.UpdateOptions{})
		return err
	}
	t.Expect(with(tooMany)).To(gomega.MatchError(gomega.ContainSubstring("must have at most 64 items")))
	t.Eventually(with).WithArguments(allowed).Should(gomega.Succeed())
	for i := 2; i < allowed; i++ {
		address := net.JoinHostPort(edge.address, strconv.Itoa(firstPort+i))
		t.Eventually(statusAt).WithArguments(t.ctx, address, trafficHost).Should(gomega.Equal(http.StatusOK), address)
	}
	t.Eventually(with).WithArguments(2).Should(gomega.Succeed())
}

func (t *fixture) patchGateway(patch string) {
	t.Helper()
	_, err := t.Gateways.Gateways(world.GuestNamespace).
		Patch(t.ctx, trafficGateway, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// passthrough sends TLS through a gateway that does not terminate it: the clients verify the certificate of the
// backends. Istio 1.29 serves TLSRoutes only with an alpha setting, which hypergate does not make. So the story makes
// it by hand.
func passthrough(t *fixture, edge *edgeOfTheGuest) {
	t.Expect(t.ServeTLSRoutes(t.step())).To(gomega.Succeed())
	t.allowTLSRouteStatus()
	defer t.byHand(`{"spec":{"template":{"spec":{"containers":[{"name":"discovery",
		"env":[{"name":"PILOT_ENABLE_ALPHA_GATEWAY_API","value":"true"}]}]}}}}`, 1)()
	const name = "passthrough"
	t.Expect(t.Apply(t.step(), "passthrough.yaml", map[string]string{
		"namespace": backends, "gateway": name, "gatewayNamespace": world.GuestNamespace, "class": class, "host": passthroughHost,
	})).To(gomega.Succeed())
	defer func() {
		t.Expect(t.Gateways.Gateways(world.GuestNamespace).Delete(t.ctx, name, metav1.DeleteOptions{})).To(gomega.Succeed())
	}()
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, name)).To(gomega.Succeed())
	gateway, err := t.Gateways.Gateways(world.GuestNamespace).Get(t.ctx, name, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(gateway.Status.Addresses).NotTo(gomega.BeEmpty())
	t.available(world.GuestNamespace, name+"-"+class)
	address := net.JoinHostPort(gateway.Status.Addresses[0].Value, "8443")
	config := &tls.Config{RootCAs: edge.backendRoots, MinVersion: tls.VersionTLS12}
	streams := []traffic.Stream{
		{Name: "passthrough, new", Kind: traffic.NewConnection, Address: address, Host: passthroughHost, TLS: config, Rate: 40},
		{Name: "passthrough, kept", Kind: traffic.KeptConnection, Address: address, Host: passthroughHost, TLS: config, Rate: 100},
		{
			Name: "passthrough, download", Kind: traffic.Download, Address: address, Host: passthroughHost, TLS: config, Rate: 0.5,
			Duration: 5 * time.Second,
		},
	}
	t.answered(streams)
	load := t.loaded(append(streams, edge.shortStreams()...))
	old := t.podsOf(backends, "app=backend")
	t.Expect(t.GuestClient.CoreV1().Pods(backends).Delete(t.ctx, old[0].Name, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.more(load, 5000) // until the backend has ended
	t.judge(load, 5500)

	t.Log("a name without a route gets no connection")
	t.Expect(handshake(t.ctx, address, passthroughHost, edge.backendRoots)).To(gomega.Succeed())
	t.Expect(handshake(t.ctx, address, trafficHost, edge.backendRoots)).NotTo(gomega.Succeed())
}

// allowTLSRouteStatus gives istiod the right that its role lacks for TLSRoutes.
func (t *fixture) allowTLSRouteStatus() {
	t.Helper()
	const name = "istiod-tlsroutes"
	_, err := t.GuestClient.RbacV1().ClusterRoles().Create(t.ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"tlsroutes/status"}, Verbs: []string{"update"},
		}},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = t.GuestClient.RbacV1().ClusterRoleBindings().Create(t.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: world.GuestIstiod, Namespace: world.GuestNamespace}},
	}, metav1.CreateOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}
