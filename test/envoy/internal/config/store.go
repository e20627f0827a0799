package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
	"github.com/hypergate/hypergate/test/envoy/internal/stats"
	"github.com/hypergate/hypergate/test/envoy/internal/translate"
	"github.com/hypergate/hypergate/test/envoy/internal/xds"
)

// SecretTimeout is how long a cluster or listener waits for a secret of the aggregated stream (Envoy's default of
// initial_fetch_timeout, which Istio leaves for such secrets). It waits without limit for secrets of the agent,
// because Istio's configuration says so.
const SecretTimeout = 15 * time.Second

// Snapshot is the active configuration. It must not be changed.
type Snapshot struct {
	Clusters  map[string]Cluster
	Listeners map[string]*model.Listener
	Routes    map[string]*model.RouteTable
	Secrets   map[model.SecretRef]*model.Secret
	// Live reports whether the first listeners are active.
	Live bool
}

// Cluster is a cluster with its endpoints. Endpoints is nil for DNS.
type Cluster struct {
	*model.Cluster
	Endpoints *model.Endpoints
}

// Store keeps the configuration. Its methods can be called concurrently.
type Store struct {
	translator *translate.Translator
	stats      *stats.Set
	publish    func(*Snapshot)
	// after calls a function later. It is time.AfterFunc, except in tests.
	after func(time.Duration, func())

	mu         sync.Mutex
	clusters   warm[*model.Cluster]
	listeners  warm[*model.Listener]
	endpoints  map[string]*model.Endpoints
	routes     map[string]*model.RouteTable
	secrets    map[model.SecretRef]*model.Secret
	extensions map[string][]string // by listener
	// overdue are the secrets that are not waited for any more, waiting those that have a timer.
	overdue, waiting map[model.SecretRef]bool
	// clustersSeen and listenersSeen report whether the first response has come. initialized reports whether the
	// first clusters have become active, live whether the first listeners have.
	clustersSeen, listenersSeen, initialized, live bool
}

// warm are the versions of resources with one name: the active one, and one that may become active.
type warm[T any] struct{ active, warming map[string]T }

func newWarm[T any]() warm[T] { return warm[T]{active: map[string]T{}, warming: map[string]T{}} }

func (w *warm[T]) remove(name string) {
	delete(w.active, name)
	delete(w.warming, name)
}

// all returns active and warming versions.
func (w *warm[T]) all() []T {
	return append(slices.Collect(maps.Values(w.active)), slices.Collect(maps.Values(w.warming))...)
}

// promote activates what is ready.
func (w *warm[T]) promote(ready func(T) bool) {
	for name, version := range w.warming {
		if ready(version) {
			w.active[name] = version
			delete(w.warming, name)
		}
	}
}

// Static are the resources of the bootstrap configuration.
type Static struct {
	Clusters  []*model.Cluster
	Listeners []*model.Listener
}

// New returns a Store with static resources. publish is called with each new Snapshot, and must not call the Store.
func New(static Static, t *translate.Translator, numbers *stats.Set, publish func(*Snapshot)) *Store {
	s := &Store{
		translator: t, stats: numbers, publish: publish, after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		clusters: newWarm[*model.Cluster](), listeners: newWarm[*model.Listener](),
		endpoints: map[string]*model.Endpoints{}, routes: map[string]*model.RouteTable{}, secrets: map[model.SecretRef]*model.Secret{},
		extensions: map[string][]string{}, overdue: map[model.SecretRef]bool{}, waiting: map[model.SecretRef]bool{},
	}
	for _, cluster := range static.Clusters {
		s.clusters.active[cluster.Name] = cluster
	}
	for _, listener := range static.Listeners {
		s.listeners.active[listener.Name] = listener
	}
	s.settle()
	return s
}

// Update implements xds.Sink.
func (s *Store) Update(u xds.Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.apply(u)
	s.count(u.Type, err)
	s.settle()
	return err
}

// count counts updates by the names that pilot-agent reads.
func (s *Store) count(typeURL string, err error) {
	prefix := map[string]string{xds.ClusterType: "cluster_manager.cds", xds.ListenerType: "listener_manager.lds"}[typeURL]
	if prefix == "" {
		prefix = "xds." + typeURL[len("type.googleapis.com/"):]
	}
	result := ".update_success"
	if err != nil {
		result = ".update_rejected"
	}
	s.stats.Add(prefix+".update_attempt", 1)
	s.stats.Add(prefix+result, 1)
}

func (s *Store) apply(u xds.Update) error {
	switch u.Type {
	case xds.ClusterType:
		s.clustersSeen = true
		for _, name := range u.Removed {
			s.clusters.remove(name)
		}
		return each(u.Resources, &clusterv3.Cluster{}, "adding or updating clusters", s.cluster)
	case xds.ListenerType:
		s.listenersSeen = true
		for _, name := range u.Removed {
			s.listeners.remove(name)
			delete(s.extensions, name)
		}
		return each(u.Resources, &listenerv3.Listener{}, "adding or updating listeners", s.listener)
	case xds.EndpointType:
		return each(u.Resources, &endpointv3.ClusterLoadAssignment{}, "updating endpoints", s.assignment)
	case xds.RouteType:
		return each(u.Resources, &routev3.RouteConfiguration{}, "updating routes", func(m *routev3.RouteConfiguration) error {
			return keep(s.routes, m.GetName(), m, s.translator.Routes)
		})
	case xds.SecretType:
		return each(u.Resources, &tlsv3.Secret{}, "updating secrets", func(m *tlsv3.Secret) error {
			return keep(s.secrets, model.SecretRef{Name: m.GetName()}, m, s.translator.Secret)
		})
	case xds.ExtensionType:
		return each(u.Resources, &corev3.TypedExtensionConfig{}, "updating extensions", s.translator.Extension)
	}
	return fmt.Errorf("type %s is not supported", u.Type)
}

// each applies all resources. Those without an error are applied even if others have one, as Envoy does.
func each[M proto.Message](resources []*discoveryv3.Resource, kind M, doing string, apply func(M) error) error {
	var failed []error
	for _, resource := range resources {
		m, ok := proto.Clone(kind).(M)
		if !ok {
			continue
		}
		err := resource.GetResource().UnmarshalTo(m)
		if err == nil {
			err = apply(m)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", resource.GetName(), err))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("error %s: %w", doing, errors.Join(failed...))
	}
	return nil
}

func keep[K comparable, M, T any](into map[K]T, name K, m M, translated func(M) (T, error)) error {
	value, err := translated(m)
	if err == nil {
		into[name] = value
	}
	return err
}

func (s *Store) cluster(m *clusterv3.Cluster) error {
	return keep(s.clusters.warming, m.GetName(), m, s.translator.Cluster)
}

func (s *Store) assignment(m *endpointv3.ClusterLoadAssignment) error {
	return keep(s.endpoints, m.GetClusterName(), m, s.translator.Endpoints)
}

func (s *Store) listener(m *listenerv3.Listener) error {
	if err := keep(s.listeners.warming, m.GetName(), m, s.translator.Listener); err != nil {
		return err
	}
	s.extensions[m.GetName()] = translate.Extensions(m)
	return nil
}

// AgentSecret applies a secret from the agent's socket.
func (s *Store) AgentSecret(m *tlsv3.Secret) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := keep(s.secrets, model.SecretRef{Name: m.GetName(), Agent: true}, m, s.translator.Secret)
	if err != nil {
		s.stats.Add("sds."+m.GetName()+".update_rejected", 1)
	}
	s.settle()
	return err
}

// Wants implements xds.Sink.
func (s *Store) Wants(typeURL string) (names []string, subscribe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch typeURL {
	case xds.ClusterType:
		return nil, true
	case xds.ListenerType:
		return nil, s.initialized
	case xds.EndpointType:
		return s.endpointNames(), true
	case xds.RouteType:
		return s.routeNames(), true
	case xds.SecretType:
		return s.secretNames(false), true
	case xds.ExtensionType:
		return distinct(slices.Concat(slices.Collect(maps.Values(s.extensions))...)), true
	}
	return nil, false
}

// AgentSecrets returns the names of the secrets to request from the agent's socket.
func (s *Store) AgentSecrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secretNames(true)
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
