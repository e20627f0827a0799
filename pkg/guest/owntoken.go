package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/model"
)

// shortestOwn and longestOwn limit the lifetime of the token that hypergate requests for its own account. It is that of
// the token before.
const (
	shortestOwn = 10 * time.Minute
	longestOwn  = 30 * 24 * time.Hour
)

// UsesToken reports whether a token is the one with which hypergate reaches the guest.
func (c *Cluster) UsesToken(token string) bool {
	return token != "" && c.conn.Current().BearerToken == token
}

// RequestOwnToken requests the next token of the account with which hypergate reaches the guest. It returns how to
// reach the guest with it. The error says so if the credential in use cannot be renewed.
func (c *Cluster) RequestOwnToken(ctx context.Context) (kubeconfig.Access, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	config := c.conn.Current()
	account, lifetime := model.AccountOf(config.BearerToken)
	switch {
	case account.Name == "" || account.Namespace == "":
		return kubeconfig.Access{}, errors.New("hypergate's credential for the guest is no token of a service account: " +
			"renew it yourself, and omit --renew-guest-kubeconfig")
	case config.Proxy != nil:
		return kubeconfig.Access{}, errors.New("hypergate's kubeconfig for the guest has a proxy-url, which a renewal would lose: " +
			"renew it yourself, and omit --renew-guest-kubeconfig")
	}
	seconds := int64(min(max(lifetime, shortestOwn), longestOwn) / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	got, err := c.core.ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return kubeconfig.Access{}, fmt.Errorf("requesting a token of hypergate's own service account: %w", answer.Brief(err))
	}
	if len(got.Status.Token) > tokenLimit {
		return kubeconfig.Access{}, apply.TooLarge("the token of hypergate's own service account", tokenLimit)
	}
	endpoint := c.conn.Endpoint()
	return kubeconfig.Access{
		Server: endpoint.Server, ServerName: config.ServerName, CA: endpoint.CABundle, User: account.Name, Token: got.Status.Token,
	}, nil
}
