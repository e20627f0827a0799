package config

import (
	"maps"
	"slices"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// settle activates what is ready, forgets what is not named any more, and publishes the result. s.mu is held.
func (s *Store) settle() {
	s.clusters.promote(s.clusterReady)
	s.initialized = s.initialized || s.clustersSeen && len(s.clusters.warming) == 0
	s.listeners.promote(s.listenerReady)
	s.live = s.live || s.listenersSeen && len(s.listeners.warming) == 0
	s.forget()
	s.countResources()
	s.publish(s.snapshot())
}

func (s *Store) snapshot() *Snapshot {
	out := &Snapshot{
		Clusters: map[string]Cluster{}, Listeners: maps.Clone(s.listeners.active), Routes: maps.Clone(s.routes),
		Secrets: maps.Clone(s.secrets), Live: s.live,
	}
	for name, cluster := range s.clusters.active {
		endpoints := cluster.Inline
		if cluster.Discovery == model.EDS {
			endpoints = s.endpoints[cluster.ServiceName]
		}
		out.Clusters[name] = Cluster{Cluster: cluster, Endpoints: endpoints}
	}
	return out
}

// countResources publishes how many resources there are.
func (s *Store) countResources() {
	s.stats.Put("cluster_manager.active_clusters", int64(len(s.clusters.active)))
	s.stats.Put("cluster_manager.warming_clusters", int64(len(s.clusters.warming)))
	s.stats.Put("listener_manager.total_listeners_active", int64(len(s.listeners.active)))
	s.stats.Put("listener_manager.total_listeners_warming", int64(len(s.listeners.warming)))
}

// clusterReady reports whether endpoints and secrets are there.
func (s *Store) clusterReady(c *model.Cluster) bool {
	if c.Discovery == model.EDS && s.endpoints[c.ServiceName] == nil {
		return false
	}
	return s.have(clusterSecrets(c))
}

// listenerReady reports whether routes and secrets are there.
func (s *Store) listenerReady(l *model.Listener) bool {
	for _, name := range listenerRoutes(l) {
		if s.routes[name] == nil {
			return false
		}
	}
	return s.have(listenerSecrets(l))
}

// have reports whether no secret has to be waited for, and starts the timers of those that have one.
func (s *Store) have(refs []model.SecretRef) bool {
	all := true
	for _, ref := range refs {
		if s.secrets[ref] != nil || s.overdue[ref] {
			continue
		}
		all = false
		if !ref.Agent && !s.waiting[ref] {
			s.waiting[ref] = true
			s.after(SecretTimeout, func() { s.expire(ref) })
		}
	}
	return all
}

func (s *Store) expire(ref model.SecretRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, ref)
	s.overdue[ref] = true
	s.settle()
}

// forget drops what no cluster and no listener names.
func (s *Store) forget() {
	retain(s.endpoints, s.endpointNames())
	retain(s.routes, s.routeNames())
	named := map[model.SecretRef]bool{}
	for _, ref := range s.secretRefs() {
		named[ref] = true
	}
	for ref := range s.secrets {
		if !named[ref] {
			delete(s.secrets, ref)
		}
	}
	for ref := range s.overdue {
		if !named[ref] {
			delete(s.overdue, ref)
		}
	}
}

func retain[T any](all map[string]T, names []string) {
	named := map[string]bool{}
	for _, name := range names {
		named[name] = true
	}
	for name := range all {
		if !named[name] {
			delete(all, name)
		}
	}
}

func (s *Store) endpointNames() []string {
	clusters := s.clusters.all()
	names := make([]string, 0, len(clusters))
	for _, cluster := range clusters {
		if cluster.Discovery == model.EDS {
			names = append(names, cluster.ServiceName)
		}
	}
	return distinct(names)
}

func (s *Store) routeNames() []string {
	listeners := s.listeners.all()
	names := make([]string, 0, len(listeners))
	for _, listener := range listeners {
		names = append(names, listenerRoutes(listener)...)
	}
	return distinct(names)
}

func (s *Store) secretNames(agent bool) []string {
	refs := s.secretRefs()
	names := make([]string, 0, len(refs))
	for _, ref := range refs {
		if ref.Agent == agent {
			names = append(names, ref.Name)
		}
	}
	return distinct(names)
}

func (s *Store) secretRefs() []model.SecretRef {
	clusters, listeners := s.clusters.all(), s.listeners.all()
	refs := make([]model.SecretRef, 0, len(clusters)+len(listeners))
	for _, cluster := range clusters {
		refs = append(refs, clusterSecrets(cluster)...)
	}
	for _, listener := range listeners {
		refs = append(refs, listenerSecrets(listener)...)
	}
	return refs
}

func clusterSecrets(c *model.Cluster) []model.SecretRef {
	contexts := make([]*model.ClientTLS, 0, 1+len(c.TLSByLabel))
	contexts = append(contexts, c.TLS)
	for _, row := range c.TLSByLabel {
		contexts = append(contexts, row.TLS)
	}
	var refs []model.SecretRef
	for _, context := range contexts {
		if context == nil {
			continue
		}
		if context.Certificate != nil {
			refs = append(refs, *context.Certificate)
		}
		if context.Validation != nil && context.Validation.CA != nil {
			refs = append(refs, *context.Validation.CA)
		}
	}
	return refs
}

func chains(l *model.Listener) []*model.FilterChain {
	if l.Default == nil {
		return l.Chains
	}
	return append(slices.Clip(l.Chains), l.Default)
}

func listenerSecrets(l *model.Listener) []model.SecretRef {
	var refs []model.SecretRef
	for _, chain := range chains(l) {
		if chain.TLS == nil {
			continue
		}
		refs = append(refs, chain.TLS.Certificates...)
		if chain.TLS.ClientCA != nil && chain.TLS.ClientCA.CA != nil {
			refs = append(refs, *chain.TLS.ClientCA.CA)
		}
	}
	return refs
}

func listenerRoutes(l *model.Listener) []string {
	var names []string
	for _, chain := range chains(l) {
		if http, ok := chain.Filter.(*model.HTTP); ok && http.Inline == nil {
			names = append(names, http.RouteName)
		}
	}
	return names
}
