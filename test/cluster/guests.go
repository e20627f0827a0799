package cluster

import (
	"os"
	"path/filepath"
)

// guestsDir is where each further guest has its Dir, in the first's.
const guestsDir = "guests"

// guests are all hosted guests; it makes those of Options.MoreGuests, whose addresses are known now.
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
		other.describeGuest()
		c.More = append(c.More, &other)
	}
	return append([]*Cluster{c}, c.More...)
}

// describeGuest says where the guest's files are.
func (c *Cluster) describeGuest() {
	c.GuestKubeconfig = filepath.Join(c.Dir, "pki/guest/admin.kubeconfig")
	c.GuestAuditLog = filepath.Join(c.Dir, "audit/guest/guest.jsonl")
}

// makeAuditFolder makes the folder of the guest's audit log. The guest's API server runs as this user and writes there through a hostPath volume,
// which fsGroup does not cover.
func (c *Cluster) makeAuditFolder() error {
	dir := filepath.Dir(c.GuestAuditLog)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chown(dir, 1000, 1000)
}

// PodLogs is where the logs of all pods are, as a kubelet names them.
func (c *Cluster) PodLogs() string { return filepath.Join(c.run.Dir, "logs/pods") }
