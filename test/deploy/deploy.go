package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/cluster/servers"
)

// Names in the manifests.
const (
	Account        = "hypergate"
	MgmtNamespace  = "clusters-guest1"
	GuestNamespace = "openshift-ingress"
	// Guest is the example's hosted cluster. Names of its objects contain this name.
	Guest = "guest1"
)

// fieldManager is the field manager that applies the manifests.
const fieldManager = "kubectl"

// Render returns the objects that `kubectl apply -k` would apply for a folder. The folder is relative to deploy/.
func Render(folder string) ([]*unstructured.Unstructured, error) { return RenderFor(folder, Guest) }

// RenderFor does the same as Render for a copy of deploy/ with the names of another hosted cluster, as the example
// describes.
func RenderFor(folder, guest string) ([]*unstructured.Unstructured, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	return renderFrom(filepath.Join(root, "deploy"), folder, guest)
}

// RenderFrom does the same as Render for another deploy/ than that of this checkout.
func RenderFrom(deploy, folder string) ([]*unstructured.Unstructured, error) {
	return renderFrom(deploy, folder, Guest)
}

func renderFrom(deploy, folder, guest string) ([]*unstructured.Unstructured, error) {
	files, err := copyFor(deploy, guest)
	if err != nil {
		return nil, fmt.Errorf("copying %s for hosted cluster %s: %w", deploy, guest, err)
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, filepath.Join("/", folder))
	if err != nil {
		return nil, fmt.Errorf("rendering deploy/%s: %w", folder, err)
	}
	out := make([]*unstructured.Unstructured, 0, rendered.Size())
	for _, r := range rendered.Resources() {
		data, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("rendering deploy/%s: %w", folder, err)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("rendering deploy/%s: %w", folder, err)
		}
		out = append(out, u)
	}
	return out, nil
}

// copyFor returns a copy of a folder deploy/ with the names of another hosted cluster.
func copyFor(deploy, guest string) (filesys.FileSystem, error) {
	source, out := os.DirFS(deploy), filesys.MakeFsInMemory()
	return out, fs.WalkDir(source, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(source, path)
		if err != nil {
			return err
		}
		return out.WriteFile(filepath.Join("/", path), bytes.ReplaceAll(text, []byte(Guest), []byte(guest)))
	})
}

// Apply applies objects with strict field validation, so that unknown and duplicate fields are errors.
func Apply(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured, dryRun ...string) error {
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun}
	return each(config, objects, func(client dynamic.ResourceInterface, u *unstructured.Unstructured) error {
		data, err := u.MarshalJSON()
		if err == nil {
			_, err = client.Patch(ctx, u.GetName(), types.ApplyPatchType, data, options)
		}
		return err
	})
}

// Delete deletes objects and ignores those that do not exist.
func Delete(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) error {
	return each(config, objects, func(client dynamic.ResourceInterface, u *unstructured.Unstructured) error {
		if err := client.Delete(ctx, u.GetName(), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// each calls a function for each object and joins the errors.
func each(config *rest.Config, objects []*unstructured.Unstructured,
	do func(dynamic.ResourceInterface, *unstructured.Unstructured) error,
) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var errs []error
	for _, u := range objects {
		resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		if err := do(client.Resource(resource).Namespace(u.GetNamespace()), u); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// UserOf returns the user name of a service account.
func UserOf(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

// Kubeconfig writes a kubeconfig of hypergate's account in a namespace, valid for lifetime.
func Kubeconfig(ctx context.Context, admin *rest.Config, namespace, file string, lifetime time.Duration) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	seconds := int64(lifetime / time.Second)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, Account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking for a token of service account %s/%s: %w", namespace, Account, err)
	}
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{Account: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: Account}},
		CurrentContext: "x",
	}, file)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of service account %s/%s: %w", namespace, Account, err)
	}
	return nil
}

// TakesEffect waits until the API server grants a user all of the permissions, or none of them if allowed is false.
// The API server learns about roles and bindings through its own watches.
func TakesEffect(ctx context.Context, admin *rest.Config, user string, permissions []audit.Permission, allowed bool) error {
	admin = rest.CopyConfig(admin)
	admin.QPS = -1 // one review per permission
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, p := range permissions {
		resource, subresource, _ := strings.Cut(p.Resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: p.Namespace, Verb: p.Verb, Group: p.Group, Resource: resource, Subresource: subresource, Name: p.Name,
			},
		}}
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			got, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && got.Status.Allowed == allowed, err
		})
		if err != nil {
			return fmt.Errorf("waiting until it is %t that %s may %s: %w", allowed, user, p, err)
		}
	}
	return nil
}
