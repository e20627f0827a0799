package world

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"

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

// ReadGuestKubeconfigSecret copies the kubeconfig of the Secret to the file that hypergate's process reads, as a
// kubelet does for a pod. The process reaches the guest's API server at another address than a pod.
func (w *World) ReadGuestKubeconfigSecret(ctx context.Context) error {
	secret, err := w.MgmtClient.CoreV1().Secrets(w.MgmtNamespace).Get(ctx, mountedKubeconfig, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading hypergate's guest kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		return fmt.Errorf("reading hypergate's guest kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		if c.Server != cluster.GuestServerInPods {
			return fmt.Errorf("a pod cannot reach %s", c.Server)
		}
		c.Server = w.GuestConfig.Host
	}
	return clientcmd.WriteToFile(*config, w.HypergateGuestKubeconfig())
}

// AgeGuestKubeconfig replaces the token in the guest kubeconfig that hypergate's process reads. The new one is of the
// same account. The guest's API server accepts it, and it says that it was issued earlier, and for how long it is
// valid.
func (w *World) AgeGuestKubeconfig(issued, left time.Duration) error {
	config, err := clientcmd.LoadFromFile(w.HypergateGuestKubeconfig())
	if err != nil {
		return fmt.Errorf("reading hypergate's guest kubeconfig: %w", err)
	}
	pem, err := os.ReadFile(filepath.Join(w.Dir, "pki", "guest", "sa.key"))
	if err != nil {
		return err
	}
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return err
	}
	signer, isEC := key.(*ecdsa.PrivateKey)
	if !isEC {
		return fmt.Errorf("the key of the guest's tokens is a %T", key)
	}
	for _, user := range config.AuthInfos {
		if user.Token, err = aged(user.Token, signer, time.Now().Add(-issued), time.Now().Add(left)); err != nil {
			return fmt.Errorf("changing the times of a token: %w", err)
		}
	}
	return clientcmd.WriteToFile(*config, w.HypergateGuestKubeconfig())
}

// aged returns a token with other times.
func aged(token string, key *ecdsa.PrivateKey, issued, expires time.Time) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("it is not a JSON Web Token")
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	claims := map[string]any{}
	if err := json.Unmarshal(data, &claims); err != nil {
		return "", err
	}
	claims["iat"], claims["nbf"], claims["exp"] = issued.Unix(), issued.Unix(), expires.Unix()
	if data, err = json.Marshal(claims); err != nil {
		return "", err
	}
	text := parts[0] + "." + base64.RawURLEncoding.EncodeToString(data)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
