package bundle

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The credentials of these tests. Each contains the word hunter, in a form that the test reads again.
const (
	key = "-----BEGIN EC PRIVATE KEY-----\nhunterMHcCAQEEIA==\n-----END EC PRIVATE KEY-----\n"
	jwt = "eyJhbGciOiJSUzI1NiJ9.eyJodW50ZXIiOjF9.hunter-signature"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestCredentialsAreRedacted checks that no credential is left of an object, in any place and encoding.
func TestCredentialsAreRedacted(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]map[string]any{
		"a key":                {"data": map[string]any{"x": "before " + key + " after"}},
		"the begin of a key":   {"x": "-----BEGIN PRIVATE KEY-----\nhunter"},
		"a key in base64":      {"data": map[string]any{"x": b64(key)}},
		"a key, twice encoded": {"data": map[string]any{"x": b64(b64(key))}},
		"a token":              {"spec": []any{"a", []any{jwt}}},
		"a token in base64":    {"x": "prefix:" + b64("{\"auth\":\""+jwt+"\"}")},
		"the claims alone":     {"x": "eyJodW50ZXJodW50ZXIiOjF9.hunter"},
		"a token as a key":     {"data": map[string]any{jwt: "x"}},
		"a header":             {"headers": []any{map[string]any{"name": "Authorization", "value": "hunter"}}},
		"a header in a text":   {"x": "curl -H 'Authorization: Bearer hunter2' https://a"},
		"basic":                {"value": "Basic aHVudGVyOmh1bnRlcg=="},
		"a variable":           {"env": []any{map[string]any{"name": "DB_PASSWORD", "value": "hunter"}}},
		"a field":              {"spec": map[string]any{"clientSecret": "hunter", "api-key": "hunter", "bearerToken": "hunter"}},
		"an assignment":        {"x": "--set password=hunter2 --token: hunter3"},
		"names in a text":      {"x": `DB_PASSWORD=hunter2 --cookie_secret=hunter3 {"dbPassword":"hunter4"} {\"secret\":\"hunter5\"}`},
		"other variables": {"env": []any{
			map[string]any{"name": "COOKIE_SECRET", "value": "hunter"}, map[string]any{"name": "X-Shared-Secret", "value": "hunter"},
		}},
		"a URL":            {"x": "dial https://me:hunter@example.com/"},
		"a scheme":         {"x": "dial HTTPS://me:hunter@example.com/ Http://hunter@example.com"},
		"words and tokens": {"x": "the token: hunter2 is\nthe token: hunter\n's token: hunter, s token=hunter a token: hunter or"},
		"a word before":    {"x": "password=hunter the token: expired 5m ago secret=hunter"},
		"a name after it":  {"x": "the token: of password=hunter2"},
		"a long word":      {"x": "the token: hunterhunterhunter a"},
		"kubectl's copy": {"metadata": map[string]any{"annotations": map[string]any{
			"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"a":"hunter"}}`,
		}}},
		"managed fields": {"metadata": map[string]any{"managedFields": []any{map[string]any{"hunter": "hunter"}}}},
	} {
		trim(object)
		newRedactor().value(object)
		got, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"hunter", b64(key)[:30], "aHVudGVy", "eyJodW50ZXI", "BEGIN"} {
			if strings.Contains(string(got), bad) {
				t.Errorf("%s: %s is left in %s", name, bad, got)
			}
		}
	}
}

// TestLongTextsAreRedacted checks that a text of any length is redacted in little time. A longer one than 64 KiB is
// replaced as a whole.
func TestLongTextsAreRedacted(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	long, longest := strings.Repeat("x", most+1), strings.Repeat("x ", most/2)
	object := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"long": long, "longest": longest}},
		"list":     []any{long, map[string]any{"long": long}, int64(1)},
		"keys":     map[string]any{long: long},
		"short":    longest[:most-16] + " token: hunter2 ",
	}
	trim(object)
	newRedactor().value(object)
	const replaced = "<redacted: more than 64 KiB>"
	want := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"long": replaced, "longest": longest}},
		"list":     []any{replaced, map[string]any{"long": replaced}, int64(1)},
		"keys":     map[string]any{replaced: replaced},
		"short":    longest[:most-16] + " token: <redacted> ",
	}
	if !reflect.DeepEqual(object, want) {
		got, _ := json.Marshal(object)
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
}

// endsAfter is a context that ends when it has been asked a number of times.
type endsAfter struct {
	context.Context
	asked int
}

// Err returns an error from then on.
func (e *endsAfter) Err() error {
	if e.asked--; e.asked < 0 {
		return context.Canceled
	}
	return nil
}

// TestRedactionEndsWithItsContext checks that --timeout and an interrupt end the command after the current object.
func TestRedactionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var objects []map[string]any
	for range 10 {
		objects = append(objects, map[string]any{"metadata": map[string]any{"name": "a"}, "spec": "token: hunter2"})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("timed out")
	cancel(cause)
	for asked, kept := range map[int]int{0: 0, 3: 3, 11: 10} {
		found := newContents()
		c := collector{archive: New(io.Discard, "root", time.Time{}, 1<<20), redact: newRedactor()}
		err := c.keep(&endsAfter{ctx, asked}, Kind{}, objects, found)
		if len(found.kept[""]) != kept || (err == nil) != (kept == len(objects)) || err != nil && !errors.Is(err, cause) {
			t.Errorf("%d objects of %d, %v", len(found.kept[""]), kept, err)
		}
	}
	if err := (&collector{}).write(ctx, Kind{}, map[string][]any{"": {1}}); !errors.Is(err, cause) {
		t.Errorf("the files: %v", err)
	}
}

// TestOtherTextsStay checks that what an investigation needs is not redacted.
func TestOtherTextsStay(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"istiod-openshift-gateway","annotations":{` +
		`"gateway.hypergate.dev/config-hash":"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"}},` +
		`"spec":{"automountServiceAccountToken":false,"env":[{"name":"PILOT_CERT_PROVIDER","value":"istiod"},` +
		`{"name":"TOKEN_LIFETIME","value":"1h"}],"serviceAccountName":"hypergate-service-account-with-a-long-name",` +
		`"image":"registry.example.com/pilot@sha256:8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4",` +
		`"secretName":"istio-kubeconfig","uid":"0b5a0a1c-7d32-4a8b-9f44-2c8e0b5a0a1c","url":"https://kube-apiserver:6443/x",` +
		`"caBundle":"` + "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=" + `",` +
		`"message":"the Secret \"cacerts\" was not found: the token expired 5m ago","generation":1500000000}}`
	var value map[string]any
	if err := json.Unmarshal([]byte(object), &value); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	trim(value)
	newRedactor().value(value)
	if got, err := json.Marshal(value); err != nil || string(got) != string(want) {
		t.Errorf("%v\n%s\n%s", err, got, want)
	}
}

// TestSentencesAboutTokensStay checks that the outcome is not redacted in a sentence of hypergate about a token.
func TestSentencesAboutTokensStay(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"! istiod's token: expired 5m ago", "! istiod''s token: expired 5m ago", "! istiod's token: 4m30s left",
		"checking whether the guest accepts the token: context deadline exceeded",
		"the token: expired 5m ago\n! istiod's token: expired 5m ago",
	} {
		if got := Redact(text); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}

// FuzzRedact checks that a key is not left in any text, at any position and alignment.
func FuzzRedact(f *testing.F) {
	f.Add("before", "after", byte(0))
	f.Add("eyJ", "==", byte(1))
	f.Add("abcdefghijklmnopqrstuvwxyz+/", "-----END PRIVATE KEY-----", byte(2))
	f.Fuzz(func(t *testing.T, before, after string, encodings byte) {
		secret := key
		for range encodings % 3 {
			secret = b64(secret)
		}
		// Letters of base64 directly before or after it make another text of it.
		got := newRedactor().text(before+" "+secret+" "+after, 0)
		if strings.Contains(got, strings.TrimSpace(secret)) {
			t.Errorf("%q", got)
		}
	})
}
