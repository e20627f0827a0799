package guest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/answer"
)

const (
	// namespacePage is how many namespaces are asked for at once, namespacePages how often: 100,000 namespaces in all,
	// ten times what Kubernetes is tested for. Beyond that it is not known whether the guest is the management cluster:
	// nothing is installed, and an istiod that is there keeps its token.
	namespacePage  = 500
	namespacePages = 200
	// smallestNamespacePage is the smallest page. A page that is longer than what is read of a list (8 MiB) is asked for
	// again with a fifth of the namespaces, down to this: that many of the largest objects that etcd takes (1.5 MiB) fit.
	smallestNamespacePage = 4
)

// errManyNamespaces says that the guest has more namespaces than are looked at.
var errManyNamespaces = fmt.Errorf("the guest has more namespaces, or larger ones, than hypergate looks at (%d pages of up to %d), "+
	"so that it may be the management cluster: delete namespaces, or their large annotations", namespacePages, namespacePage)

// HasNamespace reports whether the guest has a namespace of this UID. The name is not asked for: it would be in the
// guest's audit log. A guest that does not have it is the one that this process works with from then on: a kubeconfig of
// another guest is refused.
func (c *Cluster) HasNamespace(ctx context.Context, uid types.UID) (bool, error) {
	session := c.conn.Session()
	found, err := lookAtNamespaces(ctx, c.spaces, uid)
	if err != nil || found.has {
		return found.has, err
	}
	if err := c.conn.Identify(session, string(found.kubeSystem)); err != nil {
		return false, fmt.Errorf("identifying the guest: %w", err)
	}
	return false, nil
}

// HasNamespace reports the same of the cluster that a config leads to, before it is taken for the guest, and what
// identifies that cluster: the UID of its namespace kube-system, empty where it shows none.
func HasNamespace(ctx context.Context, restConfig *rest.Config, uid types.UID) (found bool, identity types.UID, err error) {
	client, err := namespaceClient(restConfig)
	if err != nil {
		return false, "", fmt.Errorf("making a client of the guest: %w", err)
	}
	spaces, err := lookAtNamespaces(ctx, client, uid)
	return spaces.has, spaces.kubeSystem, err
}

// namespaceClient is a client for the metadata of namespaces, page by page.
func namespaceClient(restConfig *rest.Config) (metadata.ResourceInterface, error) {
	restConfig = metadata.ConfigFor(restConfig) // a copy
	restConfig.Wrap(Limit())
	client, err := metadata.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	return client.Resource(namespaceResource()), nil
}

// namespaces is what a look at the namespaces of a cluster found.
type namespaces struct {
	// has is whether one has the UID that was asked for. The look ends there.
	has bool
	// kubeSystem is the UID of kube-system, by which a cluster is recognised.
	kubeSystem types.UID
}

// lookAtNamespaces goes through all namespaces. An error means that it is not known what there is.
func lookAtNamespaces(ctx context.Context, client metadata.ResourceInterface, uid types.UID) (namespaces, error) {
	var found namespaces
	options := metav1.ListOptions{Limit: namespacePage}
	for range namespacePages {
		page, err := client.List(ctx, options)
		switch {
		case answer.IsTooLong(err) && options.Limit > smallestNamespacePage:
			options.Limit = max(options.Limit/5, smallestNamespacePage)
			continue
		case err != nil:
			return namespaces{}, fmt.Errorf("reading namespaces in the guest: %w", answer.Brief(err))
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
	return namespaces{}, errManyNamespaces
}
