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

// loadGuestKubeconfig reads the guest's kubeconfig from a file or a directory. The returned config contains the content
// of the files that the kubeconfig names, so that two configs can be compared to detect a change.
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

// kubeconfigIn returns the path of the kubeconfig in a directory to which a Secret is mounted. It returns any other
// path unchanged.
func kubeconfigIn(flag, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, nil //nolint:nilerr // reading the file returns the error
	}
	for _, key := range []string{"kubeconfig", "value"} {
		file := filepath.Join(path, key)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: directory %s contains neither the file kubeconfig (HyperShift) nor the file value (Cluster API): "+
		"check the keys of the Secret, and the volume that mounts it", flag, path)
}

// loadKubeconfig reads a kubeconfig file. Its errors name the cause and what to check. As for kubectl, relative paths
// in the file are relative to its directory.
func loadKubeconfig(flag, path string) (*rest.Config, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s: file %s does not exist: check the name and the key of the Secret, "+
			"and the volume that mounts it", flag, path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s: %s is empty: check the key of the mounted Secret (HyperShift uses kubeconfig, "+
			"Cluster API uses value)", flag, path)
	}
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is not a kubeconfig: %w", flag, path, err)
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
