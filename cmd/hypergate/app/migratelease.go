package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/retry"

	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/migration"
)

// migrationLease is the Lease with the requests and the state of a migration, on the management cluster.
type migrationLease struct {
	namespace, name string

	leases coordinationclient.LeaseInterface
	// now is the clock of the API server: hypergate compares a request with its own times.
	now func() time.Time
}

// migrateManager is the field manager of what the commands write.
const migrateManager = "hypergate-migrate"

func newMigrationLease(flags *clusterFlags, revision string) (*migrationLease, error) {
	config, namespace, err := flags.config()
	if err != nil {
		return nil, err
	}
	now := fleet.Clock(config)
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	return &migrationLease{namespace, migration.LeaseName(revision), client.Leases(namespace), now}, nil
}

// read returns the annotations of the Lease. Without a Lease, there are none.
func (l *migrationLease) read(ctx context.Context) (annotations map[string]string, exists bool, err error) {
	lease, err := l.leases.Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, l.problem("reading", err)
	}
	return lease.Annotations, true, nil
}

// ensure creates the Lease if it does not exist, without a request. Server-side apply, because its permission can be
// restricted to the name.
func (l *migrationLease) ensure(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := l.leases.Apply(ctx, applyv1.Lease(l.name, l.namespace), metav1.ApplyOptions{FieldManager: migrateManager})
	if err != nil {
		return nil, l.problem("creating", err)
	}
	return lease, nil
}

// asked is the result of a request.
type asked struct {
	intent migration.Intent
	// changed reports whether something was written. It was not if the same was requested before.
	changed bool
}

// ask writes a request, if it is possible now. A start replaces the accepted findings by accepted, and another request
// adds them. Only the state that was read is changed: after a conflict, it is read, and judged, again.
func (l *migrationLease) ask(ctx context.Context, request migration.Request, accepted migration.Waivers) (out asked, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := l.leases.Get(ctx, l.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && request == migration.RequestStart {
			lease, err = l.ensure(ctx)
		}
		switch {
		case apierrors.IsNotFound(err):
			return l.notStarted()
		case err != nil:
			return l.problem("reading", err)
		}
		record, err := l.record(lease.Annotations)
		if err != nil {
			return err
		}
		if out.intent, out.changed, err = l.next(record, request); err != nil || !out.changed {
			return err
		}
		if request == migration.RequestStart {
			out.intent.Accepted = migration.Waivers{}
		}
		out.intent.Accepted = out.intent.Accepted.And(accepted)
		return l.write(ctx, lease, out.intent)
	})
	return out, err
}

// may returns what the Lease has, or an error if a request is refused now. It writes nothing.
func (l *migrationLease) may(ctx context.Context, request migration.Request) (migration.Record, error) {
	annotations, _, err := l.read(ctx)
	if err != nil {
		return migration.Record{}, err
	}
	record, err := l.record(annotations)
	if err == nil {
		_, _, err = l.next(record, request)
	}
	return record, err
}

// record returns what the annotations of the Lease have.
func (l *migrationLease) record(annotations map[string]string) (migration.Record, error) {
	record, _, err := migration.ParseRecord(annotations)
	if err != nil {
		return record, fmt.Errorf("the Lease %s in namespace %s: %w: correct the annotation, or remove it", l.name, l.namespace, err)
	}
	return record, nil
}

// next returns the intent after a request.
func (l *migrationLease) next(record migration.Record, request migration.Request) (migration.Intent, bool, error) {
	next, changed, err := record.After(request, l.now().UTC().Truncate(time.Second))
	if err != nil {
		return migration.Intent{}, false, fmt.Errorf("migrate %s: %w", request, err)
	}
	return next, changed, nil
}

// write sets the annotations of an intent. It returns a conflict if the Lease is not the one that was read.
func (l *migrationLease) write(ctx context.Context, read *coordinationv1.Lease, i migration.Intent) error {
	annotations := map[string]any{}
	for key, value := range i.Annotations() {
		annotations[key] = value
		if value == "" {
			annotations[key] = nil // a merge patch removes it
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": read.UID, "resourceVersion": read.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("preparing the request: %w", err)
	}
	_, err = l.leases.Patch(ctx, l.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: migrateManager})
	if err != nil {
		return l.problem("writing", err)
	}
	return nil
}

func (l *migrationLease) notStarted() error {
	return fmt.Errorf("no migration was started: the Lease %s does not exist in namespace %s: check -n and --revision, or start one with "+
		"hypergate migrate start", l.name, l.namespace)
}

// problem returns an error with what was done, and the next step.
func (l *migrationLease) problem(doing string, err error) error {
	what := fmt.Sprintf("%s the Lease %s in namespace %s", doing, l.name, l.namespace)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w: to permit it, bind the ClusterRole of deploy/migration-operator", what, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w: log in to the management cluster again", what, err)
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("%s: %w: check that the management cluster is running, and --kubeconfig and --context", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
