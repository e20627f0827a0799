package app

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/pkg/guestconn"
)

// loadGuestKubeconfig is loadKubeconfig of a file or a folder. The config holds what the files that it names hold, so that two readings of the
// same can be compared and a change is noticed.
func loadGuestKubeconfig(path string) (*rest.Config, error) {
	const flag = "--guest-kubeconfig"
	path, err := kubeconfigIn(flag, path)
	if err != nil {
		return nil, err
	}
	config, err := loadKubeconfig(flag, path)
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	config.BearerTokenFile = "" // its content is in BearerToken
	return config, nil
}

// kubeconfigIn is the kubeconfig in a folder that a Secret is mounted to; a file is itself.
func kubeconfigIn(flag, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, nil //nolint:nilerr // whoever reads it says what is wrong
	}
	for _, key := range []string{"kubeconfig", "value"} {
		file := filepath.Join(path, key)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: the folder %s has neither a file kubeconfig (as HyperShift calls it) nor value (as Cluster API does): "+
		"check the Secret's keys, and the volume that mounts it", flag, path)
}

// loadKubeconfig reads a kubeconfig file and says in plain words what is wrong with it. Files that it names are beside it, as kubectl has it.
func loadKubeconfig(flag, path string) (*rest.Config, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no file %s: check the Secret's name and key, and the volume that mounts it", flag, path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s: %s is empty: check the key of the Secret that it is mounted from (HyperShift writes kubeconfig, Cluster API value)", flag, path)
	}
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is no kubeconfig: %w", flag, path, err)
	}
	if err := guestconn.CheckContext(raw); err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
	}
	return config, nil
}
