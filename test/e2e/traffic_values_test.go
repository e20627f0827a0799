package e2e_test

import (
	"os"
	"path/filepath"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/world"
)

// valuesOfClass are values of a class that replace the pods of its gateways.
const valuesOfClass = `gatewayClasses:
  ` + class + `:
    nodeSelector: {kubernetes.io/os: linux}
    resources: {requests: {cpu: 50m}}
`

// changedClassValues gives the class other values, and takes them away again. Both times the Gateways roll one after
// another, and istiod stays: it reads the defaults of the class in the guest.
func changedClassValues(t *fixture, edge *edgeOfTheGuest) {
	h := t.start()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	const small = "small"
	streams := patient(append(edge.shortStreams(), smallStreams(small, t.smallGateway(small, "24h"))...))
	defer t.deleteSmallGateway(small)
	t.answered(streams)
	file := filepath.Join(t.TempDir(), "values.yaml")
	t.Expect(os.WriteFile(file, []byte(valuesOfClass), 0o600)).To(gomega.Succeed())
	load, istiod, gateways := t.loaded(streams), t.istiodPod().UID, []string{trafficGateway, small}

	h.Terminate()
	// This is a process, because a pod does not see the file. An earlier story can have changed the server of pods.
	h, err := t.StartProcess(t.ctx, "--values", file, "--istiod-guest-server", t.guestServerOfIstiod())
	t.Expect(err).NotTo(gomega.HaveOccurred())
	defer h.Terminate()
	t.rollFor(h, gateways, "linux", "50m")
	h.Terminate()
	t.rollFor(t.start(), gateways, "", "100m")
	t.Expect(t.istiodPod().UID).To(gomega.Equal(istiod), "istiod was replaced")
	t.reconfigured(edge)
	t.more(load, 500)
	t.judge(load, 3000)
}

// guestServerOfIstiod returns the URL at which istiod reaches the guest's API server.
func (t *fixture) guestServerOfIstiod() string {
	t.Helper()
	secret, err := t.MgmtClient.CoreV1().Secrets(t.MgmtNamespace).Get(t.ctx, model.CredentialSecretName, metav1.GetOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	config, err := clientcmd.Load(secret.Data["config"]) // its files are those of istiod's pod
	t.Expect(err).NotTo(gomega.HaveOccurred())
	of := config.Contexts[config.CurrentContext]
	t.Expect(of).NotTo(gomega.BeNil())
	return config.Clusters[of.Cluster].Server
}

// rollFor waits until the pods of all Gateways have what the values of hypergate give them.
func (t *fixture) rollFor(h *world.Hypergate, gateways []string, system, cpu string) {
	t.Helper()
	began := time.Now()
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.oneByOne(gateways, 1, func(d *appsv1.Deployment) bool {
		pod := d.Spec.Template.Spec
		return pod.NodeSelector["kubernetes.io/os"] == system && pod.Containers[0].Resources.Requests.Cpu().String() == cpu
	})
	t.Eventually(t.heldGateways).Should(gomega.BeEmpty())
	t.Expect(t.ClassCondition(t.step(), class, "ControllerInstalled", metav1.ConditionTrue)).To(gomega.Succeed())
	t.Logf("all gateways have rolled after %s", time.Since(began).Round(100*time.Millisecond))
}
