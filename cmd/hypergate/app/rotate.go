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

	"github.com/hypergate/hypergate/pkg/desired"
)

// rotateOptions are rotate-ca's flags.
type rotateOptions struct{ mgmtKubeconfig, namespace string }

func newRotateCA() *cobra.Command {
	o := &rotateOptions{}
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Ask for a rotation of the mesh CA; the controller carries it out, and goes on with it whatever happens",
		Long: `rotate-ca asks for a new mesh CA, root and all. The controller first makes everybody trust the new root beside the old one, then lets
the new CA issue, then drops the old root; each phase lasts for --ca-overlap of hypergate run. What is asked for is written to an annotation of
the Secret ` + desired.CASecretName + `, and so is the phase: nothing is lost when the controller restarts.`,
		Example: `  # In hypergate's pod, with its own rights
  kubectl -n clusters-guest1 exec deploy/hypergate -- /hypergate rotate-ca --namespace clusters-guest1

  # Anywhere else
  hypergate rotate-ca --namespace clusters-guest1 --management-kubeconfig mgmt.kubeconfig

  # How far it is
  kubectl -n clusters-guest1 get secret ` + desired.CASecretName + ` -o jsonpath='{.metadata.annotations}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout(), time.Now()) },
	}
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "namespace of the hosted control plane on the management cluster")
	cmd.Flags().StringVar(&o.mgmtKubeconfig, "management-kubeconfig", "", "kubeconfig of the management cluster (default: the pod's own service account; KUBECONFIG is not read)")
	return cmd
}

func (o *rotateOptions) run(ctx context.Context, out io.Writer, now time.Time) error {
	if o.namespace == "" {
		return fmt.Errorf("--namespace must be given: the namespace of the hosted control plane on the management cluster")
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
		return fmt.Errorf("connecting to the management cluster: %w", err)
	}
	secrets := client.Secrets(namespace)
	secret, err := secrets.Get(ctx, desired.CASecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %s has no Secret %s: there is no mesh CA to rotate; one is made when a GatewayClass asks for hypergate", namespace, desired.CASecretName)
	case err != nil:
		return fmt.Errorf("reading the mesh CA: %w", err)
	case secret.Labels[desired.OwnerLabel] == "":
		return fmt.Errorf("the Secret %s in namespace %s is not hypergate's: whoever made it rotates it", desired.CASecretName, namespace)
	case secret.Annotations[desired.PhaseAnnotation] != "":
		return fmt.Errorf("a rotation is under way: %s since %s", secret.Annotations[desired.PhaseAnnotation], secret.Annotations[desired.PhaseSinceAnnotation])
	}
	return patchRequest(ctx, secrets, secret, now, out)
}

func patchRequest(ctx context.Context, secrets coreclient.SecretInterface, secret *corev1.Secret, now time.Time, out io.Writer) error {
	request := now.UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": secret.ResourceVersion,
		"annotations":     map[string]string{desired.RotateAnnotation: request},
	}})
	if err != nil {
		return fmt.Errorf("asking for a rotation: %w", err)
	}
	if _, err := secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "hypergate-rotate-ca"}); err != nil {
		return fmt.Errorf("asking for a rotation: %w", err)
	}
	_, err = fmt.Fprintf(out, "secret/%s: rotation asked for at %s\n", secret.Name, request)
	return err
}
