package webhookurl_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/webhookurl"
	"github.com/hypergate/hypergate/test/fromyaml"
)

const ours = "namespace: openshift-ingress, name: istiod-openshift-gateway"

func TestRewriteOfOneClientConfig(t *testing.T) {
	for name, test := range map[string]struct {
		base, config, want string // an empty base means the common one; want is the URL
	}{
		"path":                 {config: `{service: {` + ours + `, path: /validate, port: 443}}`, want: base + "/validate"},
		"no port":              {config: `{service: {` + ours + `, path: /validate}}`, want: base + "/validate"},
		"null port and path":   {config: `{service: {` + ours + `, path: null, port: null}}`, want: base + "/"},
		"second accepted port": {config: `{service: {` + ours + `, port: 8443}}`, want: base + "/"},
		"port as float":        {config: `{service: {` + ours + `, port: 8443.0}}`, want: base + "/"},
		"no path":              {config: `{service: {` + ours + `}}`, want: base + "/"},
		"empty path":           {config: `{service: {` + ours + `, path: ""}}`, want: base + "/"},
		"slash":                {config: `{service: {` + ours + `, path: /}}`, want: base + "/"},
		"trailing slash":       {config: `{service: {` + ours + `, path: /a/}}`, want: base + "/a/"},
		"path that only a URL has": {
			config: `{service: {` + ours + `, path: "/inject/:ENV:cluster=a"}}`,
			want:   base + "/inject/:ENV:cluster=a",
		},
		"null url beside service":   {config: `{url: null, service: {` + ours + `}}`, want: base + "/"},
		"old CA bundle":             {config: `{caBundle: b2xk, service: {` + ours + `}}`, want: base + "/"},
		"CA bundle of another type": {config: `{caBundle: [1], service: {` + ours + `}}`, want: base + "/"},
		"base without port":         {base: "https://istiod", config: `{service: {` + ours + `, path: /v}}`, want: "https://istiod/v"},
		"base is an IPv6 address": {
			base: "https://[fd00::1]:15017", config: `{service: {` + ours + `, path: /v}}`,
			want: "https://[fd00::1]:15017/v",
		},
		"url":                      {config: `{url: "` + base + `/validate"}`, want: base + "/validate"},
		"url without path":         {config: `{url: "` + base + `"}`, want: base + "/"},
		"url without default port": {config: `{url: "https://istiod-openshift-gateway/validate"}`, want: base + "/validate"},
		"default port, base without": {
			base: "https://istiod", config: `{url: "https://istiod:443/validate"}`, want: "https://istiod/validate",
		},
		"both without port":         {base: "https://istiod", config: `{url: "https://istiod/validate"}`, want: "https://istiod/validate"},
		"IPv6 without default port": {base: "https://[::1]:443", config: `{url: "https://[::1]/a"}`, want: "https://[::1]:443/a"},
		"null service beside url":   {config: `{service: null, url: "` + base + `/a"}`, want: base + "/a"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.base == "" {
				test.base = base
			}
			endpoint := newEndpoint(t, test.base)
			in := validating(t, test.config)
			out, err := webhookurl.Rewrite(in, endpoint)
			if err != nil {
				t.Fatal(err)
			}
			want := validating(t, `{url: "`+test.want+`", caBundle: `+caBase64(t)+`}`)
			if diff := cmp.Diff(want, out); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(validating(t, test.config), in); diff != "" {
				t.Errorf("the input was written to:\n%s", diff)
			}
		})
	}
}

// refusedCase is a clientConfig, the error that it leads to, and a part of its text.
type refusedCase struct {
	config string
	want   error
	text   string
}

// TestRewriteRefusesOneClientConfig checks a clientConfig with a service or with a port that is not ours.
func TestRewriteRefusesOneClientConfig(t *testing.T) {
	checkRefused(t, map[string]refusedCase{
		"null":             {`null`, webhookurl.ErrMalformed, "missing or not an object"},
		"list":             {`[]`, webhookurl.ErrMalformed, "missing or not an object"},
		"neither":          {`{}`, webhookurl.ErrMalformed, "neither"},
		"only a CA bundle": {`{caBundle: b2xk}`, webhookurl.ErrMalformed, "neither"},
		"both, both ours": {
			`{url: "` + base + `/a", service: {` + ours + `}}`, webhookurl.ErrMalformed,
			`both service "openshift-ingress/istiod-openshift-gateway"`,
		},
		"empty url + service": {`{url: "", service: {` + ours + `}}`, webhookurl.ErrMalformed, "both"},

		"service of another name": {
			`{service: {namespace: openshift-ingress, name: istiod}}`, webhookurl.ErrNotOurs,
			`"openshift-ingress/istiod" is not "openshift-ingress/istiod-openshift-gateway"`,
		},
		"service elsewhere": {
			`{service: {namespace: clusters-guest1, name: istiod-openshift-gateway}}`, webhookurl.ErrNotOurs,
			`"clusters-guest1/istiod-openshift-gateway"`,
		},
		"service in upper case": {
			`{service: {namespace: openshift-ingress, name: Istiod-openshift-gateway}}`, webhookurl.ErrNotOurs,
			"Istiod",
		},
		"service without a namespace": {
			`{service: {name: istiod-openshift-gateway}}`, webhookurl.ErrNotOurs, `"/istiod-openshift-gateway"`,
		},
		"service with all in its name": {
			`{service: {name: openshift-ingress/istiod-openshift-gateway}}`, webhookurl.ErrNotOurs,
			`"/openshift-ingress/`,
		},
		"empty service":       {`{service: {}}`, webhookurl.ErrNotOurs, `"/"`},
		"service is a string": {`{service: istiod-openshift-gateway}`, webhookurl.ErrNotOurs, `"/"`},
		"service name is a number": {
			`{service: {namespace: openshift-ingress, name: 1}}`, webhookurl.ErrNotOurs, `"openshift-ingress/"`,
		},
		"service has unknown fields": {`{service: {` + ours + `, weight: 1}}`, webhookurl.ErrMalformed, `"weight"`},

		"port not accepted": {
			`{service: {` + ours + `, port: 15017}}`, webhookurl.ErrNotOurs,
			"port 15017 is not among the accepted ones, [443 8443]",
		},
		"port 0":                  {`{service: {` + ours + `, port: 0}}`, webhookurl.ErrNotOurs, "port 0"},
		"negative port":           {`{service: {` + ours + `, port: -443}}`, webhookurl.ErrNotOurs, "port -443"},
		"port is a string":        {`{service: {` + ours + `, port: "443"}}`, webhookurl.ErrNotOurs, `port "443"`},
		"port is 443 in 32 bits":  {`{service: {` + ours + `, port: 4294967739}}`, webhookurl.ErrNotOurs, "port 4294967739"},
		"port is not whole":       {`{service: {` + ours + `, port: 443.5}}`, webhookurl.ErrNotOurs, "port 443.5"},
		"port beyond all numbers": {`{service: {` + ours + `, port: 1e300}}`, webhookurl.ErrNotOurs, "port 1e+300"},
	})
}

// TestRewriteRefusesPathsAndURLs checks a clientConfig with a path or a URL that cannot be used.
func TestRewriteRefusesPathsAndURLs(t *testing.T) {
	checkRefused(t, map[string]refusedCase{
		"path is a number":   {`{service: {` + ours + `, path: 1}}`, webhookurl.ErrMalformed, "path is not a string"},
		"path without slash": {`{service: {` + ours + `, path: validate}}`, webhookurl.ErrInvalidURL, `"validate"`},
		"path would change the host": {
			`{service: {` + ours + `, path: .example.com/}}`, webhookurl.ErrInvalidURL,
			"does not begin with a slash",
		},
		"path would change the port": {`{service: {` + ours + `, path: "0/"}}`, webhookurl.ErrInvalidURL, "does not begin with a slash"},
		"path makes host a user": {
			`{service: {` + ours + `, path: "@example.com/"}}`, webhookurl.ErrInvalidURL,
			"does not begin with a slash",
		},
		"path with query":            {`{service: {` + ours + `, path: "/a?b"}}`, webhookurl.ErrInvalidURL, `at "?"`},
		"path with fragment":         {`{service: {` + ours + `, path: "/a#b"}}`, webhookurl.ErrInvalidURL, `at "#"`},
		"path with dots":             {`{service: {` + ours + `, path: "/a/../b"}}`, webhookurl.ErrInvalidURL, "segment"},
		"path with an escape":        {`{service: {` + ours + `, path: "/a%2fb"}}`, webhookurl.ErrInvalidURL, `at "%"`},
		"path with an empty segment": {`{service: {` + ours + `, path: "//evil"}}`, webhookurl.ErrInvalidURL, "segment"},
		"path with a line break":     {`{service: {` + ours + `, path: "/a\nb"}}`, webhookurl.ErrInvalidURL, `"/a\nb"`},
		"path with Unicode":          {`{service: {` + ours + `, path: "/ä"}}`, webhookurl.ErrInvalidURL, "ä"},
		"url is a number":            {`{url: 1}`, webhookurl.ErrMalformed, "neither"},
		"url is empty":               {`{url: ""}`, webhookurl.ErrInvalidURL, "use https"},
		"url not https":              {`{url: "http://istiod-openshift-gateway:443/"}`, webhookurl.ErrInvalidURL, "use https"},
		"url with query":             {`{url: "` + base + `/a?b=c"}`, webhookurl.ErrInvalidURL, "query"},
		"url with fragment":          {`{url: "` + base + `/a#b"}`, webhookurl.ErrInvalidURL, "fragment"},
		"url with user":              {`{url: "https://a@istiod-openshift-gateway:443/"}`, webhookurl.ErrInvalidURL, "user information"},
		"url with our host as user": {
			`{url: "https://istiod-openshift-gateway:443@evil.example/"}`, webhookurl.ErrInvalidURL,
			"user information",
		},
		"url of another host": {
			`{url: "https://istiod.example/validate"}`, webhookurl.ErrNotOurs,
			"leads to istiod.example:443, not to " + base,
		},
		"url of a longer host": {
			`{url: "https://istiod-openshift-gateway.example/"}`, webhookurl.ErrNotOurs,
			"istiod-openshift-gateway.example:443",
		},
		"url of the in-cluster name": {
			`{url: "https://istiod-openshift-gateway.openshift-ingress.svc/validate"}`, webhookurl.ErrNotOurs,
			".openshift-ingress.svc:443",
		},
		"url with an absolute name": {`{url: "https://istiod-openshift-gateway.:443/"}`, webhookurl.ErrInvalidURL, "not a DNS name"},
		"url in upper case":         {`{url: "https://ISTIOD-openshift-gateway:443/"}`, webhookurl.ErrInvalidURL, "not a DNS name"},
		"url with another port": {
			`{url: "https://istiod-openshift-gateway:15017/"}`, webhookurl.ErrNotOurs,
			"istiod-openshift-gateway:15017",
		},
		"url with a service port": {
			`{url: "https://istiod-openshift-gateway:8443/"}`, webhookurl.ErrNotOurs,
			"istiod-openshift-gateway:8443",
		},
		"url's port begins like ours":  {`{url: "` + base + `3/"}`, webhookurl.ErrNotOurs, ":4433"},
		"url with a placeholder":       {`{url: "https://{{ .Host }}/"}`, webhookurl.ErrInvalidURL, ""},
		"null service and null url":    {`{service: null, url: null}`, webhookurl.ErrMalformed, "neither"},
		"service of another, bad path": {`{service: {namespace: a, name: b, path: "?"}}`, webhookurl.ErrNotOurs, `"a/b"`},
	})
}

func checkRefused(t *testing.T, cases map[string]refusedCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			in := validating(t, test.config)
			for verb, err := range map[string]error{
				"Rewrite": func() error { _, err := webhookurl.Rewrite(in, newEndpoint(t, base)); return err }(),
				"Check":   webhookurl.Check(in, newEndpoint(t, base)),
			} {
				problems := wantRefused(t, err, "ValidatingWebhookConfiguration", "config")
				if len(problems) != 1 || problems[0].Webhook != "first" {
					t.Errorf("%s: got %v, want one problem of webhook first", verb, problems)
				}
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: got %v, want %v with %q, on one line", verb, err, test.want, test.text)
				}
			}
			if out, _ := webhookurl.Rewrite(in, newEndpoint(t, base)); out != nil {
				t.Errorf("got an object together with the error: %v", out)
			}
		})
	}
}

// TestErrorListsAllProblems checks a whole error text.
func TestErrorListsAllProblems(t *testing.T) {
	in := fromyaml.Object(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: injector}
webhooks:
- {name: a.example.test, clientConfig: {service: {`+ours+`, path: "?", port: 1}}}
- {name: fine.example.test, clientConfig: {service: {`+ours+`}}}
- {clientConfig: {service: {namespace: other, name: server}}}
- not an object
`)
	_, err := webhookurl.Rewrite(in, newEndpoint(t, base))
	want := `MutatingWebhookConfiguration "injector" is refused: ` +
		`webhook "a.example.test": webhook does not lead to the endpoint: service port 1 is not among the accepted ones, [443 8443]; ` +
		`URL is not valid for a webhook: path "?" does not begin with a slash; ` +
		`webhook "webhooks[2]": webhook does not lead to the endpoint: service "other/server" is not ` +
		`"openshift-ingress/istiod-openshift-gateway"; leave its webhook out or route it elsewhere; ` +
		`webhook "webhooks[3]": object is malformed: clientConfig is missing or not an object`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if problems := wantRefused(t, err, "MutatingWebhookConfiguration", "injector"); len(problems) != 3 {
		t.Errorf("got %d problems, want one for each bad webhook: %v", len(problems), problems)
	}
}

// TestCheck checks what only Check refuses. TestRewriteRefusesOneClientConfig has the cases that both refuse.
func TestCheck(t *testing.T) {
	ca := `, caBundle: ` + caBase64(t) + `}`
	for name, test := range map[string]struct {
		config string
		want   []error // empty if the webhook is rewritten
	}{
		"rewritten":           {config: `{url: "` + base + `/a"` + ca},
		"other fields":        {config: `{more: true, url: "` + base + `/"` + ca},
		"our service":         {`{service: {` + ours + `}` + ca, []error{webhookurl.ErrNotRewritten}},
		"null service":        {`{service: null, url: "` + base + `/a"` + ca, []error{webhookurl.ErrNotRewritten}},
		"url without port":    {`{url: "https://istiod-openshift-gateway/a"` + ca, []error{webhookurl.ErrNotRewritten}},
		"url without path":    {`{url: "` + base + `"` + ca, []error{webhookurl.ErrNotRewritten}},
		"no CA bundle":        {`{url: "` + base + `/a"}`, []error{webhookurl.ErrCABundle}},
		"empty CA bundle":     {`{url: "` + base + `/a", caBundle: ""}`, []error{webhookurl.ErrCABundle}},
		"another CA bundle":   {`{url: "` + base + `/a", caBundle: b2xk}`, []error{webhookurl.ErrCABundle}},
		"CA bundle a list":    {`{url: "` + base + `/a", caBundle: []}`, []error{webhookurl.ErrCABundle}},
		"all of it":           {`{service: {` + ours + `}}`, []error{webhookurl.ErrNotRewritten, webhookurl.ErrCABundle}},
		"foreign, and the CA": {`{service: {namespace: a, name: b}}`, []error{webhookurl.ErrNotOurs, webhookurl.ErrCABundle}},
	} {
		t.Run(name, func(t *testing.T) {
			err := webhookurl.Check(validating(t, test.config), newEndpoint(t, base))
			if len(test.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, want := range test.want {
				problems := wantRefused(t, err, "ValidatingWebhookConfiguration", "config")
				if len(problems) != 1 || !errors.Is(err, want) {
					t.Errorf("got %v, want one problem with %v", err, want)
				}
			}
		})
	}
}

func TestObjectsWithoutWebhooks(t *testing.T) {
	for name, text := range map[string]string{
		"no webhooks":      `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: a}}`,
		"null webhooks":    `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: null}`,
		"empty webhooks":   `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: []}`,
		"CRD":              `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {group: a}}`,
		"CRD without spec": `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}}`,
		"CRD, spec null":   `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: null}`,
		"CRD, strategy None": `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: ` +
			`{conversion: {strategy: None}}}`,
		"CRD, webhook null": `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: ` +
			`{conversion: {strategy: None, webhook: null}}}`,
		"other kind":          `{apiVersion: v1, kind: Service, metadata: {name: a}, webhooks: [{clientConfig: {service: {}}}]}`,
		"admission policy":    `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, spec: {validations: []}}`,
		"kind ending in List": `{apiVersion: example.test/v1, kind: AllowList, spec: {items: []}}`,
	} {
		t.Run(name, func(t *testing.T) {
			in := fromyaml.Object(t, text)
			out, err := webhookurl.Rewrite(in, newEndpoint(t, base))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fromyaml.Object(t, text), out); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			out.SetLabels(map[string]string{"a": "b"})
			if diff := cmp.Diff(fromyaml.Object(t, text), in); diff != "" {
				t.Errorf("the result shares data with the input:\n%s", diff)
			}
		})
	}
}

func TestRefusedObjects(t *testing.T) {
	service := `clientConfig: {service: {` + ours + `}}`
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"webhooks an object": {
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: {a: {` + service + `}}}`,
			webhookurl.ErrMalformed,
		},
		"webhooks a string": {
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: a}`,
			webhookurl.ErrMalformed,
		},
		"v1beta1": {
			`{apiVersion: admissionregistration.k8s.io/v1beta1, kind: MutatingWebhookConfiguration}`,
			webhookurl.ErrUnsupported,
		},
		"no group":      {`{apiVersion: v1, kind: ValidatingWebhookConfiguration}`, webhookurl.ErrUnsupported},
		"no apiVersion": {`{kind: ValidatingWebhookConfiguration}`, webhookurl.ErrUnsupported},
		"another group": {`{apiVersion: example.test/v1, kind: CustomResourceDefinition}`, webhookurl.ErrUnsupported},
		"CRD v1beta1": {
			`{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition, spec: {conversion: {webhookClientConfig: {}}}}`,
			webhookurl.ErrUnsupported,
		},
		"List": {`{apiVersion: v1, kind: List, items: []}`, webhookurl.ErrUnsupported},
		"list of configurations": {
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfigurationList, items: []}`,
			webhookurl.ErrUnsupported,
		},
		"CRD, spec a list": {
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: []}`,
			webhookurl.ErrMalformed,
		},
		"CRD, conversion a string": {
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {conversion: Webhook}}`,
			webhookurl.ErrMalformed,
		},
		"CRD, webhook missing": {
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {conversion: {strategy: Webhook}}}`,
			webhookurl.ErrMalformed,
		},
		"CRD, webhook a string": {
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {conversion: {strategy: None, webhook: a}}}`,
			webhookurl.ErrMalformed,
		},
		"CRD, no clientConfig": {
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {conversion: {strategy: Webhook, webhook: {}}}}`,
			webhookurl.ErrMalformed,
		},
		"CRD, None, but a webhook": {
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {conversion: ` +
				`{strategy: None, webhook: {clientConfig: {service: {}}}}}}`,
			webhookurl.ErrNotOurs,
		},
		"CRD, foreign webhook": {
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {conversion: ` +
				`{strategy: Webhook, webhook: {clientConfig: {service: {namespace: a, name: b}}}}}}`,
			webhookurl.ErrNotOurs,
		},
	} {
		t.Run(name, func(t *testing.T) {
			// UnmarshalJSON refuses some of these objects itself, and decodes lists as another type.
			wrapper := fromyaml.Object(t, `{kind: Wrapper, object: `+test.text+`}`)
			in := &unstructured.Unstructured{Object: wrapper.Object["object"].(map[string]any)}
			out, err := webhookurl.Rewrite(in, newEndpoint(t, base))
			wantRefused(t, err, in.GetKind(), "")
			if out != nil || !errors.Is(err, test.want) {
				t.Errorf("got %v and %v, want no object and %v", out, err, test.want)
			}
			if err := webhookurl.Check(in, newEndpoint(t, base)); !errors.Is(err, test.want) {
				t.Errorf("Check: got %v, want %v", err, test.want)
			}
		})
	}
}

func TestMissingInput(t *testing.T) {
	for name, in := range map[string]*unstructured.Unstructured{"nil": nil, "nil object": {}, "empty": {Object: map[string]any{}}} {
		if out, err := webhookurl.Rewrite(in, newEndpoint(t, base)); out != nil || !errors.Is(err, webhookurl.ErrUnsupported) {
			t.Errorf("Rewrite of %s: got %v and %v, want ErrUnsupported", name, out, err)
		}
		if err := webhookurl.Check(in, newEndpoint(t, base)); !errors.Is(err, webhookurl.ErrUnsupported) {
			t.Errorf("Check of %s: got %v, want ErrUnsupported", name, err)
		}
	}
	for name, in := range map[string]*unstructured.Unstructured{
		"webhook":        validating(t, `{url: "https://a/"}`),
		"other kind":     fromyaml.Object(t, `{apiVersion: v1, kind: Service, metadata: {name: config}}`),
		"zero's service": validating(t, `{service: {}}`),
	} {
		if out, err := webhookurl.Rewrite(in, webhookurl.Endpoint{}); out != nil || !errors.Is(err, webhookurl.ErrEndpoint) {
			t.Errorf("zero endpoint, %s: got %v and %v, want ErrEndpoint", name, out, err)
		}
	}
}
