package app

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/kubeconfig"
)

// loadGuestKubeconfig reads the guest's kubeconfig from a file or a directory.
func loadGuestKubeconfig(path string) (*rest.Config, error) {
	config, err := kubeconfig.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--guest-kubeconfig: %w", err)
	}
	return config, nil
}
