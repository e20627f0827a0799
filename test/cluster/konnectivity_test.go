package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/hang"
)

// TestKonnectivity checks that the guest's API server reaches kubelets and pods only through konnectivity. It stops the
// agent, and both must fail, although the addresses have a route.
func TestKonnectivity(t *testing.T) {
	skipUnlessPossible(t)
	t.Parallel()
	g := hang.Gomega(t)
	c, err := cluster.Start(t.Context(), cluster.Options{
		Name: "konnectivity", Guest: true, GuestNodes: 1, Konnectivity: true, Dir: t.TempDir(), StandIns: []string{standInImage},
		Progress: progress{t},
	})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	pod, node := podsOnBothNodes(t, g, c, clientFor(g, c.Guest))[0], c.GuestNodes[0]
	client, err := rest.HTTPClientFor(c.Guest)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	of := c.Guest.Host + "/api/v1/namespaces/" + pod.Namespace + "/pods/"
	throughAPIServer := map[string]func() error{
		"the log of a pod, from its kubelet": func() error { return answered(t.Context(), client, of+pod.Name+"/log") },
		"a port of a pod": func() error {
			return answered(t.Context(), client, fmt.Sprintf("%shttp:%s:%d/proxy/healthz/ready", of, pod.Name, readyPort))
		},
	}
	works := func() {
		for name, ask := range throughAPIServer {
			g.Eventually(ask).Should(gomega.Succeed(), name)
		}
	}
	works()

	g.Expect(node.Stop(t.Context(), cluster.KonnectivityAgent)).To(gomega.Succeed())
	for name, ask := range throughAPIServer {
		g.Eventually(ask).Should(gomega.MatchError(gomega.ContainSubstring("konnectivity-server-local")), name)
	}
	url := "http://" + net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(readyPort)) + "/healthz/ready"
	g.Eventually(get).WithArguments(t.Context(), url).Should(gomega.Succeed(), "the address of the pod has a route")

	g.Expect(node.Start(t.Context(), cluster.KonnectivityAgent)).To(gomega.Succeed())
	works()
}

// answered returns an error with the text of the answer, unless the status is 200.
func answered(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return err
}

// TestKonnectivityNeedsNodes checks that konnectivity without a node, which would lead nowhere, is refused.
func TestKonnectivityNeedsNodes(t *testing.T) {
	skipUnlessPossible(t)
	_, err := cluster.Start(t.Context(), cluster.Options{Name: "nowhere", Guest: true, Konnectivity: true})
	hang.Gomega(t).Expect(err).To(gomega.MatchError(gomega.ContainSubstring("use GuestNodes")))
}
