package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/ocpcrds"
)

// TestSettingsThatCannotBeReadStay removes the permissions for OpenShift's settings while no hypergate runs. A change
// of RBAC before a failover does the same. The next process changes neither gateways nor istiod, and names the
// permissions. It changes nothing when they are back. The cluster is both sides, so that it has all the settings.
func TestSettingsThatCannotBeReadStay(t *testing.T) {
	guest := newProxied(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	guest.clock = clock
	guest.cfg.Topology = model.TopologyStandalone
	guest.cfg.XDS = model.HostPort{Host: guest.cfg.IstiodName() + "." + guest.cfg.MgmtNamespace + ".svc", Port: 15012}
	guest.cfg.WebhookHost, guest.cfg.GuestServer, guest.cfg.NetworkPolicies = "", "", nil
	guest.mgmt, guest.mgmtConfig = guest.guest, guest.guestConfig
	guest.createNamespace(guest.mgmt, guest.cfg.MgmtNamespace)
	go playGarbageCollector(guest.Context(), guest.mgmt, guest.cfg.MgmtNamespace)
	guest.set("http://a.example.com:3128")
	guest.serve(ocpcrds.Infrastructures)
	guest.serve(ocpcrds.APIServers)
	guest.configure("Infrastructure", "infrastructures", "spec: {}, status: {infrastructureTopology: SingleReplica}")
	guest.configure("APIServer", "apiservers", "spec: {tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern}}")

	rules := slices.Concat(rulesWithoutPatchOfGateways(), []rbacv1.PolicyRule{
		{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	})
	all := slices.Concat(rules, []rbacv1.PolicyRule{
		{APIGroups: []string{"config.openshift.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	})
	user := "limited-" + guest.cfg.Revision
	guest.allowInGuest(user, all)
	guest.guestConfig = rest.CopyConfig(guest.guestConfig)
	guest.guestConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	w, stop := newGatewayWorldOn(guest.harness, "a", "b")
	w.Eventually(func() string { return guest.mark("demo") }).ShouldNot(gomega.BeEmpty())
	w.settle()
	before, deployment := guest.defaults("demo"), w.istiod()
	mesh := func() string {
		maps := w.mgmt.CoreV1().ConfigMaps(w.cfg.MgmtNamespace)
		config, err := maps.Get(t.Context(), w.cfg.MeshConfigMap(model.SlotA), metav1.GetOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return config.Data["mesh"]
	}
	w.Expect(mesh()).To(gomega.ContainSubstring("minProtocolVersion: TLSV1_3"))
	w.Expect(before.Data["horizontalPodAutoscaler"]).To(gomega.ContainSubstring("minReplicas: 1"))
	stop()
	unchanged := func(when string) {
		t.Helper()
		w.settle()
		w.Expect(w.held()).To(gomega.BeEmpty(), when)
		w.Expect(guest.defaults("demo").Data).To(gomega.Equal(before.Data), when)
		w.Expect(guest.defaults("demo").Annotations).To(gomega.Equal(before.Annotations), when)
		w.Expect(mesh()).To(gomega.ContainSubstring("minProtocolVersion: TLSV1_3"), when)
		w.Expect(w.istiod().Generation).To(gomega.Equal(deployment.Generation), when)
	}

	clock.SetTime(clock.Now().Add(11 * time.Minute))
	w.allowInGuest(user, rules)
	w.run()
	w.Eventually(func() string { return w.installedMessage("demo") }, "2m").
		Should(gomega.ContainSubstring("not allowed to list proxies.config.openshift.io (RBAC)"))
	unchanged("the settings are not known")
	w.allowInGuest(user, all)
	w.Eventually(func() string { return w.installedMessage("demo") }, "2m").ShouldNot(gomega.ContainSubstring("not allowed"))
	unchanged("the settings are known again")
}
