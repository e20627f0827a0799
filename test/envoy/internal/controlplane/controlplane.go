// Package controlplane is an xDS server for tests: it sends what the test says, and keeps what the client answers.
//
// It speaks the delta variant of the aggregated stream, and the streams of secrets as the agent does. Versions are
// numbers that grow with each change.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Server is the control plane. Its methods can be called concurrently.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	secretv3.UnimplementedSecretDiscoveryServiceServer

	mu        sync.Mutex
	changed   chan struct{} // closed with each change
	version   int
	resources map[string]map[string]resource // by type and name
	requests  []*discoveryv3.DeltaDiscoveryRequest
	streams   map[int]context.CancelFunc
	nextID    int
	grpc      *grpc.Server
}

type resource struct {
	version int
	body    *anypb.Any
}

// New returns a server without resources.
func New() *Server {
	return &Server{changed: make(chan struct{}), resources: map[string]map[string]resource{}, streams: map[int]context.CancelFunc{}}
}

// Serve serves on a listener until Stop.
func (s *Server) Serve(listener net.Listener) {
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	secretv3.RegisterSecretDiscoveryServiceServer(server, s)
	s.mu.Lock()
	s.grpc = server
	s.mu.Unlock()
	_ = server.Serve(listener) // It ends with Stop.
}

// Stop ends all streams and closes the listener.
func (s *Server) Stop() {
	s.mu.Lock()
	server := s.grpc
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Set adds or replaces resources. The name is that of the message.
func (s *Server) Set(messages ...proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for _, m := range messages {
		body, err := anypb.New(m)
		if err != nil {
			panic(err) // The test's message cannot be encoded.
		}
		byName := s.resources[body.GetTypeUrl()]
		if byName == nil {
			byName = map[string]resource{}
			s.resources[body.GetTypeUrl()] = byName
		}
		byName[nameOf(m)] = resource{version: s.version, body: body}
	}
	s.notify()
}

// nameOf returns the field "name", or "cluster_name".
func nameOf(m proto.Message) string {
	fields := m.ProtoReflect().Descriptor().Fields()
	field := cmp.Or(fields.ByName("name"), fields.ByName("cluster_name"))
	return m.ProtoReflect().Get(field).String()
}

// Remove removes resources.
func (s *Server) Remove(typeURL string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.resources[typeURL], name)
	}
	s.notify()
}

func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// EndStreams ends all streams, as an istiod that stops does.
func (s *Server) EndStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.streams {
		cancel()
	}
}

// WaitFor returns the first request for which holds is true, among all that came and that will come.
func (s *Server) WaitFor(
	ctx context.Context, holds func(*discoveryv3.DeltaDiscoveryRequest) bool,
) (*discoveryv3.DeltaDiscoveryRequest, error) {
	seen := 0
	for {
		s.mu.Lock()
		requests, changed := s.requests, s.changed
		s.mu.Unlock()
		for ; seen < len(requests); seen++ {
			if holds(requests[seen]) {
				return requests[seen], nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no such request among %d: %w", seen, ctx.Err())
		}
	}
}

// Requests returns the number of requests until now.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *Server) begin(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextID
	s.nextID++
	s.streams[id] = cancel
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, id)
	}
}

// watch is what a client knows of one type.
type watch struct {
	all, answered bool

	names map[string]bool
	known map[string]int
}

// DeltaAggregatedResources implements the aggregated stream.
func (s *Server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, end := s.begin(stream.Context())
	defer end()
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- request:
			case <-ctx.Done():
				return
			}
		}
	}()
	watches := map[string]*watch{}
	for {
		s.mu.Lock()
		changed := s.changed
		responses := s.responses(watches)
		s.mu.Unlock()
		for _, response := range responses {
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		select {
		case request, open := <-requests:
			if !open {
				return nil
			}
			s.take(watches, request)
		case <-changed:
		case <-ctx.Done():
			return errors.New("the test ends the stream")
		}
	}
}

// take keeps a request and changes what the client knows.
func (s *Server) take(watches map[string]*watch, request *discoveryv3.DeltaDiscoveryRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
	w := watches[request.GetTypeUrl()]
	if w == nil {
		w = &watch{all: len(request.GetResourceNamesSubscribe()) == 0, names: map[string]bool{}, known: map[string]int{}}
		watches[request.GetTypeUrl()] = w
		for name, version := range request.GetInitialResourceVersions() {
			w.known[name], _ = strconv.Atoi(version)
		}
	}
	for _, name := range request.GetResourceNamesSubscribe() {
		w.names[name] = true
	}
	for _, name := range request.GetResourceNamesUnsubscribe() {
		delete(w.names, name)
		delete(w.known, name)
	}
	s.notify()
}

// responses returns what the client does not know yet. A wildcard gets a response even if there is no resource.
func (s *Server) responses(watches map[string]*watch) []*discoveryv3.DeltaDiscoveryResponse {
	var all []*discoveryv3.DeltaDiscoveryResponse
	for _, typeURL := range slices.Sorted(maps.Keys(watches)) {
		if response := watches[typeURL].next(s.resources[typeURL]); response != nil {
			response.TypeUrl, response.Nonce = typeURL, strconv.Itoa(s.version)+typeURL
			all = append(all, response)
		}
	}
	return all
}

// next returns nil if the client knows everything.
func (w *watch) next(resources map[string]resource) *discoveryv3.DeltaDiscoveryResponse {
	response := &discoveryv3.DeltaDiscoveryResponse{}
	for name, r := range resources {
		if (w.all || w.names[name]) && w.known[name] != r.version {
			w.known[name] = r.version
			one := &discoveryv3.Resource{Name: name, Version: strconv.Itoa(r.version), Resource: r.body}
			response.Resources = append(response.Resources, one)
		}
	}
	for name := range w.known {
		if _, exists := resources[name]; !exists {
			delete(w.known, name)
			response.RemovedResources = append(response.RemovedResources, name)
		}
	}
	first := w.all && !w.answered
	w.answered = true
	if !first && len(response.GetResources())+len(response.GetRemovedResources()) == 0 {
		return nil
	}
	return response
}

// StreamSecrets implements the stream of one secret.
func (s *Server) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	ctx, end := s.begin(stream.Context())
	defer end()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	sent := 0
	for {
		s.mu.Lock()
		changed := s.changed
		r, exists := s.resources[first.GetTypeUrl()][first.GetResourceNames()[0]]
		s.mu.Unlock()
		if exists && r.version != sent {
			sent = r.version
			response := &discoveryv3.DiscoveryResponse{
				TypeUrl: first.GetTypeUrl(), VersionInfo: strconv.Itoa(sent), Nonce: strconv.Itoa(sent), Resources: []*anypb.Any{r.body},
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("the test ends the stream")
		case <-time.After(time.Minute):
			return errors.New("the test has forgotten the stream")
		}
	}
}
