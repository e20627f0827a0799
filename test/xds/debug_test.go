package xds_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/xds"
)

// anyPodReadsAGateway shows a risk that docs/security.md names. A pod of another namespace, which is not a proxy, asks
// istiod for all proxies and for the configuration of a gateway. istiod answers both.
func anyPodReadsAGateway(ctx context.Context, t *testing.T, g *guest) {
	t.Helper()
	gateway := dial(ctx, t, g.options(ctx, t))
	waitFor(ctx, t, gateway, func(c *xds.Config) error { return reaches(c, 443, "10.128.0.7:8080") })
	tenant := g.tenant(ctx, t)
	list, err := xds.Ask(ctx, tenant, "istio.io/debug/syncz")
	if err != nil {
		t.Fatal(err)
	}
	var proxies []string
	for _, resource := range list.GetResources() {
		proxies = append(proxies, string(resource.GetValue()))
	}
	const name = "gw-test-0.ingress"
	if !slices.ContainsFunc(proxies, func(one string) bool { return strings.Contains(one, name) }) {
		t.Errorf("istiod does not name %s", name)
	}
	dump, err := xds.Ask(ctx, tenant, "istio.io/debug/config_dump", name)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, resource := range dump.GetResources() {
		values[string(resource.MessageName().Name())] = string(resource.GetValue())
		if strings.Contains(string(resource.GetValue()), "PRIVATE KEY") {
			t.Errorf("%s has a private key", resource.MessageName())
		}
	}
	// istiod returns each kind, also without any value.
	for kind, want := range map[string]string{"RoutesConfigDump": "echo.example.com", "SecretsConfigDump": "[redacted]"} {
		if !strings.Contains(values[kind], want) {
			t.Errorf("%s does not have %s: %q", kind, want, values[kind])
		}
	}
}

// tenant returns the options of a pod of the namespace demo.
func (g *guest) tenant(ctx context.Context, t *testing.T) xds.Options {
	t.Helper()
	expect := gomega.NewWithT(t)
	_, err := g.clients.CoreV1().ServiceAccounts("demo").
		Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{})
	expect.Expect(err).NotTo(gomega.HaveOccurred())
	pod, err := g.clients.CoreV1().Pods("demo").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "tenant", Containers: []corev1.Container{{Name: "shell", Image: "registry.example.com/shell"}},
		},
	}, metav1.CreateOptions{})
	expect.Expect(err).NotTo(gomega.HaveOccurred())
	of := &guest{clients: g.clients, address: g.address, roots: g.roots, pod: pod}
	options := of.options(ctx, t)
	options.Node.PodIP = "10.128.0.9"
	return options
}
