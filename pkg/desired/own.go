package desired

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/pki"
)

// namespaceObject is istiod's namespace in the guest, where the guest has none. On OpenShift it is always there.
func namespaceObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
}

// caSecret is the mesh CA under the names that istiod looks for in /etc/cacerts (security/pkg/pki/ca). It stands on the management side only;
// the guest gets no more than the root, as a caBundle and in the ConfigMaps that istiod writes for its gateways.
func caSecret(cfg Config, ca pki.CA) *unstructured.Unstructured {
	return secret(cfg.MgmtNamespace, caName, nil, map[string][]byte{
		"ca-cert.pem": ca.Cert, "ca-key.pem": ca.Key, "cert-chain.pem": ca.Chain, "root-cert.pem": ca.Root,
	})
}

// Credential is how istiod's pod reaches the guest's API server: as its own least-privilege service account.
type Credential struct {
	// Server is the URL of the guest's API server as the pod reaches it, CABundle what it is verified with.
	Server   string
	CABundle []byte
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
// so a new token needs no restart; a token in the kubeconfig itself would.
func CredentialSecret(cfg Config, c Credential) (MgmtObject, error) {
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
	return mintMgmt(secret(cfg.MgmtNamespace, kubeconfigName, annotations, map[string][]byte{
		"config": config, "token": []byte(c.Token), "ca.crt": c.CABundle,
	}), cfg)
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
	CASecretName = caName
	// CredentialSecretName holds istiod's guest kubeconfig.
	CredentialSecretName = kubeconfigName
)

// CAFromSecret reads a CA back from the Secret that caSecret makes. A Secret that lacks a part is an error: making a new CA in its place would
// take their trust from running gateways.
func CAFromSecret(data map[string][]byte) (pki.CA, error) {
	ca := pki.CA{Cert: data["ca-cert.pem"], Key: data["ca-key.pem"], Chain: data["cert-chain.pem"], Root: data["root-cert.pem"]}
	for _, key := range []string{"ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"} {
		if len(data[key]) == 0 {
			return pki.CA{}, fmt.Errorf("the Secret %s has no %s: restore it from a backup, or delete the Secret to get a new CA (gateways then need a restart)", caName, key)
		}
	}
	return ca, nil
}

// CredentialFromSecret reads back what CredentialSecret made. What lacks a part is an error, so that a new one is made in its place.
func CredentialFromSecret(annotations map[string]string, data map[string][]byte) (Credential, error) {
	issued, err := time.Parse(time.RFC3339, annotations[IssuedAnnotation])
	if err != nil {
		return Credential{}, fmt.Errorf("reading Secret %s: annotation %s: %w", kubeconfigName, IssuedAnnotation, err)
	}
	expires, err := time.Parse(time.RFC3339, annotations[ExpiresAnnotation])
	if err != nil {
		return Credential{}, fmt.Errorf("reading Secret %s: annotation %s: %w", kubeconfigName, ExpiresAnnotation, err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(data["config"], &config); err != nil || len(config.Clusters) != 1 {
		return Credential{}, fmt.Errorf("reading Secret %s: config is no kubeconfig of ours", kubeconfigName)
	}
	c := Credential{Server: config.Clusters[0].Cluster.Server, CABundle: data["ca.crt"], Token: string(data["token"]), Issued: issued, Expires: expires}
	if !c.complete() {
		return Credential{}, fmt.Errorf("reading Secret %s: server, CA and token are not all there", kubeconfigName)
	}
	return c, nil
}

// Account is the UID of the service account that the token is bound to, from its claims (KEP-1205); empty if it has none. A token outlives
// neither its account nor a new account of the same name.
func (c Credential) Account() types.UID {
	parts := strings.Split(c.Token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			ServiceAccount struct {
				UID types.UID `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return ""
	}
	return claims.Kubernetes.ServiceAccount.UID
}

// RenewAt is when a token should be replaced: after 80 % of its life.
func (c Credential) RenewAt() time.Time { return c.Issued.Add(c.Expires.Sub(c.Issued) / 10 * 8) }
