package leakcheck_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/mgmtsecrets"
	"github.com/hypergate/hypergate/test/mustfail"
)

// config returns the part of a Config that the check depends on.
func config() model.Config {
	return model.Config{
		Topology:       model.TopologyHosted,
		MgmtNamespace:  mgmtsecrets.Namespace,
		GuestNamespace: "openshift-ingress",
		ControllerName: "openshift.io/gateway-controller/v1",
		Revision:       "openshift-gateway",
		XDS:            model.HostPort{Host: "istiod.apps.example.com", Port: 443},
		WebhookHost:    "gw-webhook-openshift-gateway",
	}
}

// withClasses returns a guest with GatewayClasses of these names.
func withClasses(classes ...string) (guest model.GuestObservation) {
	for i, name := range classes {
		guest.Classes = append(guest.Classes, model.GatewayClass{Name: name, Generation: int64(i + 1)})
	}
	return guest
}

// refuse checks a ConfigMap for the guest, into which a text is planted.
func refuse(
	tb testing.TB, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation,
	plant func(configMap *unstructured.Unstructured),
) error {
	tb.Helper()
	u := fromyaml.Object(tb, `{apiVersion: v1, kind: ConfigMap, data: {},
		metadata: {name: istio-openshift-gateway-gatewayclass-openshift-default, namespace: `+cfg.GuestNamespace+`}}`)
	plant(u)
	o, err := model.NewGuestObject(u, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return leakcheck.SecretsOf(cfg, mgmt, guest).Refuse(o, cfg)
}

// encodings returns functions that encode a text, by name.
func encodings(tb testing.TB) map[string]func(string) string {
	tb.Helper()
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	marshal := func(value any) string {
		data, err := json.Marshal(value)
		if err != nil {
			tb.Fatal(err)
		}
		return string(data)
	}
	marshalYAML := func(value any) string {
		data, err := yaml.Marshal(value)
		if err != nil {
			tb.Fatal(err)
		}
		return string(data)
	}
	return map[string]func(string) string{
		"plain":                    func(s string) string { return s },
		"in the middle":            func(s string) string { return "before " + s + " after" },
		"one line":                 func(s string) string { return strings.ReplaceAll(s, "\n", "") },
		"indented":                 func(s string) string { return "key: |\n" + strings.ReplaceAll(s, "\n", "\n    ") },
		"carriage returns":         func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"base64":                   encode,
		"base64 without padding":   func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
		"base64 for URLs":          func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s + "\xff\xfe")) },
		"base64, offset 1":         func(s string) string { return encode("x" + s) },
		"base64, offset 2":         func(s string) string { return encode("xy" + s) },
		"base64 in lines":          func(s string) string { return wrap(encode(s), 60) },
		"base64 before a letter":   func(s string) string { return encode(s+strings.Repeat(" ", 3-len(s)%3)) + "Q" },
		"base64 behind a word":     func(s string) string { return "token/" + encode(s) },
		"base64 between words":     func(s string) string { return "curl -d " + encode(s) + " | sh" },
		"base64 of base64":         func(s string) string { return encode(encode(s)) },
		"base64 four times":        func(s string) string { return encode(encode(encode(encode(s)))) },
		"hexadecimal":              func(s string) string { return hex.EncodeToString([]byte(s)) },
		"JSON":                     func(s string) string { return marshal(map[string]any{"a": []any{s}}) },
		"JSON as a key":            func(s string) string { return marshal(map[string]any{s: 1}) },
		"JSON in JSON":             func(s string) string { return marshal([]any{marshal([]any{s})}) },
		"base64 in JSON in base64": func(s string) string { return encode(marshal(map[string]any{"a": encode(s)})) },
		"JSON with odd escapes": func(s string) string {
			return strings.NewReplacer("/", `\/`, "+", `\u002b`, "-", `\u002d`).Replace(marshal(s))
		},
		"YAML":                   func(s string) string { return marshalYAML(map[string]any{"a": map[string]any{"b": s}}) },
		"YAML in base64 in YAML": func(s string) string { return marshalYAML([]any{encode(marshalYAML([]any{s}))}) },
		"a Secret in YAML": func(s string) string {
			return marshalYAML(map[string]any{"kind": "Secret", "data": map[string]any{"a": encode(s)}})
		},
		"folded YAML":           func(s string) string { return "key: >-\n  " + wrap(encode(s), 80) },
		"YAML in double quotes": func(s string) string { return `key: "` + strings.ReplaceAll(wrap(encode(s), 40), "\n", "\\\n  ") + `"` },
		"a URL's query":         func(s string) string { return "https://example.com/?q=" + url.QueryEscape(s) },
	}
}

func wrap(text string, width int) string {
	var out []string
	for len(text) > width {
		out, text = append(out, text[:width]), text[width:]
	}
	return strings.Join(append(out, text), "\n")
}

// TestASecretIsFoundInEachEncoding checks that the search finds each secret in each encoding.
func TestASecretIsFoundInEachEncoding(t *testing.T) {
	cfg, guest, mgmt := config(), withClasses("openshift-default"), mgmtsecrets.Rotating(t)
	for how, encoded := range encodings(t) {
		for what, secret := range mgmtsecrets.Of(mgmt) {
			if got := leakcheck.SecretsOf(cfg, mgmt, guest).Find(encoded(secret)); got != what {
				t.Errorf("%s, %s: found %q", what, how, got)
			}
		}
		if got := leakcheck.SecretsOf(cfg, mgmt, guest).Find(encoded(string(mgmt.CA.Root))); got != "" {
			t.Errorf("the roots, %s: found %q", how, got)
		}
	}
}

// TestLeaksAreFoundEverywhere checks that the search covers values, keys, names and entries of nested lists.
func TestLeaksAreFoundEverywhere(t *testing.T) {
	cfg, guest, mgmt := config(), withClasses("openshift-default"), mgmtsecrets.Rotating(t)
	const word = "x." + mgmtsecrets.Namespace + "-y"
	for name, tc := range map[string]struct {
		plant func(*unstructured.Unstructured)
		where string
	}{
		"an annotation": {
			func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": word}) }, "metadata.annotations.a",
		},
		"an annotation's key": {
			func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{word: "a"}) },
			"a key of metadata.annotations to the guest:",
		},
		"a label": {func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"gateway.networking.k8s.io/x": word})
		}, `metadata.labels["gateway.networking.k8s.io/x"]`},
		"a key of the data": {mgmtsecrets.InData(word, "a"), "a key of data to the guest:"},
		"the name": {
			func(u *unstructured.Unstructured) {
				u.SetName("istio-openshift-gateway-gatewayclass-" + mgmtsecrets.Namespace)
			},
			"a ConfigMap would reveal the name of the management namespace by its name",
		},
		"deep in a list": {
			func(u *unstructured.Unstructured) { u.Object["x"] = []any{"a", map[string]any{"b": []any{word}}} }, "x.1.b.0",
		},
		"a URL outside of a webhook": {
			func(u *unstructured.Unstructured) {
				u.Object["url"] = "https://" + cfg.WebhookHost + "." + mgmtsecrets.Namespace + ".svc:443/"
			}, "url",
		},
	} {
		err := refuse(t, cfg, mgmt, guest, tc.plant)
		mustfail.With(t, err, tc.where, "the name of the management namespace")
		t.Log(name)
		mgmtsecrets.MustNotReveal(t, err, mgmt)
	}
}

// TestPublicDataIsNotALeak checks that a plan is not refused for what the guest already knows or what is public.
func TestPublicDataIsNotALeak(t *testing.T) {
	for name, tc := range map[string]func(*model.Config, *model.ManagementObservation, *model.GuestObservation) string{
		"a class of the namespace's name": func(_ *model.Config, _ *model.ManagementObservation, g *model.GuestObservation) string {
			*g = withClasses("a", "of-"+mgmtsecrets.Namespace)
			return ""
		},
		"a class of the namespace's name in disguise": func(
			_ *model.Config, _ *model.ManagementObservation, g *model.GuestObservation,
		) string {
			*g = withClasses("a", hex.EncodeToString([]byte(mgmtsecrets.Namespace)))
			return ""
		},
		"one namespace for both sides": func(c *model.Config, _ *model.ManagementObservation, _ *model.GuestObservation) string {
			c.MgmtNamespace = c.GuestNamespace
			return ""
		},
		"a short namespace": func(c *model.Config, _ *model.ManagementObservation, _ *model.GuestObservation) string {
			c.MgmtNamespace = "istiod"
			return ""
		},
		"the beginning of a longer word": func(*model.Config, *model.ManagementObservation, *model.GuestObservation) string {
			return mgmtsecrets.Namespace + "0"
		},
		"the end of a longer word": func(*model.Config, *model.ManagementObservation, *model.GuestObservation) string {
			return "a" + mgmtsecrets.Namespace
		},
		"the next root": func(_ *model.Config, h *model.ManagementObservation, _ *model.GuestObservation) string {
			return base64.StdEncoding.EncodeToString(h.Rotation.Next.Root)
		},
		"an imported CA that is its own root": func(_ *model.Config, h *model.ManagementObservation, _ *model.GuestObservation) string {
			h.CA, h.Rotation, h.CAOwner = selfSigned(t), pki.Rotation{}, model.Theirs
			return string(h.CA.Root)
		},
		"istiod's published endpoint, on the host of the management API": func(
			c *model.Config, _ *model.ManagementObservation, _ *model.GuestObservation,
		) string {
			c.XDS = model.HostPort{Host: "api.mgmt.example.com", Port: 30012}
			return c.XDS.String()
		},
		"loopback": func(_ *model.Config, h *model.ManagementObservation, _ *model.GuestObservation) string {
			h.API.Server = "https://127.0.0.1:6443"
			return "127.0.0.1:15010"
		},
	} {
		cfg, guest, mgmt := config(), withClasses("openshift-default"), mgmtsecrets.Rotating(t)
		planted := tc(&cfg, &mgmt, &guest)
		if err := refuse(t, cfg, mgmt, guest, mgmtsecrets.InData("a", planted)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// selfSigned returns a CA like the one that Istio creates for itself: an RSA key, and the root issues certificates.
func selfSigned(t *testing.T) pki.CA {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotAfter: time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return pki.CA{
		Cert: cert, Chain: cert, Root: cert,
		Key: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
}

// TestAKeyIsFoundInAnotherFormat checks that the search finds a key in another format than the one in the CA's Secret.
func TestAKeyIsFoundInAnotherFormat(t *testing.T) {
	cfg, guest := config(), withClasses("openshift-default")
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecDER, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	imported := selfSigned(t)
	block, _ := pem.Decode(imported.Key)
	rsaKey, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for kept, key := range map[string]any{
		string(imported.Key): rsaKey,
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ecDER})): ecKey,
	} {
		mgmt := model.ManagementObservation{}
		mgmt.CA = imported
		mgmt.CA.Key = []byte(kept)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		shown := []string{string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), hex.EncodeToString(der)}
		if key == any(rsaKey) {
			shown = append(shown, hex.EncodeToString(rsaKey.Primes[0].Bytes())) // the key follows from one prime
		}
		for _, shown := range shown {
			err = refuse(t, cfg, mgmt, guest, mgmtsecrets.InData("a", shown))
			mustfail.With(t, err, "the private key of the mesh CA in", "data.a")
		}
	}
}

// FuzzLeak checks that the search finds a key in base64 between any two texts, and finds nothing in texts without a
// secret.
func FuzzLeak(f *testing.F) {
	f.Add("", "", uint8(0))
	f.Add("a: ", "\n", uint8(1))
	f.Add(`{"a":"\`, `%2`, uint8(2))
	f.Add("=+/-_", "\\u00", uint8(3))
	f.Add("\xff\xfe", "\\", uint8(4))
	cfg, guest, mgmt := config(), withClasses("openshift-default"), mgmtsecrets.Rotating(f)
	f.Fuzz(func(t *testing.T, before, after string, times uint8) {
		text := string(mgmt.CA.Key)
		for range times % 5 {
			text = base64.StdEncoding.EncodeToString([]byte(text))
		}
		if what := leakcheck.SecretsOf(cfg, mgmt, guest).Find(before + "\n" + after); what != "" {
			t.Errorf("there is no secret in it, and %s is found", what)
		}
		if what := leakcheck.SecretsOf(cfg, mgmt, guest).Find(before + "." + text + "." + after); what != "the private key of the mesh CA" {
			t.Errorf("found %q", what)
		}
	})
}
