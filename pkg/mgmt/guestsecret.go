package mgmt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// guestSecret follows the Secret with the guest's kubeconfig, and the Cluster that the Secret belongs to. The methods
// GuestKubeconfig and OnGuestKubeconfig of Cluster need a non-nil guestSecret.
type guestSecret struct {
	key    types.NamespacedName
	client dynamic.Interface
	watch  *watch.Watch
	notify func()
	// news signals a change of the Secret. run calls onChange for each signal.
	news     chan struct{}
	onChange func()

	// mu guards the fields below: the Cluster's name, its watch (nil for an empty name), and the function that stops
	// the watch.
	mu      sync.Mutex
	name    string
	cluster *controlPlanes
	stop    context.CancelFunc
}

// newGuestSecret returns a guestSecret if the Config names a Secret, otherwise nil.
func newGuestSecret(
	restConfig *rest.Config, httpClient *http.Client, core coreclient.SecretsGetter, cfg model.Config,
	notify func(),
) (*guestSecret, error) {
	if cfg.GuestKubeconfigSecret == "" {
		return nil, nil //nolint:nilnil // a nil guestSecret shows nothing and counts as known
	}
	client, err := dynamic.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	s := &guestSecret{
		key: types.NamespacedName{Namespace: cfg.MgmtNamespace, Name: cfg.GuestKubeconfigSecret}, client: client, notify: notify,
		news: make(chan struct{}, 1), onChange: func() {},
	}
	o := namedWatch("secrets", s.key.Name, core.Secrets(s.key.Namespace), s.changed)
	o.Example, o.OnProblem = &corev1.Secret{}, s.changed
	s.watch = watch.New(o)
	return s, nil
}

// changed is called on each change of the Secret. It does not block.
func (s *guestSecret) changed() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// run watches the Secret until ctx ends.
func (s *guestSecret) run(ctx context.Context) {
	if s == nil {
		return
	}
	go s.watch.Run(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
			s.follow(ctx)
			s.notify()
			s.onChange()
		}
	}
}

// shown returns the Secret. It returns nil if the Secret does not exist.
func (s *guestSecret) shown() *corev1.Secret {
	obj, _ := s.watch.Get(s.key.String())
	secret, _ := obj.(*corev1.Secret)
	return secret
}

// follow watches the Cluster that the Secret belongs to. If the Secret is gone, it keeps watching the previous
// Cluster.
func (s *guestSecret) follow(ctx context.Context) {
	secret := s.shown()
	s.mu.Lock()
	defer s.mu.Unlock()
	if secret == nil || clusterOf(secret) == s.name {
		return
	}
	if s.stop != nil {
		s.stop()
	}
	s.name, s.cluster, s.stop = clusterOf(secret), nil, nil
	if s.name == "" {
		return
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.cluster = watchControlPlanes(s.client, s.key.Namespace, capiKind(s.name), s.notify)
	go s.cluster.run(ctx)
}

// known reports whether it is known which Cluster exists. Without the Secret there is no Cluster to look for.
func (s *guestSecret) known() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := s.shown()
	return s.watch.Synced() && (secret == nil || clusterOf(secret) == s.name) && s.cluster.known()
}

// err returns the error of the watches of the Secret and the Cluster, or nil.
func (s *guestSecret) err() error {
	if s == nil {
		return nil
	}
	return cmp.Or(s.watch.Err(), s.following().err())
}

// following returns the watch of the Cluster. It returns nil if there is no Cluster to look for.
func (s *guestSecret) following() *controlPlanes {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

// clusterName returns the name of the Cluster that is followed. It is empty if there is no Cluster to look for.
func (s *guestSecret) clusterName() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// selected returns the Cluster, or the zero value if there is none.
func (s *guestSecret) selected() (model.ControlPlane, error) { return s.following().selected() }

// problems returns a problem if RBAC forbids access to the Cluster.
func (s *guestSecret) problems() []apply.WatchProblem { return s.following().problems() }

// OnGuestKubeconfig registers a function that is called whenever the result of GuestKubeconfig can have changed. Call
// it before Start.
func (c *Cluster) OnGuestKubeconfig(onChange func()) { c.guestSecret.onChange = onChange }

// GuestKubeconfig returns the client configuration of the guest. The error explains what is wrong with the Secret, and
// how to fix it.
func (c *Cluster) GuestKubeconfig() (*rest.Config, error) {
	secret, err := c.guestSecret.current()
	if err != nil {
		return nil, ofSecret(c.guestSecret.key, err)
	}
	return kubeconfig.FromSecret(secret.Name, secret.Data)
}

// current returns the Secret as the watch shows it.
func (s *guestSecret) current() (*corev1.Secret, error) {
	err := s.watch.Err()
	secret := s.shown()
	switch {
	case apierrors.IsForbidden(err):
		return nil, ForbiddenSecretError{s.key, err}
	case secret == nil && err != nil:
		return nil, err
	case !s.watch.Synced():
		return nil, NoKubeconfigError{"it has not been read yet"}
	case secret == nil:
		return nil, NoKubeconfigError{notFound(s.key) + "; hypergate waits for it"}
	}
	return secret, nil
}

// ReadGuestKubeconfig returns the client configuration of the guest from one read of the Secret, for callers that do
// not watch it. It needs no more permissions than the watch of the Secret: it lists Secrets of this one name.
func ReadGuestKubeconfig(ctx context.Context, secrets coreclient.SecretsGetter, key types.NamespacedName) (*rest.Config, error) {
	found, err := secrets.Secrets(key.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name})
	switch {
	case apierrors.IsForbidden(err):
		err = fmt.Errorf(
			"not allowed to read it: allow the caller to list this one Secret, as deploy/rbac/cluster-api allows hypergate: %w",
			err,
		)
	case err != nil:
		err = fmt.Errorf(
			"reading it in namespace %s of the management cluster: %w; check that --kubeconfig "+
				"leads there, or increase --timeout",
			key.Namespace, err,
		)
	case len(found.Items) == 0:
		err = errors.New(notFound(key))
	default:
		return kubeconfig.FromSecret(key.Name, found.Items[0].Data)
	}
	return nil, ofSecret(key, err)
}

// ofSecret adds the name of the Secret to an error.
func ofSecret(key types.NamespacedName, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("Secret %s: %w", key.Name, err) //nolint:staticcheck // kinds are capitalised
}

func notFound(key types.NamespacedName) string {
	return fmt.Sprintf("it does not exist in namespace %s; the provider creates it with the control plane; if it has another name, set "+
		"--guest-kubeconfig-secret", key.Namespace)
}

// ForbiddenSecretError means that hypergate is not allowed to list or watch the Secret with the guest kubeconfig.
type ForbiddenSecretError struct {
	Key types.NamespacedName
	Err error
}

// Error returns what to do, and the API server's answer.
func (e ForbiddenSecretError) Error() string {
	return "not allowed to read it: allow hypergate to list and watch this one Secret, as deploy/rbac/cluster-api does: " + e.Err.Error()
}

// Unwrap returns the API server's answer.
func (e ForbiddenSecretError) Unwrap() error { return e.Err }

// NoKubeconfigError means that the Secret for the guest's kubeconfig does not exist, or was not read yet.
type NoKubeconfigError struct{ why string }

// Error reports which of the two is the case, and what to do.
func (e NoKubeconfigError) Error() string { return e.why }
