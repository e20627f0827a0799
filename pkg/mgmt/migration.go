package mgmt

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// migrationLease is the Lease of a migration. A person, or GitOps, creates it. hypergate only writes its state to it.
type migrationLease struct {
	key    types.NamespacedName
	leases coordinationclient.LeaseInterface
	watch  *watch.Watch
}

// longestAnnotation is how much of an annotation is kept, in bytes. The report of a migration has at most 16 KiB.
const longestAnnotation = 16 << 10

// migrationTimeout is how long a write of the state may take.
const migrationTimeout = 10 * time.Second

func newMigrationLease(restConfig *rest.Config, httpClient *http.Client, cfg model.Config, notify func()) (*migrationLease, error) {
	client, err := coordinationclient.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		return nil, err
	}
	leases := client.Leases(cfg.MgmtNamespace)
	out := &migrationLease{
		key: types.NamespacedName{Namespace: cfg.MgmtNamespace, Name: model.MigrationLeaseName(cfg.Revision)}, leases: leases,
	}
	o := namedWatch("leases", out.key.Name, leases, notify)
	o.Example, o.Transform, o.OnProblem = &coordinationv1.Lease{}, migrationOnly, notify
	out.watch = watch.New(o)
	return out, nil
}

// migrationOnly removes everything from a Lease except its identity and the annotations of a migration.
func migrationOnly(obj any) (any, error) {
	lease, is := obj.(*coordinationv1.Lease)
	if !is {
		return obj, nil
	}
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID, ResourceVersion: lease.ResourceVersion,
		Annotations: map[string]string{},
	}}
	for key, value := range lease.Annotations {
		if strings.HasPrefix(key, model.MigrationAnnotation) {
			out.Annotations[key] = value[:min(len(value), longestAnnotation+1)] // one byte more, so that it is too long for its reader
		}
	}
	return out, nil
}

// known reports whether the Lease is known, or cannot be read. An existing migration must not be taken for none.
func (l *migrationLease) known() bool { return l.watch.Synced() || l.watch.Err() != nil }

// observed returns the Lease as the watch shows it.
func (l *migrationLease) observed() model.MigrationLease {
	obj, _ := l.watch.Get(l.key.String())
	lease, is := obj.(*coordinationv1.Lease)
	if !is {
		return model.MigrationLease{}
	}
	return model.MigrationLease{Name: lease.Name, UID: lease.UID, ResourceVersion: lease.ResourceVersion, Annotations: lease.Annotations}
}

// problems returns the problem of the watch.
func (l *migrationLease) problems() []apply.WatchProblem {
	err := l.watch.Err()
	if err == nil {
		return nil
	}
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	return []apply.WatchProblem{{
		GVK: schema.GroupVersionKind{Group: leases.Group, Version: "v1", Kind: "Lease"}, Cause: apply.Classify(err, "list", leases),
	}}
}

// WriteMigration sets annotations of the Lease of a migration. The API server refuses the write (409) if the Lease is
// not the one that was observed.
func (c *Cluster) WriteMigration(ctx context.Context, read model.MigrationLease, annotations map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": read.UID, "resourceVersion": read.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding the state of the migration: %w", err)
	}
	_, err = c.migration.leases.Patch(ctx, c.migration.key.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: model.FieldManager})
	if err != nil {
		return fmt.Errorf("writing the state of the migration to Lease %s: %w", c.migration.key.Name, answer.Brief(err))
	}
	return nil
}
