package guest

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// NotSyncedError reports that the watches of the guest have not synced yet. The guest is unreachable, or hypergate is
// not allowed to list a resource.
type NotSyncedError struct {
	// Missing lists the resources that decide what is installed and that are still unknown.
	Missing []string
	// Answers reports whether the API server answers and everything else is known. If this state lasts, the missing
	// resources cannot be listed. For example, the conversion webhook of their CRD is down. An API server can leave a
	// watch of such objects without an answer, so err can be nil.
	Answers bool
	err     error
}

// Error names the missing resources, and the cause if a watch reported one.
func (e NotSyncedError) Error() string {
	text := "the guest has not been observed completely yet (waiting for " + strings.Join(e.Missing, ", ") + ")"
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

// Unwrap returns the cause, or nil.
func (e NotSyncedError) Unwrap() error { return e.err }

// Observe returns the observation of the guest. An error means that the state is unknown, never that it is empty.
// With an error, the observation still contains the management mode, as far as it is known. Observe does not probe
// the webhook; see ProbeWebhook.
func (c *Cluster) Observe() (model.GuestObservation, error) {
	if err := c.known(); err != nil {
		return model.GuestObservation{Mode: c.mode.mode()}, err
	}
	c.noteCRDs()
	out := model.GuestObservation{API: c.api(), CRDs: c.crdFacts(), Classes: c.classes.own(), Mode: c.mode.mode(), Unserved: c.unserved()}
	out.InUse, out.InUseTotals = c.objectsInUse()
	out.ListenerSets = c.inUse.refusable()
	out.Unlisted, out.SearchingInUse = c.inUse.unlisted(), c.searching()
	out.Leases, out.Foreign = c.leases.held(), c.foreignInstallations()
	out.ReadyRelays, out.Infrastructure = c.readyRelays(), c.nodes.value()
	proxy := c.proxy.value()
	out.Proxy, out.IgnoredProxy = proxy.usable, proxy.ignored
	out.TLSProfile = c.apiServer.value()
	out.Unread = model.UnreadSettings{Proxy: c.proxy.unread(), Infrastructure: c.nodes.unread(), TLSProfile: c.apiServer.unread()}
	out.Gateways = c.observedGateways()
	if _, exists := c.crds.item(ingressOperatorCRD); exists {
		out.IngressOperator = model.Present
	}
	defaults := c.defaults.List()
	out.OtherDefaults = otherDefaults(defaults, out.Classes)
	out.LastSettings, out.AppliedTemplates = ownDefaults(defaults, out.Classes, c.cfg.ClassDefaultsName)
	if len(c.namespace.List()) > 0 {
		out.Namespace = model.Present
	}
	out.Readability = c.readability(out)
	return out, nil
}

// known returns a NotSyncedError while any resource that decides what is installed is unknown.
func (c *Cluster) known() error {
	select {
	case <-c.conn.Begun():
	default:
		return NotSyncedError{Missing: []string{"its kubeconfig"}, err: c.conn.Problem()}
	}
	if !c.crds.Synced() {
		return NotSyncedError{Missing: []string{"customresourcedefinitions"}, err: c.crds.Err()}
	}
	var missing []string
	var errs []error
	for _, w := range []struct {
		resource string
		watch    interface{ Err() error }
		pending  bool
	}{
		{"namespaces", c.namespace, !c.namespace.Synced()},
		{"gatewayclasses", c.classes, c.classesPending()},
		{modeCRD, c.mode, c.unsettled(modeCRD, c.mode.Switch, c.mode.pending())},
		{infrastructureCRD, c.nodes, c.unsettled(infrastructureCRD, c.nodes.Switch, c.nodes.pending())},
		{proxyCRD, c.proxy, c.unsettled(proxyCRD, c.proxy.Switch, c.proxy.pending())},
		{apiServerCRD, c.apiServer, c.unsettled(apiServerCRD, c.apiServer.Switch, c.apiServer.pending())},
		{"leases", c.leases, c.leases.pending()},
		{"deployments", c.foreign.istiod, pending(c.foreign.istiod)},
		{"configmaps", c.defaults, c.defaultsPending()},
		{istioCRD, c.foreign.istios, c.foreign.istiosPending() || c.behind(istioCRD, c.foreign.istios)},
	} {
		if w.pending {
			missing, errs = append(missing, w.resource), append(errs, w.watch.Err())
		}
	}
	// hypergate's own objects are unknown until their watches have an answer. A forbidden watch never gets one, and
	// does not block the rest.
	if !c.objects.Known() {
		missing = append(missing, "hypergate's own objects")
	}
	if len(missing) > 0 {
		return NotSyncedError{Missing: missing, Answers: c.answers(errs), err: errors.Join(errs...)}
	}
	return nil
}

// classesPending reports whether the list of GatewayClasses is still expected. Without their CRD there is nothing to
// wait for.
func (c *Cluster) classesPending() bool {
	_, exists := c.crds.Get(classCRD)
	return exists && (!c.classes.Synced() || c.behind(classCRD, c.classes.Switch)) && !c.classesUnserved()
}

// defaultsPending reports whether the list of the classes' defaults is still expected. Without it, a new process would
// not know when the last change of the guest's settings was used. A guest with more of them than hypergate reads does
// not block the rest.
func (c *Cluster) defaultsPending() bool {
	return pending(c.defaults) && !isOversized(c.defaults.Err())
}

// answers reports whether the API server answers although something cannot be listed. It returns false for a CRD that
// is new and not served yet, because that state is transient.
func (c *Cluster) answers(errs []error) bool {
	return c.objects.Known() && c.crds.Err() == nil && !slices.ContainsFunc(errs, apierrors.IsNotFound)
}

// classesUnserved reports whether the CRD of the GatewayClasses exists but does not serve the version that hypergate
// reads. The CRD is too old, or its names conflict with another CRD. There is nothing to wait for.
func (c *Cluster) classesUnserved() bool {
	item, there := c.crds.item(classCRD)
	r, known := c.reader.reading(item)
	return there && known && r.content == crds.Read &&
		(r.definition.State == crds.Rejected || !slices.Contains(r.definition.Served, classVersion))
}

// Session returns a number that changes with each new guest kubeconfig. What was read in an earlier session does not
// count. Any goroutine may call it.
func (c *Cluster) Session() uint64 { return c.conn.Session() }

// Check is the health check of the guest side. It returns an error if the guest is unknown, or if a watch that decides
// what is installed fails. A problem with the guest kubeconfig is an error, too.
func (c *Cluster) Check() error {
	return cmp.Or(c.WatchTrouble(), c.conn.Problem())
}

// WatchTrouble returns why the observation of the guest is unknown or can be stale. It returns nil if the watches
// that decide what is installed work.
func (c *Cluster) WatchTrouble() error {
	return cmp.Or(c.known(), c.crds.Err(), c.namespace.Err(), c.classes.Err(), c.mode.problem(), c.leases.Err())
}

// Away reports whether the guest's API server does not answer. One resource that it cannot serve is not enough: neither
// the watch of CRDs nor those of Leases have an answer.
func (c *Cluster) Away() bool {
	return watch.StateOf(c.crds.Err()) == watch.NoAnswer && watch.StateOf(c.leases.Err()) == watch.NoAnswer
}

// KubeconfigProblem returns why the current guest kubeconfig is not in use and the previous one is. It returns nil if
// the current one is in use.
func (c *Cluster) KubeconfigProblem() error { return c.conn.Problem() }

// Validity returns from when, and until when, the guest kubeconfig in use is valid. Both are zero if that is unknown.
// Any goroutine may call it.
func (c *Cluster) Validity() (from, until time.Time) { return c.conn.Validity() }

// WatchProblems returns the kinds in the guest whose watch fails. It covers hypergate's own objects and the other
// objects that decisions depend on.
func (c *Cluster) WatchProblems() []apply.WatchProblem {
	return slices.Concat(
		c.objects.WatchProblems(), c.mode.watchProblem(), c.nodes.watchProblem(), c.proxy.watchProblem(),
		c.apiServer.watchProblem(), c.inUse.watchProblems(), c.foreign.watchProblems(), c.oversized(),
	)
}

// oversized returns the watches for which the API server sends more than hypergate reads. It covers only the watches
// that WatchProblems does not already include.
func (c *Cluster) oversized() []apply.WatchProblem {
	var out []apply.WatchProblem
	for _, w := range []struct {
		gvk   schema.GroupVersionKind
		watch interface{ Err() error }
	}{
		{crdResource().GroupVersion().WithKind(crdKind), c.crds},
		{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, c.namespace},
		{schema.GroupVersionKind{Group: gatewayGroup, Version: classVersion, Kind: "GatewayClass"}, c.classes},
		{schema.GroupVersionKind{Group: gatewayGroup, Version: classVersion, Kind: "Gateway"}, c.inUse.gateways},
		{schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, c.leases},
		{olmGroupVersion().WithKind("Subscription"), c.olm},
		{corev1.SchemeGroupVersion.WithKind("ConfigMap"), c.defaults},
	} {
		if err := w.watch.Err(); isOversized(err) {
			out = append(out, apply.WatchProblem{GVK: w.gvk, Cause: apply.Classify(err, "list", schema.GroupResource{})})
		}
	}
	return out
}

func isOversized(err error) bool {
	_, is := errors.AsType[*watch.LimitError](err)
	return is
}

// Losing returns the objects whose fields a takeover of their CRDs would remove. first has at most 100 objects; totals
// has their number by CRD.
func (c *Cluster) Losing() (first []crds.InUse, totals map[string]int) { return c.inUse.inUse(nil) }

// objectsInUse returns the guest's objects that use a field or kind that the guest serves and istiod ignores. first
// has at most 100 objects; totals has their number by CRD.
func (c *Cluster) objectsInUse() (first []crds.InUse, totals map[string]int) {
	classes := map[string]bool{}
	for _, class := range c.classes.own() {
		classes[class.Name] = true
	}
	return c.inUse.inUse(classes)
}

// searching reports whether the list of objects in use can be incomplete. A CRD has not been read yet, or its objects
// have not been listed. Resources that hypergate is not allowed to list do not count.
func (c *Cluster) searching() bool {
	for _, item := range c.crds.readable() {
		if _, known := c.reader.latest(item); !known && item.marks.Deletion != crds.Terminating {
			return true
		}
	}
	return c.inUse.searching(c.searches())
}
