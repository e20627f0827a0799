package mgmt

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
)

// RenewalManager is the field manager of a guest kubeconfig that hypergate has renewed.
const RenewalManager = "hypergate-renewal"

// renewalTimeout is how long the write of a kubeconfig may take.
const renewalTimeout = 30 * time.Second

// WriteGuestKubeconfig writes a kubeconfig of the guest into a Secret. The rest of the Secret stays as it is. The user
// has named the Secret for this purpose, so the kubeconfig of another client is replaced.
func (c *Cluster) WriteGuestKubeconfig(ctx context.Context, name string, access kubeconfig.Access) error {
	ctx, cancel := context.WithTimeout(ctx, renewalTimeout)
	defer cancel()
	content, err := access.Kubeconfig()
	if err != nil {
		return fmt.Errorf("making the next kubeconfig of the guest: %w", err)
	}
	key, err := c.keyIn(name)
	if err != nil {
		return fmt.Errorf("finding the key of the guest's kubeconfig in Secret %s: %w", name, err)
	}
	secret := applycorev1.Secret(name, c.cfg.MgmtNamespace).WithData(map[string][]byte{key: content})
	_, err = c.core.Secrets(c.cfg.MgmtNamespace).Apply(ctx, secret, metav1.ApplyOptions{FieldManager: RenewalManager, Force: true})
	if err != nil {
		return fmt.Errorf("writing the next kubeconfig of the guest to Secret %s: %w", name, answer.Brief(err))
	}
	return nil
}

// keyIn returns the key of a Secret that has the kubeconfig: that of the Secret that is watched, or HyperShift's. It is
// an error if the watched Secret cannot be read: a second key could take precedence over the one that the user writes.
func (c *Cluster) keyIn(name string) (string, error) {
	if c.guestSecret == nil || c.guestSecret.key.Name != name {
		return kubeconfig.KeyHyperShift, nil
	}
	secret, err := c.guestSecret.current()
	if err != nil {
		return "", err
	}
	_, key, err := kubeconfig.InSecret(secret.Data)
	return key, err
}
