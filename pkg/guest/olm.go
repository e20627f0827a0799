package guest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/watch"
)

// olmKind is a kind of OLM whose objects show that an operator is installed or is being installed.
//
// OLM sets the label of the package on three kinds of objects: a Subscription, its latest InstallPlan, and the
// ClusterServiceVersion that the Subscription installed (operator-lifecycle-manager,
// pkg/controller/operators/adoption_controller.go, ReconcileSubscription). From the ClusterServiceVersion it labels
// the CRDs that the operator owns (adoptees).
//
// OLM sets the labels shortly after it creates the objects. Only the latest InstallPlan carries the label. That is
// enough, because older InstallPlans are complete.
type olmKind struct{ kind, resource, selector string }

// olmKinds returns the kinds, the most significant first.
func olmKinds() []olmKind {
	return []olmKind{
		{kind: "Subscription", resource: "subscriptions"},
		{kind: "InstallPlan", resource: "installplans"},
		// OLM copies a ClusterServiceVersion into each namespace that it serves. A copy owns nothing.
		{kind: "ClusterServiceVersion", resource: "clusterserviceversions", selector: ",!olm.copiedFrom"},
	}
}

func (k olmKind) crd() string { return k.resource + ".operators.coreos.com" }

func (k olmKind) gvr() schema.GroupVersionResource {
	return olmGroupVersion().WithResource(k.resource)
}

func olmGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "operators.coreos.com", Version: "v1alpha1"}
}

// maxPackages is how many packages are looked up. A CRD normally has one, but the guest controls its labels.
const maxPackages = 8

// olmView looks up the OLM operators of the packages in CRD labels. Without such a label it sends no requests.
type olmView struct {
	client metadata.Interface
	budget *watch.Budget
	notify func()

	mu sync.Mutex
	// lookups has the lookups by package. Each has one watch per olmKind.
	lookups map[string][]*watch.Switch
	// allowances has one allowance per olmKind. The lookups of all packages share it: the guest can name others at any
	// time.
	allowances []*watch.Allowance
}

func newOLMView(client metadata.Interface, budget *watch.Budget, notify func()) *olmView {
	v := &olmView{client: client, budget: budget, notify: notify, lookups: map[string][]*watch.Switch{}}
	for range olmKinds() {
		v.allowances = append(v.allowances, budget.Allowance())
	}
	return v
}

// arrange looks up the packages in the labels of the CRDs, and stops all other lookups.
func (v *olmView) arrange(ctx context.Context, view *crdView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	packages := view.packages()
	packages = packages[:min(len(packages), maxPackages)]
	for name, lookup := range v.lookups {
		if !slices.Contains(packages, name) {
			for _, s := range lookup {
				s.Set(ctx, "", "")
			}
			delete(v.lookups, name)
		}
	}
	for _, name := range packages {
		if v.lookups[name] == nil {
			v.lookups[name] = v.newLookup(name)
		}
		for i, kind := range olmKinds() {
			key, version := view.keyAndVersion(kind.crd())
			v.lookups[name][i].Set(ctx, key, version)
		}
	}
}

func (v *olmView) newLookup(name string) []*watch.Switch {
	out := make([]*watch.Switch, 0, len(olmKinds()))
	for i, kind := range olmKinds() {
		options := metadataWatch(v.client, kind.gvr(), metav1.ListOptions{LabelSelector: operatorLabel + name + kind.selector})
		options.Patience, options.Futile, options.Budget = servedPatience, apierrors.IsForbidden, v.budget
		options.Allowance, options.Many = v.allowances[i], true
		options.OnEvent, options.OnSynced, options.OnProblem = func(watch.Event) { v.notify() }, v.notify, v.notify
		out = append(out, watch.NewSwitch(options))
	}
	return out
}

// Err returns the error of the first watch for which the API server sends more than hypergate reads, or nil. Other
// failures are reported with the package.
func (v *olmView) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, lookup := range v.lookups {
		for _, s := range lookup {
			if err := s.Err(); isOversized(err) {
				return err
			}
		}
	}
	return nil
}

const operatorLabel = "operators.coreos.com/"

// operators returns the result of the lookup for each package in the labels of the CRDs.
func (v *olmView) operators(view *crdView) map[string]crds.Operator {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string]crds.Operator{}
	for i, name := range view.packages() {
		if i >= maxPackages {
			out[name] = crds.Operator{Found: crds.Unsure, Name: fmt.Sprintf("the CRDs have labels of more than %d packages", maxPackages)}
			continue
		}
		out[name] = found(view, v.lookups[name])
	}
	return out
}

// found returns what the watches of a package show. One existing object is enough for Live. None requires a certain
// result for each kind.
func found(view *crdView, lookup []*watch.Switch) crds.Operator {
	out := crds.Operator{Found: crds.None}
	for i, kind := range olmKinds() {
		key, _ := view.keyAndVersion(kind.crd())
		if key == "" {
			continue // without its CRD there are no objects
		}
		if lookup == nil || lookup[i].Key() != key {
			return crds.Operator{Found: crds.Unsure}
		}
		if first, there := firstOf(lookup[i]); there {
			return crds.Operator{Found: crds.Live, Kind: kind.kind, Namespace: first.Namespace, Name: first.Name}
		}
		switch err := lookup[i].Err(); {
		case out.Found == crds.Unsure && out.Name != "":
		case err != nil:
			out = crds.Operator{Found: crds.Unsure, Name: apply.Classify(err, "list", kind.gvr().GroupResource()).String()}
		case !lookup[i].Synced():
			out = crds.Operator{Found: crds.Unsure}
		}
	}
	return out
}

// firstOf returns the first object of a watch, by namespace and name.
func firstOf(s *watch.Switch) (metav1.ObjectMeta, bool) {
	var all []metav1.ObjectMeta
	for _, obj := range s.List() {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			all = append(all, m.ObjectMeta)
		}
	}
	if len(all) == 0 {
		return metav1.ObjectMeta{}, false
	}
	return slices.MinFunc(all, func(a, b metav1.ObjectMeta) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}), true
}
