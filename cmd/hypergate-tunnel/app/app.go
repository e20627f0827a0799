// Package app is the command line of hypergate-tunnel. It is a binary of its own, because a relay runs in every guest:
// hypergate's own binary needs several times the memory.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hypergate/hypergate/pkg/logs"
	"github.com/hypergate/hypergate/pkg/text"
	"github.com/hypergate/hypergate/pkg/tunnel"
)

// version is set by the linker.
var version = "dev"

// longestError is the maximum size of a printed error, in bytes.
const longestError = 8 << 10

// shortestAge and longestAge limit --max-age. With the shortest, a sidecar has at most three tunnels to a relay.
const shortestAge, longestAge = 5 * time.Second, 24 * time.Hour

const usage = `hypergate-tunnel carries connections of a guest's gateways to istiod, through the guest's own API server.

Usage:
  hypergate-tunnel relay   [flags]   accept gateways and tunnels; runs in the guest
  hypergate-tunnel sidecar [flags]   open a tunnel to each relay; runs in istiod's pod
  hypergate-tunnel version           print the version

Use "hypergate-tunnel <command> -h" for the flags.
`

// Main runs the process's command line until it ends or a signal arrives, and returns the exit code. Call it once.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Execute runs a command line and returns the exit code: 0 is success, 1 is an error. args does not include the
// program's name. The log and errors go to errOut.
func Execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	err := execute(ctx, args, out, errOut)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	default:
		fmt.Fprintf(errOut, "hypergate-tunnel: %s\n", text.Lines(text.Cut(err.Error(), longestError)))
		return 1
	}
}

func execute(ctx context.Context, args []string, out, errOut io.Writer) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "relay":
		return runRelay(ctx, args, errOut)
	case "sidecar":
		return runSidecar(ctx, args, errOut)
	case "version":
		_, err := fmt.Fprintf(out, "hypergate-tunnel %s\n", version)
		return err
	case "", "help", "-h", "--help":
		_, err := fmt.Fprint(out, usage)
		return err
	default:
		return fmt.Errorf("unknown command %q: the commands are relay, sidecar and version", command)
	}
}

func runRelay(ctx context.Context, args []string, errOut io.Writer) error {
	flags := newFlags("relay", errOut)
	roots := flags.String("mesh-root", "/var/run/secrets/istio/root-cert.pem", "file with the root certificates of the mesh")
	name := flags.String("tunnel-name", "", "DNS name in the certificate of the sidecar (required)")
	gateways := flags.String("gateways-address", ":15012", "address for gateways")
	tunnels := flags.String("tunnels-address", fmt.Sprintf(":%d", tunnel.RelayPort), "address for tunnels")
	health := flags.String("health-address", ":15444", "address for /healthz, /readyz and /metrics")
	if err := parse(flags, args); err != nil {
		return err
	}
	if !isName(*name) {
		return fmt.Errorf("--tunnel-name is %q: give the DNS name in the certificate of the sidecar", *name)
	}
	relay := tunnel.NewRelay(slog.New(logs.Handler(errOut, logs.Text, 0)), *roots, *name)
	listeners, err := listen(ctx, *gateways, *tunnels, *health)
	if err != nil {
		return err
	}
	return all(ctx,
		func(ctx context.Context) error { return relay.ServeGateways(ctx, listeners[0]) },
		func(ctx context.Context) error { return relay.ServeTunnels(ctx, listeners[1]) },
		func(ctx context.Context) error { return tunnel.ServeHealth(ctx, listeners[2], relay.Handler()) })
}

func runSidecar(ctx context.Context, args []string, errOut io.Writer) error {
	flags := newFlags("sidecar", errOut)
	credential := flags.String("credential", "/var/run/secrets/guest",
		"directory with the files server, ca.crt and token for the guest's API server")
	certificate := flags.String("certificate", "/var/run/secrets/tunnel/tls.crt", "file with the certificate for the relays")
	key := flags.String("key", "/var/run/secrets/tunnel/tls.key", "file with its key")
	namespace := flags.String("relay-namespace", "", "namespace of the relay pods in the guest (required)")
	names := flags.String("relays", "istiod-relay-0,istiod-relay-1", "names of the relay pods")
	podIP := flags.String("pod-ip", os.Getenv("POD_IP"), "address of this pod, by default from the variable POD_IP")
	age := flags.Duration("max-age", time.Hour, "age at which a tunnel is replaced by a new one, with the current token")
	port := flags.Uint("target-port", 15012, "istiod's port for gateways in this pod")
	health := flags.String("health-address", ":15444", "address for /healthz, /readyz and /metrics")
	if err := parse(flags, args); err != nil {
		return err
	}
	relays := strings.Split(*names, ",")
	if err := checkNames(*namespace, relays); err != nil {
		return err
	}
	if *port > 65535 {
		return fmt.Errorf("--target-port is %d: a port is at most 65535", *port)
	}
	if *age < shortestAge || *age > longestAge {
		return fmt.Errorf("--max-age is %s: give %s to %s", *age, shortestAge, longestAge)
	}
	target, err := tunnel.Target(*podIP, uint16(*port))
	if err != nil {
		return fmt.Errorf("--pod-ip: %w", err)
	}
	sidecar := tunnel.NewSidecar(relays...)
	sidecar.Log = slog.New(logs.Handler(errOut, logs.Text, 0))
	sidecar.Credential = tunnel.Credential(*credential)
	sidecar.Identity = tunnel.Identity{CertFile: *certificate, KeyFile: *key}
	sidecar.Namespace, sidecar.Target, sidecar.MaxAge = *namespace, target, *age
	listeners, err := listen(ctx, *health)
	if err != nil {
		return err
	}
	return all(ctx,
		func(ctx context.Context) error { sidecar.Run(ctx); return nil },
		func(ctx context.Context) error { return tunnel.ServeHealth(ctx, listeners[0], sidecar.Handler()) })
}

func newFlags(command string, errOut io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("hypergate-tunnel "+command, flag.ContinueOnError)
	flags.SetOutput(errOut)
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: settings are flags", flags.Arg(0))
	}
	return nil
}

// name matches a DNS name in lower case (RFC 1123), as Kubernetes uses it for objects.
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func isName(s string) bool { return len(s) <= 253 && name.MatchString(s) }

func checkNames(namespace string, relays []string) error {
	if !isName(namespace) {
		return fmt.Errorf("--relay-namespace is %q: give the namespace of the relay pods in the guest", namespace)
	}
	for i, relay := range relays {
		if slices.Contains(relays[:i], relay) {
			return fmt.Errorf("--relays has the name %q twice: give each pod once", relay)
		}
		if !isName(relay) {
			return fmt.Errorf("--relays has the name %q: give names of pods, with commas in between", relay)
		}
	}
	return nil
}

// listen opens listeners for all addresses.
func listen(ctx context.Context, addresses ...string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, fmt.Errorf("listening on %s: %w", address, err)
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}

// all runs functions until the context ends. If one of them ends, the others end, too. It returns their errors.
func all(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(functions))
	for i, f := range functions {
		running.Go(func() {
			defer cancel()
			errs[i] = f(ctx)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
