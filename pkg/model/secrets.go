package model

import (
	"encoding/base64"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/pki"
)

// The files of the mesh CA, with the names that istiod expects in /etc/cacerts (security/pkg/pki/ca).
const (
	CACertFile  = "ca-cert.pem"
	CAKeyFile   = "ca-key.pem"
	CAChainFile = "cert-chain.pem"
	CARootFile  = "root-cert.pem"
)

// nextPrefix is the prefix for the files of the CA that will issue next. They are in the same Secret, so that each
// step of a rotation is one atomic write. They are not mounted: an attacker who controls istiod has the key of the
// issuing CA, and must not get the key of the next one.
const nextPrefix = "next-"

// Annotations on the Secret of the mesh CA.
const (
	// RotateAnnotation requests a rotation of the CA, by a new value, on the Secret or on hypergate's Lease. The
	// controller never writes it. The command hypergate rotate-ca does.
	RotateAnnotation = "gateway.hypergate.dev/rotate-ca"
	// PhaseAnnotation and PhaseSinceAnnotation are the phase of a rotation and when it began. FollowedAnnotation is
	// the last request on the Secret that was followed, and FollowedLeaseAnnotation the last one on the Lease.
	PhaseAnnotation      = "gateway.hypergate.dev/ca-phase"
	PhaseSinceAnnotation = "gateway.hypergate.dev/ca-phase-since"
	// PhaseEffectiveAnnotation is the time from which all clients can know the result of the phase. The overlap is
	// measured from then on.
	PhaseEffectiveAnnotation = "gateway.hypergate.dev/ca-phase-effective"
	FollowedAnnotation       = "gateway.hypergate.dev/ca-rotated-for"
	FollowedLeaseAnnotation  = "gateway.hypergate.dev/ca-rotated-for-lease"
)

// CASecret returns the Secret with the mesh CA and the state of its rotation. It exists only on the management side.
// The guest gets only the roots: as a caBundle, and in the ConfigMaps that istiod writes for its gateways.
func CASecret(cfg Config, ca pki.CA, rotation pki.Rotation) *unstructured.Unstructured {
	data := map[string][]byte{CACertFile: ca.Cert, CAKeyFile: ca.Key, CAChainFile: ca.Chain, CARootFile: ca.Root}
	next := rotation.Next
	for name, content := range map[string][]byte{
		CACertFile: next.Cert, CAKeyFile: next.Key, CAChainFile: next.Chain, CARootFile: next.Root,
	} {
		if len(content) > 0 {
			data[nextPrefix+name] = content
		}
	}
	var annotations map[string]string
	annotate := func(key, value string) {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	}
	if rotation.Phase != pki.Steady {
		annotate(PhaseAnnotation, string(rotation.Phase))
		annotate(PhaseSinceAnnotation, rotation.Since.UTC().Format(time.RFC3339))
	}
	if !rotation.Effective.IsZero() {
		annotate(PhaseEffectiveAnnotation, rotation.Effective.UTC().Format(time.RFC3339))
	}
	if rotation.Request != "" {
		annotate(FollowedAnnotation, rotation.Request)
	}
	if rotation.LeaseRequest != "" {
		annotate(FollowedLeaseAnnotation, rotation.LeaseRequest)
	}
	return secret(cfg.MgmtNamespace, CASecretName, annotations, data)
}

// Credential is how a container of istiod's pod reaches the guest's API server: with a service account of its own,
// which has the least privileges.
type Credential struct {
	GuestAPI
	// Token is the token of the service account. It is valid from Issued to Expires.
	Token           string
	Issued, Expires time.Time
}

// complete reports whether the credential has all parts.
func (c Credential) complete() bool { return c.Server != "" && c.Token != "" && len(c.CABundle) > 0 }

// Annotations on the Secret of a credential, with the times of its token.
const (
	IssuedAnnotation  = "gateway.hypergate.dev/token-issued"
	ExpiresAnnotation = "gateway.hypergate.dev/token-expires"
)

// CredentialSecret returns the Secret that istiod's pod mounts: a kubeconfig that refers to files, and the files.
//
// client-go reads token files again, so a new token needs no restart. A token in the kubeconfig itself would need
// one. The Secret is deleted with the owner, if there is one.
func CredentialSecret(cfg Config, owner ControlPlane, c Credential) (MgmtObject, error) {
	if !c.complete() {
		return MgmtObject{}, fmt.Errorf("building istiod's guest kubeconfig: server, CA and token are all required")
	}
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "guest",
		"clusters": []any{
			map[string]any{"name": "guest", "cluster": map[string]any{"server": c.Server, "certificate-authority": "ca.crt"}},
		},
		"contexts": []any{map[string]any{"name": "guest", "context": map[string]any{"cluster": "guest", "user": "istiod"}}},
		"users":    []any{map[string]any{"name": "istiod", "user": map[string]any{"tokenFile": "token"}}},
	})
	if err != nil {
		return MgmtObject{}, fmt.Errorf("building istiod's guest kubeconfig: %w", err)
	}
	return c.secret(cfg, owner, CredentialSecretName, map[string][]byte{"config": config})
}

// secret returns a Secret with the token, the CA and more files, and with the times of the token as annotations.
func (c Credential) secret(cfg Config, owner ControlPlane, name string, more map[string][]byte) (MgmtObject, error) {
	annotations := map[string]string{
		IssuedAnnotation:  c.Issued.UTC().Format(time.RFC3339),
		ExpiresAnnotation: c.Expires.UTC().Format(time.RFC3339),
	}
	files := map[string][]byte{TokenFile: []byte(c.Token), GuestCAFile: c.CABundle}
	maps.Copy(files, more)
	u := secret(cfg.MgmtNamespace, name, annotations, files)
	owner.SetOwner(u)
	return NewMgmtObject(u, cfg)
}

// secret returns an opaque Secret.
func secret(namespace, name string, annotations map[string]string, data map[string][]byte) *unstructured.Unstructured {
	encoded := map[string]any{}
	for k, v := range data {
		encoded[k] = base64.StdEncoding.EncodeToString(v)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": encoded}}
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetAnnotations(annotations)
	return u
}

// CAFromSecret returns the CA and the state of its rotation from the Secret that CASecret returned. A Secret that
// lacks a part is an error: a new CA in its place would break the trust of running gateways.
func CAFromSecret(annotations map[string]string, data map[string][]byte) (pki.CA, pki.Rotation, error) {
	for _, key := range []string{CACertFile, CAKeyFile, CAChainFile, CARootFile} {
		if len(data[key]) == 0 {
			return pki.CA{}, pki.Rotation{}, fmt.Errorf(
				"the Secret %s has no key %s: restore it from a backup, or delete the Secret to get a new CA (then restart the gateways)",
				CASecretName, key)
		}
	}
	rotation := pki.Rotation{
		Phase: pki.RotationPhase(annotations[PhaseAnnotation]), Next: caFrom(data, nextPrefix),
		Request: annotations[FollowedAnnotation], LeaseRequest: annotations[FollowedLeaseAnnotation],
	}
	if rotation.Phase != pki.Steady {
		since, err := time.Parse(time.RFC3339, annotations[PhaseSinceAnnotation])
		if err != nil {
			return pki.CA{}, pki.Rotation{}, fmt.Errorf("the Secret %s is in phase %s of a CA rotation, but the start of the phase is "+
				"unknown: set its annotation %s to an RFC 3339 time: %w", CASecretName, rotation.Phase, PhaseSinceAnnotation, err)
		}
		rotation.Since = since
		// An invalid time only makes the phase last longer.
		rotation.Effective, _ = time.Parse(time.RFC3339, annotations[PhaseEffectiveAnnotation])
	}
	return caFrom(data, ""), rotation, nil
}

// caFrom returns the CA in the files with a prefix.
func caFrom(data map[string][]byte, prefix string) pki.CA {
	return pki.CA{
		Cert: data[prefix+CACertFile], Key: data[prefix+CAKeyFile], Chain: data[prefix+CAChainFile], Root: data[prefix+CARootFile],
	}
}

// CredentialFromSecret returns the credential from the Secret that CredentialSecret returned. A Secret that lacks a
// part is an error, so that the caller creates a new credential.
func CredentialFromSecret(annotations map[string]string, data map[string][]byte) (Credential, error) {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(data["config"], &config); err != nil || len(config.Clusters) != 1 {
		return Credential{}, fmt.Errorf("reading Secret %s: its key config is not a kubeconfig of hypergate", CredentialSecretName)
	}
	return credentialFrom(CredentialSecretName, config.Clusters[0].Cluster.Server, annotations, data)
}

// credentialFrom returns the credential for a server from the Secret of a name.
func credentialFrom(name, server string, annotations map[string]string, data map[string][]byte) (Credential, error) {
	c := Credential{GuestAPI: GuestAPI{Server: server, CABundle: data[GuestCAFile]}, Token: string(data[TokenFile])}
	for _, t := range []struct {
		annotation string
		into       *time.Time
	}{{IssuedAnnotation, &c.Issued}, {ExpiresAnnotation, &c.Expires}} {
		at, err := time.Parse(time.RFC3339, annotations[t.annotation])
		if err != nil {
			return Credential{}, fmt.Errorf("reading Secret %s: annotation %s: %w", name, t.annotation, err)
		}
		*t.into = at
	}
	if !c.complete() {
		return Credential{}, fmt.Errorf("reading Secret %s: the server, the CA or the token is missing", name)
	}
	return c, nil
}

// RenewAt returns when the token must be replaced: after 80 % of its lifetime.
func (c Credential) RenewAt() time.Time { return c.Issued.Add(c.Expires.Sub(c.Issued) / 10 * 8) }
