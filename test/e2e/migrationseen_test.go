package e2e_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// gatewayNameLabel is on each object that istiod makes for a Gateway.
const gatewayNameLabel = "gateway.networking.k8s.io/gateway-name"

// seen is what watches of both API servers show of a migration, with times.
type seen struct {
	mu sync.Mutex
	// leases are the versions of the Lease of the migration.
	leases []leaseSeen
	// deployments are the versions of the Deployments of gateways, by namespace/name of the Gateway.
	deployments map[string][]deploymentSeen
	// holds are the changes of model.HoldAnnotation.
	holds []holdSeen
	held  map[string]string
	// ending is when a pod of a gateway was first seen with an order to end, by name.
	ending map[string]time.Time
	// away are the times in which no pod of the origin was ready for xDS. ready has the endpoints by EndpointSlice.
	away  []span
	ready map[string]int
	// changed has room for one.
	changed chan struct{}
}

type leaseSeen struct {
	at      time.Time
	version string
	record  migration.Record
	err     error
}

type deploymentSeen struct {
	at       time.Time
	address  string
	complete bool
}

type holdSeen struct {
	at               time.Time
	gateway          string
	before, after    string
	created, deleted bool
}

// span is a time. to is zero while it lasts.
type span struct{ from, to time.Time }

func (s span) length() time.Duration { return cmp.Or(s.to, time.Now()).Sub(s.from) }

// watch starts the watches, which end with ctx, and returns when all have begun.
func (t *migrationTest) watch(ctx context.Context) *seen {
	t.Helper()
	s := &seen{
		deployments: map[string][]deploymentSeen{}, held: map[string]string{}, ending: map[string]time.Time{}, ready: map[string]int{},
		changed: make(chan struct{}, 1),
	}
	only := func(namespace string, tweak func(*metav1.ListOptions)) []informers.SharedInformerOption {
		return []informers.SharedInformerOption{informers.WithNamespace(namespace), informers.WithTweakListOptions(tweak)}
	}
	leases := informers.NewSharedInformerFactoryWithOptions(t.MgmtClient, 0, only(t.MgmtNamespace, func(o *metav1.ListOptions) {
		o.FieldSelector = "metadata.name=" + migration.LeaseName(world.Revision)
	})...)
	gateways := informers.NewSharedInformerFactoryWithOptions(t.GuestClient, 0, only("", func(o *metav1.ListOptions) {
		o.LabelSelector = gatewayNameLabel
	})...)
	istiod := informers.NewSharedInformerFactoryWithOptions(t.GuestClient, 0, only(world.GuestNamespace, func(o *metav1.ListOptions) {
		o.LabelSelector = discoveryv1.LabelServiceName + "=" + origin.Deployment
	})...)
	dynamic := dynamicinformer.NewDynamicSharedInformerFactory(t.GuestDynamic, 0)
	all := []cache.SharedIndexInformer{
		handle(leases.Coordination().V1().Leases().Informer(), s.lease),
		handle(gateways.Apps().V1().Deployments().Informer(), s.deployment),
		handle(gateways.Core().V1().Pods().Informer(), s.pod),
		handle(istiod.Discovery().V1().EndpointSlices().Informer(), s.endpoints),
		handle(dynamic.ForResource(world.Resource("gateway.networking.k8s.io", "v1", "gateways")).Informer(), s.gateway),
	}
	for _, informer := range all {
		go informer.RunWithContext(ctx)
		t.Expect(cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)).To(gomega.BeTrue())
	}
	return s
}

// handle calls a function for each version of each object. gone reports whether it was deleted.
func handle[T any](informer cache.SharedIndexInformer, call func(object T, gone bool)) cache.SharedIndexInformer {
	on := func(o any, gone bool) {
		if last, is := o.(cache.DeletedFinalStateUnknown); is {
			o = last.Obj
		}
		if object, is := o.(T); is {
			call(object, gone)
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // it fails only for an informer that has ended
		AddFunc: func(o any) { on(o, false) }, UpdateFunc: func(_, o any) { on(o, false) }, DeleteFunc: func(o any) { on(o, true) },
	})
	return informer
}

func (s *seen) lease(l *coordinationv1.Lease, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := leaseSeen{at: time.Now(), version: l.ResourceVersion}
	if !gone {
		next.record, _, next.err = migration.ParseRecord(l.Annotations)
	}
	s.leases = append(s.leases, next)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *seen) deployment(d *appsv1.Deployment, _ bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := d.Namespace + "/" + d.Labels[gatewayNameLabel]
	status := d.Status
	s.deployments[key] = append(s.deployments[key], deploymentSeen{
		at: time.Now(), address: envOf(d)["CA_ADDR"],
		complete: status.ObservedGeneration >= d.Generation && status.UpdatedReplicas == *d.Spec.Replicas &&
			status.AvailableReplicas == status.Replicas && status.Replicas == status.UpdatedReplicas,
	})
}

func (s *seen) pod(p *corev1.Pod, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.ending[p.Name]; !known && (gone || p.DeletionTimestamp != nil) {
		s.ending[p.Name] = time.Now()
	}
}

// readEndings corrects when pods got the order to end. A watch can miss it while the API server is away.
func (s *seen) readEndings(all []audit.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		if r.Resource != "pods" || r.Verb != "delete" || r.Subresource != "" {
			continue
		}
		if seen, is := s.ending[r.Name]; !is || r.At.Before(seen) {
			s.ending[r.Name] = r.At
		}
	}
}

func (s *seen) gateway(u *unstructured.Unstructured, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, value := u.GetNamespace()+"/"+u.GetName(), u.GetAnnotations()[model.HoldAnnotation]
	before, known := s.held[key]
	if gone {
		delete(s.held, key)
	} else {
		s.held[key] = value
	}
	if before != value || !known || gone {
		s.holds = append(s.holds, holdSeen{time.Now(), key, before, value, !known, gone})
	}
}

func (s *seen) endpoints(slice *discoveryv1.EndpointSlice, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.endpointsReady()
	s.ready[slice.Name] = 0
	for _, endpoint := range slice.Endpoints {
		if ready := endpoint.Conditions.Ready; !gone && ready != nil && *ready {
			s.ready[slice.Name]++
		}
	}
	switch now := s.endpointsReady(); {
	case was > 0 && now == 0:
		s.away = append(s.away, span{from: time.Now()})
	case was == 0 && now > 0 && len(s.away) > 0:
		s.away[len(s.away)-1].to = time.Now()
	}
}

func (s *seen) endpointsReady() (sum int) {
	for _, ready := range s.ready {
		sum += ready
	}
	return sum
}

// last returns the newest version of the Lease, and how many there were.
func (s *seen) last() (leaseSeen, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) == 0 {
		return leaseSeen{}, 0
	}
	return s.leases[len(s.leases)-1], len(s.leases)
}

// versions returns all versions of the Lease.
func (s *seen) versions() []leaseSeen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leases)
}

// memoFirst is how much later than hypergate's next write the watch can show the version of the Lease that was written
// before it.
const memoFirst = 2 * time.Second

// phasesAt returns the phase at a time, and those that follow so soon that the watch can be late.
func (s *seen) phasesAt(at time.Time) []migration.Phase {
	current := migration.Check
	var out []migration.Phase
	for _, l := range s.versions() {
		phase := cmp.Or(l.record.Memo.Phase, migration.Check)
		switch {
		case !l.at.After(at):
			current = phase
		case l.at.Before(at.Add(memoFirst)):
			out = append(out, phase)
		}
	}
	return append(out, current)
}

// awayAt returns the longest time without xDS of the origin that began in a phase.
func (s *seen) awayAt(phase migration.Phase) (longest time.Duration) {
	for _, one := range s.awayIn(phase) {
		longest = max(longest, one.length())
	}
	return longest
}

// awayIn returns the times without xDS of the origin that began in a phase.
func (s *seen) awayIn(phase migration.Phase) []span {
	s.mu.Lock()
	spans := slices.Clone(s.away)
	s.mu.Unlock()
	return slices.DeleteFunc(spans, func(one span) bool { return !slices.Contains(s.phasesAt(one.from), phase) })
}

// metNoXDS reports whether a request was under way while xDS of the origin was away, or shortly after: agents connect
// again with a pause. With endpoints that are out of date, a request can fail half a minute later, because Envoy tries
// three of them, and waits ten seconds for each.
func (s *seen) metNoXDS(f traffic.Failure) bool {
	const reconnects = 15 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.away, func(one span) bool {
		return f.Ended.After(one.from) && (one.to.IsZero() || f.Began.Before(one.to.Add(reconnects)))
	})
}

// moved is how long a Gateway took. rollout is the part until its Deployment was complete.
type moved struct {
	gateway        string
	took, rollout  time.Duration
	from           time.Time
	rolloutUnknown bool
}

// moves returns how long each Gateway took, from its state Rolling in the phase Roll to the state after it. In an
// earlier phase, a Gateway can still roll from the story before. A Gateway that is on its way when the direction
// changes begins again: its time would be that of both ways, with the change of the lock between them.
func (s *seen) moves() []moved {
	var out []moved
	began := map[string]time.Time{}
	goal := migration.NoGoal
	for _, l := range s.versions() {
		if l.record.Intent.Goal != goal {
			goal, began = l.record.Intent.Goal, map[string]time.Time{}
		}
		if !l.record.Report.IsFor(l.record.Intent) {
			continue // it is still about the other direction
		}
		for _, g := range l.record.Report.Gateways {
			key := g.Namespace + "/" + g.Name
			from, rolls := began[key]
			switch {
			case g.State == migration.StateRolling && !rolls && l.record.Memo.Phase == migration.Roll:
				began[key] = l.at
			case g.State != migration.StateRolling && rolls:
				delete(began, key)
				one := moved{gateway: key, took: l.at.Sub(from), from: from}
				one.rollout, one.rolloutUnknown = s.rolloutOf(key, from, l.at)
				out = append(out, one)
			}
		}
	}
	return out
}

// rolloutOf returns how long the Deployment of a Gateway took to be complete with another address.
func (s *seen) rolloutOf(gateway string, from, to time.Time) (took time.Duration, unknown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed, complete time.Time
	address := ""
	for _, d := range s.deployments[gateway] {
		if d.at.Before(from.Add(-memoFirst)) || address == "" {
			address = d.address
			continue
		}
		if d.at.After(to) {
			break
		}
		if changed.IsZero() && d.address != address {
			changed = d.at
		}
		if complete.IsZero() && !changed.IsZero() && d.complete {
			complete = d.at
		}
	}
	return complete.Sub(changed), changed.IsZero() || complete.IsZero()
}
