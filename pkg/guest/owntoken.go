package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/model"
)

// shortestOwn and LongestOwn limit the lifetime of the token that hypergate requests for its own account. It is that of
// the token before.
const (
	shortestOwn = 10 * time.Minute
	LongestOwn  = 30 * 24 * time.Hour
)

// UsesToken reports whether a token is the one with which hypergate reaches the guest.
func (c *Cluster) UsesToken(token string) bool {
	return token != "" && c.conn.Current().BearerToken == token
}

// ownAccount is hypergate's account in errors. Its name is not in them, because conditions show them.
const ownAccount = "hypergate's own service account"

// TokenProblem returns why a token must not be used as that of a service account. Nil: it can be. The guest decides
// what it answers. For example, a kubeconfig with a token that does not work would lock hypergate out after a
// restart. name is the account in the error.
func TokenProblem(token, name string, account types.NamespacedName) error {
	if len(token) > tokenLimit {
		return apply.TooLarge("the token of "+name, tokenLimit)
	}
	switch got, lifetime := model.AccountOf(token); {
	case got != account:
		return fmt.Errorf("the guest answers with a token of another account than %s: check what changes TokenRequests in the guest", name)
	case lifetime < shortestOwn/2:
		return fmt.Errorf("the guest issues tokens of %s that are valid for less than %s: let it issue longer ones", name, shortestOwn/2)
	default:
		return nil
	}
}

// checkOwnToken returns the TokenProblem, or an error if the guest does not accept the token.
func (c *Cluster) checkOwnToken(ctx context.Context, token string, account types.NamespacedName) error {
	if err := TokenProblem(token, ownAccount, account); err != nil {
		return err
	}
	switch accepts, err := c.conn.Accepts(ctx, token); {
	case err != nil:
		return answer.Brief(err)
	case !accepts:
		return errors.New("the guest does not accept the token that it issued for " + ownAccount)
	default:
		return nil
	}
}

// renewItYourself is the next step for a credential that hypergate cannot renew.
const renewItYourself = "renew it yourself, and omit --renew-guest-kubeconfig"

// renewalProblem returns why hypergate cannot renew the credential of a config. Nil: it can.
func renewalProblem(config *rest.Config) error {
	account, _ := model.AccountOf(config.BearerToken)
	switch {
	case account.Name == "" || account.Namespace == "":
		return guestconn.StepError{
			Problem: "hypergate's credential for the guest is not a token of a service account", Step: renewItYourself,
		}
	case config.Proxy != nil:
		return guestconn.StepError{
			Problem: "hypergate's kubeconfig for the guest has a proxy-url, which a renewal would lose", Step: renewItYourself,
		}
	default:
		return nil
	}
}

// OwnRenewalProblem returns why hypergate cannot renew the credential in use. Nil: it can.
func (c *Cluster) OwnRenewalProblem() error { return renewalProblem(c.conn.Current()) }

// RequestOwnToken requests the next token of the account with which hypergate reaches the guest. It returns how to
// reach the guest with it. The error says so if the credential in use cannot be renewed.
func (c *Cluster) RequestOwnToken(ctx context.Context) (kubeconfig.Access, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	session, config, endpoint := c.conn.Session(), c.conn.Current(), c.conn.Endpoint()
	if err := renewalProblem(config); err != nil {
		return kubeconfig.Access{}, err
	}
	account, lifetime := model.AccountOf(config.BearerToken)
	seconds := int64(min(max(lifetime, shortestOwn), LongestOwn) / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	got, err := c.core.ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return kubeconfig.Access{}, fmt.Errorf("requesting a token of "+ownAccount+": %w", answer.Brief(err))
	}
	if err := c.checkOwnToken(ctx, got.Status.Token, account); err != nil {
		return kubeconfig.Access{}, err
	}
	if c.conn.Session() != session {
		return kubeconfig.Access{}, errors.New("the guest's kubeconfig was replaced during its renewal")
	}
	return kubeconfig.Access{
		Server: endpoint.Server, ServerName: config.ServerName, CA: endpoint.CABundle, User: account.Name, Token: got.Status.Token,
	}, nil
}
