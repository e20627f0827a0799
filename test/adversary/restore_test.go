package adversary_test

import (
	"strings"
	"testing"
)

// TestTheGuestsEtcdIsRestored restores the guest's etcd in place, so watches resume at versions of the future.
// kube-apiserver accepts such watches and shows nothing until its versions have caught up (kubernetes#107457).
func TestTheGuestsEtcdIsRestored(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t)
	configMaps := func() string { return strings.Join(g.Names("v1", "configmaps"), " ") }
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	eventually(t, "the class has its ConfigMap", func() bool { return strings.Contains(configMaps(), "gatewayclass-rev.demo") })
	backup := g.Backup()
	g.Pass(1_000_000)
	putClass(g, "later")
	eventually(t, "another class has its ConfigMap", func() bool { return strings.Contains(configMaps(), "gatewayclass-rev.later") })

	g.Restore(backup)
	g.Pass(500) // writes of the API server's own controllers
	g.Delete("v1", "configmaps", "openshift-ingress", "hypergate-gatewayclass-rev.demo")
	g.Delete(webhookAPI, webhooks, "", "hypergate-validator-rev")
	putClass(g, "after")
	eventually(t, "a class that was created after the restore is observed", func() bool {
		return strings.Contains(configMaps(), "gatewayclass-rev.after")
	})
	eventually(t, "objects that were deleted after the restore are written again", func() bool {
		return installed(m, g) && strings.Contains(configMaps(), "gatewayclass-rev.demo")
	})
	eventually(t, "the ConfigMap of the class from before the restore is gone", func() bool {
		return !strings.Contains(configMaps(), "gatewayclass-rev.later")
	})
}

// TestAnEmptyEtcdWithHigherVersions has an API server that lost everything and comes back with higher versions than
// before. No version number shows that the state went back.
func TestAnEmptyEtcdWithHigherVersions(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t)
	empty := g.Backup() // the CRDs only
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	before := strings.Join(g.Names("rbac.authorization.k8s.io/v1", "clusterroles"), " ")
	version := g.Version()
	g.Restore(empty)
	g.Pass(2 * version)
	putClass(g, "demo")
	eventually(t, "everything is written again", func() bool {
		return installed(m, g) && strings.Join(g.Names("rbac.authorization.k8s.io/v1", "clusterroles"), " ") == before
	})
}
