package controller

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// Reporting is whether conditions are written to the HostedControlPlane.
type Reporting int

const (
	// ReportToControlPlane writes them, where there is a HostedControlPlane.
	ReportToControlPlane Reporting = iota
	// ReportNothing never writes to it.
	ReportNothing
)

// hcpReporter is what was written, and is to be written, to the HostedControlPlanes.
type hcpReporter struct {
	reporting Reporting
	// writes limits the writes, pauses those that report a pause, and migrations those during a migration. A guest can
	// use up the first limit. It can cause neither a pause nor a migration.
	writes, pauses, migrations throttle.Limiter
	debounce                   throttle.Debounce
	// failures are the attempts to write that failed, logged is what was logged of them.
	failures throttle.Backoff
	logged   lastLogged
	// unwritten is why the last attempt failed. The zero value: it did not, or it needs no action.
	unwritten apply.Cause
}

func newHCPReporter(reporting Reporting) hcpReporter {
	return hcpReporter{
		reporting: reporting, writes: newReportLimiter(lastingEvery), migrations: newReportLimiter(migratingEvery),
		pauses: throttle.NewLimiter(throttle.Rate{Burst: statusBurst, Every: statusEvery}),
	}
}

// kubeconfigProblem marks a problem of the guest kubeconfig that usually ends soon: its Secret does not exist yet, or
// HyperShift renews what is in it. It adds the permission to grant after a forbidden request for that Secret.
func kubeconfigProblem(cfg model.Config, err error) error {
	_, first := errors.AsType[guestconn.NotLoadedError](err)
	_, none := errors.AsType[mgmt.NoKubeconfigError](err)
	switch {
	case errors.Is(err, guestconn.ErrRefused), first && none:
		return status.AwaitedError{Err: err}
	default:
		return withPermission(cfg, err)
	}
}

// withPermission adds the permission to grant, if an error is that of a forbidden request.
func withPermission(cfg model.Config, err error) error {
	_, has := errors.AsType[status.SolvableError](err)
	if has || !apierrors.IsForbidden(err) {
		return err
	}
	return status.SolvableError{Step: permissionFor(cfg, err), Err: err}
}

// permissionFor returns the permission to grant after a request was forbidden that the guest kubeconfig needs. There
// are three: the one for the Secret with the kubeconfig, and those that compare the two clusters.
func permissionFor(cfg model.Config, err error) string {
	secret, ofSecret := errors.AsType[mgmt.ForbiddenSecretError](err)
	check, _ := errors.AsType[clusterCheckError](err)
	switch {
	case ofSecret:
		return fmt.Sprintf("allow hypergate's service account to list and watch the Secret %s in namespace %s "+
			"(role in deploy/rbac/cluster-api)", secret.Key.Name, secret.Key.Namespace)
	case check.side == model.SideGuest:
		return "allow hypergate's user in the guest to list namespaces (cluster role in deploy/rbac/guest)"
	default:
		return fmt.Sprintf("allow hypergate's service account to get the namespace %s (role in deploy/rbac/management)", cfg.MgmtNamespace)
	}
}

// pendingPatch is what one HostedControlPlane should say and does not.
type pendingPatch struct {
	to         mgmt.StatusTarget
	conditions []metav1.Condition
}

// pendingPatches returns the patches for all HostedControlPlanes that do not say what they should, and a text of all of
// them, without times.
func pendingPatches(said statement, all []mgmt.StatusTarget) ([]pendingPatch, string) {
	var patches []pendingPatch
	var text strings.Builder
	for _, to := range all {
		p := pendingPatch{to, said.conditionsFor(to)}
		if status.Undated(to.Conditions, p.conditions) {
			continue
		}
		patches = append(patches, p)
		for _, c := range p.conditions {
			fmt.Fprintln(&text, to.UID, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return patches, text.String()
}

// wait returns how long the patches must wait. Zero means that they are written now. A pause is reported at once.
func (h *hcpReporter) wait(text string, lifecycle model.Lifecycle, now time.Time) time.Duration {
	wait := h.debounce.Wait(text, now, hcpQuiet, hcpLatest)
	if _, paused := lifecycle.(model.Paused); paused {
		return 0
	}
	return wait
}

// limiter returns the limiter of the writes after a pass.
func (h *hcpReporter) limiter(of status.Result) *throttle.Limiter {
	_, paused := of.Lifecycle.(model.Paused)
	switch {
	case paused:
		return &h.pauses
	case of.Migration.Active:
		return &h.migrations
	default:
		return &h.writes
	}
}
