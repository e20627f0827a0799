package e2e_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/ocpcrds"
	"github.com/hypergate/hypergate/test/world"
)

// Clients of TLS. Each offers both algorithms of certificates.
func olderClient() *tls.Config {
	return &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	}}
}

func olderClientOfAnotherSuite() *tls.Config {
	return &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	}}
}

func newerClient() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS13} }

// tlsProfile gives the HostedControlPlane one TLS security profile after the other.
func tlsProfile(t *fixture, edge *edgeOfTheGuest) {
	t.serveTLSAdherence()
	t.obeyTLSProfiles(edge, t.setTLSProfile, func() {
		const warning = "^True UnsupportedTLSProfile: .* a part of the TLS security profile is not applied: "
		t.Eventually(t.availableText).Should(gomega.MatchRegexp(warning))
	})
	t.Eventually(t.availableText).Should(gomega.HavePrefix("True AsExpected: "))
}

// TestStandaloneTLSProfile gives the APIServer object of a standalone cluster one TLS security profile after the other.
func TestStandaloneTLSProfile(t *testing.T) {
	t.Parallel()
	fixture := alone(t, world.Options{Name: "e2e-tls", Topology: model.TopologyStandalone, RealGateways: true})
	fixture.runAll(fixture.trafficGateway(), []trafficStory{
		{"the gateway and istiod obey the TLS security profile, and no request fails", standaloneTLSProfile},
	})
}

func standaloneTLSProfile(t *fixture, edge *edgeOfTheGuest) {
	t.Expect(t.ServeOpenShift(t.step(), ocpcrds.APIServers)).To(gomega.Succeed())
	t.obeyTLSProfiles(edge, func(json string) {
		object := "{apiVersion: config.openshift.io/v1, kind: APIServer, metadata: {name: cluster}, spec: " + json + "}"
		t.Expect(t.ApplyObject(t.step(), fromyaml.Object(t.T, object))).To(gomega.Succeed())
	}, func() {})
}

// obeyTLSProfiles sets one profile after the other. The gateway and istiod refuse clients that do not meet it, the pod
// of the gateway stays, and no request of other clients fails. checkNamed runs while there is a profile that cannot be
// obeyed as a whole, which the GatewayClass names.
func (t *fixture) obeyTLSProfiles(edge *edgeOfTheGuest, set func(json string), checkNamed func()) {
	t.Helper()
	pod, load := t.gatewayPod(), t.loaded(edge.shortStreams())
	atGateway := func(g gomega.Gomega) net.Conn {
		connection, err := (&net.Dialer{}).DialContext(t.step(), "tcp", net.JoinHostPort(edge.address, "443"))
		g.Expect(err).NotTo(gomega.HaveOccurred())
		return connection
	}
	atIstiod := func(port int) func(gomega.Gomega) net.Conn {
		return func(g gomega.Gomega) net.Conn {
			connection, err := t.DialIn(t.step(), t.istiodPod().UID, port)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			return connection
		}
	}
	xds, webhooks := atIstiod(15012), atIstiod(15017)
	none := func() {
		for _, server := range []func(gomega.Gomega) net.Conn{atGateway, xds, webhooks} {
			t.accepts(server, olderClient(), olderClientOfAnotherSuite(), newerClient())
		}
	}
	none()

	t.Log("a profile with some cipher suites")
	set(`{"tlsAdherence":"StrictAllComponents","tlsSecurityProfile":{"type":"Custom","custom":{"minTLSVersion":"VersionTLS12",
		"ciphers":["ECDHE-ECDSA-AES128-GCM-SHA256","ECDHE-RSA-AES128-GCM-SHA256"]}}}`)
	for _, server := range []func(gomega.Gomega) net.Conn{atGateway, xds, webhooks} {
		t.refuses(server, olderClientOfAnotherSuite())
		t.accepts(server, olderClient(), newerClient())
	}

	t.Log("a profile with TLS 1.3 alone, which istiod's own ports cannot obey")
	set(`{"tlsAdherence":"StrictAllComponents","tlsSecurityProfile":{"type":"Modern","modern":{},"custom":null}}`)
	t.refuses(atGateway, olderClient(), olderClientOfAnotherSuite())
	t.accepts(atGateway, newerClient())
	t.Expect(t.ClassCondition(t.step(), class, status.SettingsApplied, metav1.ConditionFalse)).To(gomega.Succeed())
	for _, server := range []func(gomega.Gomega) net.Conn{xds, webhooks} {
		t.accepts(server, olderClient(), olderClientOfAnotherSuite(), newerClient())
	}
	checkNamed()

	t.Log("the same profile, which components other than those of OpenShift need not obey")
	set(`{"tlsAdherence":"LegacyAdheringComponentsOnly","tlsSecurityProfile":{"type":"Modern","modern":{}}}`)
	none()
	t.more(load, 200)
	t.judge(load, 1000)
	t.Expect(t.gatewayPod().UID).To(gomega.Equal(pod.UID), "the gateway keeps its pod")
}

// serveTLSAdherence adds spec.configuration.apiServer.tlsAdherence to the CRD of HostedControlPlanes. HyperShift's API
// has the field in its types (openshift/api config/v1), behind a feature gate that no CRD of it has yet.
func (t *fixture) serveTLSAdherence() {
	t.Helper()
	patch := `[{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/configuration/properties/` +
		`apiServer/properties/tlsAdherence", "value": {"type": "string"}}]`
	_, err := t.MgmtDynamic.Resource(world.Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")).Patch(
		t.step(), "hostedcontrolplanes.hypershift.openshift.io", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Eventually(func(g gomega.Gomega) {
		const patch = `{"spec":{"configuration":{"apiServer":{"tlsAdherence":"x"}}}}`
		plane, err := t.controlPlanes().Patch(t.step(), t.GuestName, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		served, _, err := unstructured.NestedString(plane.Object, "spec", "configuration", "apiServer", "tlsAdherence")
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(served).To(gomega.Equal("x"), "the API server does not keep the field yet")
	}).Should(gomega.Succeed())
}

// setTLSProfile writes spec.configuration.apiServer of the HostedControlPlane.
func (t *fixture) setTLSProfile(json string) {
	t.Helper()
	patch := []byte(`{"spec":{"configuration":{"apiServer":` + json + `}}}`)
	_, err := t.controlPlanes().Patch(t.step(), t.GuestName, types.MergePatchType, patch, metav1.PatchOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
}

// accepts waits until a server accepts clients. Certificates are not verified, because only the handshake counts here.
func (t *fixture) accepts(server func(gomega.Gomega) net.Conn, clients ...*tls.Config) {
	t.Helper()
	for _, client := range clients {
		t.Eventually(func(g gomega.Gomega) {
			g.Expect(t.handshakeOver(server(g), client)).To(gomega.Succeed())
		}).Should(gomega.Succeed())
	}
}

// refuses waits until a server refuses clients by an alert of TLS.
func (t *fixture) refuses(server func(gomega.Gomega) net.Conn, clients ...*tls.Config) {
	t.Helper()
	for _, client := range clients {
		t.Eventually(func(g gomega.Gomega) {
			g.Expect(t.handshakeOver(server(g), client)).To(gomega.MatchError(gomega.ContainSubstring("remote error: tls:")))
		}).Should(gomega.Succeed())
	}
}

func (t *fixture) handshakeOver(connection net.Conn, client *tls.Config) error {
	defer func() { _ = connection.Close() }()
	client.ServerName, client.InsecureSkipVerify = trafficHost, true
	return tls.Client(connection, client).HandshakeContext(t.step())
}
