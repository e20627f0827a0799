package origin

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/proc"
	"github.com/hypergate/hypergate/test/world"
)

//go:embed manifests
var manifests embed.FS

// Names in the guest (cluster-ingress-operator pkg/operator/controller/names.go).
const (
	Class = "openshift-default"
	// Deployment is istiod's, in world.GuestNamespace.
	Deployment = "istiod-" + world.Revision
	// ValidatingWebhook is istiod's ValidatingWebhookConfiguration.
	ValidatingWebhook = "istio-validator-" + world.Revision + "-" + world.GuestNamespace

	controllerName    = "openshift.io/gateway-controller/v1"
	rootName          = "openshift-gw-ca-root-cert"
	operatorNamespace = "openshift-operators"
	olmLabel          = "operators.coreos.com/servicemeshoperator3." + operatorNamespace
	ownedAnnotation   = "ingress.operator.openshift.io/owned"
)

// Names of servers of hack/servers.
const (
	sailOperator    = "sail-operator"
	ingressOperator = "ingress-operator"
)

// Options are the istiod that an origin installs.
type Options struct {
	// Version is the version of istiod without a v, and Server the name of its server in hack/servers.
	Version, Server string
	// Charts is a folder with its charts in Istio's layout, manifests/charts.
	Charts string
	// Sail is the folder of the Go module of the sail-operator.
	Sail string
}

// Image returns the image of istiod for nodes of the guest.
func (o Options) Image(ctx context.Context) (cluster.Image, error) {
	found, err := servers.Find(ctx, o.Server)
	if err != nil {
		return cluster.Image{}, err
	}
	return cluster.Image{
		Name: o.image(), User: "1337", Entrypoint: []string{"/usr/local/bin/pilot-discovery"},
		Files: map[string]string{"/usr/local/bin/pilot-discovery": found[o.Server]},
	}, nil
}

func (o Options) image() string { return "registry.example.com/istiod-in-guest:" + o.Version }

// Guest is where an origin installs.
type Guest struct {
	// Kubeconfig and Dynamic have the rights of the administrator.
	Kubeconfig string
	Dynamic    dynamic.Interface
	// Dir is the folder for logs and charts.
	Dir string
}

// In returns the guest of a world.
func In(w *world.World) Guest {
	return Guest{Kubeconfig: cmp.Or(w.GuestKubeconfig, w.MgmtKubeconfig), Dynamic: w.GuestDynamic, Dir: w.Dir}
}

// Origin is an installation with its operators.
type Origin struct {
	guest     Guest
	operators map[string]*proc.Process // by the name of the server
	// release is the name of a release of Helm without an operator. Empty: there are operators.
	release string
}

// Stop ends the operators. What they installed stays, as if their pods could not run.
func (o *Origin) Stop() {
	for name := range o.operators {
		o.stop(name)
	}
}

// StopIngressOperator ends the ingress operator, and leaves the sail-operator. An update of OpenShift from origin A to
// B begins like this: the next ingress operator is the one of StartSail.
func (o *Origin) StopIngressOperator() { o.stop(ingressOperator) }

// Remove lets the owner of the installation remove it. For StartOLM, that is a person who ends the ingress operator and
// deletes the resource Istio. For StartSail, the ingress operator stands down by itself. For StartHelm, a person
// uninstalls the release. It returns before all is gone.
func (o *Origin) Remove(ctx context.Context) error {
	if o.release != "" {
		return o.helm(ctx, "uninstall", o.release)
	}
	o.StopIngressOperator()
	if o.operators[sailOperator] == nil {
		return o.run(ctx, ingressOperator, "--install=external")
	}
	istios := o.guest.Dynamic.Resource(world.Resource("sailoperator.io", "v1", "istios"))
	if err := istios.Delete(ctx, world.Revision, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting the resource Istio: %w", err)
	}
	return nil
}

func (o *Origin) stop(name string) {
	if operator := o.operators[name]; operator != nil {
		operator.Kill()
		delete(o.operators, name)
	}
}

// Err returns an error if an operator has ended by itself, with the end of its log.
func (o *Origin) Err() error {
	var errs []error
	for _, operator := range o.operators {
		select {
		case <-operator.Done():
			errs = append(errs, operator.Exit())
		default:
		}
	}
	return errors.Join(errs...)
}

// StartOLM installs by OLM: its objects, the real sail-operator, and the part of cluster-ingress-operator that writes
// the resource Istio. The operators end with this process.
func StartOLM(ctx context.Context, g Guest, o Options) (*Origin, error) {
	dir, err := prepared(ctx, g, o, map[string]string{"olm.managed": "true", olmLabel: ""})
	if err != nil {
		return nil, err
	}
	if err := applyOLM(ctx, g, o); err != nil {
		return nil, err
	}
	images := filepath.Join(dir, "config.properties")
	var properties strings.Builder
	for image, name := range map[string]string{"istiod": o.image(), "proxy": world.ProxyImage, "cni": "unused", "ztunnel": "unused"} {
		fmt.Fprintf(&properties, "images.%s.%s=%s\n", strings.ReplaceAll(sailVersion, ".", "_"), image, name)
	}
	if err := os.WriteFile(images, []byte(properties.String()), 0o600); err != nil {
		return nil, err
	}
	origin := &Origin{guest: g, operators: map[string]*proc.Process{}}
	return origin, errors.Join(
		origin.run(ctx, sailOperator, "--resource-directory", dir, "--config-file", images, "--leader-elect=false",
			"--metrics-bind-address=0", "--health-probe-bind-address=0"),
		origin.run(ctx, ingressOperator, "--install=olm", "--istio-version="+sailVersion),
	)
}

// StartSail installs by the sail library of cluster-ingress-operator. Where OLM has installed before, this is
// cluster-ingress-operator's own migration: it deletes the resource Istio, and waits for the sail-operator.
func StartSail(ctx context.Context, g Guest, o Options) (*Origin, error) {
	dir, err := prepared(ctx, g, o, map[string]string{ownedAnnotation: "true"})
	if err != nil {
		return nil, err
	}
	origin := &Origin{guest: g, operators: map[string]*proc.Process{}}
	return origin, origin.run(ctx, ingressOperator, "--install=library", "--istio-version=v"+o.Version, "--chart="+chartIn(dir),
		"--istiod-image="+o.image(), "--proxy-image="+world.ProxyImage)
}

// run starts an operator.
func (o *Origin) run(ctx context.Context, name string, args ...string) error {
	found, err := servers.Find(ctx, name)
	if err != nil {
		return fmt.Errorf("%w (hack/servers/build.sh %s)", err, name)
	}
	operator, err := proc.Spec{
		Name: name, LogDir: o.guest.Dir, Argv: append([]string{found[name], "--kubeconfig", o.guest.Kubeconfig}, args...),
		Env: []string{"POD_NAMESPACE=" + operatorNamespace},
	}.Start()
	if err != nil {
		return err
	}
	o.operators[name] = operator
	return nil
}

// prepared writes the CRDs of the Gateway API, and those of Istio with the labels of their owner. It returns the folder
// of the charts.
func prepared(ctx context.Context, g Guest, o Options, labels map[string]string) (string, error) {
	dir, err := os.MkdirTemp(g.Dir, "charts-")
	if err != nil {
		return "", err
	}
	if err := writeResources(dir, o); err != nil {
		return "", err
	}
	source, err := charts.FromFS(os.DirFS(o.Charts), o.Charts)
	if err != nil {
		return "", err
	}
	istio, err := source.CRDs(istioCRDs())
	if err != nil {
		return "", err
	}
	for _, crd := range istio {
		label(crd, labels)
	}
	bundle := crds.GatewayAPI()
	for _, name := range bundle.Names() {
		crd, err := bundle.Object(name)
		if err != nil {
			return "", err
		}
		istio = append(istio, crd)
	}
	return dir, applyAll(ctx, g, istio)
}

// istioCRDs returns the kinds of Istio that cluster-ingress-operator installs: all.
func istioCRDs() []string {
	return []string{
		"wasmplugins.extensions.istio.io",
		"destinationrules.networking.istio.io", "envoyfilters.networking.istio.io", "gateways.networking.istio.io",
		"proxyconfigs.networking.istio.io", "serviceentries.networking.istio.io", "sidecars.networking.istio.io",
		"virtualservices.networking.istio.io", "workloadentries.networking.istio.io", "workloadgroups.networking.istio.io",
		"authorizationpolicies.security.istio.io", "peerauthentications.security.istio.io", "requestauthentications.security.istio.io",
		"telemetries.telemetry.istio.io",
	}
}

// applyOLM writes what OLM installs and leaves: the CRDs of the sail-operator and the objects of manifests/olm.yaml.
func applyOLM(ctx context.Context, g Guest, o Options) error {
	var all []*unstructured.Unstructured
	for _, file := range []string{"manifests/olm-crds.yaml", "manifests/olm.yaml"} {
		text, err := manifests.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := fromyaml.Parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, objects...)
	}
	files, err := filepath.Glob(filepath.Join(o.Sail, "chart/crds/sailoperator.io_*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := fromyaml.Parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, crd := range objects {
			label(crd, map[string]string{"olm.managed": "true", olmLabel: ""})
		}
		all = append(all, objects...)
	}
	if err := applyAll(ctx, g, all); err != nil {
		return err
	}
	return own(ctx, g)
}

// own makes the Subscription the owner of the InstallPlan, as OLM does.
func own(ctx context.Context, g Guest) error {
	in := func(resource string) (*unstructured.Unstructured, error) {
		list, err := g.Dynamic.Resource(world.Resource("operators.coreos.com", "v1alpha1", resource)).Namespace(operatorNamespace).
			List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return nil, fmt.Errorf("there is none of %s: %w", resource, err)
		}
		return &list.Items[0], nil
	}
	subscription, err := in("subscriptions")
	if err != nil {
		return err
	}
	plan, err := in("installplans")
	if err != nil {
		return err
	}
	plan.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: subscription.GetAPIVersion(), Kind: subscription.GetKind(), Name: subscription.GetName(), UID: subscription.GetUID(),
	}})
	plan.SetManagedFields(nil)
	plan.SetResourceVersion("")
	return applyAll(ctx, g, []*unstructured.Unstructured{plan})
}

// applyAll applies objects as the guest's administrator. It waits until the API server serves the kind of each.
func applyAll(ctx context.Context, g Guest, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		client := g.Dynamic.Resource(resource).Namespace(object.GetNamespace())
		var last error
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			_, last = client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "guest-admin", Force: true})
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("applying %s %s in the guest: %w", object.GetKind(), object.GetName(), errors.Join(last, err))
		}
	}
	return nil
}

func label(object *unstructured.Unstructured, labels map[string]string) {
	all := object.GetLabels()
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	object.SetLabels(all)
}
