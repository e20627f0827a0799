package parity_test

import (
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/model"
)

const zipkin = `
apiVersion: v1
kind: Namespace
metadata: {name: tracing}
---
apiVersion: v1
kind: Service
metadata: {name: zipkin, namespace: tracing}
spec: {ports: [{name: http, port: 9411}], selector: {app: zipkin}}
`

const providers = `
meshConfig:
  extensionProviders:
  - {name: zipkin, zipkin: {service: zipkin.tracing.svc.cluster.local, port: 9411}}
  - {name: file, envoyFileAccessLog: {path: /dev/stderr, logFormat: {text: "by a provider\n"}}}
  defaultProviders: {tracing: [zipkin], accessLogging: [file]}
`

// TestExtensionProviders checks that providers in a user's values reach a gateway: it sends traces to a Service of the
// guest, and writes its access log as the values say. The control is an istiod without these values.
func TestExtensionProviders(t *testing.T) {
	ctx, source, g := realGuest(t)
	g.have(ctx, behind, zipkin)
	web := g.gatewayPod(ctx)
	const collector = "outbound|9411||zipkin.tracing.svc.cluster.local"
	parts := []string{"envoy.tracers.zipkin", collector, "by a provider", "/dev/stderr"}
	complete := func(g gomega.Gomega, out sent) { g.Expect(out).To(gomega.HaveKey("cluster " + collector)) }
	s := ofHypergate(t, source, providers, model.SeveralNodes)
	g.apply(ctx, s.guest)
	account := g.as(ctx, "hypergate-istiod-"+revision)
	with := g.sentTo(ctx, account, s, web, complete)["listener 0.0.0.0_80"]
	for _, part := range parts {
		g.Expect(with).To(gomega.ContainSubstring(part))
	}
	g.Expect(with).NotTo(gomega.ContainSubstring("/dev/stdout"), "the provider replaces the access log of the mesh")

	without := g.sentTo(ctx, account, ofHypergate(t, source, "", model.SeveralNodes), web, complete)["listener 0.0.0.0_80"]
	for _, part := range parts {
		g.Expect(without).NotTo(gomega.ContainSubstring(part))
	}
	g.Expect(without).To(gomega.ContainSubstring("/dev/stdout"))
}
