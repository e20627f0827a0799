package xds_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/proxies"
	"github.com/hypergate/hypergate/test/hang"
)

// TestProxiesOfARealIstiod asks an istiod, whose debug pages are off, for its proxies: without one, and with a gateway.
func TestProxiesOfARealIstiod(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcd, kube-apiserver and istiod")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*hang.Deadline)
	t.Cleanup(cancel)
	g := startGuest(ctx, t, pilot)
	question := proxies.Question{
		Address: "istiod.istio-system.svc:443", ConnectTo: g.address, Roots: g.roots, Namespace: "istio-system",
		Token: g.systemToken(ctx, t, proxies.Audience),
	}
	if found, err := proxies.Ask(ctx, question); err != nil || len(found.Proxies) != 0 || found.Istiod != istiodPod {
		t.Fatalf("%v, %v", found, err)
	}
	proxy := dial(ctx, t, g.options(ctx, t))
	hang.Gomega(t).Eventually(func() (string, error) {
		found, err := proxies.Ask(ctx, question)
		if err != nil || len(found.Proxies) != 1 || len(found.Proxies[0].Types) == 0 {
			return "", errors.Join(err, errors.New("no proxy"))
		}
		for _, one := range found.Proxies[0].Types {
			if one.State != proxies.Synced && one.State != proxies.NotSent {
				return string(one.State), nil
			}
		}
		return found.Proxies[0].Name, nil
	}).Should(gomega.Equal("gw-test-0.ingress"))
	_ = proxy.Snapshot()

	for want, change := range map[string]func(*proxies.Question){
		"it refuses (gRPC status 16)": func(q *proxies.Question) { q.Token = g.systemToken(ctx, t, "other") },
		"it refuses (gRPC status 7)":  func(q *proxies.Question) { q.Namespace = "demo" },
		"certificate is valid for":    func(q *proxies.Question) { q.Address = "istiod.example.com:443" },
		"contain no certificate":      func(q *proxies.Question) { q.Roots = nil },
		"is not host:port":            func(q *proxies.Question) { q.Address = "istiod" },
	} {
		changed := question
		change(&changed)
		if _, err := proxies.Ask(ctx, changed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	t.Run("any pod can read the configuration of a gateway", func(t *testing.T) { anyPodReadsAGateway(ctx, t, g) })
}

// systemToken returns a token of an account in istiod's namespace.
func (g *guest) systemToken(ctx context.Context, t *testing.T, audience string) string {
	t.Helper()
	accounts := g.clients.CoreV1().ServiceAccounts("istio-system")
	_, _ = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "hypergate"}}, metav1.CreateOptions{})
	got, err := accounts.CreateToken(ctx, "hypergate",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}
