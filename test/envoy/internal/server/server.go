// Package server connects the parts to a program: bootstrap, xDS client, configuration, data plane, admin endpoints.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/admin"
	"github.com/hypergate/hypergate/test/envoy/internal/bootstrap"
	"github.com/hypergate/hypergate/test/envoy/internal/config"
	"github.com/hypergate/hypergate/test/envoy/internal/model"
	"github.com/hypergate/hypergate/test/envoy/internal/proxy"
	"github.com/hypergate/hypergate/test/envoy/internal/stats"
	"github.com/hypergate/hypergate/test/envoy/internal/translate"
	"github.com/hypergate/hypergate/test/envoy/internal/xds"
)

// The environment variables that pilot-agent passes on. Istio's gateways have podEnv. Tests set drainEnv to "off".
const (
	podEnv   = "POD_NAME"
	drainEnv = "STAND_IN_DRAIN"
)

// Run executes Envoy's command line until ctx ends or /quitquitquit is called. Logs go to w.
func Run(ctx context.Context, args []string, w io.Writer) error {
	options, err := bootstrap.Parse(args)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(options.Config)
	if err != nil {
		return fmt.Errorf("reading the bootstrap configuration: %w", err)
	}
	translator := translate.New()
	from, err := bootstrap.Read(text, translator)
	if err != nil {
		return fmt.Errorf("reading %s: %w", options.Config, err)
	}
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level(options.LogLevel)}))
	return (&server{log: log, options: options, from: from, translator: translator, numbers: &stats.Set{}}).run(ctx)
}

func level(name string) slog.Level {
	switch name {
	case "trace", "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "warning", "warn":
		return slog.LevelWarn
	}
	return slog.LevelError
}

type server struct {
	log        *slog.Logger
	options    bootstrap.Args
	from       *bootstrap.Config
	translator *translate.Translator
	numbers    *stats.Set
	snapshot   atomic.Pointer[config.Snapshot]
}

func (s *server) run(ctx context.Context) (err error) {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	s.numbers.Put("server.state", int64(admin.PreInitializing))
	s.numbers.Put("listener_manager.workers_started", 0)

	data := proxy.New(proxy.Options{
		DrainTime: s.options.DrainTime, Immediately: s.options.DrainImmediately, Stats: s.numbers, Log: s.log,
		NoDrain: os.Getenv(drainEnv) == "off", Pod: os.Getenv(podEnv),
	})
	defer data.Close()
	// Both are for changes that no response causes: a secret has come, or is overdue.
	changed, wake := make(chan struct{}, 1), make(chan struct{}, 1)
	static := config.Static{Clusters: s.from.Clusters, Listeners: s.from.Listeners}
	//nolint:contextcheck // The data plane has its own life.
	store := config.New(static, s.translator, s.numbers, func(snapshot *config.Snapshot) {
		s.publish(data, snapshot)
		for _, signal := range []chan struct{}{changed, wake} {
			select {
			case signal <- struct{}{}:
			default:
			}
		}
	})

	endpoints := (&admin.Server{
		Stats: s.numbers, Proxy: data, State: s.state, Dump: s.dump, Quit: quit, Started: time.Now(),
	}).HTTP()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.from.Admin)
	if err != nil {
		return fmt.Errorf("opening the admin address: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- endpoints.Serve(listener) }()
	defer func() { err = errors.Join(err, endpoints.Close()) }()

	client, secrets, err := s.clients(store, wake)
	if err != nil {
		return err
	}
	go client.Run(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return err
		case <-changed:
			if names := store.AgentSecrets(); secrets != nil {
				secrets.Want(ctx, names)
			}
		}
	}
}

func (s *server) publish(data *proxy.Proxy, snapshot *config.Snapshot) {
	s.snapshot.Store(snapshot)
	data.Apply(snapshot)
	if snapshot.Live {
		s.numbers.Put("listener_manager.workers_started", 1)
		s.numbers.Put("server.state", int64(admin.Live))
	}
}

func (s *server) state() admin.State { return admin.State(s.numbers.Get("server.state")) }

// clients returns the client of the aggregated stream and that of secrets, which is nil without a static cluster.
func (s *server) clients(store *config.Store, wake <-chan struct{}) (*xds.Client, *xds.Secrets, error) {
	network, address, err := only(s.from.Cluster(s.from.XDSCluster))
	if err != nil {
		return nil, nil, err
	}
	client := &xds.Client{
		Network: network, Address: address, Node: s.from.Node, Sink: store, Log: s.log, Changed: wake,
		OnConnected: func(connected bool) {
			state := int64(0)
			if connected {
				state = 1
			}
			s.numbers.Put("control_plane.connected_state", state)
		},
	}
	if s.from.SDSCluster == "" {
		return client, nil, nil
	}
	network, address, err = only(s.from.Cluster(s.from.SDSCluster))
	if err != nil {
		return nil, nil, err
	}
	return client, &xds.Secrets{Network: network, Address: address, Node: s.from.Node, Update: store.AgentSecret, Log: s.log}, nil
}

// only returns the address of a static cluster with one endpoint.
func only(c *model.Cluster) (network, address string, err error) {
	if c.Inline == nil || len(c.Inline.Localities) != 1 || len(c.Inline.Localities[0].Hosts) != 1 {
		return "", "", fmt.Errorf("the static cluster %s must have one endpoint", c.Name)
	}
	host := c.Inline.Localities[0].Hosts[0]
	return host.Network, host.Address, nil
}

// dump returns the names of what is active, and the domains of routes.
func (s *server) dump() any {
	snapshot := s.snapshot.Load()
	routes := map[string][]string{}
	for name, table := range snapshot.Routes {
		for _, host := range table.Hosts {
			routes[name] = append(routes[name], host.Domains...)
		}
	}
	secrets := make([]string, 0, len(snapshot.Secrets))
	for ref := range snapshot.Secrets {
		secrets = append(secrets, ref.Name)
	}
	slices.Sort(secrets)
	return map[string]any{
		"live": snapshot.Live, "clusters": slices.Sorted(maps.Keys(snapshot.Clusters)),
		"listeners": slices.Sorted(maps.Keys(snapshot.Listeners)), "routes": routes, "secrets": secrets,
	}
}
