package guest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// ownToken returns a token of a service account.
func ownToken(namespace, name string, lifetime time.Duration) string {
	claims := fmt.Sprintf(`{"iat":1700000000,"exp":%d,"kubernetes.io":{"namespace":%q,"serviceaccount":{"name":%q}}}`,
		1700000000+int64(lifetime/time.Second), namespace, name)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// TestRenewalProblem checks which credentials hypergate can renew.
func TestRenewalProblem(t *testing.T) {
	t.Parallel()
	token := ownToken("openshift-ingress", "hypergate", time.Hour)
	certificate := rest.TLSClientConfig{CertData: []byte("a certificate")}
	for name, tc := range map[string]struct {
		config rest.Config
		want   string
	}{
		"a token":              {rest.Config{BearerToken: token}, ""},
		"a client certificate": {rest.Config{TLSClientConfig: certificate}, "not a token of a service account"},
		"another token":        {rest.Config{BearerToken: "junk"}, "not a token of a service account"},
		"a proxy":              {rest.Config{BearerToken: token, Proxy: http.ProxyFromEnvironment}, "has a proxy-url"},
	} {
		err := renewalProblem(&tc.config)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestTokenProblem checks that only a usable token of hypergate's own account replaces its credential.
func TestTokenProblem(t *testing.T) {
	t.Parallel()
	own := types.NamespacedName{Namespace: "openshift-ingress", Name: "hypergate"}
	for name, tc := range map[string]struct{ token, want string }{
		"its own":           {ownToken(own.Namespace, own.Name, time.Hour), ""},
		"nothing":           {"", "another account"},
		"no token":          {"junk", "another account"},
		"another account":   {ownToken(own.Namespace, "admin", time.Hour), "another account"},
		"another namespace": {ownToken("default", own.Name, time.Hour), "another account"},
		"a second":          {ownToken(own.Namespace, own.Name, time.Second), "valid for less than 5m0s"},
		"the past":          {ownToken(own.Namespace, own.Name, -time.Hour), "valid for less than 5m0s"},
		"64 KiB":            {strings.Repeat("a", tokenLimit+1), "token of hypergate's own service account has more than 64 KiB"},
	} {
		err := TokenProblem(tc.token, ownAccount, own)
		if got := fmt.Sprint(err); (err == nil) != (tc.want == "") || !strings.Contains(got, tc.want) && tc.want != "" {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
