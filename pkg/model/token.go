package model

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// tokenClaims are the claims of a service account token that hypergate reads (KEP-1205). hypergate does not verify the
// token: the guest issued it, and only the guest receives it.
type tokenClaims struct {
	IssuedAt   int64 `json:"iat"`
	Expires    int64 `json:"exp"`
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// tokenClaimsOf returns the claims of a token. It returns the zero value if the token is not a JSON web token.
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

// NewCredential returns istiod's credential with a token that the guest has just issued.
//
// Its times are times of hypergate's clock. The lifetime is the difference of the two times in the token. Both are of
// the same clock, so the difference between the guest's clock and hypergate's does not matter. granted is the end
// time from the guest's response, for a token without these times.
//
// The guest's administrator can change a request for a token. NewCredential does not use a longer lifetime than
// requested.
func NewCredential(api GuestAPI, token string, granted time.Time, requested time.Duration, now time.Time) Credential {
	lifetime := granted.Sub(now)
	if c := tokenClaimsOf(token); c.IssuedAt > 0 && c.Expires > c.IssuedAt {
		lifetime = time.Duration(min(c.Expires-c.IssuedAt, int64(requested/time.Second))) * time.Second
	}
	return Credential{GuestAPI: api, Token: token, Issued: now, Expires: now.Add(max(0, min(lifetime, requested)))}
}

// Lifetime returns how long the token is valid.
func (c Credential) Lifetime() time.Duration { return c.Expires.Sub(c.Issued) }

// AccountOf returns the service account of a token, and how long the token is valid in all, from its claims. The name
// is empty if the token is not one of a service account.
func AccountOf(token string) (account types.NamespacedName, lifetime time.Duration) {
	claims := tokenClaimsOf(token)
	account = types.NamespacedName{Namespace: claims.Kubernetes.Namespace, Name: claims.Kubernetes.ServiceAccount.Name}
	return account, time.Duration(claims.Expires-claims.IssuedAt) * time.Second
}

// Account returns the UID of the service account that the token is bound to, from its claims. It is empty if the
// token has no such claim. The token becomes invalid when the service account is deleted, even if a new one has the
// same name.
func (c Credential) Account() types.UID { return tokenClaimsOf(c.Token).Kubernetes.ServiceAccount.UID }

// AccountName returns the name of the service account that the token is bound to, from its claims. It is empty if the
// token has no such claim. The guest decides what it is, and how long.
func (c Credential) AccountName() string {
	return tokenClaimsOf(c.Token).Kubernetes.ServiceAccount.Name
}
