package model

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// tokenClaims are what is read of a service account's token (KEP-1205). It is not verified: it is the guest's, and only the guest is shown it.
type tokenClaims struct {
	IssuedAt   int64 `json:"iat"`
	Expires    int64 `json:"exp"`
	Kubernetes struct {
		ServiceAccount struct {
			UID types.UID `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// tokenClaimsOf are a token's claims; none when it is no JSON web token.
func tokenClaimsOf(token string) tokenClaims {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return tokenClaims{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return tokenClaims{}
	}
	var out tokenClaims
	if err := json.Unmarshal(payload, &out); err != nil {
		return tokenClaims{}
	}
	return out
}

// NewCredential is istiod's credential with a token that the guest has just given. Its times are those of our clock: how long it lives is read
// from the token, whose two times are of one clock, so that it does not matter how the guest's differs from ours. granted is the end that the
// guest named beside a token that does not say. The guest's admin can change a request for a token on its way; a longer life than was asked for
// is not made use of.
func NewCredential(api GuestAPI, token string, granted time.Time, asked time.Duration, now time.Time) Credential {
	life := granted.Sub(now)
	if c := tokenClaimsOf(token); c.IssuedAt > 0 && c.Expires > c.IssuedAt {
		life = time.Duration(min(c.Expires-c.IssuedAt, int64(asked/time.Second))) * time.Second
	}
	return Credential{GuestAPI: api, Token: token, Issued: now, Expires: now.Add(max(0, min(life, asked)))}
}

// Lifetime is how long the token lives.
func (c Credential) Lifetime() time.Duration { return c.Expires.Sub(c.Issued) }

// Account is the UID of the service account that the token is bound to, from its claims; empty if it has none. A token outlives neither its
// account nor a new account of the same name.
func (c Credential) Account() types.UID { return tokenClaimsOf(c.Token).Kubernetes.ServiceAccount.UID }
