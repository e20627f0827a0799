package webhookurl_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserverwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/hypergate/hypergate/pkg/webhookurl"
)

// wantSound checks the properties of every rewritten object, independently of how the package itself reads objects.
func wantSound(tb testing.TB, in, out *unstructured.Unstructured, endpoint webhookurl.Endpoint) {
	tb.Helper()
	if err := webhookurl.Check(out, endpoint); err != nil {
		tb.Fatalf("Check refuses what Rewrite made: %v", err)
	}
	again, err := webhookurl.Rewrite(out, endpoint)
	if err != nil {
		tb.Fatalf("Rewrite refuses what it made: %v", err)
	}
	if diff := cmp.Diff(out, again); diff != "" {
		tb.Fatalf("rewriting twice changes it again:\n%s", diff)
	}
	if diff := cmp.Diff(withoutTargets(in), withoutTargets(out)); diff != "" {
		tb.Fatalf("more than the targets changed:\n%s", diff)
	}
	configs, err := typedClientConfigs(out)
	if err != nil {
		tb.Fatalf("the API's types cannot hold it: %v", err)
	}
	for _, config := range configs {
		if config.Service != nil || config.URL == nil {
			tb.Fatalf("got service %v, URL %v", config.Service, config.URL)
		}
		if errs := kubeAPIServerRefuses(*config.URL); len(errs) > 0 || !strings.HasPrefix(*config.URL, endpoint.Base()+"/") {
			tb.Fatalf("URL %s does not begin with %s/, or kube-apiserver refuses it: %v", *config.URL, endpoint.Base(), errs)
		}
		if !bytes.Equal(config.CABundle, caPEM(tb)) {
			tb.Fatalf("got CA bundle %q", config.CABundle)
		}
	}
}

// typedClientConfigs decodes an object with the API's own types and encodes it again. It returns its client
// configurations.
func typedClientConfigs(obj *unstructured.Unstructured) ([]admissionregistrationv1.WebhookClientConfig, error) {
	data, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var configs []admissionregistrationv1.WebhookClientConfig
	switch obj.GetKind() {
	case "MutatingWebhookConfiguration":
		var typed admissionregistrationv1.MutatingWebhookConfiguration
		err = decodeBothWays(data, &typed)
		for _, webhook := range typed.Webhooks {
			configs = append(configs, webhook.ClientConfig)
		}
	case "ValidatingWebhookConfiguration":
		var typed admissionregistrationv1.ValidatingWebhookConfiguration
		err = decodeBothWays(data, &typed)
		for _, webhook := range typed.Webhooks {
			configs = append(configs, webhook.ClientConfig)
		}
	case "CustomResourceDefinition":
		var typed apiextensionsv1.CustomResourceDefinition
		err = decodeBothWays(data, &typed)
		if typed.Spec.Conversion != nil && typed.Spec.Conversion.Webhook != nil {
			config := typed.Spec.Conversion.Webhook.ClientConfig
			configs = append(configs, admissionregistrationv1.WebhookClientConfig{URL: config.URL, CABundle: config.CABundle})
			if config.Service != nil {
				configs[0].Service = &admissionregistrationv1.ServiceReference{}
			}
		}
	}
	return configs, err
}

// decodeBothWays decodes data into a typed object, encodes that, and checks that decoding it again gives the same. It
// decodes as API servers do: field names are case-sensitive.
func decodeBothWays[T any](data []byte, typed *T) error {
	if err := json.Unmarshal(data, typed); err != nil {
		return err
	}
	encoded, err := json.Marshal(typed)
	if err != nil {
		return err
	}
	var again T
	if err := json.Unmarshal(encoded, &again); err != nil {
		return err
	}
	if !reflect.DeepEqual(typed, &again) {
		return fmt.Errorf("round trip changes it:\n%s", cmp.Diff(typed, &again))
	}
	return nil
}

// withoutTargets copies an object without the three fields that Rewrite writes, at the places where it writes them.
func withoutTargets(obj *unstructured.Unstructured) map[string]any {
	out := obj.DeepCopy().Object
	strip := func(holder any) {
		if fields, ok := holder.(map[string]any); ok {
			if config, ok := fields["clientConfig"].(map[string]any); ok {
				delete(config, "service")
				delete(config, "url")
				delete(config, "caBundle")
			}
		}
	}
	switch obj.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		webhooks, _ := out["webhooks"].([]any)
		for _, webhook := range webhooks {
			strip(webhook)
		}
	case "CustomResourceDefinition":
		webhook, _, _ := unstructured.NestedFieldNoCopy(out, "spec", "conversion", "webhook")
		strip(webhook)
	}
	return out
}

// generator creates client configurations together with the expected result for each.
type generator struct{ *rand.Rand }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func (g generator) path() (path string, sound bool) {
	if g.IntN(4) == 0 {
		return pick(
			g, "validate", "/a?b", "/a#b", "/../a", "/a/..", "/./a", "//", "/a//b", "/%61", "/a b", "/ß", "/a\\b",
			"@h/", "/\x00",
		), false
	}
	path = "/"
	for range g.IntN(4) {
		segment := pick(g, "validate", "inject", "cluster", "Kubernetes", ":ENV:cluster=a", "a.b", "...", "~", "v1", "x_y")
		path += segment + "/"
	}
	if len(path) > 1 && g.IntN(3) > 0 {
		path = strings.TrimSuffix(path, "/")
	}
	return path, true
}

func (g generator) port() (port any, sound bool) {
	if g.IntN(5) == 0 {
		return pick[any](g, int64(80), int64(0), int64(-443), int64(1<<32+443), 443.25, "443", true, map[string]any{}), false
	}
	return pick[any](g, nil, int64(443), int64(8443), float64(443)), true
}

// config returns a client configuration and the expected URL, or "" if it must be refused.
func (g generator) config() (config map[string]any, want string) {
	config = map[string]any{}
	if g.IntN(2) == 0 {
		config["caBundle"] = pick[any](g, nil, "", "b2xk", "no base64", int64(1))
	}
	if g.IntN(3) == 0 {
		config["unknown"] = map[string]any{"a": []any{int64(1), "b", nil}}
	}
	path, pathSound := g.path()
	if g.IntN(8) == 0 {
		path, pathSound = "", true
	}
	switch g.IntN(8) {
	case 0, 1, 2: // a URL
		origin := pick(
			g, base, "https://istiod-openshift-gateway", "https://istiod-openshift-gateway:8443",
			"https://evil.example", "http://istiod-openshift-gateway",
		)
		config["url"] = origin + path
		if !pathSound || !strings.HasPrefix(base, origin) || path != "" && path[0] != '/' {
			return config, ""
		}
	case 3: // nothing usable
		return pick(
			g, config, map[string]any{"url": "https://a/", "service": map[string]any{"name": "b"}},
			map[string]any{"service": nil}, nil,
		), ""
	default:
		port, portSound := g.port()
		reference := map[string]any{"namespace": service.Namespace, "name": service.Name, "port": port}
		config["service"] = reference
		if path != "" || g.IntN(2) == 0 {
			reference["path"] = path
		}
		if g.IntN(6) == 0 {
			reference[pick(g, "namespace", "name")] = pick[any](g, "other", "", nil, int64(1))
			return config, ""
		}
		if !pathSound || !portSound {
			return config, ""
		}
	}
	if path == "" {
		path = "/"
	}
	return config, base + path
}

// object returns an object, the expected result, and the names of the webhooks that must be refused.
func (g generator) object(ca string) (in, want *unstructured.Unstructured, refused []string) {
	holder := func(config map[string]any) map[string]any {
		if config == nil {
			return map[string]any{"sideEffects": "None"}
		}
		return map[string]any{"clientConfig": config, "sideEffects": "None", "timeoutSeconds": int64(g.IntN(30))}
	}
	rewrite := func(name string, fields map[string]any, url string) {
		if url == "" {
			refused = append(refused, name)
			return
		}
		config := fields["clientConfig"].(map[string]any)
		delete(config, "service")
		config["url"], config["caBundle"] = url, ca
	}
	object := map[string]any{"metadata": map[string]any{"name": "generated", "labels": map[string]any{"a": "b"}}}
	in = &unstructured.Unstructured{Object: object}
	if g.IntN(4) == 0 {
		in.SetAPIVersion("apiextensions.k8s.io/v1")
		in.SetKind("CustomResourceDefinition")
		config, url := g.config()
		object["spec"] = map[string]any{"group": "a", "conversion": map[string]any{"strategy": "Webhook", "webhook": holder(config)}}
		want = in.DeepCopy()
		fields, _, _ := unstructured.NestedFieldNoCopy(want.Object, "spec", "conversion", "webhook")
		rewrite("conversion", fields.(map[string]any), url)
		return in, want, refused
	}
	in.SetAPIVersion("admissionregistration.k8s.io/v1")
	in.SetKind(pick(g, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"))
	var urls []string
	var webhooks []any
	for i := range g.IntN(5) {
		config, url := g.config()
		fields := holder(config)
		fields["name"] = fmt.Sprintf("%c%d.example.test", 'z'-g.IntN(3), i)
		webhooks, urls = append(webhooks, fields), append(urls, url)
	}
	object["webhooks"] = webhooks
	want = in.DeepCopy()
	copied, _ := want.Object["webhooks"].([]any)
	for i, webhook := range copied {
		fields := webhook.(map[string]any)
		rewrite(fields["name"].(string), fields, urls[i])
	}
	return in, want, refused
}

// TestAnyObject rewrites generated objects. Each must either be refused with exactly its bad webhooks, or give the
// expected result.
func TestAnyObject(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(29, 29))}
	endpoint, ca := newEndpoint(t, base), caBase64(t)
	refusals, webhooks := 0, 0
	for i := range 4000 {
		in, want, refused := g.object(ca)
		before := in.DeepCopy()
		out, err := webhookurl.Rewrite(in, endpoint)
		if diff := cmp.Diff(before, in); diff != "" {
			t.Fatalf("object %d was written to:\n%s", i, diff)
		}
		if len(refused) > 0 {
			problems := wantRefused(t, err, in.GetKind(), "generated")
			names := make([]string, len(problems))
			for i, problem := range problems {
				names[i] = problem.Webhook
			}
			if diff := cmp.Diff(refused, names); diff != "" {
				t.Fatalf("object %d %v: refused webhooks, -want +got:\n%s", i, in, diff)
			}
			refusals++
			continue
		}
		if err != nil {
			t.Fatalf("object %d %v: %v", i, in, err)
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Fatalf("object %d, -want +got:\n%s", i, diff)
		}
		wantSound(t, in, out, endpoint)
		configs, _ := typedClientConfigs(out)
		webhooks += len(configs)
	}
	if accepted := 4000 - refusals; refusals < 1000 || accepted < 1000 || webhooks < 500 {
		t.Errorf("the generator is lopsided: %d refused, %d accepted with %d webhooks", refusals, accepted, webhooks)
	}
}

// TestPathIsWhatKubeAPIServerCalls uses kube-apiserver's own webhook client. It compares the request path for a
// service with the request path for the URL that replaces it.
func TestPathIsWhatKubeAPIServerCalls(t *testing.T) {
	manager, err := apiserverwebhook.NewClientManager(nil)
	if err != nil {
		t.Fatal(err)
	}
	authentication, err := apiserverwebhook.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	manager.SetAuthenticationInfoResolver(authentication)
	manager.SetServiceResolver(apiserverwebhook.NewDefaultServiceResolver())
	called := func(config apiserverwebhook.ClientConfig) string {
		config.CABundle = caPEM(t)
		client, err := manager.HookClient(config)
		if err != nil {
			t.Fatal(err)
		}
		return client.Post().URL().Path
	}

	g := generator{rand.New(rand.NewPCG(3, 3))}
	endpoint := newEndpoint(t, base)
	paths := []string{"", "/", "/validate", "/inject/cluster/Kubernetes/net/default"}
	for range 300 {
		if path, sound := g.path(); sound {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		out, err := webhookurl.Rewrite(validating(t, `{service: {`+ours+`, path: "`+path+`"}}`), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		configs, err := typedClientConfigs(out)
		if err != nil {
			t.Fatal(err)
		}
		asService := called(apiserverwebhook.ClientConfig{Service: &apiserverwebhook.ClientConfigService{
			Namespace: service.Namespace, Name: service.Name, Path: path,
		}})
		if asURL := called(apiserverwebhook.ClientConfig{URL: *configs[0].URL}); asURL != asService {
			t.Errorf("path %q: called as %q by service, as %q by URL", path, asService, asURL)
		}
	}
}

// TestServicePathsOfKubeAPIServerAreAccepted checks that each path that kube-apiserver accepts for a service is
// accepted here.
func TestServicePathsOfKubeAPIServerAreAccepted(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	endpoint := newEndpoint(t, base)
	accepted := 0
	for range 5000 {
		path := make([]byte, random.IntN(7))
		for i := range path {
			path[i] = "//ab.-.0A%?"[random.IntN(11)]
		}
		errs := apiserverwebhook.ValidateWebhookService(field.NewPath("service"), service.Namespace, service.Name, new(string(path)), 443)
		if len(errs) > 0 {
			continue
		}
		accepted++
		if _, err := webhookurl.Rewrite(validating(t, `{service: {`+ours+`, path: "`+string(path)+`"}}`), endpoint); err != nil {
			t.Errorf("kube-apiserver takes path %q: %v", path, err)
		}
	}
	if accepted < 100 {
		t.Errorf("kube-apiserver took only %d generated paths", accepted)
	}
}
