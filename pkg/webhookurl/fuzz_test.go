package webhookurl_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/hypergate/hypergate/pkg/webhookurl"
)

// FuzzRewrite passes any JSON object to Rewrite, and checks that it is either refused with an error, or rewritten
// correctly.
func FuzzRewrite(f *testing.F) {
	endpoint := newEndpoint(f, base)
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, &in.Object); err != nil {
			t.Skip("not a JSON object")
		}
		before := in.DeepCopy()
		out, err := webhookurl.Rewrite(in, endpoint)
		if diff := cmp.Diff(before, in); diff != "" {
			t.Fatalf("the input was written to:\n%s", diff)
		}
		if err != nil {
			wantRefused(t, err, in.GetKind(), in.GetName())
			if webhookurl.Check(in, endpoint) == nil {
				t.Fatalf("Check accepts what Rewrite refuses: %v", err)
			}
			return
		}
		if _, err := typedClientConfigs(in); err != nil {
			t.Skip("not an object of the API")
		}
		wantSound(t, in, out, endpoint)
	})
}
