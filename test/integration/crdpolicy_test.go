package integration_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/hang"
)

const (
	guardedCRD   = "httproutes.gateway.networking.k8s.io" // the largest one
	uncreatedCRD = "referencegrants.gateway.networking.k8s.io"
	unguardedCRD = "destinationrules.networking.istio.io"
	kubectl      = "kubectl-client-side-apply"
	givenWriter  = `o'neil \ "sons"`
	otherUser    = "other-user"
	systemAdmin  = "system:admin"
)

// guarded is a guest with the policy, a CRD that the policy protects, and a CRD that it does not protect.
type guarded struct {
	*testing.T
	gomega.Gomega
	config *rest.Config
	client kubernetes.Interface
	cfg    model.Config
	// planned holds the CRDs as hypergate applies them.
	planned map[string]*unstructured.Unstructured
}

// TestCRDPolicy tests only the policy. It has its own guest, because the policy affects CRDs that other tests share.
func TestCRDPolicy(t *testing.T) {
	needsServers(t)
	t.Parallel()
	guest, err := planes.StartPlane(t.Context(), "guest", t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guest.Stop)
	g := guarded{config: guest.Config, client: kubernetes.NewForConfigOrDie(guest.Config), planned: map[string]*unstructured.Unstructured{}}
	g.cfg = model.Config{
		Topology: model.TopologyStandalone, MgmtNamespace: "ingress", GuestNamespace: "ingress",
		ControllerName: "example.com/gateway-controller", Revision: "policy",
		PilotImage: "registry.example.com/pilot:" + charts.EmbeddedVersion, ProxyImage: "registry.example.com/proxyv2:" +
			charts.EmbeddedVersion,
		XDS:        model.HostPort{Host: "istiod.apps.example.com", Port: 443},
		CRDWriters: []string{givenWriter},
	}
	g.in(t).setUp()
	t.Run("the API server understands all of it", func(t *testing.T) { g.in(t).understood() })
	t.Run("who may do what", func(t *testing.T) {
		for _, test := range g.attempts() {
			t.Run(test.name, func(t *testing.T) { g.in(t).attempt(test) })
		}
	})
	t.Run("the way out", func(t *testing.T) { g.in(t).wayOut() })
	t.Run("what is not ours", func(t *testing.T) { g.in(t).notOurs() })
	t.Run("without the policy", func(t *testing.T) { g.in(t).withoutIt() })
}

// in returns the guest for one test.
func (g guarded) in(t *testing.T) *guarded {
	t.Helper()
	g.T, g.Gomega = t, hang.Gomega(t)
	g.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	return &g
}

// setUp applies the policy and some CRDs, as hypergate does, and waits until they are in effect.
func (g *guarded) setUp() {
	g.Helper()
	source, err := charts.Embedded()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	state, err := desired.Compute(g.cfg, source, model.ManagementObservation{}, model.GuestObservation{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	for _, o := range state.CRDs {
		g.planned[o.Key().Name], err = o.Unstructured()
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}
	g.Expect(state.Protection).To(gomega.HaveLen(2))
	for _, o := range state.Protection {
		u, err := o.Unstructured()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		gvr := schema.GroupVersionResource{Group: admissionregistrationv1.GroupName, Version: "v1", Resource: "validatingadmissionpolicies"}
		if u.GetKind() == "ValidatingAdmissionPolicyBinding" {
			gvr.Resource = "validatingadmissionpolicybindings"
		}
		g.apply(dynamic.NewForConfigOrDie(g.config).Resource(gvr), u)
	}
	other, err := source.CRDs([]string{unguardedCRD})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	other[0].SetLabels(map[string]string{model.OwnerLabel: g.cfg.OwnerValue(model.SideGuest)}) // the label alone gives no protection
	for _, u := range []*unstructured.Unstructured{g.planned[guardedCRD], other[0]} {
		g.apply(g.as(""), u)
		g.Eventually(func() string { return g.established(u.GetName()) }).Should(gomega.Equal("True"))
	}
	// The API server learns about the policy through its own watch.
	g.Eventually(func() error {
		return changeSpec(kubectl)(g.Context(), g.as(otherUser), guardedCRD)
	}).Should(gomega.Satisfy(apierrors.IsForbidden))
}

func (g *guarded) apply(client dynamic.ResourceInterface, u *unstructured.Unstructured) {
	g.Helper()
	_, err := client.Apply(g.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: model.FieldManager, Force: true})
	g.Expect(err).NotTo(gomega.HaveOccurred())
}

// as returns a client for CRDs with a user who has all permissions, so only the policy can refuse. Without a name it
// has the user of the cluster's configuration.
func (g *guarded) as(user string) dynamic.ResourceInterface {
	config := rest.CopyConfig(g.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	}
	return dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
}

func (g *guarded) established(name string) string {
	u, err := g.as("").Get(g.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" {
			return c["status"].(string)
		}
	}
	return ""
}

// understood checks that all expressions compile and use only fields that a CRD has.
func (g *guarded) understood() {
	policies := g.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	g.Eventually(func(e gomega.Gomega) {
		policy, err := policies.Get(g.Context(), desired.CRDPolicyName(g.cfg), metav1.GetOptions{})
		e.Expect(err).NotTo(gomega.HaveOccurred())
		e.Expect(policy.Status.ObservedGeneration).To(gomega.Equal(policy.Generation))
		e.Expect(policy.Status.TypeChecking).NotTo(gomega.BeNil())
		e.Expect(policy.Status.TypeChecking.ExpressionWarnings).To(gomega.BeEmpty())
	}).Should(gomega.Succeed())
}

// request is an operation on a CRD, as a dry run. For admission, a dry run differs only in a field that the policy
// does not read.
type request func(ctx context.Context, client dynamic.ResourceInterface, name string) error

func dryRun() []string { return []string{metav1.DryRunAll} }

// patch returns a request that sends a JSON patch with a field manager, or without one if the name is empty.
func patch(manager, body string) request {
	return func(ctx context.Context, client dynamic.ResourceInterface, name string) error {
		_, err := client.Patch(ctx, name, types.JSONPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager, DryRun: dryRun()})
		return err
	}
}

const anotherSchema = `{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/another","value":{"type":"string"}}`

func changeSpec(manager string) request { return patch(manager, "["+anotherSchema+"]") }

// applyServerSide returns a request that applies another schema with force.
func applyServerSide(manager string) request {
	return func(ctx context.Context, client dynamic.ResourceInterface, name string) error {
		u, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		u.SetManagedFields(nil)
		unstructured.RemoveNestedField(u.Object, "status")
		versions := u.Object["spec"].(map[string]any)["versions"].([]any)
		if err := unstructured.SetNestedField(versions[0].(map[string]any), "another", "schema", "openAPIV3Schema",
			"description"); err != nil {
			return err
		}
		_, err = client.Apply(ctx, name, u, metav1.ApplyOptions{FieldManager: manager, Force: true, DryRun: dryRun()})
		return err
	}
}

// replace returns a request that updates the CRD with only an additional label.
func replace(manager string) request {
	return func(ctx context.Context, client dynamic.ResourceInterface, name string) error {
		u, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		labels := u.GetLabels()
		labels["a"] = "b"
		u.SetLabels(labels)
		_, err = client.Update(ctx, u, metav1.UpdateOptions{FieldManager: manager, DryRun: dryRun()})
		return err
	}
}

func deleteOne(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	return client.Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun()})
}

func deleteAll(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	return client.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun()}, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
}

// attempt is an operation by a user on a CRD, and the expected result.
type attempt struct {
	name, user, crd string
	do              request
	refused         bool
}

func (g *guarded) attempt(test attempt) {
	g.Helper()
	err := test.do(g.Context(), g.as(test.user), test.crd)
	if !test.refused {
		g.Expect(err).NotTo(gomega.HaveOccurred())
		return
	}
	g.Expect(err).To(gomega.Satisfy(apierrors.IsForbidden), "%v", err)
	g.Expect(err.Error()).To(gomega.And(
		gomega.ContainSubstring("hypergate manages "+test.crd),
		gomega.ContainSubstring("run: kubectl annotate --overwrite crd "+test.crd+" "+crds.ManageAnnotation+"=false")))
}

func (g *guarded) attempts() []attempt {
	webhook := `{"op":"add","path":"/spec/conversion","value":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],` +
		`"clientConfig":{"url":"https://convert.example.com","caBundle":"` + base64.StdEncoding.EncodeToString(g.config.CAData) + `"}}}}`
	const (
		meta = `[{"op":"add","path":"/metadata/finalizers","value":["example.com/a"]},{"op":"add","path":"/metadata/labels/a",` +
			`"value":"b"},` +
			`{"op":"add","path":"/metadata/annotations/a","value":"b"},` +
			`{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"u"}]}]`
		unserved  = `[{"op":"replace","path":"/spec/versions/1/served","value":false}]`
		category  = `[{"op":"add","path":"/spec/names/categories","value":["mine"]}]`
		column    = `[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns"}]`
		unlabel   = `[{"op":"replace","path":"/metadata/labels/gateway.hypergate.dev~1owner` + `","value":"a"},` + anotherSchema + `]`
		annotated = `[{"op":"add","path":"/metadata/annotations/gateway.hypergate.dev~1manage` + `","value":"false"},` + anotherSchema + `]`
	)
	out := []attempt{
		{"kubectl apply", otherUser, guardedCRD, changeSpec(kubectl), true},
		{"kubectl apply --server-side --force-conflicts", otherUser, guardedCRD, applyServerSide("kubectl"), true},
		{"without a manager's name", otherUser, guardedCRD, changeSpec(""), true},
		{"no longer served", otherUser, guardedCRD, patch(kubectl, unserved), true},
		{"other names", otherUser, guardedCRD, patch(kubectl, category), true},
		{"other columns", otherUser, guardedCRD, patch(kubectl, column), true},
		{"a conversion webhook, and more", otherUser, guardedCRD, patch(kubectl, "["+webhook+","+anotherSchema+"]"), true},
		{"not ours any more, in the same request", otherUser, guardedCRD, patch(kubectl, unlabel), true},
		{"let go, in the same request", otherUser, guardedCRD, patch(kubectl, annotated), true},
		{"deletion", otherUser, guardedCRD, deleteOne, true},
		{"deletion of all", otherUser, guardedCRD, deleteAll, true},
		{"a conversion webhook", otherUser, guardedCRD, patch(kubectl, "["+webhook+"]"), false},
		{"labels, annotations, finalizers, owners", otherUser, guardedCRD, patch(kubectl, meta), false},
		{"an update with the same spec", otherUser, guardedCRD, replace(kubectl), false},
		{"another CRD", otherUser, unguardedCRD, changeSpec(kubectl), false},
		{"deletion of another CRD", otherUser, unguardedCRD, deleteOne, false},
		{"deletion of all others", otherUser, unguardedCRD, deleteAll, false},

		{"hypergate", otherUser, guardedCRD, applyServerSide(model.FieldManager), false},
		{"almost hypergate", otherUser, guardedCRD, applyServerSide(model.FieldManager + "-2"), true},
		{"the admin", systemAdmin, guardedCRD, changeSpec(kubectl), true},
		{"the admin's deletion", systemAdmin, guardedCRD, deleteOne, true},
		{"an operator that uses the admin's name", systemAdmin, guardedCRD, changeSpec(""), false},
		{
			"another account of the ingress operator's namespace", "system:serviceaccount:openshift-ingress-operator:default", guardedCRD,
			changeSpec(""), true,
		},
	}
	for _, user := range append(desired.PlatformCRDWriters(), givenWriter) {
		out = append(out,
			attempt{user, user, guardedCRD, changeSpec(""), false},
			attempt{user + ", by kubectl", user, guardedCRD, changeSpec(kubectl), false},
			attempt{user + "'s deletion", user, guardedCRD, deleteOne, false})
	}
	return out
}

// merge sends a merge patch, without a dry run.
func (g *guarded) merge(body string) {
	g.Helper()
	_, err := g.as(otherUser).
		Patch(g.Context(), guardedCRD, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "kubectl-annotate"})
	g.Expect(err).NotTo(gomega.HaveOccurred())
}

// wayOut checks that the command in the refusal's message is sufficient, and that its effect can be undone.
func (g *guarded) wayOut() {
	err := changeSpec(kubectl)(g.Context(), g.as(otherUser), guardedCRD)
	g.Expect(err).To(gomega.HaveOccurred())
	_, command, found := strings.Cut(err.Error(), "run: kubectl annotate --overwrite crd "+guardedCRD+" ")
	g.Expect(found).To(gomega.BeTrue(), "%v", err)
	key, value, _ := strings.Cut(command, "=")
	annotate := func(value any) {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.merge(string(body))
	}
	for _, kept := range []any{"true", nil} {
		annotate(value)
		g.attempt(attempt{user: otherUser, crd: guardedCRD, do: changeSpec(kubectl)})
		g.attempt(attempt{user: otherUser, crd: guardedCRD, do: deleteOne})
		annotate(kept)
		g.attempt(attempt{user: otherUser, crd: guardedCRD, do: changeSpec(kubectl), refused: true})
		g.attempt(attempt{user: otherUser, crd: guardedCRD, do: deleteOne, refused: true})
	}
}

// notOurs checks that the policy ignores a CRD with a protected name that hypergate did not create.
func (g *guarded) notOurs() {
	theirs := g.planned[uncreatedCRD].DeepCopy()
	theirs.SetLabels(nil)
	_, err := g.as(otherUser).Create(g.Context(), theirs, metav1.CreateOptions{FieldManager: kubectl})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(func() string { return g.established(uncreatedCRD) }).Should(gomega.Equal("True"))
	g.attempt(attempt{user: otherUser, crd: uncreatedCRD, do: changeSpec(kubectl)})
	g.attempt(attempt{user: otherUser, crd: uncreatedCRD, do: deleteOne})

	g.Log("once hypergate manages it, the policy protects it")
	g.apply(g.as(""), g.planned[uncreatedCRD])
	g.attempt(attempt{user: otherUser, crd: uncreatedCRD, do: changeSpec(kubectl), refused: true})

	g.Log("a deletion by an allowed user works: the API server removes its finalizer")
	g.Expect(g.as(desired.PlatformCRDWriters()[0]).Delete(g.Context(), uncreatedCRD, metav1.DeleteOptions{})).To(gomega.Succeed())
	g.Eventually(func() string { return g.established(uncreatedCRD) }).Should(gomega.ContainSubstring("not found"))

	g.Log("hypergate creates it again, and the API server reports in the status that it is served")
	g.apply(g.as(""), g.planned[uncreatedCRD])
	g.Eventually(func() string { return g.established(uncreatedCRD) }).Should(gomega.Equal("True"))
	g.attempt(attempt{user: otherUser, crd: uncreatedCRD, do: changeSpec(kubectl), refused: true})
}

// withoutIt checks that without the policy nothing refuses writes, and nothing is left behind.
func (g *guarded) withoutIt() {
	g.attempt(attempt{user: otherUser, crd: guardedCRD, do: deleteOne, refused: true})
	g.Expect(g.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().
		Delete(g.Context(), desired.CRDPolicyName(g.cfg), metav1.DeleteOptions{})).To(gomega.Succeed())
	g.Eventually(func() error { return changeSpec(kubectl)(g.Context(), g.as(otherUser), guardedCRD) }).Should(gomega.Succeed())
	g.Expect(deleteOne(g.Context(), g.as(otherUser), guardedCRD)).To(gomega.Succeed())
}
