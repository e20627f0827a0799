package webhookurl_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/webhookurl"
)

func TestForbiddenBy(t *testing.T) {
	unlabelled := func(names ...string) []webhookurl.Service {
		services := make([]webhookurl.Service, len(names))
		for i, name := range names {
			services[i].Name = name
		}
		return services
	}
	const hosted = "https://istiod-openshift-gateway.clusters-guest1.svc:443/validate"
	for name, test := range map[string]struct {
		url      string
		services []webhookurl.Service
		want     []string
	}{
		"no service":                  {url: hosted},
		"own service labelled":        {url: hosted, services: []webhookurl.Service{{Name: "istiod-openshift-gateway", Labelled: true}}},
		"own service not labelled":    {hosted, unlabelled("istiod-openshift-gateway"), []string{"istiod-openshift-gateway"}},
		"prefix of the name":          {hosted, unlabelled("kube-apiserver", "istiod"), []string{"istiod"}},
		"labelled prefix":             {url: hosted, services: []webhookurl.Service{{Name: "istiod", Labelled: true}}},
		"several, in order":           {hosted, unlabelled("istiod-openshift", "etcd", "istio"), []string{"istiod-openshift", "istio"}},
		"name is a suffix only":       {url: hosted, services: unlabelled("openshift-gateway", "clusters-guest1", "gateway")},
		"longer than the host":        {url: "https://istiod:443", services: unlabelled("istiod-openshift-gateway")},
		"short form":                  {"https://istiod-openshift-gateway:443/validate", unlabelled("istiod"), []string{"istiod"}},
		"another host":                {"https://istiod.example.com/", unlabelled("istiod"), []string{"istiod"}},
		"in the path, as a substring": {"https://a.example/https://etcd-client", unlabelled("etcd-client"), []string{"etcd-client"}},
		"another scheme":              {url: "http://istiod", services: unlabelled("istiod")},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, webhookurl.ForbiddenBy(test.url, test.services)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestForbiddenByMatchesHyperShift compares the single form that ForbiddenBy searches for with the three forms of
// HyperShift.
func TestForbiddenByMatchesHyperShift(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	word := func() string { return strings.Repeat("ab", 1+random.IntN(2))[:1+random.IntN(2)] }
	seen := map[bool]int{}
	for range 5000 {
		name, namespace := word(), word()
		target := "https://" + []string{
			word(), word() + "." + word() + ".svc", word() + "." + word() + ".svc.cluster.local",
		}[random.IntN(3)] + "/" + word()
		want := false
		for _, form := range []string{"https://%s", "https://%[1]s.%[2]s.svc", "https://%[1]s.%[2]s.svc.cluster.local"} {
			disallowed := fmt.Sprintf(form, name, namespace)
			if form == "https://%s" {
				disallowed = fmt.Sprintf(form, name)
			}
			want = want || strings.Contains(target, disallowed)
		}
		got := len(webhookurl.ForbiddenBy(target, []webhookurl.Service{{Name: name}})) == 1
		if got != want {
			t.Fatalf("URL %s, service %s/%s: got forbidden %t, want %t", target, namespace, name, got, want)
		}
		seen[got]++
	}
	if seen[true] < 500 || seen[false] < 500 {
		t.Errorf("the generator is lopsided: %v", seen)
	}
}
