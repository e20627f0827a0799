package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/mgmt"
)

// clusterNameLabel is the label of Cluster API that names the Cluster of an object.
const clusterNameLabel = "cluster.x-k8s.io/cluster-name"

// requestToken adds a token of the service account to access, and returns until when the token is valid.
func (o *guestKubeconfigOptions) requestToken(
	ctx context.Context, guestConfig *rest.Config, access *kubeconfig.Access,
) (time.Time, error) {
	client, err := coreclient.NewForConfig(guestConfig)
	if err != nil {
		return time.Time{}, fmt.Errorf("creating a client for the guest: %w", err)
	}
	seconds := int64(o.lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	doing := fmt.Sprintf("requesting a token of service account %s/%s in the guest", o.guestNamespace, o.account)
	got, err := client.ServiceAccounts(o.guestNamespace).CreateToken(ctx, o.account, request, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return time.Time{}, fmt.Errorf("%s: it does not exist: create it with kubectl apply -k deploy/hosted/guest, "+
			"or check --guest-namespace and --service-account", doing)
	case err != nil:
		return time.Time{}, accessError(doing, "create serviceaccounts/token there", err)
	case got.Status.Token == "":
		return time.Time{}, fmt.Errorf("%s: the API server returned no token", doing)
	}
	if err := tokenProblem(got.Status.Token, o.guestNamespace, o.account); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", doing, err)
	}
	access.Token = got.Status.Token
	return got.Status.ExpirationTimestamp.Time, nil
}

// tokenProblem returns why a token that the guest issued is not used as that of a service account. Nil: it is.
func tokenProblem(token, namespace, name string) error {
	account := types.NamespacedName{Namespace: namespace, Name: name}
	return guest.TokenProblem(token, "service account "+account.String(), account)
}

// store writes the kubeconfig to the Secret.
func (o *guestKubeconfigOptions) store(
	ctx context.Context, core coreclient.CoreV1Interface, content []byte, until time.Time, out io.Writer,
) error {
	name, key := o.secretKey()
	secret := applycorev1.Secret(name, o.mgmt.namespace).WithType(corev1.SecretTypeOpaque).WithData(map[string][]byte{key: content})
	if o.cluster != "" {
		secret.WithLabels(map[string]string{clusterNameLabel: o.cluster})
	}
	doing := fmt.Sprintf("writing Secret %s in namespace %s", name, o.mgmt.namespace)
	options := metav1.ApplyOptions{FieldManager: writerOfKubeconfig, Force: o.force}
	_, err := core.Secrets(o.mgmt.namespace).Apply(ctx, secret, options)
	if isOfRenewal(err) {
		options.Force = true
		_, err = core.Secrets(o.mgmt.namespace).Apply(ctx, secret, options)
	}
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: another client wrote its kubeconfig: if that client renews it, correct that client; otherwise, "+
			"replace it with --force-conflicts: %w", doing, err)
	case err != nil:
		return accessError(doing, "patch and create it", err)
	}
	_, err = fmt.Fprintf(out, "secret/%s: kubeconfig of %s/%s, valid until %s\n",
		name, oneLine(o.guestNamespace), oneLine(o.account), until.UTC().Format(time.RFC3339))
	return err
}

// isOfRenewal reports whether a write conflicts with hypergate's own renewal alone, which may be replaced.
func isOfRenewal(err error) bool {
	status, is := errors.AsType[*apierrors.StatusError](err)
	if !is || !apierrors.IsConflict(err) || status.ErrStatus.Details == nil {
		return false
	}
	causes := status.ErrStatus.Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return !strings.Contains(c.Message, strconv.Quote(mgmt.RenewalManager))
	})
}

// secretKey returns the name of the Secret, and its key.
func (o *guestKubeconfigOptions) secretKey() (name, key string) {
	name, key = hostedSecret, kubeconfig.KeyHyperShift
	if o.cluster != "" {
		name, key = o.cluster+"-hypergate", kubeconfig.KeyClusterAPI
	}
	if o.secret != "" {
		name = o.secret
	}
	return name, key
}

// accessError returns an error of an API server with the next step.
func accessError(doing, permission string, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", doing, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w: ask for the permission to %s", doing, err, permission)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w: log in to that cluster again", doing, err)
	case apply.Classify(err, "", schema.GroupResource{}).Class() == apply.Unreachable:
		return fmt.Errorf("%s: %w: check that the cluster is running, and the context and kubeconfig for it", doing, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}
