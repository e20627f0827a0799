package cluster

import (
	"os"
	"path/filepath"
)

// guestsDir is the folder for the Dirs of further guests, in the Dir of the first guest.
const guestsDir = "guests"

// guests returns all hosted guests. It creates those of Options.MoreGuests, because their addresses are known now.
func (c *Cluster) guests() []*Cluster {
	if !c.run.Guest {
		return nil
	}
	c.More = nil
	for i, namespace := range c.run.MoreGuests {
		other := *c
		other.More = nil
		other.HCPNamespace, other.Dir = namespace, filepath.Join(c.Dir, guestsDir, namespace)
		other.run.HCPNamespace, other.run.Net = namespace, c.run.Net.withGuestAPI(byte(i+1))
		other.run.Konnectivity = false // it has no nodes
		other.describeGuest()
		c.More = append(c.More, &other)
	}
	return append([]*Cluster{c}, c.More...)
}

// describeGuest sets the names of the guest's files.
func (c *Cluster) describeGuest() {
	c.GuestKubeconfig = filepath.Join(c.Dir, "pki/guest/admin.kubeconfig")
	c.GuestAuditLog = filepath.Join(c.Dir, "audit/guest/guest.jsonl")
}

// makeAuditFolder creates the folder of the guest's audit log. The guest's API server runs as user 1000 and writes
// there through a hostPath volume, to which fsGroup does not apply.
func (c *Cluster) makeAuditFolder() error {
	dir := filepath.Dir(c.GuestAuditLog)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chown(dir, 1000, 1000)
}

// PodLogs returns the folder with the logs of all pods, named as a kubelet names them.
func (c *Cluster) PodLogs() string { return filepath.Join(c.run.Dir, "logs/pods") }
