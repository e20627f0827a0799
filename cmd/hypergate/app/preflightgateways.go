package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	answers "github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
	"github.com/hypergate/hypergate/pkg/values"
)

// mostWarnings is how many Gateways the command preflight names. mostParameters is how many ConfigMaps it reads, each
// with a request. parametersPage is the size of a page of a list, and parametersPages the number of requests.
// mostClassDefaults limits the content of all ConfigMaps with class defaults, and longestParameters a text about one
// Gateway, in bytes.
const (
	mostWarnings      = 20
	mostParameters    = 200
	parametersPage    = 100
	parametersPages   = 500
	mostClassDefaults = 16 << 20
	longestParameters = 1 << 10
)

// Annotations with which a Gateway names the objects that istiod makes for it (Istio's api/annotation).
const (
	nameAnnotation    = "gateway.istio.io/name-override"
	accountAnnotation = "gateway.istio.io/service-account"
)

// parametersReader finds Gateways whose spec.infrastructure.parametersRef istiod rejects, or whose pods block drains.
// istiod reports a rejection only in its log (Istio's pilot/pkg/config/kube/gateway/deploymentcontroller.go).
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
	gateways, more, err := r.gateways(ctx)
	if err != nil || len(gateways) == 0 {
		return gatewayParameters{}, err
	}
	if r.defaults, err = r.classDefaults(ctx, gateways); err != nil {
		return gatewayParameters{}, err
	}
	found := gatewayParameters{}
	for _, gateway := range gateways {
		problem, err := r.problem(ctx, gateway)
		if err != nil {
			found.unread++
			found.why = cmp.Or(found.why, err)
			continue
		}
		found.checked++
		if problem != "" {
			name := text.Line(gateway.Namespace+"/"+gateway.Name, longestParameters)
			found.problems = append(found.problems, gatewayProblem{name, text.Line(problem, longestParameters)})
		}
	}
	if found.unread += more; more > 0 {
		found.why = cmp.Or(found.why, errors.New("there are too many"))
	}
	return found, nil
}

// classes returns the names of hypergate's classes.
func (r *parametersReader) classes(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	err := r.each(ctx, r.ofGatewayAPI("gatewayclasses"), metav1.ListOptions{}, func(u *unstructured.Unstructured) error {
		name, _, _ := unstructured.NestedString(u.Object, "spec", "controllerName")
		if name == r.cfg.ControllerName && len(u.GetName()) <= longestParameters {
			out[u.GetName()] = true
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) { // without the Gateway API, there are none
		return nil, fmt.Errorf("listing gatewayclasses: %w", err)
	}
	return out, nil
}

// gateways returns the first Gateways that istiod makes with parameters, and the number of the others. These are
// Gateways of hypergate's classes.
func (r *parametersReader) gateways(ctx context.Context) (out []gatewayv1.Gateway, more int, err error) {
	ours, err := r.classes(ctx)
	if err != nil || len(ours) == 0 {
		return nil, 0, err
	}
	err = r.each(ctx, r.ofGatewayAPI("gateways"), metav1.ListOptions{}, func(u *unstructured.Unstructured) error {
		var gateway gatewayv1.Gateway
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &gateway); err != nil {
			return fmt.Errorf("gateway %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		}
		switch {
		case !ours[string(gateway.Spec.GatewayClassName)] || !hasParameters(gateway) || isManual(gateway):
		case len(out) == mostParameters:
			more++
		default:
			out = append(out, partOf(gateway))
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, 0, fmt.Errorf("listing gateways: %w", err)
	}
	return out, more, nil
}

// partOf returns the part of a Gateway that is kept. No object has a name that is cut here.
func partOf(gateway gatewayv1.Gateway) gatewayv1.Gateway {
	cut := func(name string) string { return text.Cut(name, longestParameters) }
	out := gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{
		Namespace: cut(gateway.Namespace), Name: cut(gateway.Name), Annotations: map[string]string{},
	}}
	for _, name := range []string{nameAnnotation, accountAnnotation} {
		if value, has := gateway.Annotations[name]; has {
			out.Annotations[name] = cut(value)
		}
	}
	out.Spec.GatewayClassName = gateway.Spec.GatewayClassName // it is that of a class
	ref := gateway.Spec.Infrastructure.ParametersRef
	out.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{
		Group: gatewayv1.Group(cut(string(ref.Group))), Kind: gatewayv1.Kind(cut(string(ref.Kind))), Name: cut(ref.Name),
	}}
	return out
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

// ofGatewayAPI returns a client for a kind of the Gateway API.
func (r *parametersReader) ofGatewayAPI(resource string) dynamic.ResourceInterface {
	return r.client.Resource(schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: resource})
}

// each lists objects in pages, and keeps none of them. A guest that always has another page does not keep the command.
func (r *parametersReader) each(
	ctx context.Context, from dynamic.ResourceInterface, o metav1.ListOptions, do func(*unstructured.Unstructured) error,
) error {
	pages := answers.Pages{Size: parametersPage, Requests: parametersPages}
	err := pages.List(o, func(o metav1.ListOptions) (string, error) {
		page, err := from.List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			if err := do(&page.Items[i]); err != nil {
				return "", err
			}
		}
		return page.GetContinue(), nil
	})
	if errors.Is(err, answers.ErrManyPages) {
		return fmt.Errorf("the list does not end within %d requests", parametersPages)
	}
	return err
}

// classDefaults returns the content of the oldest ConfigMap of each class that has one of these Gateways.
func (r *parametersReader) classDefaults(ctx context.Context, of []gatewayv1.Gateway) (map[string]map[string]string, error) {
	wanted := map[string]bool{}
	for _, gateway := range of {
		wanted[string(gateway.Spec.GatewayClassName)] = true
	}
	type identity struct {
		created time.Time
		name    string
	}
	oldest, out, kept := map[string]identity{}, map[string]map[string]string{}, 0
	o := metav1.ListOptions{LabelSelector: model.ClassDefaultsLabel}
	err := r.each(ctx, r.configMaps(r.cfg.GuestNamespace), o, func(u *unstructured.Unstructured) error {
		class, this := u.GetLabels()[model.ClassDefaultsLabel], identity{u.GetCreationTimestamp().Time, u.GetName()}
		first, has := oldest[class]
		if !wanted[class] || has && cmp.Or(this.created.Compare(first.created), cmp.Compare(this.name, first.name)) >= 0 {
			return nil
		}
		data := dataOf(u)
		if kept += sizeOf(data) - sizeOf(out[class]); kept > mostClassDefaults {
			return fmt.Errorf("those with class defaults have more than %d bytes", mostClassDefaults)
		}
		oldest[class], out[class] = this, data
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing configmaps in %s: %w", r.cfg.GuestNamespace, err)
	}
	return out, nil
}

func sizeOf(data map[string]string) (out int) {
	for key, value := range data {
		out += len(key) + len(value)
	}
	return out
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

// problem returns what is wrong with the parameters of a Gateway, or the empty string.
func (r *parametersReader) problem(ctx context.Context, gateway gatewayv1.Gateway) (string, error) {
	ref := gateway.Spec.Infrastructure.ParametersRef
	if ref.Group != "" || ref.Kind != "ConfigMap" {
		return fmt.Sprintf(rejected+": istiod reads only a ConfigMap, and not a %.64q of group %.64q", ref.Kind, ref.Group), nil
	}
	name := types.NamespacedName{Namespace: gateway.Namespace, Name: ref.Name}
	object, err := r.configMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf(rejected+": ConfigMap %s does not exist", name), nil
	case err != nil:
		return "", fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	class := string(gateway.Spec.GatewayClassName)
	usual := gateway.Name + "-" + class
	into := values.Target{
		Namespace: gateway.Namespace, Defaults: r.defaults[class],
		Names: []string{
			cmp.Or(gateway.Annotations[nameAnnotation], usual), cmp.Or(gateway.Annotations[accountAnnotation], usual),
		},
	}
	if problem := values.ParametersProblem(dataOf(object), into); problem != "" {
		return fmt.Sprintf(rejected+": ConfigMap %s is not valid (%s)", name, problem), nil
	}
	if problem := values.DrainProblem(dataOf(object), into); problem != "" {
		return fmt.Sprintf("a drain of the node of its pod can wait without an end: ConfigMap %s (%s)", name, problem), nil
	}
	return "", nil
}

// rejected is what the rejection of parameters has as its effect.
const rejected = "istiod neither creates nor changes its objects"

// withParameters adds the check of the parameters of Gateways. What is wrong with them is a warning: the users of a
// guest can cause it, and it concerns only their Gateway.
func (r preflightReport) withParameters(found gatewayParameters, err error) preflightReport {
	const name = "parameters of Gateways"
	if err != nil {
		return r.warns(name, "not checked: "+errorText(err))
	}
	for i, problem := range found.problems {
		if i == mostWarnings {
			r = r.warns(name, fmt.Sprintf("%d more Gateways have such parameters", len(found.problems)-i))
			break
		}
		r = r.warns("Gateway "+problem.gateway, problem.text)
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
