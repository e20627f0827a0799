package adversary_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hypergate/hypergate/test/adversary"
)

// TestATokenOfAnotherSigningKey replaces the guest's signing key. The Secret still has a token of the old key, and
// all fields that can be read from the token are valid.
//
// At its start, hypergate asks the guest once whether it accepts the token, and requests another one if the guest
// refuses.
func TestATokenOfAnotherSigningKey(t *testing.T) {
	t.Parallel()
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	asked := func(what string) int {
		n := 0
		for _, r := range g.Log() {
			if strings.HasSuffix(r.Path, what) {
				n++
			}
		}
		return n
	}
	_, stop := runUntil(t, m, g)
	eventually(t, "the CRDs are installed", func() bool { return len(g.Names(crdAPI, crdResource)) > 0 })
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if tokens, questions := asked("/token"), asked("/version"); tokens != 1 || questions != 0 {
		t.Fatalf("%d token requests, %d requests for /version, want one token and no other request: the token is fresh", tokens, questions)
	}

	var replaced atomic.Bool
	replaced.Store(true)
	g.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/version" {
			return false
		}
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			t.Error("the request has no token")
		}
		if replaced.Swap(false) {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return true
		}
		return false
	})
	_, stop = runUntil(t, m, g)
	eventually(t, "istiod gets another token", func() bool { return asked("/token") == 2 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	_, stop = runUntil(t, m, g)
	eventually(t, "hypergate asks the guest if it accepts the token", func() bool { return asked("/version") == 2 })
	putClass(g, "later")
	eventually(t, "a class is observed after that", func() bool {
		return strings.Contains(strings.Join(g.Names("v1", "configmaps"), " "), "gatewayclass-rev.later")
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if tokens, questions := asked("/token"), asked("/version"); tokens != 2 || questions != 2 {
		t.Errorf("%d token requests, %d requests for /version, want 2 of each: a token that the guest accepts is kept", tokens, questions)
	}
}
