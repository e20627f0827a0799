package webhookurl

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Rewrite returns a copy of obj in which every webhook leads to the endpoint: its clientConfig has the URL and the CA
// bundle, and no service. obj has values as JSON decoding creates them. It is not changed.
//
// A service must be the endpoint's, with an accepted port (443 if it has none). Its path is kept exactly. Without a
// path it is "/", which kube-apiserver also uses then.
//
// An existing URL must also be the endpoint's, with or without the default port. It is written in the endpoint's
// form. An existing CA bundle is replaced, whatever its content: the endpoint's server determines it, not the chart.
//
// The error is a *RefusedError that lists the problems of each webhook. Rewrite returns no object then.
func Rewrite(obj *unstructured.Unstructured, endpoint Endpoint) (*unstructured.Unstructured, error) {
	out := obj.DeepCopy()
	err := eachWebhook(out, endpoint, endpoint.rewrite)
	if err == nil {
		// This fails only if there is a bug in this package. The object is not returned then.
		err = Check(out, endpoint)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Check returns an error unless every webhook of obj is in the form that Rewrite writes: no service, a URL in the
// endpoint's own form, and the endpoint's CA bundle. The error is a *RefusedError that lists the problems of each
// webhook.
func Check(obj *unstructured.Unstructured, endpoint Endpoint) error {
	return eachWebhook(obj, endpoint, endpoint.check)
}

// eachWebhook calls visit with every clientConfig of obj, and collects the problems.
func eachWebhook(obj *unstructured.Unstructured, endpoint Endpoint, visit func(config map[string]any) error) error {
	if obj == nil {
		obj = &unstructured.Unstructured{}
	}
	refused := &RefusedError{Kind: obj.GetKind(), Name: obj.GetName()}
	found, err := webhooks(obj)
	if endpoint.base == "" {
		err = errors.Join(err, fmt.Errorf("%w: it is empty, make it with NewEndpoint", ErrEndpoint))
	}
	if err != nil {
		refused.Problems = []Problem{{Err: err}}
	}
	for _, webhook := range found {
		err := fmt.Errorf("%w: clientConfig is missing or not an object", ErrMalformed)
		if config, isObject := webhook.clientConfig.(map[string]any); isObject {
			err = visit(config)
		}
		if err != nil {
			refused.Problems = append(refused.Problems, Problem{Webhook: webhook.name, Err: err})
		}
	}
	if len(refused.Problems) > 0 {
		return refused
	}
	return nil
}

// reference is one webhook of an object. clientConfig is nil if the webhook has none.
type reference struct {
	name         string
	clientConfig any
}

// webhooks returns every place where an object of its kind can have a clientConfig.
func webhooks(obj *unstructured.Unstructured) ([]reference, error) {
	kind, version := obj.GetKind(), obj.GetAPIVersion()
	switch {
	case kind == "MutatingWebhookConfiguration" || kind == "ValidatingWebhookConfiguration":
		if version == "admissionregistration.k8s.io/v1" {
			return admissionWebhooks(obj.Object)
		}
	case kind == "CustomResourceDefinition":
		if version == "apiextensions.k8s.io/v1" {
			return conversionWebhook(obj.Object)
		}
	case kind != "" && !obj.IsList():
		return nil, nil
	}
	return nil, fmt.Errorf(
		"%w: apiVersion %q, kind %q; give single objects, webhooks and CRDs in version v1", ErrUnsupported, version,
		kind,
	)
}

func admissionWebhooks(obj map[string]any) ([]reference, error) {
	items, isList := obj["webhooks"].([]any)
	if !isList && obj["webhooks"] != nil {
		return nil, fmt.Errorf("%w: webhooks is not a list", ErrMalformed)
	}
	found := make([]reference, len(items))
	for i, item := range items {
		// An item that is not an object has no clientConfig, which is an error anyway.
		fields, _ := item.(map[string]any)
		found[i] = reference{name: fmt.Sprintf("webhooks[%d]", i), clientConfig: fields["clientConfig"]}
		if name, _ := fields["name"].(string); name != "" {
			found[i].name = name
		}
	}
	return found, nil
}

func conversionWebhook(obj map[string]any) ([]reference, error) {
	value, _, err := unstructured.NestedFieldNoCopy(obj, "spec", "conversion")
	conversion, isObject := value.(map[string]any)
	if err != nil || !isObject && value != nil {
		return nil, fmt.Errorf("%w: spec or spec.conversion is not an object", ErrMalformed)
	}
	if conversion["webhook"] == nil && conversion["strategy"] != "Webhook" {
		return nil, nil
	}
	fields, _ := conversion["webhook"].(map[string]any)
	return []reference{{name: "conversion", clientConfig: fields["clientConfig"]}}, nil
}

func (e Endpoint) rewrite(config map[string]any) error {
	path, err := e.path(config)
	if err != nil {
		return err
	}
	delete(config, "service")
	config["url"] = e.base + path
	config["caBundle"] = e.caBundle
	return nil
}

func (e Endpoint) check(config map[string]any) error {
	path, err := e.path(config)
	if _, left := config["service"]; err == nil && (left || config["url"] != e.base+path) {
		err = fmt.Errorf("%w: it must have the URL %q and no service", ErrNotRewritten, e.base+path)
	}
	if config["caBundle"] != e.caBundle {
		err = errors.Join(err, fmt.Errorf("%w: it is not the endpoint's", ErrCABundle))
	}
	return err
}

// path returns the path of a webhook if it leads to the endpoint.
func (e Endpoint) path(config map[string]any) (path string, err error) {
	service, rawURL := config["service"], config["url"]
	switch {
	case service != nil && rawURL != nil:
		err = fmt.Errorf("%w: it has both service %q and a URL, remove one of them", ErrMalformed, serviceName(service))
	case service != nil:
		path, err = e.pathOfService(service)
	default:
		path, err = e.pathOfURL(rawURL)
	}
	if path == "" {
		path = "/"
	}
	return path, err
}

func (e Endpoint) pathOfURL(value any) (string, error) {
	rawURL, isString := value.(string)
	if !isString {
		return "", fmt.Errorf("%w: it has neither a service nor a URL that is a string", ErrMalformed)
	}
	at, err := parseURL(rawURL)
	if err == nil && (at.host != e.at.host || at.port != e.at.port) {
		err = fmt.Errorf("%w: the URL leads to %s:%d, not to %s", ErrNotOurs, at.host, at.port, e.base)
	}
	return at.path, err
}

func (e Endpoint) pathOfService(value any) (string, error) {
	if name := serviceName(value); name != e.service {
		return "", fmt.Errorf("%w: service %q is not %q; leave its webhook out or route it elsewhere", ErrNotOurs, name, e.service)
	}
	service, _ := value.(map[string]any)
	var errs []error
	for _, field := range slices.Sorted(maps.Keys(service)) {
		if !slices.Contains([]string{"namespace", "name", "path", "port"}, field) {
			errs = append(errs, fmt.Errorf("%w: service has the field %q, which a URL cannot express", ErrMalformed, field))
		}
	}
	if !e.accepts(service["port"]) {
		errs = append(errs, fmt.Errorf("%w: service port %#v is not among the accepted ones, %d", ErrNotOurs, service["port"], e.ports))
	}
	path, isString := service["path"].(string)
	if !isString && service["path"] != nil {
		errs = append(errs, fmt.Errorf("%w: service path is not a string", ErrMalformed))
	}
	return path, errors.Join(append(errs, checkPath(path))...)
}

// accepts compares ports as float64, which represents every port exactly: apimachinery decodes a number as int64,
// encoding/json as float64.
func (e Endpoint) accepts(port any) bool {
	number := float64(defaultPort)
	switch value := port.(type) {
	case nil:
	case int64:
		number = float64(value)
	case float64:
		number = value
	default:
		return false
	}
	return slices.ContainsFunc(e.ports, func(accepted int32) bool { return float64(accepted) == number })
}

// serviceName returns the namespace and name of a service reference. A part that is missing or not a string is empty.
func serviceName(value any) types.NamespacedName {
	service, _ := value.(map[string]any)
	namespace, _ := service["namespace"].(string)
	name, _ := service["name"].(string)
	return types.NamespacedName{Namespace: namespace, Name: name}
}
