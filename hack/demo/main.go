// Command demo shows hypergate on real clusters. It starts a management cluster and a guest, installs hypergate,
// serves a Gateway, and prints the objects of each side.
//
//	demo up [-topology hosted|standalone]   start everything and show it; all processes keep running
//	demo show                               show it again
//	demo down                               remove everything
//	demo play                               simulate the guest's nodes (up starts this automatically)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/world"
)

func main() {
	cluster.MaybeRunNode()
	ctrllog.SetLogger(logr.Discard()) // for the simulation of the guest's nodes
	os.Exit(exitCode(os.Args[1:]))
}

func exitCode(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

// options holds the command line.
type options struct {
	dir, binary string
	topology    model.Topology
}

// guestNodes returns the number of real nodes of the guest. On a standalone cluster, gateways run on its own node,
// without a proxy.
func (o options) guestNodes() int {
	if o.topology == model.TopologyHosted {
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	o := options{}
	flags.StringVar(&o.dir, "dir", defaultDir(), "where keys, kubeconfigs and logs are kept")
	flags.StringVar(&o.binary, "hypergate", "bin/hypergate", "the binary to show")
	topology := flags.String("topology", string(model.TopologyHosted), "hosted or standalone")
	if len(args) == 0 {
		return errors.New("say what to do: up, show or down")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	o.topology = model.Topology(*topology)
	switch args[0] {
	case "up":
		return up(ctx, o)
	case "show":
		return again(ctx, o)
	case "down":
		return down(ctx, o)
	case "play":
		w, err := world.Attach(o.dir)
		if err != nil {
			return err
		}
		return w.PlayNodes(ctx)
	default:
		return fmt.Errorf("%q is none of up, show, down", args[0])
	}
}

func defaultDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "hypergate", "demo")
}

// down ends everything that up started: first the processes by their recorded IDs, then the clusters.
func down(ctx context.Context, o options) error {
	if err := killRecorded(o.dir); err != nil {
		return err
	}
	err := cluster.Down(ctx, o.dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("demo: nothing is running")
		return os.RemoveAll(o.dir)
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.dir); err != nil {
		return fmt.Errorf("removing %s: %w", o.dir, err)
	}
	fmt.Println("demo: everything is removed")
	return nil
}
