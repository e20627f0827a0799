package model

import (
	"errors"

	"github.com/hypergate/hypergate/pkg/pki"
)

// Bearer is a container of istiod's pod that has a token of the guest, each of a service account of its own.
type Bearer int

const (
	// IstiodBearer is istiod. Its Secret is CredentialSecretName.
	IstiodBearer Bearer = iota
	// SidecarBearer is the sidecar of the tunnel. Its Secret is TunnelSecretName.
	SidecarBearer
)

// Bearers is the number of bearers.
const Bearers = int(SidecarBearer) + 1

// String returns the bearer for logs and errors.
func (b Bearer) String() string {
	if b == SidecarBearer {
		return "the tunnel's sidecar"
	}
	return "istiod"
}

// SecretName returns the name of the Secret with the bearer's token.
func (b Bearer) SecretName() string {
	if b == SidecarBearer {
		return TunnelSecretName
	}
	return CredentialSecretName
}

// BearerOf returns the bearer whose token is in the Secret of a name, and whether there is one.
func BearerOf(secretName string) (Bearer, bool) {
	for b := range Bearer(Bearers) {
		if b.SecretName() == secretName {
			return b, true
		}
	}
	return 0, false
}

// Files of the Secrets with a token. The tunnel's sidecar expects ServerFile, GuestCAFile and TokenFile in one folder,
// and the key pair in another (pkg/tunnel).
const (
	ServerFile  = "server"
	GuestCAFile = "ca.crt"
	TokenFile   = "token"

	ServingCertFile = "tls.crt"
	ServingKeyFile  = "tls.key"
)

// TunnelSecret returns the Secret that the tunnel's sidecar mounts: its credential for the guest as files, and the key
// pair that proves to the relays that it is istiod's. The sidecar reads the files for each tunnel, so a change needs no
// restart. The Secret is deleted with the owner, if there is one.
func TunnelSecret(cfg Config, owner ControlPlane, c Credential, serving pki.Serving) (MgmtObject, error) {
	if !c.complete() || len(serving.Cert) == 0 || len(serving.Key) == 0 {
		return MgmtObject{}, errors.New("building the Secret of the tunnel's sidecar: " +
			"server, CA, token, certificate and key are all required")
	}
	return c.secret(cfg, owner, TunnelSecretName, map[string][]byte{
		ServerFile: []byte(c.Server), ServingCertFile: serving.Cert, ServingKeyFile: serving.Key,
	})
}

// TunnelFromSecret returns what TunnelSecret returned the Secret for. If the Secret lacks a part of the credential,
// that is an error, so that the caller creates a new one. A key pair that is not usable shows in its RenewAt.
func TunnelFromSecret(annotations map[string]string, data map[string][]byte) (Credential, pki.Serving, error) {
	c, err := credentialFrom(TunnelSecretName, string(data[ServerFile]), annotations, data)
	return c, pki.Serving{Cert: data[ServingCertFile], Key: data[ServingKeyFile]}, err
}
