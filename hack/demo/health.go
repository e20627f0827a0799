package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/world"
)

// health is the state of a demo.
type health struct {
	// alive and dead describe its parts.
	alive, dead []string
}

// Names under which up records the processes that it starts in addition to the clusters. hypergate runs as a pod.
const (
	playerPart = "player"
	routerPart = "router"
)

func inWords(part string) string {
	if part == playerPart {
		return "what plays the guest's nodes"
	}
	return part
}

// healthy returns healthOf, and an error if a part is dead.
func healthy(ctx context.Context, dir string) (health, error) {
	h, err := healthOf(ctx, dir)
	if err == nil {
		err = h.err()
	}
	return h, err
}

// healthOf checks each part of the demo in a directory. A demo that was never started has no parts.
func healthOf(ctx context.Context, dir string) (health, error) {
	h := health{}
	c, err := cluster.Attach(dir)
	if errors.Is(err, fs.ErrNotExist) {
		c, err = nil, nil
	}
	if err != nil {
		return h, err
	}
	processes, err := recorded(dir)
	if err != nil || (c == nil && len(processes) == 0) {
		return h, err
	}
	if c == nil {
		h.dead = append(h.dead, "the clusters (no record of them)")
	} else {
		h.ask(ctx, "the management API server", c.Mgmt)
		h.ask(ctx, "the guest's API server", c.Guest)
		h.find(ctx, c)
	}
	parts := []string{playerPart}
	if c == nil || c.Guest != nil {
		parts = append(parts, routerPart)
	}
	for _, part := range parts {
		h.look(part, dir, processes)
	}
	return h, nil
}

func (h *health) add(alive bool, part, why string) {
	if alive {
		h.alive = append(h.alive, part)
	} else {
		h.dead = append(h.dead, part+" ("+why+")")
	}
}

// ask adds the health of an API server. Without a config it does nothing, because a standalone demo has no guest.
func (h *health) ask(ctx context.Context, part string, config *rest.Config) {
	if config == nil {
		return
	}
	config = rest.CopyConfig(config)
	config.Timeout = 3 * time.Second
	err := func() error {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}()
	h.add(err == nil, part, "does not answer at "+config.Host)
}

// find adds the health of hypergate, from the status of its Deployment.
func (h *health) find(ctx context.Context, c *cluster.Cluster) {
	namespace := c.HCPNamespace
	if c.Guest == nil {
		namespace = world.GuestNamespace
	}
	config := rest.CopyConfig(c.Mgmt)
	config.Timeout = 3 * time.Second
	available, err := func() (bool, error) {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return false, err
		}
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, deploy.Account, metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas > 0, err
	}()
	why := "its Deployment has no pod that is available"
	if err != nil {
		why = err.Error()
	}
	h.add(available, "hypergate", why)
}

// look adds the health of a process.
func (h *health) look(part, dir string, processes []process) {
	i := slices.IndexFunc(processes, func(p process) bool { return p.name == part })
	log := "its log is " + filepath.Join(dir, part+".log")
	if i < 0 {
		h.add(false, inWords(part), "was never started: make demo ended before that")
		return
	}
	h.add(processes[i].running, inWords(part), fmt.Sprintf("process %d has ended; %s", processes[i].pid, log))
}

// none reports whether no part was started.
func (h health) none() bool { return len(h.alive)+len(h.dead) == 0 }

// err returns an error that names the dead parts and what to do. It returns nil if no part is dead.
func (h health) err() error {
	if len(h.dead) == 0 {
		return nil
	}
	text := "a part of the demo is dead: " + strings.Join(h.dead, "; ")
	if len(h.alive) > 0 {
		text += ". Still alive: " + strings.Join(h.alive, ", ")
	}
	return errors.New(text + "\nwhat to do: remove the rest with `make demo-down`, then `make demo` again")
}
