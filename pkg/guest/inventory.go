package guest

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	sailv1 "github.com/istio-ecosystem/sail-operator/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

const (
	// inventoryPage is the page size of the lists of an inventory, and inventoryPages the number of requests for each.
	inventoryPage, inventoryPages = 100, 100
	// inventoryObjects is how many objects of a kind are named, besides Gateways.
	inventoryObjects = 10
	// otherClasses is how many GatewayClasses of other controllers are remembered in a reading.
	otherClasses = 256
	// maxResourceList is how many bytes are read of a list of resources in an environment variable of the origin.
	maxResourceList = 16 << 10
	// maxRoutes is how many attached routes of a Gateway are counted.
	maxRoutes = 1_000_000
)

// Inventory reads what the check of a migration follows from. It is for commands. It sends reads only, and reads no
// Secret. What hypergate is not allowed to read is in Inventory.Unread. It returns an error if a request fails in
// another way.
func (c *Cluster) Inventory(ctx context.Context, ours migration.Version) (migration.Inventory, error) {
	r := &inventoryReader{c: c, out: c.newInventory(ours)}
	for _, read := range []func(context.Context) error{
		r.classes, r.origin, r.originObjects, r.gateways, r.gatewayDeployments, r.foreign, r.alpha, r.sidecars, r.root,
	} {
		if err := read(ctx); err != nil {
			return migration.Inventory{}, err
		}
	}
	return r.out, nil
}

func (c *Cluster) newInventory(ours migration.Version) migration.Inventory {
	return migration.Inventory{
		OneNamespace: c.cfg.Topology == model.TopologyStandalone && c.cfg.MgmtNamespace == c.cfg.GuestNamespace,
		Revision:     c.cfg.Revision, Namespace: c.cfg.GuestNamespace, Ours: ours,
	}
}

// inventoryReader reads an inventory, one kind after another.
type inventoryReader struct {
	c   *Cluster
	out migration.Inventory
	// published is where gateways reach the hosted istiod. Empty: at the address of the flags, if there is one.
	published string
	// originObject is the Deployment of the origin, and originPods are its pods. deployments are those of the Gateways,
	// and names are the names that istiod gives them.
	originObject model.ForeignObject
	originPods   []string
	deployments  map[types.UID]model.ForeignObject
	names        map[types.UID]string
	// own are the names of the GatewayClasses of hypergate's controller, and others are the first ones of others.
	own, others map[string]bool
	// ignored and included are the resources that the origin does not serve, and the exceptions.
	ignored, included []string
	// passthrough are the Gateways with listeners that need alpha features.
	passthrough []migration.Object
}

// each lists a resource in pages, and calls keep for each object until it returns false. A resource that the guest does
// not serve has no objects.
func (r *inventoryReader) each(
	ctx context.Context, gvr schema.GroupVersionResource, namespace string, options metav1.ListOptions,
	keep func(*unstructured.Unstructured) bool,
) error {
	pages := answer.Pages{Size: inventoryPage, Requests: inventoryPages}
	err := pages.List(options, func(options metav1.ListOptions) (string, error) {
		page, err := r.list(ctx, gvr, namespace, options)
		if err != nil || page == nil {
			return "", err
		}
		for i := range page.Items {
			if !keep(&page.Items[i]) {
				return "", nil
			}
		}
		return page.GetContinue(), nil
	})
	if errors.Is(err, answer.ErrManyPages) {
		return fmt.Errorf("listing %s: the guest has more than %d pages", gvr.Resource, inventoryPages)
	}
	return err
}

// list returns one page. Nil: the guest does not serve the resource, or does not permit the request.
func (r *inventoryReader) list(
	ctx context.Context, gvr schema.GroupVersionResource, namespace string, options metav1.ListOptions,
) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, foreignPatchTimeout)
	defer cancel()
	page, err := r.c.dynamic.Resource(gvr).Namespace(namespace).List(ctx, options)
	if err != nil {
		return nil, r.unread("list", gvr, err)
	}
	return page, checkIdentities(gvr, page)
}

// get returns an object. Nil: it does not exist, or the guest does not permit the request.
func (r *inventoryReader) get(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, foreignPatchTimeout)
	defer cancel()
	u, err := r.c.dynamic.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, r.unread("get", gvr, err)
	}
	if err := checkIdentity(u); err != nil {
		return nil, fmt.Errorf("get %s: %w", gvr.GroupResource(), err)
	}
	return u, nil
}

// unread notes a request that the guest does not permit. It returns all other errors, except that nothing was found.
func (r *inventoryReader) unread(verb string, gvr schema.GroupVersionResource, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		r.out.Unread = append(r.out.Unread, verb+" "+gvr.GroupResource().String())
		return nil
	default:
		return fmt.Errorf("%s %s: %w", verb, gvr.GroupResource(), answer.Brief(err))
	}
}

func (r *inventoryReader) classes(ctx context.Context) error {
	r.own, r.others = map[string]bool{}, map[string]bool{}
	unread := len(r.out.Unread)
	gvr := schema.GroupVersionResource{Group: gatewayGroup, Version: classVersion, Resource: "gatewayclasses"}
	err := r.each(ctx, gvr, "", metav1.ListOptions{}, func(u *unstructured.Unstructured) bool {
		controller, _, _ := unstructured.NestedString(u.Object, "spec", "controllerName")
		if controller != r.c.cfg.ControllerName {
			if len(r.others) < otherClasses {
				r.others[u.GetName()] = true
			}
			return true
		}
		r.own[u.GetName()] = true
		if slices.Contains(u.GetFinalizers(), model.IngressOperatorFinalizer) && len(r.out.Origin.Finalized) < inventoryObjects {
			r.out.Origin.Finalized = append(r.out.Origin.Finalized, bounded(u.GetName(), maxName))
		}
		return true
	})
	if len(r.own) == 0 && len(r.out.Unread) == unread {
		r.out.ClassMissing = r.c.cfg.ControllerName
	}
	return err
}

// origin reads the Deployment of the guest's istiod, and counts its pods.
func (r *inventoryReader) origin(ctx context.Context) error {
	u, err := r.get(ctx, deploymentResource(), r.c.cfg.GuestNamespace, r.c.cfg.IstiodName())
	r.out.Origin.NotReadable = u == nil && slices.Contains(r.out.Unread, "get "+deploymentResource().GroupResource().String())
	if err != nil || u == nil || u.GetLabels()[model.OwnerLabel] != "" {
		return err
	}
	var d appsv1.Deployment
	if err := convert(u, &d); err != nil {
		return fmt.Errorf("reading Deployment %s/%s: %w", u.GetNamespace(), u.GetName(), answer.Brief(err))
	}
	state := deploymentOf(d.Generation, d.Spec.Replicas, d.Status)
	found := &migration.OriginDeployment{
		Labels: map[string]string{}, Version: versionOf(d), Wanted: state.Wanted, Ready: d.Status.ReadyReplicas,
		Rolling: state.State != model.DeploymentComplete,
	}
	for _, label := range []string{migration.ManagedByLabel, migration.HelmLabel} {
		if value := d.Labels[label]; value != "" {
			found.Labels[label] = bounded(value, maxOwner)
		}
	}
	r.out.Origin.Deployment, r.originObject = found, foreignObjectOf(u)
	r.originEnv(d.Spec.Template.Spec, found)
	return r.podsOfOrigin(ctx, found)
}

// originEnv reads what the environment of the guest's istiod shows.
func (r *inventoryReader) originEnv(pod corev1.PodSpec, found *migration.OriginDeployment) {
	for _, container := range pod.Containers {
		for _, env := range container.Env {
			switch env.Name {
			case "PILOT_CA_CERT_CONFIGMAP":
				found.Root = bounded(env.Value, maxName)
			case "PILOT_IGNORE_RESOURCES":
				r.ignored = strings.Split(bounded(env.Value, maxResourceList), ",")
			case "PILOT_INCLUDE_RESOURCES":
				r.included = strings.Split(bounded(env.Value, maxResourceList), ",")
			}
		}
	}
}

// versionOf returns the version of Istio in a Deployment: of a label, of the chart, or of the image's tag.
func versionOf(d appsv1.Deployment) migration.Version {
	texts := []string{d.Labels["app.kubernetes.io/version"], d.Labels["helm.sh/chart"]}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == "discovery" {
			texts = append(texts, container.Image[strings.LastIndex(container.Image, "/")+1:])
		}
	}
	for _, text := range texts {
		// The chart of a development version has a version that no istiod has.
		if v := migration.ParseVersion(text); v != (migration.Version{}) && v.Minor > 0 {
			return v
		}
	}
	return migration.Version{}
}

// originObjects reads the objects of the Sail operator and of OLM.
func (r *inventoryReader) originObjects(ctx context.Context) error {
	subscription := sailSubscription()
	for _, read := range []struct {
		gvr             schema.GroupVersionResource
		namespace, name string
		into            *string
	}{
		{istioResource(), "", r.c.cfg.Revision, &r.out.Origin.Istio},
		{sailv1.GroupVersion.WithResource("istiorevisions"), "", r.c.cfg.Revision, &r.out.Origin.IstioRevision},
		{olmGroupVersion().WithResource("subscriptions"), subscription.Namespace, subscription.Name, &r.out.Origin.Subscription},
	} {
		u, err := r.get(ctx, read.gvr, read.namespace, read.name)
		if err != nil {
			return err
		}
		if u != nil {
			*read.into = read.name
		}
	}
	return nil
}

// sailSubscription is the Subscription of OpenShift's ingress operator (cluster-ingress-operator,
// pkg/operator/controller/names.go).
func sailSubscription() types.NamespacedName {
	return types.NamespacedName{Namespace: migration.SubscriptionNamespace, Name: "servicemeshoperator3"}
}

// gateways reads the Gateways of hypergate's classes, and those that hypergate holds.
func (r *inventoryReader) gateways(ctx context.Context) error {
	own := model.HoldValue(r.c.cfg.Revision)
	r.names = map[types.UID]string{}
	return r.each(ctx, gatewayResource(), "", metav1.ListOptions{}, func(u *unstructured.Unstructured) bool {
		var g gatewayv1.Gateway
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &g); err != nil {
			g.ObjectMeta = metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()} // it is not programmed
		}
		value, annotated := g.Annotations[model.HoldAnnotation]
		found := inventoryGateway(g)
		found.Hold = model.HoldOf(value, own, annotated)
		if !r.own[found.Class] && found.Hold != model.Held {
			return true
		}
		found.Elsewhere = r.others[found.Class] // a class that was deleted may come back
		r.out.Gateways = append(r.out.Gateways, found)
		r.names[found.UID] = bounded(deploymentName(u, found.Class), maxName)
		for _, l := range g.Spec.Listeners {
			if l.Protocol == gatewayv1.TLSProtocolType {
				r.passthrough = appendNamed(r.passthrough, "Gateway", u)
				break
			}
		}
		return len(r.out.Gateways) <= model.MaxGateways
	})
}

// inventoryGateway returns what an inventory keeps of a Gateway.
func inventoryGateway(g gatewayv1.Gateway) migration.InventoryGateway {
	out := migration.InventoryGateway{Class: bounded(string(g.Spec.GatewayClassName), maxName)}
	out.Key, out.UID, out.ResourceVersion = types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, g.UID, g.ResourceVersion
	for _, condition := range g.Status.Conditions {
		if condition.Type == string(gatewayv1.GatewayConditionProgrammed) {
			out.Programmed = condition.Status == metav1.ConditionTrue
		}
	}
	for _, l := range g.Status.Listeners {
		out.Routes = min(out.Routes+min(max(0, l.AttachedRoutes), maxRoutes), maxRoutes)
	}
	out.Skip, out.Order, out.Invalid = migration.ParseMove(g.Annotations)
	return out
}

// addressOf returns where the pods of a gateway get their certificates. istiod gives them the same address for their
// configuration, which is part of a longer text.
func addressOf(pod corev1.PodSpec) string {
	for _, container := range pod.Containers {
		for _, env := range container.Env {
			if env.Name == "CA_ADDR" {
				return bounded(env.Value, maxName)
			}
		}
	}
	return ""
}

// isProxied reports whether a pod has an HTTP proxy of the mesh configuration, which istiod writes to this variable. A
// proxy that the Gateway's own parameters set is not there, and stays.
func isProxied(pod corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(env corev1.EnvVar) bool {
			var config struct{ ProxyMetadata map[string]string }
			if env.Name != "PROXY_CONFIG" || json.Unmarshal([]byte(env.Value), &config) != nil {
				return false
			}
			return config.ProxyMetadata["HTTP_PROXY"] != "" || config.ProxyMetadata["HTTPS_PROXY"] != ""
		})
	})
}

// rootOf returns the ConfigMap with the roots that the pods of a gateway trust.
func rootOf(pod corev1.PodSpec) string {
	for _, volume := range pod.Volumes {
		if volume.Name == "istiod-ca-cert" && volume.ConfigMap != nil {
			return bounded(volume.ConfigMap.Name, maxName)
		}
	}
	return ""
}

// root reads the root of the origin. A root that istiod made itself has the trust domain as its organization. Only a
// warning follows from it, and who may change a Gateway's Deployment chooses the ConfigMap. So a request that fails, or
// is not permitted, must not stop a migration.
func (r *inventoryReader) root(ctx context.Context) error {
	at := slices.IndexFunc(r.out.Gateways, func(g migration.InventoryGateway) bool { return g.Of == migration.OfOrigin && g.Root != "" })
	if at < 0 {
		return nil
	}
	g, unread := r.out.Gateways[at], len(r.out.Unread)
	u, err := r.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, g.Key.Namespace, g.Root)
	r.out.Unread = r.out.Unread[:unread]
	if err == nil && u != nil {
		r.out.PluggedInCA = isPluggedIn(u)
	}
	return ctx.Err()
}

// isPluggedIn reports whether the root in a ConfigMap is one that istiod has not made itself.
func isPluggedIn(u *unstructured.Unstructured) bool {
	text, _, _ := unstructured.NestedString(u.Object, "data", "root-cert.pem")
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return false
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	return err == nil && !slices.Contains(certificate.Subject.Organization, "cluster.local")
}
