package guest

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// gatewayView watches Gateways and their Deployments. It is on only while a rollout of gateways needs it, so that at
// rest it costs nothing: each change of a Gateway's status is an event of this watch.
type gatewayView struct {
	// gateways and deployments are on at the same time.
	gateways, deployments *watch.Switch
	// wanted reports whether both should be on.
	wanted atomic.Bool
}

// rolledGateway is the part of a Gateway that is kept.
type rolledGateway struct {
	metav1.ObjectMeta
	class string
	hold  model.GatewayHold
	// deployment is the name that istiod gives the Gateway's Deployment.
	deployment string
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (g *rolledGateway) KeptBytes() int { return 3*stringSize + len(g.class) + len(g.deployment) }

// rolledDeployment is the part of a gateway's Deployment that is kept. gateway is the UID of the Gateway that owns it.
type rolledDeployment struct {
	metav1.ObjectMeta
	gateway types.UID
	model.GatewayDeployment
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (d *rolledDeployment) KeptBytes() int { return 4*stringSize + len(d.gateway) }

// nameOverride is the annotation of a Gateway with the name of its objects. Without it, the name is that of the Gateway
// and of its class (istio pilot/pkg/config/kube/gateway/deploymentcontroller.go, getDefaultName).
const nameOverride = "gateway.istio.io/name-override"

// deploymentName returns the name that istiod gives the Deployment of a Gateway.
func deploymentName(gateway *unstructured.Unstructured, class string) string {
	return cmp.Or(gateway.GetAnnotations()[nameOverride], gateway.GetName()+"-"+class)
}

// gatewayNameLabel is on each Deployment that istiod makes for a Gateway. Its value is the Gateway's name.
const gatewayNameLabel = "gateway.networking.k8s.io/gateway-name"

func gatewayResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gatewayGroup, Version: classVersion, Resource: "gateways"}
}

func newGatewayView(client dynamic.Interface, revision string, budget *watch.Budget, notify func()) *gatewayView {
	own := model.HoldValue(revision)
	options := func(gvr schema.GroupVersionResource, selector string) watch.Options {
		out := selectedWatch(gvr.Resource, client.Resource(gvr), metav1.ListOptions{LabelSelector: selector})
		out.Example, out.Client, out.Budget = &unstructured.Unstructured{}, client, budget
		out.Patience, out.Futile = servedPatience, futile
		out.OnEvent = func(e watch.Event) {
			if e.Gone || !sameForRollout(e.Before, e.Object) {
				notify()
			}
		}
		out.OnSynced, out.OnProblem = notify, notify
		return out
	}
	gateways, deployments := options(gatewayResource(), ""), options(deploymentResource(), gatewayNameLabel)
	gateways.Transform, deployments.Transform = keeps(rolledGatewayOnly(own)), keeps(rolledDeploymentOf)
	return &gatewayView{gateways: watch.NewSwitch(gateways), deployments: watch.NewSwitch(deployments)}
}

// sameForRollout reports whether two states of an object are the same for a rollout. The status of a Gateway changes
// with each route.
func sameForRollout(before, now any) bool {
	switch now := now.(type) {
	case *rolledGateway:
		old, is := before.(*rolledGateway)
		return is && old.UID == now.UID && old.class == now.class && old.hold == now.hold && old.deployment == now.deployment
	case *rolledDeployment:
		old, is := before.(*rolledDeployment)
		return is && old.gateway == now.gateway && old.GatewayDeployment == now.GatewayDeployment
	default:
		return false
	}
}

// rolledGatewayOnly returns rolledGatewayOf for a value of model.HoldAnnotation.
func rolledGatewayOnly(own string) func(*unstructured.Unstructured) *rolledGateway {
	return func(u *unstructured.Unstructured) *rolledGateway { return rolledGatewayOf(u, own) }
}

// rolledGatewayOf returns the part of a Gateway that is kept. own is the value of model.HoldAnnotation that means that
// this hypergate holds it.
func rolledGatewayOf(u *unstructured.Unstructured, own string) *rolledGateway {
	class, _, _ := unstructured.NestedString(u.Object, "spec", "gatewayClassName")
	value, annotated := u.GetAnnotations()[model.HoldAnnotation]
	return &rolledGateway{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		},
		class: bounded(class, maxName), hold: model.HoldOf(value, own, annotated),
		deployment: bounded(deploymentName(u, class), maxName),
	}
}

// rolledDeploymentOf returns the part of a gateway's Deployment that is kept.
func rolledDeploymentOf(u *unstructured.Unstructured) *rolledDeployment {
	out := &rolledDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), ResourceVersion: u.GetResourceVersion(),
	}}
	for _, owner := range u.GetOwnerReferences() {
		if owner.Kind == "Gateway" {
			out.gateway = types.UID(bounded(string(owner.UID), maxUID))
		}
	}
	var d struct {
		Spec struct {
			Replicas *int32 `json:"replicas"`
		} `json:"spec"`
		Status appsv1.DeploymentStatus `json:"status"`
	}
	replicas, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "replicas") // not the template, which can be large
	content := map[string]any{"spec": map[string]any{"replicas": replicas}}
	if status, is := u.Object["status"].(map[string]any); is {
		content["status"] = status
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &d); err != nil {
		out.GatewayDeployment = model.GatewayDeployment{State: model.DeploymentRolling, Generation: u.GetGeneration(), Old: 1}
		return out // its status cannot be read: it does not count as complete
	}
	out.GatewayDeployment = deploymentOf(u.GetGeneration(), d.Spec.Replicas, d.Status)
	return out
}

// deploymentOf returns the state of the rollout of a Deployment. Its number of replicas is 1 by default.
func deploymentOf(generation int64, replicas *int32, s appsv1.DeploymentStatus) model.GatewayDeployment {
	out := model.GatewayDeployment{
		State: model.DeploymentRolling, Generation: generation, Wanted: 1, Ready: min(s.UpdatedReplicas, s.AvailableReplicas),
		Old: max(0, s.Replicas-s.UpdatedReplicas),
	}
	if replicas != nil {
		out.Wanted = *replicas
	}
	for _, condition := range s.Conditions {
		if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse ||
			condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			out.State = model.DeploymentStuck
		}
	}
	if s.ObservedGeneration < generation {
		out.State, out.Ready, out.Old = model.DeploymentRolling, 0, max(1, s.Replicas) // the status is that of the generation before
		return out
	}
	if s.UpdatedReplicas >= out.Wanted && s.AvailableReplicas >= out.Wanted && s.Replicas <= s.UpdatedReplicas {
		out.State = model.DeploymentComplete
	}
	return out
}

// arrange switches the watches on or off. key and version are those of the Gateways' CRD.
func (v *gatewayView) arrange(ctx context.Context, key, version string) {
	if !v.wanted.Load() {
		key = ""
	}
	v.gateways.Set(ctx, key, version)
	v.deployments.Set(ctx, key, version)
}

// WatchGateways starts or stops the watches of Gateways and of their Deployments. It sends no requests itself.
func (c *Cluster) WatchGateways(on bool) {
	if c.rolled.wanted.Swap(on) != on {
		c.arrangeSoon()
	}
}

// observedGateways returns the Gateways of hypergate's classes, and all others that this hypergate holds.
func (c *Cluster) observedGateways() model.ObservedGateways {
	gateways, deployments := c.rolled.gateways.On(), c.rolled.deployments.On()
	if gateways == nil || deployments == nil {
		if _, exists := c.crds.Get(gatewayCRD); !exists && c.rolled.wanted.Load() {
			return model.ObservedGateways{View: model.GatewaysKnown} // there are none without their CRD
		}
		return model.ObservedGateways{View: model.GatewaysUnwatched}
	}
	if view := viewOf(gateways, deployments); view != model.GatewaysKnown {
		return model.ObservedGateways{View: view}
	}
	classes := map[string]bool{}
	for _, class := range c.classes.own() {
		classes[class.Name] = true
	}
	return rolledGateways(gateways.List(), deployments.List(), classes)
}

// viewOf returns what two watches know.
func viewOf(watches ...*watch.Watch) model.GatewayView {
	for _, w := range watches {
		switch err := w.Err(); {
		case apierrors.IsForbidden(err):
			return model.GatewaysForbidden
		case isOversized(err):
			return model.GatewaysTooMany
		}
	}
	if slices.ContainsFunc(watches, func(w *watch.Watch) bool { return !w.Synced() }) {
		return model.GatewaysListing
	}
	return model.GatewaysKnown
}

// rolledGateways joins Gateways with their Deployments, by the owner reference. istiod leaves the Deployment of before
// if a Gateway gets another class or another name for its objects. That one does not count.
func rolledGateways(gateways, deployments []any, classes map[string]bool) model.ObservedGateways {
	owned := ownedDeploymentsOf(deployments)
	out := model.ObservedGateways{View: model.GatewaysKnown}
	for _, obj := range gateways {
		g, is := obj.(*rolledGateway)
		if !is || !classes[g.class] && g.hold != model.Held {
			continue
		}
		key := types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
		out.List = append(out.List, model.Gateway{
			ForeignObject: model.ForeignObject{Key: key, UID: g.UID, ResourceVersion: g.ResourceVersion},
			Hold:          g.hold, Deployment: owned.of(g),
		})
	}
	slices.SortFunc(out.List, func(a, b model.Gateway) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	if len(out.List) > model.MaxGateways { // one without pods and without a hold does not roll
		out.List = slices.DeleteFunc(out.List, func(g model.Gateway) bool {
			return g.Hold != model.Held && g.Deployment.State == model.DeploymentMissing
		})
	}
	if len(out.List) > model.MaxGateways {
		out.View = model.GatewaysTooMany
		out.List = slices.DeleteFunc(out.List, func(g model.Gateway) bool { return g.Hold != model.Held })
		out.List = out.List[:min(len(out.List), model.MaxGateways)]
	}
	return out
}

// ownedDeployments are Deployments by the Gateway that owns them. A Gateway is looked up in the same time however many
// Deployments name it, and however many Gateways have its UID.
type ownedDeployments struct {
	named map[ownedName]*rolledDeployment
	// only has nil for a Gateway with several.
	only map[gatewayOwner]*rolledDeployment
}

// gatewayOwner is a Gateway that owns Deployments. An owner reference of another namespace says nothing.
type gatewayOwner struct {
	namespace string
	gateway   types.UID
}

// ownedName is the name of a Deployment of a Gateway.
type ownedName struct {
	gatewayOwner

	name string
}

func ownedDeploymentsOf(deployments []any) ownedDeployments {
	out := ownedDeployments{map[ownedName]*rolledDeployment{}, map[gatewayOwner]*rolledDeployment{}}
	for _, obj := range deployments {
		d, is := obj.(*rolledDeployment)
		if !is || d.gateway == "" {
			continue
		}
		owner := gatewayOwner{d.Namespace, d.gateway}
		out.named[ownedName{owner, d.Name}] = d
		if _, several := out.only[owner]; several {
			d = nil
		}
		out.only[owner] = d
	}
	return out
}

// of returns the state of a Gateway's Deployment: the one with the name that istiod gives it, or the only one. The zero
// value: it has none.
func (o ownedDeployments) of(g *rolledGateway) model.GatewayDeployment {
	owner := gatewayOwner{g.Namespace, g.UID}
	for _, d := range []*rolledDeployment{o.named[ownedName{owner, g.deployment}], o.only[owner]} {
		if d != nil {
			return d.GatewayDeployment
		}
	}
	return model.GatewayDeployment{}
}
