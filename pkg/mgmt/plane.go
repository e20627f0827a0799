package mgmt

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/desired"
)

// shownPlane is the HostedControlPlane, or the Cluster, that was seen last, and what its namespace says of the user of
// its pods.
type shownPlane struct {
	desired.ControlPlane
	userOf types.UID
	user   int64
	unread []string
}

// lastPlane is the control plane that was seen last; the zero value when there was none.
func (c *Cluster) lastPlane() shownPlane {
	if last := c.plane.Load(); last != nil {
		return *last
	}
	return shownPlane{}
}

// Shows is what the watches show now of the HostedControlPlane, or of the Cluster, where before was seen last: as far
// as it decides whether anything may be written. It asks nobody, changes nothing, and may be called from any goroutine.
func (c *Cluster) Shows(before desired.ControlPlane) desired.Hosted {
	if !c.planes.known() {
		return desired.Hosted{ControlPlane: before}
	}
	if before.By == desired.ClusterAPI && before.Name != c.guestSecret.clusterName() {
		before = desired.ControlPlane{} // the Secret belongs to another now, which is no deletion
	}
	found, doubt := c.planes.the()
	if doubt == nil && !found.Owns() && !before.Exists() {
		found, doubt = c.guestSecret.the()
	}
	out := desired.Hosted{ControlPlane: before, DoubtfulControlPlane: doubt}
	switch {
	case doubt != nil: // what is there already stays its
		out.Doubted = c.planes.all()
	case found.Owns():
		out.ControlPlane = found
	case before.Owns():
		out.ControlPlane.Deleting = true
	}
	return out
}

// observeControlPlane adds the HostedControlPlane, or else the Cluster, to what the management side shows. One that was
// seen and is gone was deleted: what it owned is going, and must not be made again.
func (c *Cluster) observeControlPlane(ctx context.Context, into *desired.Hosted) error {
	last := c.lastPlane()
	defer func() { c.plane.Store(&last) }()
	shown := c.Shows(last.ControlPlane)
	into.ControlPlane, into.DoubtfulControlPlane, into.Doubted = shown.ControlPlane, shown.DoubtfulControlPlane, shown.Doubted
	if shown.DoubtfulControlPlane != nil {
		return nil
	}
	if !shown.ControlPlane.Owns() {
		last = shownPlane{}
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
	into.ControlPlane.Unread = slices.Concat(last.Unread, last.unread)
	return nil
}
