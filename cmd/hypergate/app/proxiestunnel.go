package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/tunnel"
)

// throughRelay returns how to connect to istiod through the guest's API server and a relay. The relay wants proof that
// the other end is istiod's sidecar: its key pair is in a Secret of the management side. A token of the sidecar's
// account has the only permission that is needed in the guest.
func (o *proxiesOptions) throughRelay(
	ctx context.Context, guest *rest.Config, client coreclient.CoreV1Interface,
) (func(context.Context, *tls.Config) (*tls.Conn, error), error) {
	config, _, err := o.mgmt.config()
	if err != nil {
		return nil, err
	}
	management, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	pair, err := management.Secrets(o.mgmt.namespace).Get(ctx, model.TunnelSecretName, metav1.GetOptions{})
	if err != nil {
		doing := fmt.Sprintf("reading the key pair of the tunnel in Secret %s/%s", o.mgmt.namespace, model.TunnelSecretName)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%s: it does not exist: see hypergate status", doing)
		}
		return nil, accessError(doing, "get Secret "+model.TunnelSecretName, err)
	}
	token, err := o.token(ctx, client, model.TunnelAccountName, "")
	if err != nil {
		return nil, err
	}
	caller, err := callerOf(guest, token, pair)
	if err != nil {
		return nil, err
	}
	caller.Namespace = o.guestNamespace
	return func(ctx context.Context, istiod *tls.Config) (*tls.Conn, error) {
		return caller.DialAny(ctx, model.RelayPodNames(), istiod)
	}, nil
}

// callerOf returns a caller for the API server of a kubeconfig. It connects by itself, so it supports neither a proxy
// nor a certificate for another name.
func callerOf(guest *rest.Config, token string, pair *corev1.Secret) (tunnel.Caller, error) {
	if guest.Insecure || guest.ServerName != "" || guest.Proxy != nil {
		return tunnel.Caller{}, errors.New("the kubeconfig of the guest has insecure-skip-tls-verify, tls-server-name or proxy-url, " +
			"which do not work with the tunnel: use another one, or forward port 15012 of a relay pod and set --connect-to")
	}
	loaded := rest.CopyConfig(guest)
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return tunnel.Caller{}, fmt.Errorf("reading the guest's CA: %w", err)
	}
	return tunnel.Caller{
		Server: loaded.Host, Token: token, CA: loaded.CAData, Cert: pair.Data[model.ServingCertFile], Key: pair.Data[model.ServingKeyFile],
	}, nil
}
