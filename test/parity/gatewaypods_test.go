package parity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/golden"
	"github.com/hypergate/hypergate/test/hang"
)

// guest is a cluster with one GatewayClass, one Gateway, and a Gateway with parameters of its own.
type guest struct {
	gomega.Gomega
	*testing.T
	client     client.Client
	kubeconfig string
}

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: openshift-ingress}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: openshift-default}
spec: {controllerName: openshift.io/gateway-controller/v1}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: openshift-ingress, labels: {istio.io/rev: openshift-gateway}} # the operator's label
spec:
  gatewayClassName: openshift-default
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: own, namespace: openshift-ingress}
data:
  deployment: |
    spec: {template: {spec: {nodeSelector: {node-role.kubernetes.io/infra: ""}}}}
  horizontalPodAutoscaler: |
    spec: {minReplicas: 3}
  service: |
    spec: {externalTrafficPolicy: Local}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: own, namespace: openshift-ingress, labels: {istio.io/rev: openshift-gateway}}
spec:
  gatewayClassName: openshift-default
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: own}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
`

// realGuest starts a guest with real servers, and returns it with the embedded charts and a context with a deadline. It
// skips the test with -short.
func realGuest(t *testing.T) (context.Context, *charts.Source, *guest) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts etcd, kube-apiserver and istiod")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*hang.Deadline)
	t.Cleanup(cancel)
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return ctx, source, startGuest(ctx, t)
}

func startGuest(ctx context.Context, t *testing.T) *guest {
	t.Helper()
	log.SetLogger(logr.Discard()) // otherwise controller-runtime warns on stderr
	plane, err := planes.StartPlane(ctx, "guest", filepath.Join(t.TempDir(), "guest"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	crds := envtest.CRDInstallOptions{Paths: []string{gatewayCRDs(ctx, t)}, ErrorIfPathMissing: true}
	if _, err := envtest.InstallCRDs(plane.Config, crds); err != nil {
		t.Fatal(err)
	}
	g := &guest{Gomega: hang.Gomega(t), T: t, kubeconfig: plane.Kubeconfig}
	if g.client, err = client.New(plane.Config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, object := range fromyaml.Objects(t, objects) {
		g.Expect(g.client.Create(ctx, object)).To(gomega.Succeed())
	}
	return g
}

// deployed are the objects that istiod makes of a Gateway.
type deployed struct {
	Deployment appsv1.Deployment
	Autoscaler autoscalingv2.HorizontalPodAutoscaler
	Budget     policyv1.PodDisruptionBudget
	Service    corev1.Service
	Account    corev1.ServiceAccount
}

func (d *deployed) all() []client.Object {
	return []client.Object{&d.Deployment, &d.Autoscaler, &d.Budget, &d.Service, &d.Account}
}

// deployedBy returns what an istiod with these settings makes of a Gateway. It removes it again.
func (g *guest) deployedBy(ctx context.Context, s settings, gateways ...string) map[string]*deployed {
	g.Helper()
	defaults := &unstructured.Unstructured{}
	g.Expect(defaults.UnmarshalJSON(s.classDefaults)).To(gomega.Succeed())
	g.Expect(g.client.Create(ctx, defaults)).To(gomega.Succeed())
	stop := startIstiod(ctx, g.T, g.kubeconfig, s)
	defer stop()
	out := map[string]*deployed{}
	for _, gateway := range gateways {
		out[gateway] = g.deployed(ctx, gateway, bytes.Contains(s.classDefaults, []byte("podDisruptionBudget")))
	}
	stop()
	g.Expect(g.client.Delete(ctx, defaults)).To(gomega.Succeed())
	for _, made := range out {
		for _, object := range made.all() {
			if object.GetName() != "" {
				g.Expect(g.client.Delete(ctx, object)).To(gomega.Succeed())
			}
		}
	}
	return out
}

// touchClass changes the class, as its status does in an installation. istiod gives up a Gateway that fails five times
// within a tenth of a second (istio#61094). A changed class makes it try again. On a busy machine, one change is not
// enough, because istiod can give up again.
func (g *guest) touchClass(ctx context.Context) {
	g.Helper()
	class := &unstructured.Unstructured{}
	class.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"})
	g.Expect(g.client.Get(ctx, client.ObjectKey{Name: className}, class)).To(gomega.Succeed())
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, class.GetResourceVersion())
	g.Expect(g.client.Patch(ctx, class, client.RawPatch(types.MergePatchType, []byte(patch)))).To(gomega.Succeed())
}

// deployed waits for the objects of a Gateway. istiod makes a disruption budget only if the defaults have one.
func (g *guest) deployed(ctx context.Context, gateway string, withBudget bool) *deployed {
	g.Helper()
	out := &deployed{}
	for _, object := range out.all() {
		if _, isBudget := object.(*policyv1.PodDisruptionBudget); isBudget && !withBudget {
			continue
		}
		g.makes(ctx, gateway, object)
	}
	return out
}

// makes waits until istiod has made an object of a Gateway, and reads it. While the object is missing, it touches the
// class.
func (g *guest) makes(ctx context.Context, gateway string, object client.Object) {
	g.Helper()
	g.Eventually(func() error {
		err := g.get(ctx, gateway, object)
		if err != nil {
			g.touchClass(ctx)
		}
		return err
	}).WithPolling(time.Second).Should(gomega.Succeed(), "%s: %T", gateway, object)
}

func (g *guest) get(ctx context.Context, gateway string, object client.Object) error {
	return g.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: gateway + "-" + className}, object)
}

// TestGateways compares the objects of a Gateway with those of cluster-ingress-operator, and checks what a Gateway's
// own parameters and a user's values make of them.
func TestGateways(t *testing.T) {
	ctx, source, g := realGuest(t)
	hypergate := g.deployedBy(ctx, ofHypergate(t, source, "", model.SeveralNodes), "web", "own")
	t.Run("as those of the ingress operator", func(t *testing.T) {
		operator := g.deployedBy(ctx, ofOperator(t, source, model.Proxy{}), "web", "own")
		for _, gateway := range []string{"web", "own"} {
			golden.Equal(t, "testdata/"+gateway+".diff", difference(lines(t, operator[gateway]), lines(t, hypergate[gateway])))
		}
	})
	t.Run("with parameters of its own", func(t *testing.T) { hasOwnParameters(t, hypergate["own"]) })
	t.Run("with values, on a single node", func(t *testing.T) {
		hasValues(t, g.deployedBy(ctx, ofHypergate(t, source, userValues, model.SingleNode), "web")["web"])
	})
}

// TestTheGuestsProxy compares the objects of a Gateway in a guest with a proxy with those of cluster-ingress-operator.
func TestTheGuestsProxy(t *testing.T) {
	ctx, source, g := realGuest(t)
	proxy := model.Proxy{HTTP: "http://proxy.example.com:3128", HTTPS: "http://user:secret@proxy.example.com:3129", No: ".svc,10.0.0.0/16"}
	s := ofHypergateFor(t, source, "", model.LayeredProductResources(), model.GuestObservation{Proxy: proxy})
	hypergate := g.deployedBy(ctx, s, "web")
	operator := g.deployedBy(ctx, ofOperator(t, source, proxy), "web")
	golden.Equal(t, "testdata/proxy.diff", difference(lines(t, operator["web"]), lines(t, hypergate["web"])))
}

// hasOwnParameters checks that a Gateway's own parameters override the defaults of its class, as in istiod.
func hasOwnParameters(t *testing.T, own *deployed) {
	t.Helper()
	g := gomega.NewWithT(t)
	g.Expect(*own.Autoscaler.Spec.MinReplicas).To(gomega.BeEquivalentTo(3))
	g.Expect(own.Autoscaler.Spec.MaxReplicas).To(gomega.BeEquivalentTo(10))
	g.Expect(own.Deployment.Spec.Template.Spec.NodeSelector).To(gomega.HaveKey("node-role.kubernetes.io/infra"))
	g.Expect(own.Service.Spec.ExternalTrafficPolicy).To(gomega.Equal(corev1.ServiceExternalTrafficPolicyLocal))
	g.Expect(own.Deployment.Spec.Template.Spec.Containers[0].TerminationMessagePolicy).
		To(gomega.Equal(corev1.TerminationMessageFallbackToLogsOnError))
}

const userValues = `
meshConfig:
  defaultConfig: {tracing: {sampling: 12.5}}
  extensionProviders: [{name: zipkin, zipkin: {service: zipkin.tracing.svc.cluster.local, port: 9411}}]
  defaultProviders: {tracing: [zipkin]}
gatewayClasses:
  "*":
    nodeSelector: {node-role.kubernetes.io/infra: ""}
    tolerations: [{key: node-role.kubernetes.io/infra, operator: Exists, effect: NoSchedule}]
  openshift-default:
    resources: {requests: {memory: 256Mi}}
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]
`

// hasValues checks that the API server accepts pods with a user's values, that the values for all classes and those
// for one class count, and that a gateway of a single node does not block the drain of its node.
func hasValues(t *testing.T, web *deployed) {
	t.Helper()
	g := gomega.NewWithT(t)
	pod := web.Deployment.Spec.Template.Spec
	g.Expect(pod.NodeSelector).To(gomega.Equal(map[string]string{"node-role.kubernetes.io/infra": ""}))
	g.Expect(pod.Tolerations).To(gomega.ConsistOf(corev1.Toleration{
		Key: "node-role.kubernetes.io/infra", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	}))
	g.Expect(pod.Containers[0].Resources.Requests.Memory().String()).To(gomega.Equal("256Mi"))
	g.Expect(pod.Containers[0].Resources.Requests.Cpu().String()).To(gomega.Equal("100m"))
	g.Expect(pod.Containers[0].Resources.Limits.Memory().String()).To(gomega.Equal("1Gi"))
	g.Expect(pod.TopologySpreadConstraints).To(gomega.ConsistOf(gomega.And(
		gomega.HaveField("TopologyKey", "topology.kubernetes.io/zone"),
		gomega.HaveField("MatchLabelKeys", []string{"gateway.networking.k8s.io/gateway-name", "pod-template-hash"}),
	)))
	for _, label := range []string{"gateway.networking.k8s.io/gateway-name", "gateway.networking.k8s.io/gateway-class-name"} {
		g.Expect(web.Deployment.Spec.Template.Labels).To(gomega.HaveKey(label), "the constraint selects by it")
	}
	g.Expect(lines(t, web)).To(gomega.ContainElement(gomega.HaveSuffix("env[PROXY_CONFIG].value.tracing.sampling: 12.5")))
	g.Expect(*web.Autoscaler.Spec.MinReplicas).To(gomega.BeEquivalentTo(1))
	g.Expect(web.Budget.Spec.MinAvailable).To(gomega.BeNil())
	g.Expect(web.Budget.Spec.MaxUnavailable.IntValue()).To(gomega.Equal(1))
}

// lines returns each value of the objects as a line with its path.
func lines(t *testing.T, d *deployed) []string {
	t.Helper()
	var out []string
	for _, object := range d.all() {
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var value map[string]any
		if err := json.Unmarshal(raw, &value); err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
		flatten(kind, value, &out)
	}
	slices.Sort(out)
	return out
}

// assigned are the fields that the API server or another controller sets.
func assigned() []string {
	return []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "status", "clusterIP", "clusterIPs", "nodePort",
		"healthCheckNodePort",
	}
}

// flatten adds the lines of a value. Named items of lists have their name as path. JSON in a text is a value as well.
func flatten(path string, value any, out *[]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if !slices.Contains(assigned(), key) {
				flatten(path+"."+key, field, out)
			}
		}
	case []any:
		for i, item := range value {
			name := fmt.Sprint(i)
			if named, is := item.(map[string]any); is && named["name"] != nil {
				name = fmt.Sprint(named["name"])
			}
			flatten(path+"["+name+"]", item, out)
		}
	case string:
		var inner map[string]any
		if strings.HasPrefix(value, "{") && json.Unmarshal([]byte(value), &inner) == nil {
			flatten(path, inner, out)
			return
		}
		*out = append(*out, path+": "+value)
	default:
		*out = append(*out, fmt.Sprintf("%s: %v", path, value))
	}
}

// difference returns the lines that only one side has.
func difference(operator, hypergate []string) string {
	var out strings.Builder
	for _, line := range operator {
		if !slices.Contains(hypergate, line) {
			out.WriteString("- " + line + "\n")
		}
	}
	for _, line := range hypergate {
		if !slices.Contains(operator, line) {
			out.WriteString("+ " + line + "\n")
		}
	}
	return out.String()
}
