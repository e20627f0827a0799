package cluster_test

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/hang"
)

// TestTwoAtOnce starts two hosted clusters with the same inner names at the same time, and checks that they do not
// affect each other.
func TestTwoAtOnce(t *testing.T) {
	skipUnlessPossible(t)
	t.Parallel()
	g := hang.Gomega(t)
	names := []string{"left", "right"}
	clusters := make([]*cluster.Cluster, len(names))
	starts, ctx := errgroup.WithContext(t.Context())
	for i, name := range names {
		dir := t.TempDir()
		starts.Go(func() (err error) {
			clusters[i], err = cluster.Start(ctx, cluster.Options{Name: name, Guest: true, Dir: dir, Progress: progress{t}})
			return err
		})
	}
	err := starts.Wait()
	t.Cleanup(func() {
		for _, c := range clusters {
			if c != nil && c.Stop() != nil {
				t.Errorf("stopping %s: something is left behind", c.Name)
			}
		}
	})
	g.Expect(err).NotTo(gomega.HaveOccurred())

	seen := map[string]string{}
	for _, c := range clusters {
		for _, client := range []string{"mgmt", "guest"} {
			config := c.Mgmt
			if client == "guest" {
				config = c.Guest
			}
			uid := namespaceUID(t.Context(), g, clientFor(g, config))
			g.Expect(seen).NotTo(gomega.HaveKey(uid), c.Name+"'s "+client+" is also "+seen[uid])
			seen[uid] = c.Name + "'s " + client
		}
		g.Expect(readyNodes(t.Context(), g, c)).To(gomega.ConsistOf("node1"), c.Name)
	}

	t.Log("the end of one does nothing to the other")
	g.Expect(clusters[0].Stop()).To(gomega.Succeed())
	g.Expect(leftovers(t, names[0], clusters[0].Dir)).To(gomega.BeEmpty())
	g.Expect(readyNodes(t.Context(), g, clusters[1])).To(gomega.ConsistOf("node1"))
	g.Expect(namespaceUID(t.Context(), g, clientFor(g, clusters[1].Guest))).NotTo(gomega.BeEmpty())
	g.Expect(clusters[1].Stop()).To(gomega.Succeed())
	g.Expect(leftovers(t, names[1], clusters[1].Dir)).To(gomega.BeEmpty())
}

func readyNodes(ctx context.Context, g gomega.Gomega, c *cluster.Cluster) []string {
	nodes, err := clientFor(g, c.Mgmt).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	var ready []string
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				ready = append(ready, node.Name)
			}
		}
	}
	return ready
}
