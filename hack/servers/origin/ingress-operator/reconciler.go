package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	sailv1 "github.com/istio-ecosystem/sail-operator/api/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// installation is who installs istiod.
type installation string

const (
	byOLM     installation = "olm"
	byLibrary installation = "library"
	// byOther: another party serves Gateways. It is not in C yet.
	byOther installation = "external"
)

const (
	// finalizer is on each class with --install=library (C controller.go, sailLibraryFinalizer).
	finalizer = "openshift.io/ingress-operator-sail-finalizer"
	// syncAnnotation changes with each start of istiod (C controller.go, syncAnnotation).
	syncAnnotation = "ingress.operator.openshift.io/sync"
	// waitForRemoval is how long C waits between two looks at the IstioRevision (C controller.go).
	waitForRemoval = 5 * time.Second
)

// reconciler handles GatewayClasses.
type reconciler struct {
	client client.Client
	reader client.Reader // without a cache: kinds whose CRD may be missing
	config *rest.Config

	install                                 installation
	chart, version, istiodImage, proxyImage string
}

// setup registers the watches: classes, and everything that the release has. The filters are those of S
// pkg/watches/istiod.go.
func (r *reconciler) setup(mgr ctrl.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		class, is := o.(*gatewayv1.GatewayClass)
		return is && class.Spec.ControllerName == controllerName
	})
	b := ctrl.NewControllerManagedBy(mgr).For(&gatewayv1.GatewayClass{}, builder.WithPredicates(ours))
	switch r.install {
	case byOther:
		return b.Complete(r)
	case byOLM:
		return b.Watches(&sailv1.Istio{}, handler.EnqueueRequestsFromMapFunc(r.allClasses)).Complete(r)
	default:
	}
	label := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[managedBy] == library })
	for _, watched := range []struct {
		object client.Object
		filter predicate.Predicate
	}{
		{&admissionv1.MutatingWebhookConfiguration{}, changed(webhookFields)},
		{&admissionv1.ValidatingWebhookConfiguration{}, changed(webhookFields)},
		{&appsv1.Deployment{}, predicate.Funcs{}},
		{&autoscalingv2.HorizontalPodAutoscaler{}, changed(withoutStatus)},
		{&corev1.ConfigMap{}, predicate.Funcs{}},
		{&corev1.Service{}, changed(withoutStatus)},
		{&corev1.ServiceAccount{}, predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}},
		{&rbacv1.Role{}, predicate.Funcs{}},
		{&rbacv1.RoleBinding{}, predicate.Funcs{}},
		{&rbacv1.ClusterRole{}, predicate.Funcs{}},
		{&rbacv1.ClusterRoleBinding{}, predicate.Funcs{}},
	} {
		b.Watches(watched.object, handler.EnqueueRequestsFromMapFunc(r.allClasses), builder.WithPredicates(label, watched.filter))
	}
	return b.Complete(r)
}

// changed returns a filter for updates that change what is left of an object.
func changed(rest func(client.Object)) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.DeepCopyObject().(client.Object)
		after, isAfter := e.ObjectNew.DeepCopyObject().(client.Object)
		if !isBefore || !isAfter {
			return true
		}
		for _, object := range []client.Object{before, after} {
			object.SetResourceVersion("")
			object.SetManagedFields(nil)
			rest(object)
		}
		return !reflect.DeepEqual(before, after)
	}}
}

// webhookFields removes what istiod writes to webhooks.
func webhookFields(object client.Object) {
	object.SetGeneration(0)
	switch o := object.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			o.Webhooks[i].FailurePolicy, o.Webhooks[i].ClientConfig.CABundle = nil, nil
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			o.Webhooks[i].ClientConfig.CABundle = nil
		}
	}
}

func withoutStatus(object client.Object) {
	switch o := object.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		o.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
	case *corev1.Service:
		o.Status = corev1.ServiceStatus{}
	}
}

func (r *reconciler) allClasses(ctx context.Context, _ client.Object) []ctrl.Request {
	classes, err := r.classes(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the classes")
	}
	requests := make([]ctrl.Request, 0, len(classes))
	for i := range classes {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&classes[i])})
	}
	return requests
}

// classes returns the classes of the controller name.
func (r *reconciler) classes(ctx context.Context) ([]gatewayv1.GatewayClass, error) {
	var list gatewayv1.GatewayClassList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing GatewayClasses: %w", err)
	}
	var out []gatewayv1.GatewayClass
	for _, class := range list.Items {
		if class.Spec.ControllerName == controllerName {
			out = append(out, class)
		}
	}
	return out, nil
}

// Reconcile is one pass for a class.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	class := &gatewayv1.GatewayClass{}
	if err := r.client.Get(ctx, request.NamespacedName, class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch r.install {
	case byOLM:
		return ctrl.Result{}, r.withOLM(ctx, class)
	case byOther:
		return ctrl.Result{}, r.standDown(ctx, class)
	default:
		return r.withLibrary(ctx, class)
	}
}

// standDown removes what the library has installed, then its conditions and its finalizer. C does the same with the
// latter two when it goes back to OLM (C controller.go, reconcileWithOLM).
func (r *reconciler) standDown(ctx context.Context, class *gatewayv1.GatewayClass) error {
	if !controllerutil.ContainsFinalizer(class, finalizer) {
		return nil
	}
	if err := r.uninstall(ctx); err != nil {
		return err
	}
	return r.withoutLibrary(ctx, class)
}

// withoutLibrary removes the conditions and the finalizer that the library's way has put on a class.
func (r *reconciler) withoutLibrary(ctx context.Context, class *gatewayv1.GatewayClass) error {
	next := class.DeepCopy()
	controllerutil.RemoveFinalizer(next, finalizer)
	meta.RemoveStatusCondition(&next.Status.Conditions, "ControllerInstalled")
	meta.RemoveStatusCondition(&next.Status.Conditions, "CRDsReady")
	err := r.client.Status().Patch(ctx, next.DeepCopy(), client.MergeFrom(class))
	return cmp.Or(err, r.client.Patch(ctx, next, client.MergeFrom(class)))
}

// withOLM removes what the library left on the class, and writes the resource Istio: made when it is missing, put back
// when its spec or owner is another one (C controller.go, reconcileWithOLM; istio_olm.go, ensureIstioOLM).
func (r *reconciler) withOLM(ctx context.Context, class *gatewayv1.GatewayClass) error {
	if controllerutil.ContainsFinalizer(class, finalizer) {
		return r.withoutLibrary(ctx, class)
	}
	values, err := json.Marshal(forIstio())
	if err != nil {
		return err
	}
	want := &sailv1.Istio{
		ObjectMeta: metav1.ObjectMeta{Name: revision, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: gatewayv1.GroupVersion.String(), Kind: "GatewayClass", Name: class.Name, UID: class.UID},
		}},
		Spec: sailv1.IstioSpec{
			Namespace: operand, Version: r.version, Values: &sailv1.Values{},
			UpdateStrategy: &sailv1.IstioUpdateStrategy{Type: sailv1.UpdateStrategyTypeInPlace},
		},
	}
	if err := json.Unmarshal(values, want.Spec.Values); err != nil {
		return err
	}
	have := &sailv1.Istio{}
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(want), have); apierrors.IsNotFound(err) {
		return client.IgnoreAlreadyExists(r.client.Create(ctx, want))
	} else if err != nil {
		return err
	}
	if reflect.DeepEqual(have.Spec.Values, want.Spec.Values) && have.Spec.Version == want.Spec.Version &&
		have.Spec.Namespace == want.Spec.Namespace && equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences) {
		return nil
	}
	have.Spec.Values, have.Spec.Version, have.Spec.Namespace = want.Spec.Values, want.Spec.Version, want.Spec.Namespace
	have.OwnerReferences = want.OwnerReferences
	return r.client.Update(ctx, have)
}

// withLibrary follows C controller.go, reconcileWithSailLibrary.
func (r *reconciler) withLibrary(ctx context.Context, class *gatewayv1.GatewayClass) (ctrl.Result, error) {
	if !class.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.deleted(ctx, class)
	}
	next := class.DeepCopy()
	if controllerutil.AddFinalizer(next, finalizer) {
		return ctrl.Result{}, r.client.Patch(ctx, next, client.MergeFrom(class))
	}
	if done, err := r.olmRemoved(ctx); err != nil || !done {
		return ctrl.Result{RequeueAfter: waitForRemoval}, err
	}
	classes, err := r.classes(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	names := make([]string, len(classes))
	for i := range classes {
		names[i] = classes[i].Name
	}
	installErr := r.upgradeOrInstall(ctx, r.forLibrary(names))
	return ctrl.Result{}, errors.Join(installErr, r.report(ctx, class, installErr), r.networkPolicy(ctx), r.sync(ctx, class, installErr))
}

// deleted uninstalls istiod with the last class (C controller.go, ensureGatewayClassDeleted).
func (r *reconciler) deleted(ctx context.Context, class *gatewayv1.GatewayClass) error {
	next := class.DeepCopy()
	if !controllerutil.RemoveFinalizer(next, finalizer) {
		return nil
	}
	classes, err := r.classes(ctx)
	if err != nil {
		return err
	}
	last := true
	for i := range classes {
		last = last && (classes[i].Name == class.Name || !classes[i].DeletionTimestamp.IsZero())
	}
	if last {
		if err := r.uninstall(ctx); err != nil {
			return err
		}
	}
	return r.client.Patch(ctx, next, client.MergeFrom(class))
}

// olmRemoved deletes the resource Istio by its name, and reports whether the IstioRevision is gone, too (C
// migration.go).
func (r *reconciler) olmRemoved(ctx context.Context) (bool, error) {
	istio := &sailv1.Istio{}
	err := r.reader.Get(ctx, types.NamespacedName{Name: revision}, istio)
	switch {
	case err == nil:
		return false, client.IgnoreNotFound(r.client.Delete(ctx, istio))
	case meta.IsNoMatchError(err):
		return true, nil
	case !apierrors.IsNotFound(err):
		return false, err
	}
	err = r.reader.Get(ctx, types.NamespacedName{Name: revision}, &sailv1.IstioRevision{})
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return true, nil
	}
	return false, err
}

// report writes the conditions (C status.go, mapStatusToConditions).
func (r *reconciler) report(ctx context.Context, class *gatewayv1.GatewayClass, installErr error) error {
	installed := metav1.Condition{
		Type: "ControllerInstalled", Status: metav1.ConditionTrue, Reason: "Installed", ObservedGeneration: class.Generation,
		Message: "istiod " + r.version + " installed",
	}
	if installErr != nil {
		installed.Status, installed.Reason, installed.Message = metav1.ConditionFalse, "InstallFailed", installErr.Error()
	}
	next := class.DeepCopy()
	one := meta.SetStatusCondition(&next.Status.Conditions, installed)
	two := meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: "CRDsReady", Status: metav1.ConditionTrue, Reason: "ManagedByCIO", ObservedGeneration: class.Generation,
		Message: "CRDs installed by cluster-ingress-operator",
	})
	if !one && !two {
		return nil
	}
	return r.client.Status().Patch(ctx, next, client.MergeFrom(class))
}

// networkPolicy writes the policy of istiod's pods (C networkpolicy.go).
func (r *reconciler) networkPolicy(ctx context.Context) error {
	var ports []networkingv1.NetworkPolicyPort
	for _, port := range []int32{8080, 15010, 15011, 15012, 15014, 15017} {
		tcp, number := corev1.ProtocolTCP, intstr.FromInt32(port)
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: &number})
	}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "istiod-allow", Namespace: operand}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, policy, func() error {
		policy.Spec = networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "istiod"}},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: ports}},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		}
		return nil
	})
	return err
}

// sync writes the annotation once istiod is available (C controller.go, ensureGatewayClassSyncAnnotation).
func (r *reconciler) sync(ctx context.Context, class *gatewayv1.GatewayClass, installErr error) error {
	d := &appsv1.Deployment{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: operand, Name: "istiod-" + revision}, d)
	if err != nil || installErr != nil || d.Status.ObservedGeneration < d.Generation {
		return client.IgnoreNotFound(err)
	}
	for _, condition := range d.Status.Conditions {
		if condition.Type != appsv1.DeploymentAvailable || condition.Status != corev1.ConditionTrue {
			continue
		}
		value := fmt.Sprintf("%d-%d", d.Generation, condition.LastTransitionTime.Unix())
		if class.Annotations[syncAnnotation] == value {
			return nil
		}
		next := class.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, syncAnnotation, value)
		return r.client.Patch(ctx, next, client.MergeFrom(class))
	}
	return nil
}
