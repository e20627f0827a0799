package webhookurl_test

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/webhookurl"
)

// The chart's webhook names a Service of the guest. istiod runs elsewhere, so the guest's API server needs a URL.
func ExampleRewrite() {
	ca, err := pki.New(time.Now())
	if err != nil {
		panic(err)
	}
	service := types.NamespacedName{Namespace: "openshift-ingress", Name: "istiod"}
	endpoint, err := webhookurl.NewEndpoint(service, "https://gw-webhook", ca.Root, 443)
	if err != nil {
		panic(err)
	}
	webhook := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "istio-validator"},
		"webhooks": []any{map[string]any{
			"name": "validation.istio.io",
			"clientConfig": map[string]any{
				"service": map[string]any{"namespace": service.Namespace, "name": service.Name, "path": "/validate"},
			},
		}},
	}}
	rewritten, err := webhookurl.Rewrite(webhook, endpoint)
	if err != nil {
		panic(err)
	}
	webhooks, _, _ := unstructured.NestedSlice(rewritten.Object, "webhooks")
	url, _, _ := unstructured.NestedString(webhooks[0].(map[string]any), "clientConfig", "url")
	fmt.Println(url)
	// Output: https://gw-webhook/validate
}
