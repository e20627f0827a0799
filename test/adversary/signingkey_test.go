package adversary_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hypergate/hypergate/test/adversary"
)

// TestATokenOfAnotherSigningKey replaces the guest's signing key. The Secret still has a token of the old key, and
// all fields that can be read from the token are valid.
//
// After its start, hypergate asks the guest whether it accepts the token, and requests another one if the guest
// refuses. It asks again if the pass ends before the answer.
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

	secret := func() any { return versionOf(m.Get("v1", "secrets", mgmtNS, "istio-kubeconfig")) }
	former := secret()
	var signed signingKey
	g.Between(signed.answer)
	_, stop = runUntil(t, m, g)
	eventually(t, "istiod gets another token", func() bool { return secret() != former })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if refused, others := signed.counts(); refused == 0 || others != 0 {
		t.Errorf("the guest refused the token %d times and was asked %d times about another, want at least one, and none", refused, others)
	}
	tokens := asked("/token")
	_, stop = runUntil(t, m, g)
	eventually(t, "hypergate asks the guest if it accepts the token", func() bool { _, others := signed.counts(); return others > 0 })
	putClass(g, "later")
	eventually(t, "a class is observed after that", func() bool {
		return strings.Contains(strings.Join(g.Names("v1", "configmaps"), " "), "gatewayclass-rev.later")
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := asked("/token"); got != tokens {
		t.Errorf("%d tokens were requested after the guest accepted the token, want none", got-tokens)
	}
}

// signingKey answers requests for /version as a guest with another signing key than that of the first token that it
// sees.
type signingKey struct {
	mu sync.Mutex
	// former is the authorization by the token of the former key.
	former          string
	refused, others int
}

func (k *signingKey) answer(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/version" {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	authorization := r.Header.Get("Authorization")
	if k.former == "" {
		k.former = authorization
	}
	if authorization == k.former {
		k.refused++
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return true
	}
	k.others++
	return false
}

func (k *signingKey) counts() (refused, others int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused, k.others
}
