package guest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/throttle"
)

const (
	// namespacePage is the page size for listing namespaces, and namespacePages the number of requests. Together they
	// cover 100,000 namespaces, ten times the number that Kubernetes is tested for. Beyond that, hypergate cannot
	// know whether the guest is the management cluster. It then installs nothing, and a running istiod keeps its
	// token.
	namespacePage  = 500
	namespacePages = 200
)

// errManyNamespaces reports that the guest has more namespaces than hypergate reads.
var errManyNamespaces = guestconn.StepError{
	Problem: fmt.Sprintf("the guest has more or larger namespaces than hypergate reads (%d pages of up to %d), so it may be the "+
		"management cluster", namespacePages, namespacePage),
	Step: "delete namespaces of the guest, or their large annotations",
}

// HasNamespace reports whether the guest has a namespace with this UID. It does not request the namespace by name,
// because the name would appear in the guest's audit log.
//
// If the guest does not have it, this guest becomes the guest of this process. From then on, a kubeconfig of another
// guest is refused. A guest that does not show its namespace kube-system cannot be identified, which is an error.
//
// A result is valid for its session only. In the same session it is returned again until the next look is due.
func (c *Cluster) HasNamespace(ctx context.Context, uid types.UID) (bool, error) {
	session := c.conn.Session()
	found, err := c.looks.look(session, uid, time.Now, func() (namespaces, error) {
		found, err := lookAtNamespaces(ctx, c.spaces, uid)
		if err == nil && !found.has {
			if err = c.conn.Identify(session, string(found.kubeSystem)); err != nil {
				err = fmt.Errorf("identifying the guest: %w", err)
			}
		}
		return found, err
	})
	return found.has && err == nil, err
}

// Candidates looks at the clusters behind kubeconfigs that are not in use yet. Use NewCandidates.
type Candidates struct {
	clock clock.PassiveClock
	looks namespaceLooks
}

// NewCandidates returns Candidates without a look.
func NewCandidates(c clock.PassiveClock) *Candidates { return &Candidates{clock: c} }

// HasNamespace reports whether the cluster behind a kubeconfig has a namespace with this UID. identity is the UID of
// the cluster's namespace kube-system, or "" if the cluster does not show it. The result of the last look at the same
// candidate, also an error, is returned again until the next look is due.
func (c *Candidates) HasNamespace(
	ctx context.Context, candidate guestconn.Candidate, uid types.UID,
) (found bool, identity types.UID, err error) {
	spaces, err := c.looks.look(candidate.Number, uid, c.clock.Now, func() (namespaces, error) {
		client, err := namespaceClient(candidate.Config)
		if err != nil {
			return namespaces{}, fmt.Errorf("making a client of the guest: %w", err)
		}
		return lookAtNamespaces(ctx, client, uid)
	})
	return spaces.has, spaces.kubeSystem, err
}

// Delays after a look at namespaces: the first, and the longest. A look can read 200 pages of 8 MiB. Without a delay,
// each pass would look until the guest is identified, and the connection would look at each interval while a kubeconfig
// is refused.
const (
	firstLookDelay = time.Second
	maxLookDelay   = 10 * time.Second
	// maxLongLookDelay is the longest after more than one page, and after a look that found the namespace: only another
	// kubeconfig is likely to change that.
	maxLongLookDelay = 5 * time.Minute
)

// namespaceLooks spaces out the looks at the namespaces of one cluster, whatever they find. It is safe for concurrent
// use.
type namespaceLooks struct {
	mu sync.Mutex
	// session and uid are the arguments of the last look, found and err its result.
	session uint64
	uid     types.UID
	found   namespaces
	err     error
	backoff throttle.Backoff
}

// look returns the result of do. If it is too early for another look in the same session, for the same UID, it returns
// the last result instead. now is called again after do, because a look can take seconds.
func (l *namespaceLooks) look(
	session uint64, uid types.UID, now func() time.Time, do func() (namespaces, error),
) (namespaces, error) {
	l.mu.Lock()
	same := session == l.session && uid == l.uid
	if same && l.backoff.Wait(now()) > 0 {
		defer l.mu.Unlock()
		return l.found, l.err
	}
	l.mu.Unlock()
	found, err := do()
	l.mu.Lock()
	defer l.mu.Unlock()
	if session != l.session || uid != l.uid {
		l.backoff.Reset()
	}
	l.session, l.uid, l.found, l.err = session, uid, found, err
	longest := maxLookDelay
	if found.pages > 1 || found.has {
		longest = maxLongLookDelay
	}
	l.backoff.Failed(now(), firstLookDelay, longest)
	return found, err
}

// namespaceClient returns a client for the metadata of namespaces.
func namespaceClient(restConfig *rest.Config) (metadata.ResourceInterface, error) {
	restConfig = metadata.ConfigFor(restConfig) // a copy
	restConfig.Wrap(Limit())
	client, err := metadata.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	return client.Resource(namespaceResource()), nil
}

// namespaces is the result of listing the namespaces of a cluster.
type namespaces struct {
	// has reports whether a namespace has the given UID. The listing ends there.
	has bool
	// kubeSystem is the UID of the namespace kube-system, which identifies a cluster.
	kubeSystem types.UID
	// pages is how many pages were read, also before an error.
	pages int
}

// lookAtNamespaces lists all namespaces, page by page. An error means that the result is unknown.
func lookAtNamespaces(ctx context.Context, client metadata.ResourceInterface, uid types.UID) (namespaces, error) {
	var found namespaces
	pages := answer.Pages{Size: namespacePage, Requests: namespacePages}
	err := pages.List(metav1.ListOptions{}, func(options metav1.ListOptions) (string, error) {
		page, err := client.List(ctx, options)
		if err == nil || answer.IsTooLong(err) {
			found.pages++
		}
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			switch ns := &page.Items[i]; {
			case ns.UID == uid:
				found.has = true
				return "", nil
			case ns.Name == metav1.NamespaceSystem:
				found.kubeSystem = ns.UID
			}
		}
		return page.Continue, nil
	})
	switch {
	case errors.Is(err, answer.ErrManyPages):
		return namespaces{pages: found.pages}, errManyNamespaces
	case err != nil:
		return namespaces{pages: found.pages}, fmt.Errorf("reading namespaces in the guest: %w", answer.Brief(err))
	default:
		return found, nil
	}
}
