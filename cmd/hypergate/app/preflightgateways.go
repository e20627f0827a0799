package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/values"
)

// mostWarnings is how many Gateways the command preflight names. mostParameters is how many ConfigMaps it reads, each
// with a request. parametersPage is the size of a page of a list.
const (
	mostWarnings   = 20
	mostParameters = 200
	parametersPage = 100
)

// Annotations with which a Gateway names the objects that istiod makes for it (Istio's api/annotation).
const (
	nameAnnotation    = "gateway.istio.io/name-override"
	accountAnnotation = "gateway.istio.io/service-account"
)

// parametersReader finds Gateways whose spec.infrastructure.parametersRef istiod rejects. istiod reports that only in
// its log (Istio's pilot/pkg/config/kube/gateway/deploymentcontroller.go).
type parametersReader struct {
	client dynamic.Interface
	cfg    model.Config
	// defaults has the content of the ConfigMap that istiod uses, by class. A class without one is not there.
	defaults map[string]map[string]string
}

// gatewayParameters is what a parametersReader found.
type gatewayParameters struct {
	// checked is the number of Gateways whose parameters were checked. unread is the number of the others, and why is
	// the first reason.
	checked, unread int
	why             error
	// problems is what is wrong, by Gateway.
	problems []gatewayProblem
}

type gatewayProblem struct{ gateway, text string }

func readGatewayParameters(ctx context.Context, config *rest.Config, cfg model.Config) (gatewayParameters, error) {
	config = rest.CopyConfig(config)
	config.Wrap(guest.Limit())
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return gatewayParameters{}, fmt.Errorf("creating a client for the guest: %w", err)
	}
	return (&parametersReader{client: client, cfg: cfg}).read(ctx)
}

func (r *parametersReader) read(ctx context.Context) (gatewayParameters, error) {
	gateways, err := r.gateways(ctx)
	if err != nil || len(gateways) == 0 {
		return gatewayParameters{}, err
	}
	if r.defaults, err = r.classDefaults(ctx); err != nil {
		return gatewayParameters{}, err
	}
	found := gatewayParameters{}
	for i, gateway := range gateways {
		problem, err := "", errors.New("there are too many")
		if i < mostParameters {
			problem, err = r.problem(ctx, gateway)
		}
		if err != nil {
			found.unread++
			if found.why == nil {
				found.why = err
			}
			continue
		}
		found.checked++
		if problem != "" {
			found.problems = append(found.problems, gatewayProblem{gateway.Namespace + "/" + gateway.Name, problem})
		}
	}
	return found, nil
}

// gateways returns the Gateways that istiod makes with parameters: those of hypergate's classes.
func (r *parametersReader) gateways(ctx context.Context) ([]gatewayv1.Gateway, error) {
	classes, err := r.list(ctx, "gatewayclasses")
	if apierrors.IsNotFound(err) {
		return nil, nil // the Gateway API is not installed
	}
	if err != nil {
		return nil, fmt.Errorf("listing gatewayclasses: %w", err)
	}
	ours := map[string]bool{}
	for _, u := range classes {
		name, _, _ := unstructured.NestedString(u.Object, "spec", "controllerName")
		ours[u.GetName()] = name == r.cfg.ControllerName
	}
	all, err := r.list(ctx, "gateways")
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing gateways: %w", err)
	}
	var out []gatewayv1.Gateway
	for _, u := range all {
		var gateway gatewayv1.Gateway
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &gateway); err != nil {
			return nil, fmt.Errorf("gateway %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		}
		if ours[string(gateway.Spec.GatewayClassName)] && hasParameters(gateway) && !isManual(gateway) {
			out = append(out, gateway)
		}
	}
	return out, nil
}

func hasParameters(gateway gatewayv1.Gateway) bool {
	return gateway.Spec.Infrastructure != nil && gateway.Spec.Infrastructure.ParametersRef != nil
}

// isManual reports whether the user makes the objects of a Gateway (Istio's IsManaged).
func isManual(gateway gatewayv1.Gateway) bool {
	switch addresses := gateway.Spec.Addresses; len(addresses) {
	case 0:
		return false
	case 1:
		return addresses[0].Type != nil && *addresses[0].Type != gatewayv1.IPAddressType
	default:
		return true
	}
}

// list returns the objects of a kind of the Gateway API.
func (r *parametersReader) list(ctx context.Context, resource string) (out []unstructured.Unstructured, err error) {
	gvr := schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: resource}
	return out, r.each(ctx, r.client.Resource(gvr), metav1.ListOptions{}, func(u *unstructured.Unstructured) { out = append(out, *u) })
}

func (r *parametersReader) each(
	ctx context.Context, from dynamic.ResourceInterface, o metav1.ListOptions, do func(*unstructured.Unstructured),
) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return from.List(ctx, o) })
	pages.PageSize = parametersPage
	return pages.EachListItem(ctx, o, func(object runtime.Object) error {
		if u, is := object.(*unstructured.Unstructured); is {
			do(u)
		}
		return nil
	})
}

// classDefaults returns the content of the oldest ConfigMap of each class.
func (r *parametersReader) classDefaults(ctx context.Context) (map[string]map[string]string, error) {
	oldest := map[string]*unstructured.Unstructured{}
	o := metav1.ListOptions{LabelSelector: model.ClassDefaultsLabel}
	err := r.each(ctx, r.configMaps(r.cfg.GuestNamespace), o, func(u *unstructured.Unstructured) {
		class := u.GetLabels()[model.ClassDefaultsLabel]
		if first := oldest[class]; first == nil || cmp.Or(
			u.GetCreationTimestamp().Compare(first.GetCreationTimestamp().Time), cmp.Compare(u.GetName(), first.GetName())) < 0 {
			oldest[class] = u
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing configmaps in %s: %w", r.cfg.GuestNamespace, err)
	}
	out := map[string]map[string]string{}
	for class, u := range oldest {
		out[class] = dataOf(u)
	}
	return out, nil
}

func (r *parametersReader) configMaps(namespace string) dynamic.ResourceInterface {
	return r.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
}

func dataOf(configMap *unstructured.Unstructured) map[string]string {
	data, _, _ := unstructured.NestedStringMap(configMap.Object, "data")
	if data == nil {
		return map[string]string{}
	}
	return data
}

// problem returns why istiod rejects the parameters of a Gateway, or the empty string.
func (r *parametersReader) problem(ctx context.Context, gateway gatewayv1.Gateway) (string, error) {
	ref := gateway.Spec.Infrastructure.ParametersRef
	if ref.Group != "" || ref.Kind != "ConfigMap" {
		return fmt.Sprintf("istiod reads only a ConfigMap, and not a %.64q of group %.64q", ref.Kind, ref.Group), nil
	}
	name := types.NamespacedName{Namespace: gateway.Namespace, Name: ref.Name}
	object, err := r.configMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("ConfigMap %s does not exist", name), nil
	case err != nil:
		return "", fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	class := string(gateway.Spec.GatewayClassName)
	usual := gateway.Name + "-" + class
	problem := values.ParametersProblem(dataOf(object), values.Target{
		Namespace: gateway.Namespace, Defaults: r.defaults[class],
		Names: []string{
			cmp.Or(gateway.Annotations[nameAnnotation], usual), cmp.Or(gateway.Annotations[accountAnnotation], usual),
		},
	})
	if problem == "" {
		return "", nil
	}
	return fmt.Sprintf("ConfigMap %s is not valid (%s)", name, problem), nil
}

// withParameters adds the check of the parameters of Gateways. What is wrong with them is a warning: the users of a
// guest can cause it, and it concerns only their Gateway.
func (r preflightReport) withParameters(found gatewayParameters, err error) preflightReport {
	const name = "parameters of Gateways"
	if err != nil {
		return r.warns(name, "not checked: "+errorText(err))
	}
	for i, problem := range found.problems {
		if i == mostWarnings {
			r = r.warns(name, fmt.Sprintf("%d more Gateways have parameters that istiod rejects", len(found.problems)-i))
			break
		}
		r = r.warns("Gateway "+problem.gateway, "istiod neither creates nor changes its objects: "+problem.text)
	}
	if found.unread > 0 {
		r = r.warns(name, fmt.Sprintf("%d not checked: %s", found.unread, errorText(found.why)))
	}
	return r.with(name, fmt.Sprintf("%d checked", found.checked), nil)
}

func (r preflightReport) warns(name, message string) preflightReport {
	r.Checks = append(slices.Clone(r.Checks), preflightCheck{Name: name, Passed: true, Warning: true, Message: message})
	return r
}
