package integration_test

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/tunnel"
)

// byTunnel publishes istiod by the tunnel.
func (w *harness) byTunnel() {
	w.cfg.XDS = model.HostPort{}
	w.cfg.Publish = model.Publish{
		Strategy: model.PublishTunnel, RelayImage: "registry.example.com/hypergate:1", SidecarImage: "registry.example.com/hypergate:1",
	}
}

// tunnelSecret returns the content of the Secret of the tunnel's sidecar.
func (w *harness) tunnelSecret() map[string]string {
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), model.TunnelSecretName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for name, content := range secret.Data {
		out[name] = string(content)
	}
	return out
}

// tunnelObjects returns the objects that exist for the tunnel alone, by path without the namespace.
func (w *harness) tunnelObjects() (out []string) {
	for _, name := range w.members() {
		if strings.HasSuffix(name, "/"+model.RelayName) || strings.HasSuffix(name, "/"+model.TunnelAccountName) {
			out = append(out, name)
		}
	}
	return out
}

// TestPublishedByTunnel checks that real API servers accept the objects of the tunnel, that the sidecar's token has one
// permission, that both tokens are renewed without a rollout, and that all of it goes with another strategy.
func TestPublishedByTunnel(t *testing.T) {
	w := newHarness(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = clock
	without := w.cfg
	w.byTunnel()
	stop := w.run()
	w.install("demo")
	w.Expect(w.publishedAt("istiod-relay."+w.cfg.GuestNamespace+".svc", model.GatewaysPort)()).To(gomega.BeTrue())
	w.Expect(w.tunnelObjects()).To(gomega.HaveLen(9))
	w.Expect(w.istiod().Spec.Template.Spec.Containers).To(gomega.HaveLen(2))
	w.sidecarMayReachOnlyRelays()
	first, generation := w.tunnelSecret(), w.istiod().Generation
	w.Expect(first["server"]).To(gomega.Equal(w.cfg.GuestServer))
	w.isForTheTunnel(first["tls.crt"])

	t.Log("both tokens are renewed; the certificate stays, and no pod is replaced")
	istiods, relays := w.token(), w.relaysGeneration()
	clock.SetTime(time.Now().Add(49 * time.Minute))
	w.stir("due")
	w.Eventually(w.token).ShouldNot(gomega.Equal(istiods))
	w.Eventually(func() string { return w.tunnelSecret()["token"] }).ShouldNot(gomega.Equal(first["token"]))
	w.settle()
	w.Expect(w.tunnelSecret()["tls.crt"]).To(gomega.Equal(first["tls.crt"]))

	t.Log("the certificate is renewed in time")
	clock.SetTime(time.Now().Add(21 * 24 * time.Hour))
	w.stir("later")
	w.Eventually(func() string { return w.tunnelSecret()["tls.crt"] }).ShouldNot(gomega.Equal(first["tls.crt"]))
	w.settle()
	w.Expect(w.istiod().Generation).To(gomega.Equal(generation))
	w.Expect(w.relaysGeneration()).To(gomega.Equal(relays))

	t.Log("a restart changes nothing")
	stop()
	before := w.versions()
	stop = w.run()
	w.settle()
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}

	t.Log("with another strategy, everything of the tunnel goes")
	stop()
	w.cfg = without
	stop = w.run()
	w.Eventually(func() int { return len(w.istiod().Spec.Template.Spec.Containers) }).Should(gomega.Equal(1))
	w.settle()
	clock.SetTime(clock.Now().Add(4 * time.Minute)) // istiod's present account is surely in use
	w.stir("switched")
	w.Eventually(w.tunnelObjects).Should(gomega.BeEmpty())

	t.Log("and it comes back")
	stop()
	w.byTunnel()
	w.run()
	w.Eventually(w.tunnelObjects).Should(gomega.HaveLen(9))
	w.Eventually(func() int { return len(w.istiod().Spec.Template.Spec.Containers) }).Should(gomega.Equal(2))
	w.deleteClass("demo")
	w.Eventually(w.members).Should(gomega.BeEmpty())
}

// isForTheTunnel checks that a certificate is one of the mesh CA for the tunnel's name.
func (w *harness) isForTheTunnel(certificate string) {
	w.Helper()
	block, rest := pem.Decode([]byte(certificate))
	leaf, err := x509.ParseCertificate(block.Bytes)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(w.caSecret().Data["root-cert.pem"])
	between.AppendCertsFromPEM(rest)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: w.cfg.TunnelName()})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

func (w *harness) relaysGeneration() int64 {
	w.Helper()
	relays, err := w.guest.AppsV1().StatefulSets(w.cfg.GuestNamespace).Get(w.Context(), model.RelayName, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return relays.Generation
}

// sidecarMayReachOnlyRelays checks the sidecar's token: whose it is, and what the guest allows it.
func (w *harness) sidecarMayReachOnlyRelays() {
	w.Helper()
	review, err := w.guest.AuthenticationV1().TokenReviews().Create(w.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: w.tunnelSecret()["token"]},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(review.Status.User.Username).
		To(gomega.Equal("system:serviceaccount:" + w.cfg.GuestNamespace + ":" + model.TunnelAccountName))
	config := rest.AnonymousClientConfig(w.pair.Guest.Config)
	config.BearerToken = w.tunnelSecret()["token"]
	sidecar := kubernetes.NewForConfigOrDie(config)
	for _, tc := range []struct {
		verb, resource, sub, name string
		allowed                   bool
	}{
		{"get", "pods", "proxy", "http:istiod-relay-0:15443", true},
		{"get", "pods", "proxy", "http:istiod-relay-1:15443", true},
		{"get", "pods", "proxy", "http:istiod-relay-2:15443", false},
		{"get", "pods", "proxy", "http:istiod-relay-0:15012", false},
		{"get", "pods", "proxy", "https:istiod-relay-0:15443", false},
		{"get", "pods", "proxy", "istiod-relay-0", false},
		{"create", "pods", "proxy", "http:istiod-relay-0:15443", false},
		{"get", "pods", "", "istiod-relay-0", false},
		{"list", "secrets", "", "", false},
	} {
		got, err := sidecar.AuthorizationV1().SelfSubjectAccessReviews().Create(w.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: w.cfg.GuestNamespace, Verb: tc.verb, Resource: tc.resource, Subresource: tc.sub, Name: tc.name,
			}},
		}, metav1.CreateOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		w.Expect(got.Status.Allowed).To(gomega.Equal(tc.allowed), "%+v", tc)
	}
}

// TestRelaysAreSeen checks that auto takes the tunnel on a platform without another strategy, and that the condition
// has the number of relays that are ready.
func TestRelaysAreSeen(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	plane := controlPlane(t, "guest1", "")
	w.Expect(unstructured.SetNestedField(plane.Object, "IBMCloud", "spec", "platform", "type")).To(gomega.Succeed())
	w.createPlane(plane)
	w.reporting = controller.ReportToControlPlane
	w.byTunnel()
	w.cfg.Publish.Strategy = model.PublishAuto
	w.run()
	w.install("demo")
	w.Expect(w.log.String()).To(gomega.ContainSubstring("platform IBMCloud has its own routing to control planes"))
	published := func(text string) {
		w.hasReport("guest1", status.ControlPlaneAvailable, gomega.HaveField("Message", gomega.ContainSubstring(text)))
	}
	published("published by tunnel: 0 relays")
	w.relaysAreReady()
	published("published by tunnel: 2 relays")
}

// relaysAreReady plays the controller of StatefulSets.
func (w *harness) relaysAreReady() {
	w.Helper()
	sets := w.guest.AppsV1().StatefulSets(w.cfg.GuestNamespace)
	relays, err := sets.Get(w.Context(), model.RelayName, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	relays.Status.Replicas, relays.Status.ReadyReplicas = model.RelayReplicas, model.RelayReplicas
	_, err = sets.UpdateStatus(w.Context(), relays, metav1.UpdateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// TestARelayIsAwaited checks that istiod does not count as reached while no relay is ready, and neither if relays are
// ready and no handshake with istiod succeeds through one: here there are no relay pods. The request has the sidecar's
// token: with another one, the answer would be 403 and not 404.
func TestARelayIsAwaited(t *testing.T) {
	w := newHarness(t)
	w.probe = controller.Probe{}
	w.byTunnel()
	w.run()
	w.createClass("demo")
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(w.installedText("demo")).Should(gomega.MatchRegexp("^Unknown Pending: .*it has not been reached"))
	w.relaysAreReady()
	w.Eventually(w.installedText("demo")).
		Should(gomega.ContainSubstring("(guest side: no relay of the tunnel can be reached: " + string(tunnel.NoRelay)))
}
