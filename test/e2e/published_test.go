package e2e_test

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/world"
)

// published checks that the published name leads through the router to istiod, and any other name to the guest's API
// server. hypergate must detect the difference. Then hypergate itself publishes istiod at a node port.
func published(t *fixture) {
	t.installed().Release()
	answers := func(name string) string {
		dialer := &tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
		conn, err := dialer.DialContext(t.step(), "tcp", t.RouterAddress())
		t.Expect(err).NotTo(gomega.HaveOccurred())
		defer func() { _ = conn.Close() }()
		secured, isTLS := conn.(*tls.Conn)
		t.Expect(isTLS).To(gomega.BeTrue())
		return secured.ConnectionState().PeerCertificates[0].Issuer.String()
	}
	istiod := answers(t.XDS().Host)
	t.Expect(answers("xds."+t.XDS().Host)).NotTo(gomega.Equal(istiod), "another name leads to another server")

	t.Log("the server at istiod's address is not istiod")
	said := func() string {
		got, err := t.Gateways.GatewayClasses().Get(t.ctx, class, metav1.GetOptions{})
		t.Expect(err).NotTo(gomega.HaveOccurred())
		return world.Conditions(got.Status.Conditions)
	}
	node, err := t.MgmtClient.CoreV1().Nodes().List(t.step(), metav1.ListOptions{})
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(node.Items).NotTo(gomega.BeEmpty())
	address := ""
	for _, a := range node.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			address = a.Address
		}
	}
	t.start("--publish-probe=" + address + ":6443").Release() // the management cluster's API server
	t.Eventually(said).Should(gomega.MatchRegexp("has not been reached at its published address \\S+:\\d+ " +
		"\\(management side: the server's certificate is not istiod's, or is for another name\\)"))

	t.Log("published at a node port, istiod is found there")
	t.start("--xds-address=", "--publish=nodeport", "--publish-host="+address, "--publish-probe=").Release()
	var port int32
	t.Eventually(func() (int32, error) {
		service, err := t.MgmtClient.CoreV1().Services(t.MgmtNamespace).Get(t.ctx, "xds-"+world.Revision, metav1.GetOptions{})
		if err == nil {
			port = service.Spec.Ports[0].NodePort
		}
		return port, err
	}).ShouldNot(gomega.BeZero())
	t.Eventually(t.meshConfig).Should(gomega.ContainSubstring(fmt.Sprintf("%s:%d", address, port)))
	t.Eventually(said, stepTimeout).Should(gomega.ContainSubstring("ControllerInstalled=True"))

	t.Log("published at the router again")
	h := t.start()
	t.Eventually(t.meshConfig).Should(gomega.ContainSubstring(t.XDS().String()))
	t.Expect(h.Ready(t.step(), "readyz")).To(gomega.Succeed())
	t.Eventually(said, stepTimeout).Should(gomega.ContainSubstring("ControllerInstalled=True"))
}

// meshConfig returns the mesh configuration that istiod's Deployment mounts.
func (t *fixture) meshConfig() (string, error) {
	d, err := t.MgmtClient.AppsV1().Deployments(t.MgmtNamespace).Get(t.ctx, "istiod-"+world.Revision, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Name != "mesh" || v.ConfigMap == nil {
			continue
		}
		mesh, err := t.MgmtClient.CoreV1().ConfigMaps(t.MgmtNamespace).Get(t.ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return mesh.Data["mesh"], nil
	}
	return "", errors.New("istiod mounts no mesh configuration")
}
