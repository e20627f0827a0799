package kubeconfig

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Parse reads a self-contained kubeconfig, such as one in a Secret. It rejects kubeconfigs that refer to a file or
// run a program. Both would use hypergate's own files. A user who can write the Secret could send hypergate's token
// for the management cluster to any server.
func Parse(data []byte) (*rest.Config, error) {
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("it is not a kubeconfig: %w", Brief(err))
	}
	if err := checkContext(raw); err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	context := raw.Contexts[raw.CurrentContext]
	if err := selfContained(raw.Clusters[context.Cluster], raw.AuthInfos[context.AuthInfo]); err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return config, nil
}

// Brief returns an error of client-go about the content of a kubeconfig without names of Go types. For a file that is
// not an object, client-go adds the Go type into which it could not read the file.
func Brief(err error) error {
	if before, _, cut := strings.Cut(err.Error(), "; json parse error: "); cut {
		return errors.New(strings.Replace(before, "couldn't get version/kind", "it has no apiVersion and kind", 1))
	}
	return err
}

// selfContained rejects references to anything outside the kubeconfig.
func selfContained(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	for _, f := range []struct{ field, file string }{
		{"certificate-authority", cluster.CertificateAuthority},
		{"client-certificate", user.ClientCertificate},
		{"client-key", user.ClientKey},
	} {
		if f.file != "" {
			return fmt.Errorf("its %s is the file %s, which is not in the Secret: put the content into %s-data", f.field, f.file, f.field)
		}
	}
	switch {
	case user.TokenFile != "":
		return fmt.Errorf("its tokenFile is %s, which is not in the Secret: put the content into token", user.TokenFile)
	case user.Exec != nil:
		return fmt.Errorf("it gets its credentials from the program %s (exec), which hypergate does not run: "+
			"give it a client certificate, or a token", user.Exec.Command)
	case user.AuthProvider != nil:
		return fmt.Errorf("it gets its credentials from the auth-provider %s, which hypergate does not know: "+
			"give it a client certificate, or a token", user.AuthProvider.Name)
	case len(cluster.CertificateAuthorityData) == 0:
		return errors.New("it has no certificate-authority-data: add it, because istiod could not verify the guest's API server")
	}
	return nil
}

// checkContext rejects kubeconfigs that client-go treats as a request for anonymous access or as empty.
func checkContext(raw *clientcmdapi.Config) error {
	context := raw.Contexts[raw.CurrentContext]
	switch {
	case context == nil:
		return fmt.Errorf("its current-context is %q, and it has no context of that name", raw.CurrentContext)
	case raw.Clusters[context.Cluster] == nil:
		return fmt.Errorf("its context %q names the cluster %q, which it does not have", raw.CurrentContext, context.Cluster)
	case raw.Clusters[context.Cluster].Server == "":
		return fmt.Errorf("its cluster %q has no server", context.Cluster)
	case raw.AuthInfos[context.AuthInfo] == nil:
		return fmt.Errorf("its context %q names the user %q, which it does not have", raw.CurrentContext, context.AuthInfo)
	}
	return checkAddresses(raw.Clusters[context.Cluster])
}

// checkAddresses rejects unusable addresses before client-go does. The errors of client-go quote the addresses, which
// can contain a password. More people read these errors than the kubeconfig.
//
// An address without a scheme is rejected as well: client-go would use http, and ignore the certificate authority and
// the credentials (tools/clientcmd/client_config.go, ClientConfig; rest/url_utils.go, DefaultServerURL).
func checkAddresses(cluster *clientcmdapi.Cluster) error {
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil || server.Host == "" && !strings.Contains(cluster.Server, ":"):
		return errors.New("its server is not a URL (the value is not shown): it should be like https://api.example.com:6443")
	case server.Scheme != "https" || server.Host == "":
		return errors.New("its server does not begin with https:// (the value is not shown): " +
			"credentials and what is read there would not be protected; give the https address of the API server")
	case server.User != nil:
		return errors.New("its server has a user in it (the value is not shown): " +
			"give the kubeconfig's user a client certificate, or a token, instead")
	case cluster.ProxyURL == "":
		return nil
	}
	proxy, err := url.Parse(cluster.ProxyURL)
	if err != nil || proxy.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
		return errors.New("its proxy-url is not the URL of a proxy (the value is not shown, it may have a password in it): " +
			"it should be like http://proxy.example.com:3128, or begin with https or socks5, " +
			"and special characters of a password should be written as %XX")
	}
	return nil
}
