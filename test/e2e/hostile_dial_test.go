package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/world"
)

// withJWT adds RequestAuthentications to the resources that istiod serves by default.
const withJWT = "--istio-resources=destinationrules,envoyfilters,wasmplugins,requestauthentications"

// moreIstioResources are the permissions that hypergate needs for withJWT.
const moreIstioResources = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: hypergate-request-authentications}
rules:
- {apiGroups: [security.istio.io], resources: [requestauthentications], verbs: [list, watch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions],
  resourceNames: [requestauthentications.security.istio.io], verbs: [get, create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hypergate-request-authentications}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hypergate-request-authentications}
subjects:
- {kind: ServiceAccount, name: hypergate, namespace: openshift-ingress}
`

// serviceEntryCRD is a CRD that hypergate does not install. The guest's administrator installs it.
const serviceEntryCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: serviceentries.networking.istio.io}
spec:
  group: networking.istio.io
  names: {kind: ServiceEntry, listKind: ServiceEntryList, plural: serviceentries, singular: serviceentry}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// lures returns objects of the guest that contain addresses. In each, the address of a bait replaces ADDRESS
// (host:port), HOST and PORT.
func lures() map[string]string {
	const kubeconfig = `
apiVersion: v1
kind: Secret
metadata: {name: bait-%[1]s, namespace: openshift-ingress, labels: {istio/multiCluster: "true"}}
stringData:
  bait-%[1]s: |
    apiVersion: v1
    kind: Config
    clusters: [{name: c, cluster: {server: "https://ADDRESS"}}]
    users: [{name: u, user: %[2]s}]
    contexts: [{name: x, context: {cluster: c, user: u}}]
    current-context: x
`
	const jwt = `
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: bait-%[1]s, namespace: openshift-ingress}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]
  jwtRules: [%[2]s]
`
	return map[string]string{
		"cluster": fmt.Sprintf(kubeconfig, "cluster", "{token: x}"),
		"exec cluster": fmt.Sprintf(kubeconfig, "exec",
			"{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/true}}"),
		"jwksUri": fmt.Sprintf(jwt, "jwks-uri", `{issuer: someone, jwksUri: "http://ADDRESS/jwks"}`),
		"issuer":  fmt.Sprintf(jwt, "issuer", `{issuer: "http://ADDRESS"}`),
		"EnvoyFilter": `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: bait, namespace: openshift-ingress}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value: {name: bait, type: STRICT_DNS, connect_timeout: 1s, load_assignment: {cluster_name: bait, endpoints: [
        {lb_endpoints: [{endpoint: {address: {socket_address: {address: HOST, port_value: PORT}}}}]}]}}
`,
		"WasmPlugin": `
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: bait, namespace: openshift-ingress}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]
  url: "http://ADDRESS/plugin.wasm"
  imagePullPolicy: Always
`,
		"ServiceEntry": `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: bait, namespace: openshift-ingress}
spec:
  hosts: [bait.example.com]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{name: http, number: PORT, protocol: HTTP}]
  endpoints: [{address: HOST}]
`,
	}
}

// dialsNoGuestAddress checks objects of the guest that contain addresses in the management network. The first part runs
// without the network policy. It shows which addresses istiod dials, and that a bait detects this. The second part
// runs with the policy.
func dialsNoGuestAddress(t *fixture) {
	t.gatewayIsThere()
	t.allowRequestAuthentications()
	t.Expect(t.ApplyObject(t.step(), fromyaml.Object(t.T, serviceEntryCRD))).To(gomega.Succeed())
	for _, name := range []string{"serviceentries.networking.istio.io", "requestauthentications.security.istio.io"} {
		t.Cleanup(func() {
			_, _ = t.crds().Patch(context.Background(), name, types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"`+manage+`":"false"}}}`), metav1.PatchOptions{})
			_ = t.crds().Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
	policies := t.MgmtClient.NetworkingV1().NetworkPolicies(t.MgmtNamespace)

	t.Log("without the network policy, istiod dials only what looks like another cluster, and an issuer without a jwksUri")
	h := t.start(withJWT, "--network-policies=false")
	// with that flag, hypergate does not manage the policy
	t.Expect(policies.Delete(t.step(), "istiod-"+world.Revision, metav1.DeleteOptions{})).To(gomega.Succeed())
	t.servesJWT()
	probe := t.setBait("probe")
	t.Eventually(func() error { return t.ConnectFrom(t.ctx, t.istiodPod().UID, probe.address) }).Should(gomega.Succeed())
	baits, release := t.setBaits()
	t.Eventually(baits.bitten).Should(gomega.ConsistOf("cluster", "issuer"))
	t.Eventually(t.istiodLog).
		Should(gomega.ContainSubstring(baits["jwksUri"].host()), "istiod has seen the jwksUri, and leaves it to the gateway")
	t.Consistently(baits.bitten, "3s").Should(gomega.ConsistOf("cluster", "issuer"))
	release()
	h.Terminate()

	t.Log("with the network policy it reaches no bait")
	h = t.start(withJWT)
	t.servesJWT()
	t.Eventually(func() error {
		return t.ConnectFrom(t.ctx, t.istiodPod().UID, probe.address)
	}).Should(gomega.MatchError(cluster.ErrForbidden))
	baits, release = t.setBaits()
	t.Eventually(t.istiodLog).
		Should(gomega.Or(gomega.ContainSubstring(baits["cluster"].address), gomega.ContainSubstring(baits["issuer"].address)),
			"istiod has tried to connect")
	t.Consistently(baits.bitten, "10s").Should(gomega.BeEmpty())
	t.Expect(t.istiodPod().Status.ContainerStatuses[0].Ready).To(gomega.BeTrue())
	release()
	h.Terminate()

	t.Log("back to the default resources")
	t.start()
	t.Eventually(t.istiodServes).ShouldNot(gomega.ContainSubstring("requestauthentications"))
}

// gatewayIsThere ensures that there is a Gateway which istiod serves.
func (t *fixture) gatewayIsThere() {
	t.Helper()
	h := t.installed()
	t.gateway("gw")
	t.Expect(t.Programmed(t.step(), world.GuestNamespace, "gw")).To(gomega.Succeed())
	h.Terminate()
}

// servesJWT waits until the only istiod is one that reads RequestAuthentications.
func (t *fixture) servesJWT() {
	t.Helper()
	t.Eventually(t.istiodServes).Should(gomega.ContainSubstring("requestauthentications.security.istio.io"))
}

// istiodServes returns the Istio resources that the only pod of istiod serves. It returns an error if there are two
// pods, or if the pod is not ready.
func (t *fixture) istiodServes() (string, error) {
	pods, err := t.MgmtClient.CoreV1().Pods(t.MgmtNamespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	if err != nil {
		return "", err
	}
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 || !pods.Items[0].Status.ContainerStatuses[0].Ready {
		return "", fmt.Errorf("%d pods, or not ready", len(pods.Items))
	}
	for _, e := range pods.Items[0].Spec.Containers[0].Env {
		if e.Name == "PILOT_INCLUDE_RESOURCES" {
			return e.Value, nil
		}
	}
	return "", nil
}

// bait is a listener in the management network that counts connections.
type bait struct {
	address string
	bites   atomic.Int32
}

func (b *bait) host() string { return b.address[:strings.LastIndexByte(b.address, ':')] }
func (b *bait) port() string { return b.address[strings.LastIndexByte(b.address, ':')+1:] }

// baits are listeners, by the name of the lure that leads to them.
type baits map[string]*bait

// bitten returns the names of the baits that received a connection.
func (b baits) bitten() (out []string) {
	for name, bait := range b {
		if bait.bites.Load() > 0 {
			out = append(out, name)
		}
	}
	return out
}

// setBait starts a listener that runs until the end of the story.
func (t *fixture) setBait(name string) *bait {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.ctx, "tcp", net.JoinHostPort(t.HostAddress().String(), "0"))
	t.Expect(err).NotTo(gomega.HaveOccurred(), name)
	t.Cleanup(func() { _ = listener.Close() })
	b := &bait{address: listener.Addr().String()}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			b.bites.Add(1)
			_ = connection.Close()
		}
	}()
	return b
}

// setBaits creates each lure with its own bait, and a proxy for which istiod must generate configuration from them.
// release removes the lures.
func (t *fixture) setBaits() (all baits, release func()) {
	t.Helper()
	proxy := t.proxyOf("gw")
	_, err := proxy.WaitFor(t.step(), reaches)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	all = baits{}
	var made []*unstructured.Unstructured
	for name, text := range lures() {
		b := t.setBait(name)
		all[name] = b
		text = strings.NewReplacer("ADDRESS", b.address, "HOST", b.host(), "PORT", b.port()).Replace(text)
		made = append(made, fromyaml.Objects(t.T, text)...)
	}
	release = func() { t.Expect(deploy.Delete(t.step(), t.GuestConfig, made)).To(gomega.Succeed()) }
	t.Cleanup(func() { _ = deploy.Delete(context.Background(), t.GuestConfig, made) })
	for _, u := range made {
		t.Expect(t.ApplyObject(t.step(), u)).To(gomega.Succeed())
	}
	return all, release
}

// allowRequestAuthentications gives hypergate the permissions for withJWT until the end of the story.
func (t *fixture) allowRequestAuthentications() {
	t.Helper()
	objects := fromyaml.Objects(t.T, moreIstioResources)
	roles, err := audit.RolesOf(objects)
	t.Expect(err).NotTo(gomega.HaveOccurred())
	t.Expect(deploy.Apply(t.step(), t.GuestConfig, objects)).To(gomega.Succeed())
	t.Cleanup(func() { _ = deploy.Delete(context.Background(), t.GuestConfig, objects) })
	t.Expect(deploy.TakesEffect(t.step(), t.GuestConfig, t.GuestUser(), audit.Permissions(roles), true)).To(gomega.Succeed())
}

// istiodLog returns the log of istiod's newest pod.
func (t *fixture) istiodLog() (string, error) {
	pod := t.istiodPod()
	files, err := filepath.Glob(filepath.Join(t.PodLogs(), pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), "discovery", "*.log"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no log of pod %s: %w", pod.Name, err)
	}
	text, err := os.ReadFile(files[len(files)-1])
	return string(text), err
}
