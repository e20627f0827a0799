package guest

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/throttle"
)

const (
	// namespacePage is the page size for listing namespaces, and namespacePages the number of requests. Together they
	// cover 100,000 namespaces, ten times the number that Kubernetes is tested for. Beyond that, hypergate cannot
	// know whether the guest is the management cluster. It then installs nothing, and a running istiod keeps its
	// token.
	namespacePage  = 500
	namespacePages = 200
	// smallestNamespacePage is the smallest page size. If a page exceeds the limit for a list (8 MiB), hypergate
	// requests it again with a fifth of the namespaces, down to this size. Four of the largest objects that etcd
	// stores (1.5 MiB) fit.
	smallestNamespacePage = 4
)

// errManyNamespaces reports that the guest has more namespaces than hypergate reads.
var errManyNamespaces = fmt.Errorf("the guest has more namespaces, or larger ones, than hypergate looks at (%d pages of up to %d), "+
	"so that it may be the management cluster: delete namespaces, or their large annotations", namespacePages, namespacePage)

// HasNamespace reports whether the guest has a namespace with this UID. It does not request the namespace by name,
// because the name would appear in the guest's audit log.
//
// If the guest does not have it, this guest becomes the guest of this process. From then on, a kubeconfig of another
// guest is refused. A guest that does not show its namespace kube-system cannot be identified, which is an error.
func (c *Cluster) HasNamespace(ctx context.Context, uid types.UID) (bool, error) {
	session := c.conn.Session()
	if err := c.looks.waits(session, time.Now()); err != nil {
		return false, err
	}
	found, err := lookAtNamespaces(ctx, c.spaces, uid)
	if err == nil && !found.has {
		if err = c.conn.Identify(session, string(found.kubeSystem)); err != nil {
			err = fmt.Errorf("identifying the guest: %w", err)
		}
	}
	c.looks.ended(session, found.pages, err, time.Now())
	return found.has && err == nil, err
}

// Delays after a look at namespaces that failed: the first, and the longest after at most one page and after more. A
// look can read 200 pages of 8 MiB, and each pass looks until the guest is identified.
const (
	firstLookDelay   = time.Second
	maxLookDelay     = 10 * time.Second
	maxLongLookDelay = 5 * time.Minute
)

// namespaceLooks spaces out the looks at namespaces that fail. It is safe for concurrent use.
type namespaceLooks struct {
	mu      sync.Mutex
	session uint64
	backoff throttle.Backoff
	last    error
}

// waits returns the error of the last look, if it is too early for another one in the same session.
func (l *namespaceLooks) waits(session uint64, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if session != l.session || l.backoff.Wait(now) == 0 {
		return nil
	}
	return l.last
}

// ended records the result of a look that read a number of pages.
func (l *namespaceLooks) ended(session uint64, pages int, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if session != l.session || err == nil {
		l.backoff.Reset()
	}
	if l.session, l.last = session, err; err == nil {
		return
	}
	longest := maxLookDelay
	if pages > 1 {
		longest = maxLongLookDelay
	}
	l.backoff.Failed(now, firstLookDelay, longest)
}

// HasNamespace reports whether the cluster behind a config has a namespace with this UID. It is for a config that is
// not in use yet. identity is the UID of the cluster's namespace kube-system, or "" if the cluster does not show it.
func HasNamespace(ctx context.Context, restConfig *rest.Config, uid types.UID) (found bool, identity types.UID, err error) {
	client, err := namespaceClient(restConfig)
	if err != nil {
		return false, "", fmt.Errorf("making a client of the guest: %w", err)
	}
	spaces, err := lookAtNamespaces(ctx, client, uid)
	return spaces.has, spaces.kubeSystem, err
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
	options := metav1.ListOptions{Limit: namespacePage}
	for range namespacePages {
		page, err := client.List(ctx, options)
		if err == nil || answer.IsTooLong(err) {
			found.pages++
		}
		switch {
		case answer.IsTooLong(err) && options.Limit > smallestNamespacePage:
			options.Limit = max(options.Limit/5, smallestNamespacePage)
			continue
		case err != nil:
			return namespaces{pages: found.pages}, fmt.Errorf("reading namespaces in the guest: %w", answer.Brief(err))
		}
		for i := range page.Items {
			switch ns := &page.Items[i]; {
			case ns.UID == uid:
				found.has = true
				return found, nil
			case ns.Name == metav1.NamespaceSystem:
				found.kubeSystem = ns.UID
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
	return namespaces{pages: found.pages}, errManyNamespaces
}
