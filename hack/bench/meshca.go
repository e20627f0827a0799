package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/pkg/model"
)

// meshCA reads the Secret in which hypergate stores the mesh CA.
func (w *environment) meshCA(ctx context.Context) (map[string][]byte, error) {
	secrets := w.mgmt.objects.Resource(corev1.SchemeGroupVersion.WithResource("secrets"))
	u, err := secrets.Namespace(w.cfg.MgmtNamespace).Get(ctx, model.CASecretName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the mesh CA: %w", err)
	}
	var secret corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &secret); err != nil {
		return nil, fmt.Errorf("reading the mesh CA: %w", err)
	}
	return secret.Data, nil
}
