package model

import "k8s.io/apimachinery/pkg/util/validation"

// IsLabel reports whether s is a DNS label (RFC 1123), such as the name of a namespace.
func IsLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// IsName reports whether s is a DNS subdomain (RFC 1123). kube-apiserver requires that of the names of most kinds. The
// guest can have other servers, which return any name. So only such a name belongs into a command for a person.
func IsName(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// IsHost reports whether s is a host name or an IP address.
func IsHost(s string) bool {
	return len(validation.IsDNS1123Subdomain(s)) == 0 || len(validation.IsValidIP(nil, s)) == 0
}

// Names of the Secrets that hypergate reads back when it starts.
const (
	// CASecretName is the name of the Secret with the mesh CA.
	CASecretName = "cacerts"
	// CredentialSecretName is the name of the Secret with istiod's guest kubeconfig.
	CredentialSecretName = "istio-kubeconfig" //nolint:gosec // the name of a Secret
	// TunnelSecretName is the name of the Secret with what the tunnel's sidecar needs: its credential for the guest,
	// and its key pair for the relays.
	TunnelSecretName = "istiod-tunnel"
)
