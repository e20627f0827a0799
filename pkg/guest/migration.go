package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// MigrationQuestion is what a reading for a migration depends on.
type MigrationQuestion struct {
	// Ours is the version of the hosted istiod, and Published where gateways reach it. Published is empty while that is
	// not known.
	Ours      migration.Version
	Published string
	// Roots are the roots (PEM) of the hosted istiod. It has none before it is installed.
	Roots []byte
	// Check reports whether to read everything that the check of a migration follows from.
	Check bool
	// Seen are the Gateways whose pods need not be listed, with the generation of their Deployment.
	Seen map[types.UID]int64
	// Released is the Gateway that was released last: the next step follows from its pods, so they are listed first.
	Released types.UID
	// NoPods reports whether no pods of Gateways are listed: no step of a rollback depends on them. Instead, it depends
	// on the istiod of the pods of earlier templates.
	NoPods bool
	// Urgent reports whether the origin's proxies wait for the next step if the origin has 0 replicas. The reading then
	// ends early, and no pods of Gateways are listed.
	Urgent bool
}

// MigrationFacts is what the guest shows of a migration.
type MigrationFacts struct {
	// Essential reports whether Origin, Leader and Pods are complete, and Inventory has the Deployment of the origin.
	// It can be true beside an error of a later read.
	Essential bool
	// Inventory is what the check follows from. Without Check, it has only the origin and the Gateways.
	Inventory migration.Inventory
	Checked   bool
	// Origin is the Deployment of the origin: the zero value if there is none. Webhook is its validating webhook, and
	// Blocking are the indices of the first webhooks that block writes without a pod of the origin.
	Origin, Webhook model.ForeignObject
	Blocking        []int
	// Trusted reports whether the guest's gateways have the roots of the hosted istiod.
	Trusted bool
	// Leader is the name with which an istiod leads, and Publisher that of the istiod that publishes its roots in all
	// namespaces. Pods are the names of the origin's pods.
	Leader, Publisher string
	Pods              []string
	// Deployments are those of the Gateways, by the UID of the Gateway.
	Deployments map[types.UID]model.ForeignObject
	// GatewayPods are the pods of the Deployments of Gateways that the hosted istiod has deployed completely, as
	// <pod>.<namespace>, by the UID of the Gateway. Those in Seen are left out.
	GatewayPods map[types.UID][]string
}

// HasNoReplicas reports whether the Deployment of the origin exists, and should have no pods.
func (f MigrationFacts) HasNoReplicas() bool {
	deployment := f.Inventory.Origin.Deployment
	return deployment != nil && deployment.Wanted == 0
}

const (
	// deploymentLock is the beginning of the name of the Lease by which istiods of a revision decide which of them
	// deploys Gateways (pilot/pkg/leaderelection/leaderelection.go, GatewayDeploymentController).
	deploymentLock = "istio-gateway-deployment-"
	// rootsLock is the ConfigMap by which istiods of a namespace decide which of them publishes its roots
	// (leaderelection.go, NamespaceController), and holderAnnotation its record of the holder
	// (k8sleaderelection/k8sresourcelock/interface.go).
	rootsLock        = "istio-namespace-controller-election"
	holderAnnotation = "control-plane.alpha.kubernetes.io/leader"
	// mostOriginPods is how many pods of the origin are named. mostGatewayPods is how many of a Gateway, and
	// gatewaysPerReading of how many Gateways pods are listed in one reading.
	mostOriginPods, mostGatewayPods, gatewaysPerReading = 100, 1000, 10
	// mostReplicaSets is how many ReplicaSets with the label of a Gateway are examined.
	mostReplicaSets = 100
	// mostBlocking is how many webhooks of the origin one patch relaxes. The origin has two. The next reading shows the
	// others.
	mostBlocking = 100
	// restTime is how long the rest of an urgent reading may take while the origin has 0 replicas. The origin and the
	// lock are read before. The origin's proxies get no configuration meanwhile.
	restTime = 5 * time.Second
)

// Migration reads what a step of a migration follows from. It sends reads only, and reads no Secret. ctx limits the
// time. It returns an error if a request fails, unless the guest does not permit it: that is in Inventory.Unread.
// Beside an error, the facts are what was read before. The state of the origin, the locks, and whether the guest has
// the roots of the hosted istiod are read first.
func (c *Cluster) Migration(ctx context.Context, q MigrationQuestion) (MigrationFacts, error) {
	r := &inventoryReader{c: c, published: q.Published, out: c.newInventory(q.Ours)}
	m := &migrationReader{inventoryReader: r, restores: !q.NoPods, facts: MigrationFacts{
		Checked: q.Check, Deployments: map[types.UID]model.ForeignObject{}, GatewayPods: map[types.UID][]string{},
	}}
	essential := func(context.Context) error {
		m.facts.Essential = len(r.out.Unread) == 0
		return nil
	}
	roots := func(ctx context.Context) error { return m.roots(ctx, q.Roots) }
	err := inOrder(ctx, r.origin, m.lock, essential, roots, m.publisher, func(ctx context.Context) error { return m.rest(ctx, q) })
	m.facts.Inventory = r.out
	m.facts.Origin, m.facts.Pods, m.facts.Deployments = r.originObject, r.originPods, r.deployments
	return m.facts, err
}

// inOrder calls reads until one fails.
func inOrder(ctx context.Context, reads ...func(context.Context) error) error {
	for _, read := range reads {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rest reads what is not about the origin and the lock alone. What tenants of the guest create is part of it.
func (m *migrationReader) rest(ctx context.Context, q MigrationQuestion) error {
	r := m.inventoryReader
	isAway := q.Urgent && MigrationFacts{Inventory: r.out}.HasNoReplicas()
	if isAway {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, restTime)
		defer cancel()
	}
	reads := []func(context.Context) error{r.classes, r.originObjects, m.webhook, r.gateways, r.gatewayDeployments}
	if q.Check {
		reads = append(reads, r.foreign, r.alpha, r.sidecars, r.root, m.permissions)
	}
	switch {
	case q.NoPods:
		reads = append(reads, func(ctx context.Context) error { return m.oldPods(ctx, q.Released) })
	case !isAway:
		reads = append(reads, func(ctx context.Context) error { return m.gatewayPods(ctx, q) })
	}
	return inOrder(ctx, reads...)
}

// migrationReader reads what only a step needs, besides an inventory.
type migrationReader struct {
	*inventoryReader

	facts MigrationFacts
	// restores reports whether a step can restore the pods of a Gateway.
	restores bool
}

// roots reads whether the guest's gateways have the roots of the hosted istiod. Without any, they have not.
func (m *migrationReader) roots(ctx context.Context, roots []byte) (err error) {
	if len(roots) > 0 {
		m.facts.Trusted, err = m.c.HasRoots(ctx, roots)
	}
	return err
}

// lock reads which istiod deploys Gateways.
func (m *migrationReader) lock(ctx context.Context) error {
	gvr := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	u, err := m.get(ctx, gvr, m.c.cfg.GuestNamespace, deploymentLock+m.c.cfg.Revision)
	if err != nil || u == nil {
		return err
	}
	var lease coordinationv1.Lease
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &lease); err != nil {
		return fmt.Errorf("reading Lease %s: %w", u.GetName(), answer.Brief(err))
	}
	if lease.Spec.HolderIdentity != nil {
		m.facts.Leader = bounded(*lease.Spec.HolderIdentity, maxName)
	}
	return nil
}

// publisher reads which istiod publishes its roots. A record that cannot be read counts as none: istiod repairs it.
func (m *migrationReader) publisher(ctx context.Context) error {
	u, err := m.get(ctx, configMapResource(), m.c.cfg.GuestNamespace, rootsLock)
	if err != nil || u == nil {
		return err
	}
	var record struct {
		HolderIdentity string `json:"holderIdentity"`
	}
	if err := json.Unmarshal([]byte(u.GetAnnotations()[holderAnnotation]), &record); err == nil {
		m.facts.Publisher = bounded(record.HolderIdentity, maxName)
	}
	return nil
}

// webhook reads the failure policies of the origin's validating webhook.
func (m *migrationReader) webhook(ctx context.Context) error {
	gvr := schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations",
	}
	u, err := m.get(ctx, gvr, "", migration.OriginWebhook(m.c.cfg.Revision, m.c.cfg.GuestNamespace))
	if err != nil || u == nil {
		return err
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &configuration); err != nil {
		return fmt.Errorf("reading ValidatingWebhookConfiguration %s: %w", u.GetName(), answer.Brief(err))
	}
	m.facts.Webhook = foreignObjectOf(u)
	for i, w := range configuration.Webhooks {
		if len(m.facts.Blocking) == mostBlocking {
			break
		}
		if w.FailurePolicy == nil || *w.FailurePolicy == admissionregistrationv1.Fail { // the default is Fail
			m.facts.Blocking = append(m.facts.Blocking, i)
		}
	}
	return nil
}

// startingWith returns the indices of the Gateways, that of one Gateway first.
func (r *inventoryReader) startingWith(first types.UID) []int {
	out := make([]int, 0, len(r.out.Gateways))
	for i, g := range r.out.Gateways {
		if out = append(out, i); g.UID == first {
			copy(out[1:], out)
			out[0] = i
		}
	}
	return out
}

// gatewayPods lists the pods of Gateways that the hosted istiod has deployed completely.
func (m *migrationReader) gatewayPods(ctx context.Context, q MigrationQuestion) error {
	listed := 0
	for _, i := range m.startingWith(q.Released) {
		g := m.out.Gateways[i]
		complete := g.Of == migration.OfHosted && g.Deployment.State == model.DeploymentComplete && isLabel(g.Key.Name)
		if generation, is := q.Seen[g.UID]; !complete || is && generation == g.Deployment.Generation || listed == gatewaysPerReading {
			continue
		}
		listed++
		names, err := m.podsOf(ctx, g.Key, m.deployments[g.UID])
		if err != nil {
			return err
		}
		m.facts.GatewayPods[g.UID] = names
	}
	return nil
}

// podsOf returns the pods of a Gateway's Deployment. Pods of others can have the label of the Gateway, too, for example
// those of a Deployment that istiod has left.
func (m *migrationReader) podsOf(ctx context.Context, gateway types.NamespacedName, deployment model.ForeignObject) ([]string, error) {
	sets := map[types.UID]bool{}
	_, err := m.ownSets(ctx, deployment, gateway.Name, func(u *unstructured.Unstructured) bool {
		sets[u.GetUID()] = true
		return true
	})
	if err != nil {
		return nil, err
	}
	names, examined := []string{}, 0
	options := metav1.ListOptions{LabelSelector: gatewayNameLabel + "=" + gateway.Name}
	err = m.each(ctx, podResource(), gateway.Namespace, options, func(u *unstructured.Unstructured) bool {
		examined++
		owner := metav1.GetControllerOf(u)
		if owner != nil && sets[owner.UID] && u.GetDeletionTimestamp() == nil && !hasEnded(u) {
			names = append(names, bounded(u.GetName(), maxName)+"."+gateway.Namespace)
		}
		return examined < mostGatewayPods
	})
	return names, err
}

// permissions adds the writes of a migration that the guest does not permit to Unread. To restore the pods of a
// Gateway, hypergate also has to list its ReplicaSets. A rollback restores none.
func (m *migrationReader) permissions(ctx context.Context) error {
	var all []authorizationv1.ResourceAttributes
	for _, w := range model.ForeignWrites() {
		attributes := authorizationv1.ResourceAttributes{Verb: "patch", Group: w.GVK.Group, Resource: w.Resource}
		switch w.Reason {
		case model.ReasonRefuseListenerSet:
			continue // no step of a migration needs it
		case model.ReasonScaleOrigin:
			attributes.Name = m.c.cfg.IstiodName()
		case model.ReasonRelaxWebhook:
			attributes.Name = migration.OriginWebhook(m.c.cfg.Revision, m.c.cfg.GuestNamespace)
		case model.ReasonHoldGateway, model.ReasonReleaseGateway, model.ReasonRestoreTemplate:
		}
		if attributes.Name != "" && w.Namespaced {
			attributes.Namespace = m.c.cfg.GuestNamespace
		}
		all = append(all, attributes)
	}
	if sets := replicaSetResource(); m.restores {
		all = append(all, authorizationv1.ResourceAttributes{Verb: "list", Group: sets.Group, Resource: sets.Resource})
	}
	for _, attributes := range all {
		allowed, err := m.may(ctx, attributes)
		if err != nil {
			return err
		}
		if !allowed {
			of := schema.GroupResource{Group: attributes.Group, Resource: attributes.Resource}
			m.out.Unread = append(m.out.Unread, attributes.Verb+" "+of.String())
		}
	}
	m.out.Unread = slices.Compact(m.out.Unread)
	return nil
}

// may reports whether the guest permits a request. An empty name means any object.
func (m *migrationReader) may(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, foreignPatchTimeout)
	defer cancel()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		return false, fmt.Errorf("encoding an access review: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion("authorization.k8s.io/v1")
	u.SetKind("SelfSubjectAccessReview")
	gvr := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	answered, err := m.c.dynamic.Resource(gvr).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing permissions: %w", answer.Brief(err))
	}
	allowed, _, _ := unstructured.NestedBool(answered.Object, "status", "allowed")
	return allowed, nil
}

// foreignObjectOf returns the identity and the version of an object.
func foreignObjectOf(u *unstructured.Unstructured) model.ForeignObject {
	return model.ForeignObject{
		Key: types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()},
		UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
	}
}

// NoTemplateError means that a Gateway's Deployment has no ReplicaSet whose pods connect to the origin. Their number is
// limited by its spec.revisionHistoryLimit.
type NoTemplateError struct{ Deployment types.NamespacedName }

func (e NoTemplateError) Error() string {
	return fmt.Sprintf("the Deployment %s has no ReplicaSet of the istiod in the guest", e.Deployment)
}
