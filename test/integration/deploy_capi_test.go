package integration_test

import (
	"bytes"
	"testing"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/capi"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/hang"
)

// deployedForClusterAPI is TestDeploy in the namespace of a Cluster, without any CRD of HyperShift. hypergate's
// permissions in the guest are those of deploy/hosted/guest. Its kubeconfig is in the Secret that deploy/cluster-api
// allows it to read.
func deployedForClusterAPI(t *testing.T, own *planes.Pair) {
	t.Helper()
	g := hang.Gomega(t)
	_, err := capi.Serve(t.Context(), own.Mgmt.Config, capi.V1Beta2)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	clusters, err := capi.Clusters(own.Mgmt.Config, capi.V1Beta2, deployedMgmtNamespace)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = clusters.Create(t.Context(), capi.Cluster(capi.V1Beta2, deployedMgmtNamespace, "guest1"), metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = clusters.Patch(t.Context(), "guest1", types.MergePatchType, []byte(capi.Initialized(capi.V1Beta2)),
		metav1.PatchOptions{}, "status")
	g.Expect(err).NotTo(gomega.HaveOccurred())

	d := newDeployed(t, model.TopologyHosted, own.Mgmt, own.Guest, []string{"cluster-api/example"},
		[]string{"hosted/guest", "sidecar-injection"})
	d.later = true
	config, err := clientcmd.BuildConfigFromFlags("", d.kubeconfig(own.Guest.Config, deploy.GuestNamespace))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	secret, err := capi.KubeconfigSecret(deployedMgmtNamespace, "guest1", config)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = d.mgmt.CoreV1().Secrets(deployedMgmtNamespace).Create(t.Context(), secret, metav1.CreateOptions{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	d.looksAtCRDs(own.Mgmt.Config)
	// The test before used the same namespace and left its Lease. The permission to create a Lease must be used, so
	// the Lease is deleted.
	g.Expect(d.mgmt.CoordinationV1().Leases(deployedMgmtNamespace).
		Delete(t.Context(), "hypergate-"+deployedRevision, metav1.DeleteOptions{})).To(
		gomega.Or(gomega.Succeed(), gomega.Satisfy(apierrors.IsNotFound)))
	d.checkLifecycle()
}

// looksAtCRDs runs hypergate crds with the settings of hypergate's pod: its account on the management cluster, and
// the name of the Secret.
func (d *deployed) looksAtCRDs(management *rest.Config) {
	d.Helper()
	var out, errOut bytes.Buffer
	code := app.Execute(d.Context(), []string{
		"crds", "--kubeconfig=" + d.kubeconfig(management, deployedMgmtNamespace), "--namespace=" + deployedMgmtNamespace,
		"--guest-kubeconfig-secret=guest1-kubeconfig", "--revision=" + deployedRevision,
	}, &out, &errOut)
	d.Expect(code).To(gomega.BeElementOf(0, 2), errOut.String()) // the tests before left CRDs
	d.Expect(out.String()).To(gomega.ContainSubstring("gateways.gateway.networking.k8s.io"))
}
