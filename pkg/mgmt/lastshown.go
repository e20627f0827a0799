package mgmt

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// lastShown is the HostedControlPlane or Cluster that was observed last, and the user of its pods according to the
// namespace.
type lastShown struct {
	model.ControlPlane
	userOf types.UID
	user   int64
	unread []string
}

// lastControlPlane returns the control plane that was observed last. It returns the zero value if there was none.
func (c *Cluster) lastControlPlane() lastShown {
	if last := c.lastPlane.Load(); last != nil {
		return *last
	}
	return lastShown{}
}

// CurrentControlPlane returns the current HostedControlPlane or Cluster from the watches, as far as it determines
// whether writes are allowed. before is the one that was observed last.
//
// CurrentControlPlane sends no request, changes nothing, and can be called from any goroutine.
func (c *Cluster) CurrentControlPlane(before model.ControlPlane) model.ManagementObservation {
	if !c.controlPlanes.known() {
		return model.ManagementObservation{ControlPlane: before}
	}
	if before.ReportedBy == model.ClusterAPI && before.Name != c.guestSecret.clusterName() {
		before = model.ControlPlane{} // the Secret belongs to another Cluster now, which is not a deletion
	}
	found, doubt := c.controlPlanes.selected()
	if doubt == nil && !found.Owns() && !before.Exists() {
		found, doubt = c.guestSecret.selected()
	}
	out := model.ManagementObservation{ControlPlane: before, ControlPlaneProblem: doubt}
	switch {
	case doubt != nil: // existing objects stay with the previous control plane
		out.CandidateControlPlanes = c.controlPlanes.all()
	case found.Owns():
		out.ControlPlane = found
	case before.Owns():
		out.ControlPlane.Deleting = true
	}
	return out
}

// observeControlPlane adds the HostedControlPlane, or else the Cluster, to the observation. One that was observed and
// is gone counts as deleted: its objects are being deleted, and must not be created again.
func (c *Cluster) observeControlPlane(ctx context.Context, into *model.ManagementObservation) error {
	last := c.lastControlPlane()
	defer func() {
		c.lastPlane.Store(&last)
		into.ControlPlane.NotEnabled, into.ControlPlane.RemovalID = c.cfg.NotEnabled, c.cfg.RemovalID
	}()
	shown := c.CurrentControlPlane(last.ControlPlane)
	into.ControlPlane, into.ControlPlaneProblem = shown.ControlPlane, shown.ControlPlaneProblem
	into.CandidateControlPlanes = shown.CandidateControlPlanes
	if shown.ControlPlaneProblem != nil {
		return nil
	}
	if !shown.ControlPlane.Owns() {
		last = lastShown{}
		return nil
	}
	last.ControlPlane = shown.ControlPlane
	if !last.Exists() {
		return nil // only HyperShift uses the annotation of the namespace
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
