package guestconn

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Validity returns from when, and until when, the credential in the current kubeconfig is valid. Both are zero if it
// does not say so, as a credential from a command does not. It is for information only: the signature of a token is not
// verified.
func (c *Conn) Validity() (from, until time.Time) {
	c.mu.Lock()
	config := c.current.config
	c.mu.Unlock()
	return validityOf(config)
}

// Current returns the config in use, with its credentials. It is for a kubeconfig with the next credential.
func (c *Conn) Current() *rest.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rest.CopyConfig(c.current.config)
}

// validityOf returns the validity of the token in a config, or of its client certificate. A token takes precedence, as
// in client-go.
func validityOf(config *rest.Config) (from, until time.Time) {
	if config.BearerToken != "" {
		return tokenValidity(config.BearerToken)
	}
	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return time.Time{}, time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, time.Time{}
	}
	return cert.NotBefore, cert.NotAfter
}

// tokenValidity returns the claims iat and exp of a JSON Web Token (RFC 7519), as service account tokens have them.
func tokenValidity(token string) (from, until time.Time) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, time.Time{}
	}
	var claims struct {
		IssuedAt  float64 `json:"iat"`
		ExpiresAt float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return time.Time{}, time.Time{}
	}
	return timeOf(claims.IssuedAt), timeOf(claims.ExpiresAt)
}

// latestTime is the last second of the year 9999.
const latestTime = 253402300799

func timeOf(seconds float64) time.Time {
	if !(seconds > 0 && seconds <= latestTime) {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}
