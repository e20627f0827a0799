package planes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// StopEtcd kills etcd, as a crash would, and returns when it has ended. The API server continues to run and refuses
// requests that it cannot store or read.
func (p *Plane) StopEtcd() {
	if etcd := p.running["etcd"]; etcd != nil {
		etcd.Kill()
		delete(p.running, "etcd")
	}
}

// StartEtcd starts etcd again, with its data and its old address. It does not wait, because the API server connects
// when etcd listens.
func (p *Plane) StartEtcd() error { return p.start("etcd") }

// SaveEtcd copies etcd's data to a new folder and returns the folder. Call it only while etcd is stopped.
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

// RestoreEtcd replaces etcd's data with data that SaveEtcd copied. Call it only while etcd and the API server are
// stopped. A running API server would still show the content of its cache.
func (p *Plane) RestoreEtcd(saved string) error {
	if err := errors.Join(os.RemoveAll(p.etcdDir()), os.CopyFS(p.etcdDir(), os.DirFS(saved)), os.Chmod(p.etcdDir(), 0o700)); err != nil {
		return fmt.Errorf("restoring etcd's data: %w", err)
	}
	return nil
}

func (p *Plane) etcdDir() string { return filepath.Join(p.dir, "etcd") }
