package main

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// revisionLabel says which istiod serves a Gateway. An istiod with a revision serves no Gateway without the label,
// unless it is the default revision.
const revisionLabel = "istio.io/rev"

// labeler puts istiod's revision on each Gateway of the classes, and puts it back when another one is there
// (cluster-ingress-operator pkg/operator/controller/gateway-labeler/controller.go).
type labeler struct{ client client.Client }

func (l *labeler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("gateway-labeler").For(&gatewayv1.Gateway{}).Complete(l)
}

// Reconcile is one pass for a Gateway.
func (l *labeler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	gateway, class := &gatewayv1.Gateway{}, &gatewayv1.GatewayClass{}
	if err := l.client.Get(ctx, request.NamespacedName, gateway); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := l.client.Get(ctx, types.NamespacedName{Name: string(gateway.Spec.GatewayClassName)}, class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if class.Spec.ControllerName != controllerName || gateway.Labels[revisionLabel] == revision {
		return ctrl.Result{}, nil
	}
	next := gateway.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[revisionLabel] = revision
	return ctrl.Result{}, l.client.Patch(ctx, next, client.MergeFrom(gateway))
}
