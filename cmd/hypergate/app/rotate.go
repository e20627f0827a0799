package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
)

// rotateOptions holds the flags of the command rotate-ca.
type rotateOptions struct{ mgmtKubeconfig, namespace string }

func newRotateCA() *cobra.Command {
	o := &rotateOptions{}
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Request a rotation of the mesh CA",
		Long: `Request a new mesh CA with a new root.

The controller carries out the rotation in phases:

  1. All clients trust the new root in addition to the old one. The old CA still issues certificates.
  2. The new CA issues certificates. All clients still trust the old root.
  3. The old root is removed.

Each of the first two phases lasts as long as --ca-overlap of "hypergate run". The request and the current phase are
annotations of the Secret ` + model.CASecretName + `, so the rotation continues after a restart of the controller.`,
		Example: `  # Rotate the mesh CA, in hypergate's pod with its own permissions
  kubectl -n clusters-guest1 exec deploy/hypergate -- /hypergate rotate-ca --namespace clusters-guest1

  # Rotate the mesh CA with a kubeconfig of the management cluster
  hypergate rotate-ca --namespace clusters-guest1 --management-kubeconfig mgmt.kubeconfig

  # Show the progress of the rotation
  kubectl -n clusters-guest1 get secret ` + model.CASecretName + ` -o jsonpath='{.metadata.annotations}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout(), time.Now()) },
	}
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the hosted control plane on the management cluster. Required.")
	cmd.Flags().StringVar(&o.mgmtKubeconfig, "management-kubeconfig", "", "Path to the kubeconfig of the management cluster. "+
		"Defaults to the pod's own service account. The environment variable KUBECONFIG is ignored.")
	return cmd
}

func (o *rotateOptions) run(ctx context.Context, out io.Writer, now time.Time) error {
	if o.namespace == "" {
		return fmt.Errorf("--namespace is required: the namespace of the hosted control plane on the management cluster")
	}
	config, err := mgmtConfig(o.mgmtKubeconfig)
	if err != nil {
		return err
	}
	return requestRotation(ctx, config, o.namespace, now, out)
}

func requestRotation(ctx context.Context, config *rest.Config, namespace string, now time.Time, out io.Writer) error {
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	secrets := client.Secrets(namespace)
	secret, err := secrets.Get(ctx, model.CASecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("no mesh CA to rotate: Secret %s does not exist in namespace %s; "+
			"hypergate creates it with the first GatewayClass that it serves",
			model.CASecretName, namespace)
	case err != nil:
		return fmt.Errorf("reading the mesh CA: %w", err)
	case secret.Labels[model.OwnerLabel] == "":
		return fmt.Errorf("the Secret %s in namespace %s does not belong to hypergate: rotate the CA with the tool that created it",
			model.CASecretName, namespace)
	case secret.Annotations[model.PhaseAnnotation] != "":
		return fmt.Errorf("a rotation is already in progress: in phase %s since %s",
			secret.Annotations[model.PhaseAnnotation], secret.Annotations[model.PhaseSinceAnnotation])
	}
	return patchRequest(ctx, secrets, secret, now, out)
}

func patchRequest(ctx context.Context, secrets coreclient.SecretInterface, secret *corev1.Secret, now time.Time, out io.Writer) error {
	request := now.UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": secret.ResourceVersion,
		"annotations":     map[string]string{model.RotateAnnotation: request},
	}})
	if err != nil {
		return fmt.Errorf("requesting a rotation: %w", err)
	}
	options := metav1.PatchOptions{FieldManager: "hypergate-rotate-ca"}
	if _, err := secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, options); err != nil {
		return fmt.Errorf("requesting a rotation: %w", err)
	}
	_, err = fmt.Fprintf(out, "secret/%s: rotation requested at %s\n", secret.Name, request)
	return err
}
