package planes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// StopEtcd kills etcd, as a crash would, and returns when it is gone. The API server runs on and refuses what it
// cannot store or read.
func (p *Plane) StopEtcd() {
	if etcd := p.running["etcd"]; etcd != nil {
		etcd.Kill()
		delete(p.running, "etcd")
	}
}

// StartEtcd starts etcd again, with its data and at its old address. It does not wait: the API server connects when
// it listens.
func (p *Plane) StartEtcd() error { return p.start("etcd") }

// SaveEtcd copies etcd's data to a new folder and returns it. Call it only while etcd is stopped.
func (p *Plane) SaveEtcd() (string, error) {
	saved, err := os.MkdirTemp(p.dir, "etcd-saved-")
	if err != nil {
		return "", fmt.Errorf("making a folder for etcd's data: %w", err)
	}
	if err := os.CopyFS(saved, os.DirFS(p.etcdDir())); err != nil {
		return "", fmt.Errorf("copying etcd's data: %w", err)
	}
	return saved, nil
}

// RestoreEtcd puts data that SaveEtcd copied in the place of what etcd has. Call it only while etcd and the API
// server are stopped: an API server that runs on would show what its cache still has.
func (p *Plane) RestoreEtcd(saved string) error {
	if err := errors.Join(os.RemoveAll(p.etcdDir()), os.CopyFS(p.etcdDir(), os.DirFS(saved)), os.Chmod(p.etcdDir(), 0o700)); err != nil {
		return fmt.Errorf("restoring etcd's data: %w", err)
	}
	return nil
}

func (p *Plane) etcdDir() string { return filepath.Join(p.dir, "etcd") }
