package guest

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/watch"
)

// NotSyncedError says that the watches of the guest have not shown everything yet: the guest is not reachable, or something may not be listed.
type NotSyncedError struct {
	// Missing are the resources that decide what is installed and that are not known yet.
	Missing []string
	// Answers: the guest does, and all else is known. When that lasts, what is missing cannot be listed: the conversion webhook of its CRD is dead, for
	// example. An API server may let a watch of such objects wait without a word, so that there need not be a cause.
	Answers bool
	err     error
}

// Error names what is missing, and why where a watch said why.
func (e NotSyncedError) Error() string {
	text := "the guest is not known yet (waiting for " + strings.Join(e.Missing, ", ") + ")"
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

// Unwrap is why.
func (e NotSyncedError) Unwrap() error { return e.err }

// Observe reads what the guest shows. An error means "unknown", never "empty"; the mode is what is known of it all the same. The proof of the webhook is not observed here; see ProveWebhook.
func (c *Cluster) Observe() (desired.GuestObservation, error) {
	if err := c.known(); err != nil {
		return desired.GuestObservation{Mode: c.mode.mode()}, err
	}
	c.noteCRDs()
	out := desired.GuestObservation{API: c.api(), CRDs: c.crdFacts(), Classes: c.classes.own(), Mode: c.mode.mode(), Unserved: c.unserved()}
	out.InUse, out.InUseTotals = c.objectsInUse()
	out.SearchingInUse = c.searching()
	out.Leases, out.Foreign = c.leases.held(), c.foreignInstallations()
	if len(c.namespace.List()) > 0 {
		out.Namespace = desired.Present
	}
	return out, nil
}

// known is an error while something that decides what is installed is not known yet.
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
		{modeCRD, c.mode, c.mode.pending()},
		{"leases", c.leases, c.leases.pending()},
		{"deployments", c.foreign.istiod, pending(c.foreign.istiod)},
		{istioCRD, c.foreign.istios, c.foreign.istiosPending()},
	} {
		if w.pending {
			missing, errs = append(missing, w.resource), append(errs, w.watch.Err())
		}
	}
	// What is ours is not known before its watches were answered; one that is forbidden never will be, and does not hold up the rest.
	if !c.objects.Known() {
		missing = append(missing, "objects of our own")
	}
	if len(missing) > 0 {
		return NotSyncedError{Missing: missing, Answers: c.answers(errs), err: errors.Join(errs...)}
	}
	return nil
}

// classesPending says that GatewayClasses may yet be shown. Without their CRD there is nothing to wait for.
func (c *Cluster) classesPending() bool {
	_, exists := c.crds.Get(classCRD)
	return exists && !c.classes.Synced() && !c.classesUnserved()
}

// answers says whether the guest does, though something cannot be listed. A CRD that has just come is not served yet, and that passes.
func (c *Cluster) answers(errs []error) bool {
	return c.objects.Known() && c.crds.Err() == nil && !slices.ContainsFunc(errs, apierrors.IsNotFound)
}

// classesUnserved says that the CRD of the GatewayClasses is there and does not serve the version that they are read in: it is too old, or its names are
// another CRD's. There is nothing to wait for.
func (c *Cluster) classesUnserved() bool {
	item, there := c.crds.item(classCRD)
	r, known := c.reader.reading(item)
	return there && known && r.content == crds.Read && (r.definition.State == crds.Rejected || !slices.Contains(r.definition.Served, classVersion))
}

// Check is the health check of this side: it is known, the watches that decide what is installed work, and so does its kubeconfig.
func (c *Cluster) Check() error {
	return cmp.Or(c.WatchTrouble(), c.conn.Problem())
}

// WatchTrouble is why what is known of the guest may be old, or is not known at all; nil when the watches that decide what is installed work.
func (c *Cluster) WatchTrouble() error {
	return cmp.Or(c.known(), c.crds.Err(), c.namespace.Err(), c.classes.Err(), c.mode.problem(), c.leases.Err())
}

// KubeconfigProblem is why the guest kubeconfig as it is now is not in use, but the one before; nil when it is.
func (c *Cluster) KubeconfigProblem() error { return c.conn.Problem() }

// WatchProblems are the kinds in the guest whose watch does not work, of our own objects and of others that something is decided by.
func (c *Cluster) WatchProblems() []apply.WatchProblem {
	return slices.Concat(c.objects.WatchProblems(), c.mode.watchProblem(), c.inUse.watchProblems(), c.foreign.watchProblems(), c.oversized())
}

// oversized are the watches of which the API server sends more than is read, beside those that are listed anyhow.
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

// Losing are the objects that would lose fields if CRDs of others were taken over, whosever they are, the first hundred of them.
func (c *Cluster) Losing() []crds.InUse {
	first, _ := c.inUse.inUse(nil)
	return first
}

// objectsInUse are the objects of the guest that use what is served there and not heeded, the first hundred of them, and how many there are of each CRD.
func (c *Cluster) objectsInUse() (first []crds.InUse, totals map[string]int) {
	classes := map[string]bool{}
	for _, class := range c.classes.own() {
		classes[class.Name] = true
	}
	return c.inUse.inUse(classes)
}

// searching says whether objects in use may be missing: a CRD was not read yet, or its objects have not been seen. What may not be listed is not
// waited for.
func (c *Cluster) searching() bool {
	for _, item := range c.crds.readable() {
		if _, known := c.reader.latest(item); !known && item.marks.Deletion != crds.Terminating {
			return true
		}
	}
	return c.inUse.searching(c.searches())
}
