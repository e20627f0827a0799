package world

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
)

// File names of hypergate's kubeconfigs in a world's folder.
const (
	mgmtKubeconfig  = "hypergate-mgmt.kubeconfig"
	guestKubeconfig = "hypergate-guest.kubeconfig"
	// kubeconfigLifetime is longer than the life of any demo.
	kubeconfigLifetime = 30 * 24 * time.Hour
)

// SidecarInjection is the folder of deploy/ with the guest's objects for --sidecar-injection.
const SidecarInjection = "sidecar-injection"

// MgmtUser returns the user name of hypergate on the management side, as in audit logs.
func (w *World) MgmtUser() string { return deploy.UserOf(w.MgmtNamespace, deploy.Account) }

// GuestUser returns the user name of hypergate in the guest.
func (w *World) GuestUser() string {
	if w.Topology == model.TopologyStandalone {
		return w.MgmtUser()
	}
	return deploy.UserOf(GuestNamespace, deploy.Account)
}

// IstiodUser returns the user name of istiod in the guest.
func (w *World) IstiodUser() string { return deploy.UserOf(GuestNamespace, GuestIstiod) }

// HypergateGuestKubeconfig returns the file with hypergate's kubeconfig for the guest.
func (w *World) HypergateGuestKubeconfig() string { return filepath.Join(w.Dir, guestKubeconfig) }

// AuditLog returns the audit log of a side. In the standalone topology, both sides share one.
func (w *World) AuditLog(side model.Side) string {
	if side == model.SideMgmt || w.Topology == model.TopologyStandalone {
		return w.MgmtAuditLog
	}
	return w.GuestAuditLog
}

// deployIdentities applies the accounts and roles of deploy/, and creates the kubeconfigs for hypergate.
func (w *World) deployIdentities(ctx context.Context) error {
	if err := errors.Join(createNamespace(ctx, w.GuestClient, GuestNamespace),
		createNamespace(ctx, w.MgmtClient, w.MgmtNamespace)); err != nil {
		return err
	}
	if err := w.deploySide(ctx, w.Mgmt, w.options.Folder, w.MgmtNamespace, mgmtKubeconfig); err != nil || w.Guest == nil {
		return err
	}
	if err := w.deploySide(ctx, w.GuestConfig, "hosted/guest", GuestNamespace, guestKubeconfig); err != nil {
		return err
	}
	if w.options.Folder == ClusterAPI {
		return nil // the story creates the Secret of Cluster API's contract
	}
	return w.mountGuestKubeconfig(ctx)
}

// createPriorityClass creates the priority class that HyperShift has on each management cluster.
func (w *World) createPriorityClass(ctx context.Context) error {
	_, err := w.MgmtClient.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "hypershift-control-plane"}, Value: 100000000,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating HyperShift's priority class: %w", err)
	}
	return nil
}

func createNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making namespace %s: %w", name, err)
	}
	return nil
}

func (w *World) deploySide(ctx context.Context, admin *rest.Config, folder, namespace, file string) error {
	objects, err := w.accounts(folder)
	if err != nil {
		return err
	}
	roles, err := audit.RolesOf(objects)
	if err != nil {
		return err
	}
	if err := deploy.Apply(ctx, admin, objects); err != nil {
		return fmt.Errorf("applying deploy/%s: %w", folder, err)
	}
	return errors.Join(
		deploy.TakesEffect(ctx, admin, deploy.UserOf(namespace, deploy.Account), audit.Permissions(roles), true),
		deploy.Kubeconfig(ctx, admin, namespace, filepath.Join(w.Dir, file), kubeconfigLifetime),
	)
}

// accounts returns the objects in a folder of deploy/, except the Deployment, which StartHypergate applies.
func (w *World) accounts(folder string) ([]*unstructured.Unstructured, error) {
	objects, err := deploy.RenderFor(folder, w.GuestName)
	return slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" }), err
}

// Withdraw deletes all objects of deploy/ on the management side, beginning with hypergate's Deployment.
func (w *World) Withdraw(ctx context.Context) error {
	if err := w.undeploy(); err != nil { //nolint:contextcheck // see there
		return err
	}
	w.current = nil
	objects, err := w.accounts(w.options.Folder)
	if err != nil {
		return err
	}
	return deploy.Delete(ctx, w.Mgmt, objects)
}

// AllowSidecarInjection applies deploy/sidecar-injection in the guest.
func (w *World) AllowSidecarInjection(ctx context.Context) error {
	return w.allow(ctx, SidecarInjection)
}

// AllowMigration applies deploy/rbac/migration in the guest.
func (w *World) AllowMigration(ctx context.Context) error {
	return w.allow(ctx, "rbac/migration")
}

// allow applies a folder of deploy/ in the guest.
func (w *World) allow(ctx context.Context, folder string) error {
	objects, err := deploy.Render(folder)
	if err != nil {
		return err
	}
	roles, err := audit.RolesOf(objects)
	if err != nil {
		return err
	}
	if err := deploy.Apply(ctx, w.GuestConfig, objects); err != nil {
		return fmt.Errorf("applying deploy/%s: %w", folder, err)
	}
	return deploy.TakesEffect(ctx, w.GuestConfig, w.GuestUser(), audit.Permissions(roles), true)
}

// ForbidSidecarInjection deletes deploy/sidecar-injection in the guest.
func (w *World) ForbidSidecarInjection(ctx context.Context) error {
	objects, err := deploy.Render(SidecarInjection)
	if err != nil {
		return err
	}
	return deploy.Delete(ctx, w.GuestConfig, objects)
}

// Forbid removes a verb on a resource from every role that deploy/ gives hypergate in the guest. It returns a
// function that restores the roles.
func (w *World) Forbid(ctx context.Context, verb, resource string) (restore func(context.Context) error, err error) {
	folder := "hosted/guest"
	if w.Topology == model.TopologyStandalone {
		folder = w.options.Folder
	}
	objects, err := w.accounts(folder)
	if err != nil {
		return nil, err
	}
	var before, after []*unstructured.Unstructured
	for _, u := range objects {
		if less := without(u, verb, resource); less != nil {
			before, after = append(before, u), append(after, less)
		}
	}
	roles, err := audit.RolesOf(before)
	if err != nil {
		return nil, err
	}
	lost := slices.DeleteFunc(audit.Permissions(roles), func(p audit.Permission) bool { return p.Verb != verb || p.Resource != resource })
	if len(lost) == 0 {
		return nil, fmt.Errorf("no role of deploy/%s allows to %s %s", folder, verb, resource)
	}
	put := func(ctx context.Context, roles []*unstructured.Unstructured, allowed bool) error {
		if err := deploy.Apply(ctx, w.GuestConfig, roles); err != nil {
			return err
		}
		return deploy.TakesEffect(ctx, w.GuestConfig, w.GuestUser(), lost, allowed)
	}
	return func(ctx context.Context) error { return put(ctx, before, true) }, put(ctx, after, false)
}

// without returns a copy of a role without a verb on a resource. It returns nil if the object is not a role with this
// verb and resource.
func without(u *unstructured.Unstructured, verb, resource string) *unstructured.Unstructured {
	out, found := u.DeepCopy(), false
	rules, _, _ := unstructured.NestedSlice(out.Object, "rules")
	var split []any
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		verbs, _, _ := unstructured.NestedStringSlice(rule, "verbs")
		resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
		if !slices.Contains(verbs, verb) || !slices.Contains(resources, resource) {
			split = append(split, rule)
			continue
		}
		found = true
		less := runtime.DeepCopyJSON(rule)
		less["resources"], less["verbs"] = []any{resource}, but(verbs, verb)
		split = append(split, less)
		if rest := but(resources, resource); len(rest) > 0 {
			rule["resources"] = rest
			split = append(split, rule)
		}
	}
	if out.Object["rules"] = split; !found {
		return nil
	}
	return out
}

// but returns a list without one of its words.
func but(words []string, word string) []any {
	var out []any
	for _, w := range words {
		if w != word {
			out = append(out, w)
		}
	}
	return out
}
