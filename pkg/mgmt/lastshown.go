package mgmt

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/desired"
)

// lastShown is the HostedControlPlane, or the Cluster, that was seen last, and what its namespace says of the user of
// its pods.
type lastShown struct {
	desired.ControlPlane
	userOf types.UID
	user   int64
	unread []string
}

// lastControlPlane is the control plane that was seen last; the zero value when there was none.
func (c *Cluster) lastControlPlane() lastShown {
	if last := c.shown.Load(); last != nil {
		return *last
	}
	return lastShown{}
}

// CurrentControlPlane is what the watches show now of the HostedControlPlane, or of the Cluster, where before was seen last: as far
// as it decides whether anything may be written. It asks nobody, changes nothing, and may be called from any goroutine.
func (c *Cluster) CurrentControlPlane(before desired.ControlPlane) desired.ManagementObservation {
	if !c.controlPlanes.known() {
		return desired.ManagementObservation{ControlPlane: before}
	}
	if before.ReportedBy == desired.ClusterAPI && before.Name != c.guestSecret.clusterName() {
		before = desired.ControlPlane{} // the Secret belongs to another now, which is no deletion
	}
	found, doubt := c.controlPlanes.selected()
	if doubt == nil && !found.Owns() && !before.Exists() {
		found, doubt = c.guestSecret.selected()
	}
	out := desired.ManagementObservation{ControlPlane: before, ControlPlaneProblem: doubt}
	switch {
	case doubt != nil: // what is there already stays its
		out.CandidateControlPlanes = c.controlPlanes.all()
	case found.Owns():
		out.ControlPlane = found
	case before.Owns():
		out.ControlPlane.Deleting = true
	}
	return out
}

// observeControlPlane adds the HostedControlPlane, or else the Cluster, to what the management side shows. One that was
// seen and is gone was deleted: what it owned is going, and must not be made again.
func (c *Cluster) observeControlPlane(ctx context.Context, into *desired.ManagementObservation) error {
	last := c.lastControlPlane()
	defer func() { c.shown.Store(&last) }()
	shown := c.CurrentControlPlane(last.ControlPlane)
	into.ControlPlane, into.ControlPlaneProblem, into.CandidateControlPlanes = shown.ControlPlane, shown.ControlPlaneProblem, shown.CandidateControlPlanes
	if shown.ControlPlaneProblem != nil {
		return nil
	}
	if !shown.ControlPlane.Owns() {
		last = lastShown{}
		return nil
	}
	last.ControlPlane = shown.ControlPlane
	if !last.Exists() {
		return nil // the namespace says nothing to others than HyperShift
	}
	if last.userOf != last.UID && !last.Deleting {
		err := c.namespaceRead.read(func() error {
			ns, err := c.readNamespace(ctx)
			if err == nil {
				last.user, last.unread = defaultUser(ns.Annotations)
			}
			return err
		})
		if err != nil {
			return err
		}
		last.userOf = last.UID
	}
	into.ControlPlane.RunAsUser = last.user
	into.ControlPlane.UnreadFields = slices.Concat(last.UnreadFields, last.unread)
	return nil
}
