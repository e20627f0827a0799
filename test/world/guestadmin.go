package world

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/ocpcrds"
	"github.com/hypergate/hypergate/test/xds"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// poll is the polling interval.
const poll = 100 * time.Millisecond

// Apply fills one of the manifest templates with values and applies it as the guest's administrator. It waits for
// kinds whose CRD is not installed yet.
func (w *World) Apply(ctx context.Context, manifest string, values map[string]string) error {
	filled, err := fill(manifest, values)
	if err != nil {
		return err
	}
	objects, err := fromyaml.Parse(filled.Bytes())
	if err != nil {
		return fmt.Errorf("reading manifest %s: %w", manifest, err)
	}
	for _, u := range objects {
		if err := w.ApplyObject(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// fill returns one of the manifest templates, filled with values.
func fill(manifest string, values map[string]string) (*bytes.Buffer, error) {
	text, err := template.ParseFS(manifests, "manifests/"+manifest)
	if err != nil {
		return nil, fmt.Errorf("reading manifest %s: %w", manifest, err)
	}
	filled := &bytes.Buffer{}
	if err := text.Option("missingkey=error").Execute(filled, values); err != nil {
		return nil, fmt.Errorf("filling manifest %s: %w", manifest, err)
	}
	return filled, nil
}

// ApplyObject applies one object as the guest's administrator. It waits until the API server serves the kind and the
// namespace exists.
func (w *World) ApplyObject(ctx context.Context, u *unstructured.Unstructured) error {
	return w.applyObject(ctx, u)
}

// ApplyWithStatus applies an object of a kind with the subresource status as the guest's administrator, and then its
// status, as an operator of OpenShift does.
func (w *World) ApplyWithStatus(ctx context.Context, u *unstructured.Unstructured) error {
	if err := w.applyObject(ctx, u); err != nil {
		return err
	}
	return w.applyObject(ctx, u, "status")
}

// ServeOpenShift installs a CRD of OpenShift in the guest. file is a constant of ocpcrds.
func (w *World) ServeOpenShift(ctx context.Context, file string) error {
	crd, err := ocpcrds.CRD(ctx, file)
	if err != nil {
		return err
	}
	return w.ApplyObject(ctx, crd)
}

func (w *World) applyObject(ctx context.Context, u *unstructured.Unstructured, subresources ...string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = w.tryApply(ctx, u, subresources...)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("applying %s %s in the guest: %w", u.GetKind(), u.GetName(), errors.Join(last, err))
	}
	return nil
}

func (w *World) tryApply(ctx context.Context, u *unstructured.Unstructured, subresources ...string) error {
	mapping, err := w.guestMapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: "guest-admin", Force: true}
	client := dynamic.ResourceInterface(w.GuestDynamic.Resource(mapping.Resource))
	if u.GetNamespace() != "" {
		client = w.GuestDynamic.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	_, err = client.Apply(ctx, u.GetName(), u, options, subresources...)
	return err
}

// DeleteClass deletes a GatewayClass.
func (w *World) DeleteClass(ctx context.Context, name string) error {
	if err := w.Gateways.GatewayClasses().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting GatewayClass %s: %w", name, err)
	}
	return nil
}

// ClassCondition waits until a condition of a GatewayClass has this status.
func (w *World) ClassCondition(ctx context.Context, class, kind string, status metav1.ConditionStatus) error {
	return w.until(ctx, fmt.Sprintf("GatewayClass %s to have %s=%s", class, kind, status), func(ctx context.Context) (string, bool) {
		got, err := w.Gateways.GatewayClasses().Get(ctx, class, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return Conditions(got.Status.Conditions), meta.IsStatusConditionPresentAndEqual(got.Status.Conditions, kind, status)
	})
}

// Programmed waits until a Gateway is programmed in its current generation.
func (w *World) Programmed(ctx context.Context, namespace, name string) error {
	return w.until(ctx, fmt.Sprintf("Gateway %s/%s to be programmed", namespace, name), func(ctx context.Context) (string, bool) {
		got, err := w.Gateways.Gateways(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		c := meta.FindStatusCondition(got.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed))
		return Conditions(got.Status.Conditions), c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == got.Generation
	})
}

// RouteAccepted waits until the HTTPRoute's parent accepts it.
func (w *World) RouteAccepted(ctx context.Context, namespace, name string) error {
	return w.until(ctx, fmt.Sprintf("HTTPRoute %s/%s to be accepted", namespace, name), func(ctx context.Context) (string, bool) {
		got, err := w.Gateways.HTTPRoutes(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		for _, parent := range got.Status.Parents {
			if parent.ControllerName == ControllerName {
				return Conditions(parent.Conditions),
					meta.IsStatusConditionTrue(parent.Conditions, string(gatewayv1.RouteConditionAccepted)) &&
						meta.IsStatusConditionTrue(parent.Conditions, string(gatewayv1.RouteConditionResolvedRefs))
			}
		}
		return "no status of our controller", false
	})
}

// until polls until done. Its error names the expected state and the last observed state.
func (w *World) until(ctx context.Context, what string, look func(context.Context) (seen string, done bool)) error {
	seen := ""
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (done bool, _ error) {
		now, done := look(ctx)
		if ctx.Err() == nil {
			seen = now
		}
		return done, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w; last seen: %s", what, err, seen)
	}
	return nil
}

// Conditions returns conditions as text, one per line.
func Conditions(conditions []metav1.Condition) string {
	lines := make([]string, 0, len(conditions))
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s (%s) %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "\n")
}

// Proxy connects to istiod as the proxy of a Gateway would, with the Pod's own token and the root in the guest's
// ConfigMap. ctx must live as long as the connection.
func (w *World) Proxy(ctx context.Context, namespace, gateway string) (*xds.Client, error) {
	pod, err := w.GatewayPod(ctx, namespace, gateway)
	if err != nil {
		return nil, err
	}
	token, err := w.GuestToken(ctx, pod, "istio-ca")
	if err != nil {
		return nil, err
	}
	return w.ProxyWith(ctx, pod, token)
}

// ProxyWith connects as Proxy does, but with the given token.
func (w *World) ProxyWith(ctx context.Context, pod *corev1.Pod, token string) (*xds.Client, error) {
	root, err := w.GuestClient.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, Revision+"-ca-cert", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the mesh root that gateways mount: %w", err)
	}
	options, err := w.ProxyOptions(ctx, pod, token)
	if err != nil {
		return nil, err
	}
	options.RootCAs = []byte(root.Data["root-cert.pem"])
	return xds.Dial(ctx, options)
}

// ProxyOptions returns the options with which a Pod's proxy connects to istiod, without the trusted roots.
func (w *World) ProxyOptions(ctx context.Context, pod *corev1.Pod, token string) (xds.Options, error) {
	address, err := w.istiodAddress(ctx)
	return xds.Options{Address: address, ServerName: w.XDS().Host, Token: token, Node: xds.NodeOf(pod)}, err
}

// ServingNames returns the sorted DNS names in istiod's serving certificate. It verifies the certificate with the
// root that gateways mount.
func (w *World) ServingNames(ctx context.Context) ([]string, error) {
	root, err := w.GuestClient.CoreV1().ConfigMaps(GuestNamespace).Get(ctx, Revision+"-ca-cert", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the mesh root that gateways mount: %w", err)
	}
	address, err := w.istiodAddress(ctx)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(root.Data["root-cert.pem"]))
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: w.XDS().Host, RootCAs: roots, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("looking at istiod's certificate: %w", err)
	}
	defer func() { _ = conn.Close() }()
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil, fmt.Errorf("looking at istiod's certificate: a TLS dialer made a %T", conn)
	}
	names := slices.Clone(secured.ConnectionState().PeerCertificates[0].DNSNames)
	slices.Sort(names)
	return names, nil
}

// GuestToken returns a token of a Pod's service account, bound to the Pod, like the token that the kubelet projects.
func (w *World) GuestToken(ctx context.Context, pod *corev1.Pod, audience string) (string, error) {
	got, err := w.GuestClient.CoreV1().ServiceAccounts(pod.Namespace).
		CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{
				Audiences:      []string{audience},
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for the token of a gateway's pod: %w", err)
	}
	return got.Status.Token, nil
}

// GatewayPod waits for a running Pod of a Gateway and returns it.
func (w *World) GatewayPod(ctx context.Context, namespace, gateway string) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := w.until(ctx, "a running pod of Gateway "+gateway, func(ctx context.Context) (string, bool) {
		list, err := w.GuestClient.CoreV1().Pods(namespace).
			List(ctx, metav1.ListOptions{LabelSelector: "gateway.networking.k8s.io/gateway-name=" + gateway})
		if err != nil {
			return err.Error(), false
		}
		for i := range list.Items {
			if list.Items[i].Status.PodIP != "" && list.Items[i].DeletionTimestamp == nil {
				pod = &list.Items[i]
				return "", true
			}
		}
		return fmt.Sprintf("%d pods, none with an address", len(list.Items)), false
	})
	return pod, err
}

// MgmtToken returns a token of a service account in the management cluster.
func (w *World) MgmtToken(ctx context.Context, namespace, account, audience string) (string, error) {
	got, err := w.MgmtClient.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token of the management cluster: %w", err)
	}
	return got.Status.Token, nil
}

// Dynamics returns dynamic clients of all clusters: two, or one in the standalone topology.
func (w *World) Dynamics() []dynamic.Interface {
	if w.Topology == model.TopologyStandalone {
		return []dynamic.Interface{w.GuestDynamic}
	}
	return []dynamic.Interface{w.MgmtDynamic, w.GuestDynamic}
}

// Resource returns the GroupVersionResource of a resource.
func Resource(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}
