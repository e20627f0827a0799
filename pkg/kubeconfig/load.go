package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load reads a kubeconfig from a file, or from a directory to which a Secret is mounted. The returned config contains
// the content of the files that the kubeconfig names, so that two configs can be compared to detect a change.
func Load(path string) (*rest.Config, error) {
	path, err := inDirectory(path)
	if err != nil {
		return nil, err
	}
	config, err := LoadFile(path)
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", path, err)
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	config.BearerTokenFile = "" // its content is in BearerToken
	return config, nil
}

// inDirectory returns the path of the kubeconfig in a directory to which a Secret is mounted. It returns any other path
// unchanged.
func inDirectory(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, nil //nolint:nilerr // reading the file returns the error
	}
	found := ""
	for _, key := range Keys() {
		file := filepath.Join(path, key)
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if len(bytes.TrimSpace(content)) > 0 {
			return file, nil
		}
		if found == "" {
			found = file // it is empty, which LoadFile reports
		}
	}
	if found != "" {
		return found, nil
	}
	return "", fmt.Errorf("directory %s contains none of the files %s (HyperShift, Cluster API): "+
		"check the keys of the Secret, and the volume that mounts it", path, strings.Join(Keys(), ", "))
}

// LoadFile reads a kubeconfig file. As for kubectl, relative paths in the file are relative to its directory.
func LoadFile(path string) (*rest.Config, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("file %s does not exist: check the name and the key of the Secret, and the volume that mounts it", path)
	case err != nil:
		return nil, err
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf(
			"%s is empty: check the key of the mounted Secret (HyperShift uses kubeconfig, Cluster API uses value)", path,
		)
	}
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig: %w", path, Brief(err))
	}
	if err := checkContext(raw); err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", path, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", path, err)
	}
	return config, nil
}
