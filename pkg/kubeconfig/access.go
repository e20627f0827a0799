package kubeconfig

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Access is what a self-contained kubeconfig with a token needs. ServerName is the name in the server's certificate, if
// it differs from the host of Server.
type Access struct {
	Server, ServerName string
	CA                 []byte
	User, Token        string
}

// Kubeconfig returns the kubeconfig, as Parse accepts it. It returns an error if Parse would not.
func (a Access) Kubeconfig() ([]byte, error) {
	const guest = "guest"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			guest: {Server: a.Server, TLSServerName: a.ServerName, CertificateAuthorityData: a.CA},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{a.User: {Token: a.Token}},
		Contexts:       map[string]*clientcmdapi.Context{guest: {Cluster: guest, AuthInfo: a.User}},
		CurrentContext: guest,
	})
	if err != nil {
		return nil, err
	}
	_, err = Parse(content)
	return content, err
}
