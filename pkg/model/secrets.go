package model

import (
	"encoding/base64"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/pki"
)

// The files of the mesh CA, under the names that istiod looks for in /etc/cacerts (security/pkg/pki/ca).
const (
	CACertFile  = "ca-cert.pem"
	CAKeyFile   = "ca-key.pem"
	CAChainFile = "cert-chain.pem"
	CARootFile  = "root-cert.pem"
)

// nextPrefix is before the names of the files of the CA that will issue next. They are in the same Secret, so that a rotation is written in one
// piece, and are not mounted: whoever gets hold of istiod has the key that issues, and shall not have the one that replaces it.
const nextPrefix = "next-"

// Annotations on the Secret of the mesh CA.
const (
	// RotateAnnotation asks for a rotation of the CA, by a value that it did not have before. It is for others to write: hypergate rotate-ca does.
	RotateAnnotation = "gateway.hypergate.dev/rotate-ca"
	// PhaseAnnotation and PhaseSinceAnnotation say where a rotation stands, FollowedAnnotation which request was followed last.
	PhaseAnnotation      = "gateway.hypergate.dev/ca-phase"
	PhaseSinceAnnotation = "gateway.hypergate.dev/ca-phase-since"
	// PhaseEffectiveAnnotation says since when everybody can know what the phase brought. The overlap counts from then on.
	PhaseEffectiveAnnotation = "gateway.hypergate.dev/ca-phase-effective"
	FollowedAnnotation       = "gateway.hypergate.dev/ca-rotated-for"
)

// CASecret is the mesh CA and where its rotation stands. It stands on the management side only; the guest gets no more than the roots, as a
// caBundle and in the ConfigMaps that istiod writes for its gateways.
func CASecret(cfg Config, ca pki.CA, rotation pki.Rotation) *unstructured.Unstructured {
	data := map[string][]byte{CACertFile: ca.Cert, CAKeyFile: ca.Key, CAChainFile: ca.Chain, CARootFile: ca.Root}
	next := rotation.Next
	for name, content := range map[string][]byte{CACertFile: next.Cert, CAKeyFile: next.Key, CAChainFile: next.Chain, CARootFile: next.Root} {
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
	return secret(cfg.MgmtNamespace, CASecretName, annotations, data)
}

// Credential is how istiod's pod reaches the guest's API server: as its own least-privilege service account.
type Credential struct {
	GuestAPI
	// Token is a service account token, valid from Issued to Expires.
	Token           string
	Issued, Expires time.Time
}

func (c Credential) complete() bool { return c.Server != "" && c.Token != "" && len(c.CABundle) > 0 }

// Annotations on the Secret of the credential, from which its times are read back.
const (
	IssuedAnnotation  = "gateway.hypergate.dev/token-issued"
	ExpiresAnnotation = "gateway.hypergate.dev/token-expires"
)

// CredentialSecret is the Secret that istiod's pod mounts: a kubeconfig that names files, and the files. client-go reads token files again,
// so a new token needs no restart; a token in the kubeconfig itself would. It goes with the owner, where there is one.
func CredentialSecret(cfg Config, owner ControlPlane, c Credential) (MgmtObject, error) {
	if !c.complete() {
		return MgmtObject{}, fmt.Errorf("making istiod's guest kubeconfig: server, CA and token must all be given")
	}
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "guest",
		"clusters": []any{map[string]any{"name": "guest", "cluster": map[string]any{"server": c.Server, "certificate-authority": "ca.crt"}}},
		"contexts": []any{map[string]any{"name": "guest", "context": map[string]any{"cluster": "guest", "user": "istiod"}}},
		"users":    []any{map[string]any{"name": "istiod", "user": map[string]any{"tokenFile": "token"}}},
	})
	if err != nil {
		return MgmtObject{}, fmt.Errorf("making istiod's guest kubeconfig: %w", err)
	}
	annotations := map[string]string{
		IssuedAnnotation:  c.Issued.UTC().Format(time.RFC3339),
		ExpiresAnnotation: c.Expires.UTC().Format(time.RFC3339),
	}
	u := secret(cfg.MgmtNamespace, CredentialSecretName, annotations, map[string][]byte{"config": config, "token": []byte(c.Token), "ca.crt": c.CABundle})
	owner.SetOwner(u)
	return NewMgmtObject(u, cfg)
}

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

// Names of the Secrets that hypergate reads back when it starts.
const (
	// CASecretName holds the mesh CA.
	CASecretName = "cacerts"
	// CredentialSecretName holds istiod's guest kubeconfig.
	CredentialSecretName = "istio-kubeconfig"
)

// CAFromSecret reads back from the Secret that CASecret makes: the CA and where its rotation stands. A Secret that lacks a part is an error:
// making a new CA in its place would take their trust from running gateways.
func CAFromSecret(annotations map[string]string, data map[string][]byte) (pki.CA, pki.Rotation, error) {
	for _, key := range []string{CACertFile, CAKeyFile, CAChainFile, CARootFile} {
		if len(data[key]) == 0 {
			return pki.CA{}, pki.Rotation{}, fmt.Errorf(
				"the Secret %s has no %s: restore it from a backup, or delete the Secret to get a new CA (gateways then need a restart)", CASecretName, key)
		}
	}
	rotation := pki.Rotation{Phase: pki.RotationPhase(annotations[PhaseAnnotation]), Next: caFrom(data, nextPrefix), Request: annotations[FollowedAnnotation]}
	if rotation.Phase != pki.Steady {
		since, err := time.Parse(time.RFC3339, annotations[PhaseSinceAnnotation])
		if err != nil {
			return pki.CA{}, pki.Rotation{}, fmt.Errorf("the Secret %s is %s since nobody knows when: give its annotation %s a time (RFC 3339): %w",
				CASecretName, rotation.Phase, PhaseSinceAnnotation, err)
		}
		rotation.Since = since
		// One that cannot be read makes the phase last longer, and nothing worse.
		rotation.Effective, _ = time.Parse(time.RFC3339, annotations[PhaseEffectiveAnnotation])
	}
	return caFrom(data, ""), rotation, nil
}

func caFrom(data map[string][]byte, prefix string) pki.CA {
	return pki.CA{Cert: data[prefix+CACertFile], Key: data[prefix+CAKeyFile], Chain: data[prefix+CAChainFile], Root: data[prefix+CARootFile]}
}

// CredentialFromSecret reads back what CredentialSecret made. What lacks a part is an error, so that a new one is made in its place.
func CredentialFromSecret(annotations map[string]string, data map[string][]byte) (Credential, error) {
	issued, err := time.Parse(time.RFC3339, annotations[IssuedAnnotation])
	if err != nil {
		return Credential{}, fmt.Errorf("reading Secret %s: annotation %s: %w", CredentialSecretName, IssuedAnnotation, err)
	}
	expires, err := time.Parse(time.RFC3339, annotations[ExpiresAnnotation])
	if err != nil {
		return Credential{}, fmt.Errorf("reading Secret %s: annotation %s: %w", CredentialSecretName, ExpiresAnnotation, err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(data["config"], &config); err != nil || len(config.Clusters) != 1 {
		return Credential{}, fmt.Errorf("reading Secret %s: config is no kubeconfig of ours", CredentialSecretName)
	}
	c := Credential{GuestAPI: GuestAPI{Server: config.Clusters[0].Cluster.Server, CABundle: data["ca.crt"]}, Token: string(data["token"]), Issued: issued, Expires: expires}
	if !c.complete() {
		return Credential{}, fmt.Errorf("reading Secret %s: server, CA and token are not all there", CredentialSecretName)
	}
	return c, nil
}

// RenewAt is when a token should be replaced: after 80 % of its life.
func (c Credential) RenewAt() time.Time { return c.Issued.Add(c.Expires.Sub(c.Issued) / 10 * 8) }
