package model_test

import (
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/mustfail"
	"github.com/hypergate/hypergate/test/sides"
)

// constructorCase is an object for a side, and texts in the error; nil means no error.
type constructorCase struct {
	side   string
	object string
	want   []string // texts in the error; nil: no error
}

// TestNewObjectChecksKinds checks that the constructors refuse kinds of the wrong side, independent of the routing
// table.
func TestNewObjectChecksKinds(t *testing.T) {
	const mgmt, guest = "management", "guest"
	checkConstructor(t, map[string]constructorCase{
		"a ConfigMap for management": {
			mgmt, "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-openshift-gateway, namespace: clusters-guest1}}", nil,
		},
		"a Secret for management": {
			mgmt, "{apiVersion: v1, kind: Secret, metadata: {name: cacerts, namespace: clusters-guest1}}", nil,
		},
		"another Secret for management": {
			mgmt, "{apiVersion: v1, kind: Secret, metadata: {name: etcd-client, namespace: clusters-guest1}}",
			[]string{"Secret clusters-guest1/etcd-client", "name"},
		},
		"a ConfigMap for the guest": {
			guest, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: openshift-ingress}}", nil,
		},
		"a ClusterRole for the guest": {
			guest, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}", nil,
		},
		"a ClusterRole for management": {
			mgmt, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}",
			[]string{"ClusterRole a", "ClusterRole.rbac"},
		},
		"a Role for management": {
			mgmt, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a, namespace: clusters-guest1}}",
			[]string{"Role clusters-guest1/a"},
		},
		"a RoleBinding for management": {
			mgmt, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: clusters-guest1}}",
			[]string{"RoleBinding clusters-guest1/a"},
		},
		"a webhook for management": {
			mgmt, "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a}}",
			[]string{"ValidatingWebhookConfiguration a"},
		},
		"a CRD for management": {
			mgmt, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b.c}}",
			[]string{"CustomResourceDefinition a.b.c"},
		},
		"a Namespace for management": {mgmt, "{apiVersion: v1, kind: Namespace, metadata: {name: a}}", []string{"Namespace a"}},
		"a Secret for the guest": {
			guest, "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: openshift-ingress}}",
			[]string{"Secret openshift-ingress/a"},
		},
		"a Deployment for the guest": {
			guest, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: openshift-ingress}}",
			[]string{"Deployment openshift-ingress/a", "Deployment.apps"},
		},
		"a Pod for the guest": {
			guest, "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: openshift-ingress}}", []string{"Pod openshift-ingress/a"},
		},
	})
}

// TestNewObjectChecksNamespaces checks that the constructors refuse other namespaces, and objects that are not valid.
func TestNewObjectChecksNamespaces(t *testing.T) {
	const mgmt, guest = "management", "guest"
	checkConstructor(t, map[string]constructorCase{
		"management's for another tenant": {
			mgmt, "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-openshift-gateway, namespace: clusters-guest2}}",
			[]string{"ConfigMap clusters-guest2/istio-openshift-gateway", `must be "clusters-guest1"`},
		},
		"management's without a namespace": {
			mgmt, "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-openshift-gateway}}",
			[]string{"ConfigMap istio-openshift-gateway", `must be "clusters-guest1"`},
		},
		"the guest's for kube-system": {
			guest, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: kube-system}}",
			[]string{"ConfigMap kube-system/a", `must be "openshift-ingress"`},
		},
		"a ClusterRole in a namespace": {
			guest, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a, namespace: openshift-ingress}}",
			[]string{"ClusterRole openshift-ingress/a", `must be ""`},
		},
		"an object without a name": {
			guest, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: openshift-ingress}}", []string{"ConfigMap", "no name"},
		},
		"a kind in another version": {
			mgmt, "{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: a, namespace: clusters-guest1}}",
			[]string{"Deployment clusters-guest1/a"},
		},
		"labels that are not strings": {
			guest, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: openshift-ingress, labels: {a: 1}}}",
			[]string{"ConfigMap openshift-ingress/a", "labels"},
		},
		"a kind of the same name elsewhere": {
			mgmt, "{apiVersion: example.com/v1, kind: Service, metadata: {name: a, namespace: clusters-guest1}}",
			[]string{"Service clusters-guest1/a", "Service.example.com"},
		},
	})
}

func checkConstructor(t *testing.T, cases map[string]constructorCase) {
	t.Helper()
	const mgmt, guest = "management", "guest"
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u, cfg := fromyaml.Object(t, tc.object), config()
			var err error
			if tc.side == mgmt {
				_, err = model.NewMgmtObject(u, cfg)
			} else {
				_, err = model.NewGuestObject(u, cfg)
			}
			if tc.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustfail.With(t, err, tc.want...)
		})
	}
}

// TestNewObjectRemovesServerFields checks that a constructor removes the fields that the API server sets, adds the
// owner label, and does not change its input.
func TestNewObjectRemovesServerFields(t *testing.T) {
	const text = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: openshift-ingress, labels: {k: v}, uid: u,
		resourceVersion: "7", creationTimestamp: null, managedFields: [{manager: m}]}, data: {k: v}, status: {ready: true}}`
	u := fromyaml.Object(t, text)
	o, err := model.NewGuestObject(u, config())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{` +
		`"labels":{"gateway.hypergate.dev/owner":"openshift-gateway.guest","k":"v"},"name":"a","namespace":"openshift-ingress"}}`
	if diff := cmp.Diff(want, string(o.JSON())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(fromyaml.Object(t, text), u); diff != "" {
		t.Errorf("the input was changed:\n%s", diff)
	}
}

// TestKindsFitTheirSides checks the lists of kinds, which prune and hypergate's roles depend on.
func TestKindsFitTheirSides(t *testing.T) {
	guestOnly := []string{"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"}
	for _, k := range config().MgmtKinds() {
		if !k.Namespaced || k.NeverPrune || slices.Contains(guestOnly, k.GVK.Group) {
			t.Errorf("%s is accepted on the management side", k.GVK)
		}
		if len(k.Names) == 0 {
			t.Errorf(
				"%s is watched by label, and RBAC knows none: a hosted control plane's namespace is full of other people's objects, the "+
					"keys of the guest's etcd among them",
				k.GVK)
		}
	}
	for _, k := range model.GuestKinds() {
		if slices.Contains([]string{"Secret", "Pod", "Deployment", "DaemonSet", "Job", "CronJob"}, k.GVK.Kind) {
			t.Errorf("%s is accepted in the guest", k.GVK)
		}
		if k.GVK.Kind == "StatefulSet" && (!k.Workload || len(k.Names) != 1) {
			t.Errorf("any %s is accepted in the guest", k.GVK)
		}
		if holdsOthers := k.GVK.Kind == "Namespace" || k.GVK.Kind == "CustomResourceDefinition"; k.NeverPrune != holdsOthers {
			t.Errorf("%s: kept %t; what holds other people's objects is never deleted, all else is", k.GVK, k.NeverPrune)
		}
	}
}

// FuzzNewObject checks that a constructor accepts only objects of its side.
func FuzzNewObject(f *testing.F) {
	f.Add("v1", "ConfigMap", "clusters-guest1", "a", true)
	f.Add("rbac.authorization.k8s.io/v1", "ClusterRole", "", "a", false)
	f.Add("v1", "Secret", "openshift-ingress", "cacerts", false)
	f.Fuzz(func(t *testing.T, apiVersion, kind, namespace, name string, mgmt bool) {
		if !utf8.ValidString(apiVersion + kind + namespace + name) {
			t.Skip("JSON cannot hold it")
		}
		cfg := config()
		u := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": namespace, "name": name},
			},
		}
		if mgmt {
			if o, err := model.NewMgmtObject(u, cfg); err == nil {
				sides.Check(t, o, model.MgmtKinds(), cfg.MgmtNamespace, cfg.OwnerValue(model.SideMgmt))
			}
			return
		}
		if o, err := model.NewGuestObject(u, cfg); err == nil {
			sides.Check(t, o, model.GuestKinds(), cfg.GuestNamespace, cfg.OwnerValue(model.SideGuest))
		}
	})
}
