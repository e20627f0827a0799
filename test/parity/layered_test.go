package parity_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/xds"
)

// behind is what the layered products' objects are about, and the pod of the Gateway "web", as a guest has them.
const behind = `
apiVersion: v1
kind: Service
metadata: {name: backend, namespace: openshift-ingress}
spec: {ports: [{name: http, port: 8080}], selector: {app: backend}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-auth-proxy, namespace: openshift-ingress}
spec: {ports: [{name: https, port: 8443}], selector: {app: kube-auth-proxy}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: backend, namespace: openshift-ingress}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: backend, port: 8080}]}]
---
apiVersion: v1
kind: Pod
metadata:
  name: web-0
  namespace: openshift-ingress
  labels: {gateway.networking.k8s.io/gateway-name: web, service.istio.io/canonical-name: web-openshift-default}
spec:
  containers: [{name: istio-proxy, image: registry.example.com/proxyv2}]
  serviceAccountName: default
  automountServiceAccountToken: false
`

// TestLayeredProducts checks that the objects of products on top of OpenShift's gateways, which have no label with a
// revision, give a gateway the same configuration from an istiod with the plan of hypergate, and its permissions, as
// from one of cluster-ingress-operator: byte for byte. The control is an istiod that does not serve these kinds.
func TestLayeredProducts(t *testing.T) {
	ctx, source, g := realGuest(t)
	g.haveLayered(ctx)
	web := g.gatewayPod(ctx)
	s := ofHypergate(t, source, "", model.SeveralNodes)
	g.apply(ctx, s.guest) // also for the operator's istiod: each Service of the guest is a cluster of the gateway
	account := g.as(ctx, "hypergate-istiod-"+revision)
	inGuest := g.sentTo(ctx, g.kubeconfig, ofOperator(t, source, model.Proxy{}), web, hasLayered)
	split := g.sentTo(ctx, account, s, web, hasLayered)
	names := slices.Sorted(maps.Keys(inGuest))
	g.Expect(slices.Sorted(maps.Keys(split))).To(gomega.Equal(names))
	for _, name := range names {
		if split[name] != inGuest[name] {
			t.Errorf("%s is different:\nin the guest: %q\nsplit:        %q", name, inGuest[name], split[name])
		}
	}
	t.Logf("%d equal resources: %s", len(names), strings.Join(names, ", "))

	s.env = maps.Clone(s.env)
	s.env["PILOT_INCLUDE_RESOURCES"] = ""
	without := g.sentTo(ctx, account, s, web, hasRoute)
	g.Expect(without).NotTo(gomega.Equal(inGuest))
	g.Expect(without).NotTo(gomega.HaveKey("cluster kuadrant-auth-service"))
}

// apply applies objects as hypergate does.
func (g *guest) apply(ctx context.Context, objects []*unstructured.Unstructured) {
	g.Helper()
	apply := client.Apply //nolint:staticcheck // the objects are not typed
	for _, object := range objects {
		g.Expect(g.client.Patch(ctx, object, apply, client.FieldOwner("hypergate"), client.ForceOwnership)).To(gomega.Succeed())
	}
}

// haveLayered installs Istio's CRDs, the objects of the layered products, and what they are about.
func (g *guest) haveLayered(ctx context.Context) {
	g.Helper()
	g.haveIstioCRDs(ctx)
	layered, err := os.ReadFile("testdata/layered.yaml")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.have(ctx, string(layered), behind)
}

// haveIstioCRDs installs Istio's CRDs.
func (g *guest) haveIstioCRDs(ctx context.Context) {
	g.Helper()
	g.haveCRDs(istioCRDs(ctx, g.T))
}

// haveCRDs installs the CRDs of a file or a folder.
func (g *guest) haveCRDs(path string) {
	g.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{path}, ErrorIfPathMissing: true})
	g.Expect(err).NotTo(gomega.HaveOccurred())
}

// have creates objects, and the account of their pods.
func (g *guest) have(ctx context.Context, files ...string) {
	g.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}}
	g.Expect(client.IgnoreAlreadyExists(g.client.Create(ctx, account))).To(gomega.Succeed())
	for _, file := range files {
		for _, object := range fromyaml.Objects(g.T, file) {
			g.Expect(g.client.Create(ctx, object)).To(gomega.Succeed(), object.GetName())
		}
	}
}

// gatewayPod gives the pod of the Gateway an address, without which istiod does not know it.
func (g *guest) gatewayPod(ctx context.Context) *corev1.Pod {
	g.Helper()
	pod := &corev1.Pod{}
	g.Expect(g.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web-0"}, pod)).To(gomega.Succeed())
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.0.0.7", []corev1.PodIP{{IP: "10.0.0.7"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	g.Expect(g.client.Status().Update(ctx, pod)).To(gomega.Succeed())
	return pod
}

// sent are the resources that istiod sends to a proxy: the bytes, by type and name.
type sent map[string]string

// sentTo returns what an istiod with these settings sends to the proxy in a pod, once it is complete.
func (g *guest) sentTo(
	ctx context.Context, kubeconfig string, s settings, pod *corev1.Pod, complete func(gomega.Gomega, sent),
) sent {
	g.Helper()
	i := g.started(ctx, kubeconfig, s)
	defer i.stop()
	return g.received(ctx, i, pod, complete)
}

// started returns an istiod that has made the Services of the Gateways. With stop, the defaults of the class go.
func (g *guest) started(ctx context.Context, kubeconfig string, s settings) istiod {
	g.Helper()
	defaults := &unstructured.Unstructured{}
	g.Expect(defaults.UnmarshalJSON(s.classDefaults)).To(gomega.Succeed())
	g.Expect(g.client.Create(ctx, defaults)).To(gomega.Succeed())
	i := startIstiodProcess(ctx, g.T, kubeconfig, s)
	stop := i.stop
	i.stop = func() {
		stop()
		g.Expect(g.client.Delete(ctx, defaults)).To(gomega.Succeed())
	}
	for _, gateway := range []string{"web", "own"} {
		g.makes(ctx, gateway, &corev1.Service{})
	}
	return i
}

// received returns what an istiod sends to the proxy in a pod, once it is complete and does not change any more.
func (g *guest) received(ctx context.Context, i istiod, pod *corev1.Pod, complete func(gomega.Gomega, sent)) sent {
	g.Helper()
	var out sent
	g.Eventually(func(g gomega.Gomega) {
		var err error
		out, err = configurationOf(ctx, i.plaintext, pod)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		hasRoute(g, out)
		complete(g, out)
		again, err := configurationOf(ctx, i.plaintext, pod)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(again).To(gomega.Equal(out), "istiod still changes it")
	}).Should(gomega.Succeed())
	return out
}

// hasRoute checks for the Services of the Gateways, and for the route.
func hasRoute(g gomega.Gomega, out sent) {
	for _, gateway := range []string{"web", "own"} {
		g.Expect(out).To(gomega.HaveKey("endpoints outbound|80||" + gateway + "-openshift-default.openshift-ingress.svc.cluster.local"))
	}
	g.Expect(out).To(gomega.HaveKeyWithValue("route http.80", gomega.ContainSubstring("backend.openshift-ingress")))
}

// hasLayered checks for the effects of the layered products' objects.
func hasLayered(g gomega.Gomega, out sent) {
	g.Expect(out).To(gomega.HaveKey("cluster kuadrant-auth-service"))
	g.Expect(out).To(gomega.HaveKey("extension " + wasm))
	g.Expect(out["cluster outbound|8080||backend.openshift-ingress.svc.cluster.local"]).
		To(gomega.ContainSubstring("UpstreamTlsContext"))
	g.Expect(strings.Join(slices.Collect(maps.Values(out)), "")).
		To(gomega.And(gomega.ContainSubstring("ext_authz"), gomega.ContainSubstring("ext_proc")))
}

func all() []string { return nil }

// services returns the names of the clusters that get their endpoints by xDS.
func (s sent) services() []string {
	out := []string{}
	for name := range s {
		if cluster, is := strings.CutPrefix(name, "cluster "); is && strings.HasPrefix(cluster, "outbound|") {
			out = append(out, cluster)
		}
	}
	slices.Sort(out)
	return out
}

// wasm is the name of the extension that istiod makes of the WasmPlugin.
const wasm = "extensions.istio.io/wasmplugin/" + namespace + ".kuadrant-web"

// extensions returns the names of the WasmPlugins that the listeners name.
func (s sent) extensions() []string {
	for name, content := range s {
		if strings.HasPrefix(name, "listener ") && strings.Contains(content, wasm) {
			return []string{wasm}
		}
	}
	return []string{}
}

// configurationOf asks istiod for all that it sends to the proxy in a pod. As in Envoy, what comes first names what to
// ask for next.
func configurationOf(ctx context.Context, address string, pod *corev1.Pod) (sent, error) {
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, hang.Deadline)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	out := sent{}
	for _, kind := range []struct {
		name, url string
		wanted    func() []string
	}{
		{"cluster", "envoy.config.cluster.v3.Cluster", all},
		{"listener", "envoy.config.listener.v3.Listener", all},
		{"endpoints", "envoy.config.endpoint.v3.ClusterLoadAssignment", out.services},
		{"route", "envoy.config.route.v3.RouteConfiguration", func() []string { return []string{"http.80"} }},
		{"extension", "envoy.config.core.v3.TypedExtensionConfig", out.extensions},
	} {
		wanted := kind.wanted()
		if wanted != nil && len(wanted) == 0 {
			continue
		}
		request := &discoveryv3.DiscoveryRequest{
			Node: xds.NodeOf(pod).Proto(), TypeUrl: "type.googleapis.com/" + kind.url, ResourceNames: wanted,
		}
		if err := stream.Send(request); err != nil {
			return nil, err
		}
		response, err := answerOf(stream, request.GetTypeUrl())
		if err != nil {
			return nil, err
		}
		for _, resource := range response.GetResources() {
			out[kind.name+" "+nameIn(resource.GetValue())] = string(resource.GetValue())
		}
	}
	return out, nil
}

// answerOf returns the first response of a type.
func answerOf(
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, url string,
) (*discoveryv3.DiscoveryResponse, error) {
	for {
		response, err := stream.Recv()
		if err != nil {
			return nil, fmt.Errorf("waiting for %s: %w", url, err)
		}
		if response.GetTypeUrl() == url {
			return response, nil
		}
	}
}

// nameIn returns the name in an encoded resource. It is the first field of each type.
func nameIn(encoded []byte) string {
	for len(encoded) > 0 {
		number, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return ""
		}
		if number == 1 && kind == protowire.BytesType {
			name, _ := protowire.ConsumeString(encoded[n:])
			return name
		}
		m := protowire.ConsumeFieldValue(number, kind, encoded[n:])
		if m < 0 {
			return ""
		}
		encoded = encoded[n+m:]
	}
	return ""
}
