package world

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/deploy"
)

// mountGuestKubeconfig creates the Secret from which hypergate's pod mounts its guest kubeconfig. The content is the
// kubeconfig for this machine, with the address at which pods reach the guest's API server.
func (w *World) mountGuestKubeconfig(ctx context.Context) error {
	secret, err := w.guestKubeconfigSecret(cluster.GuestServerInPods)
	if err != nil {
		return err
	}
	if _, err := w.MgmtClient.CoreV1().Secrets(w.MgmtNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the Secret of hypergate's guest kubeconfig: %w", err)
	}
	return nil
}

// ReplaceGuestKubeconfig replaces the guest kubeconfig that hypergate's pod mounts. The new one has a new token of the
// same account, and another URL of the guest's API server.
func (w *World) ReplaceGuestKubeconfig(ctx context.Context, server string) error {
	file := filepath.Join(w.Dir, guestKubeconfig)
	if err := deploy.Kubeconfig(ctx, w.GuestConfig, GuestNamespace, file, kubeconfigLifetime); err != nil {
		return err
	}
	secret, err := w.guestKubeconfigSecret(server)
	if err != nil {
		return err
	}
	if _, err := w.MgmtClient.CoreV1().Secrets(w.MgmtNamespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("replacing hypergate's guest kubeconfig: %w", err)
	}
	return nil
}

func (w *World) guestKubeconfigSecret(server string) (*corev1.Secret, error) {
	config, err := clientcmd.LoadFromFile(filepath.Join(w.Dir, guestKubeconfig))
	if err != nil {
		return nil, fmt.Errorf("reading hypergate's guest kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		c.Server = server
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing hypergate's guest kubeconfig: %w", err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: mountedKubeconfig}, Data: map[string][]byte{"kubeconfig": data}}, nil
}
