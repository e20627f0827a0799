package guest

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestOwnTokenProblem checks that only a usable token of hypergate's own account replaces its credential.
func TestOwnTokenProblem(t *testing.T) {
	t.Parallel()
	token := func(namespace, name string, lifetime time.Duration) string {
		claims := fmt.Sprintf(`{"iat":1700000000,"exp":%d,"kubernetes.io":{"namespace":%q,"serviceaccount":{"name":%q}}}`,
			1700000000+int64(lifetime/time.Second), namespace, name)
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	own := types.NamespacedName{Namespace: "openshift-ingress", Name: "hypergate"}
	for name, tc := range map[string]struct{ token, want string }{
		"its own":           {token(own.Namespace, own.Name, time.Hour), ""},
		"nothing":           {"", "another account"},
		"no token":          {"junk", "another account"},
		"another account":   {token(own.Namespace, "admin", time.Hour), "another account"},
		"another namespace": {token("default", own.Name, time.Hour), "another account"},
		"a second":          {token(own.Namespace, own.Name, time.Second), "valid for less than 5m0s"},
		"the past":          {token(own.Namespace, own.Name, -time.Hour), "valid for less than 5m0s"},
		"64 KiB":            {strings.Repeat("a", tokenLimit+1), "token of hypergate's own service account"},
	} {
		err := ownTokenProblem(tc.token, own)
		if got := fmt.Sprint(err); (err == nil) != (tc.want == "") || !strings.Contains(got, tc.want) && tc.want != "" {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
