package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/world"
)

// Objects that the demo's guest admin creates.
const (
	class     = "openshift-default"
	gateway   = "gw"
	namespace = "demo"
	// stepTimeout is the timeout of a step, in case it hangs.
	stepTimeout = 3 * time.Minute
)

// step is one step of up. hint names what to check if the step fails.
type step struct {
	name, hint string
	do         func(context.Context) error
}

// up starts everything step by step, and shows it. On failure, the error names the step, the cause and what to do. The
// parts that run keep running for inspection.
func up(ctx context.Context, o options) error {
	health, err := healthy(ctx, o.dir)
	if err != nil {
		return err
	}
	if !health.none() {
		return errors.New("the demo runs already: see it again with `go run ./hack/demo show`, or end it with `make demo-down`")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return fmt.Errorf("finding %s: %w", o.binary, err)
	}
	var w *world.World
	for _, s := range append(start(o, &w), use(o, &w)...) {
		if err := s.run(ctx); err != nil {
			return err
		}
	}
	if err := show(ctx, w, os.Stdout); err != nil {
		return err
	}
	fmt.Printf("\nIt keeps running. Look around with\n  kubectl --kubeconfig %s get pods -A\n", w.MgmtKubeconfig)
	if o.topology == model.TopologyHosted {
		fmt.Printf("  kubectl --kubeconfig %s get gateways -A\n", w.GuestKubeconfig)
	}
	fmt.Println("and remove everything with\n  make demo-down")
	return nil
}

// start returns the steps that start the world and hypergate. They store the world in w.
func start(o options, w **world.World) []step {
	logs := "the logs are in " + o.dir
	return []step{
		{"start the clusters", "run `make demo-down`, then `make demo` again; " + logs, func(ctx context.Context) (err error) {
			*w, err = world.Start(ctx, world.Options{
				Name: "demo", Topology: o.topology, Binary: o.binary, AsPod: true, Dir: o.dir, Detach: true, Progress: os.Stdout,
				GuestNodes: o.guestNodes(),
			})
			if errors.Is(err, cluster.ErrNeedsRoot) {
				return fmt.Errorf("%w; try: sudo make demo", err)
			}
			return err
		}},
		{"play the guest's nodes", logs, func(context.Context) error { return startPlayer(o) }},
		{"start the router between the guest's nodes and istiod", logs, func(ctx context.Context) error { return startRouter(ctx, o, *w) }},
		{"apply hypergate's Deployment", hypergatesLog(o), func(ctx context.Context) error {
			h, err := (*w).StartHypergate(ctx)
			if err != nil {
				return err
			}
			return h.Ready(ctx, "readyz")
		}},
	}
}

// startRouter starts the router that publishes istiod. A standalone cluster has none.
func startRouter(ctx context.Context, o options, w *world.World) error {
	if o.topology == model.TopologyStandalone {
		return nil
	}
	router, err := w.StartRouter(ctx)
	if err != nil {
		return err
	}
	return record(o.dir, routerPart, router.PID())
}

// use returns the steps of the users.
func use(o options, w **world.World) []step {
	return []step{
		{"guest admin: create GatewayClass " + class, hypergatesLog(o), func(ctx context.Context) error {
			if err := (*w).Apply(ctx, "class.yaml", map[string]string{"name": class}); err != nil {
				return err
			}
			return (*w).ClassCondition(ctx, class, "ControllerInstalled", metav1.ConditionTrue)
		}},
		{"guest admin: create Gateway, HTTPRoute and an " +
			"application", "see the conditions of the Gateway and the log of istiod's pod", func(ctx context.Context) error {
			return guestAdmin(ctx, *w)
		}},
		{
			"a client sends a request through the gateway's pod, from outside of the guest",
			"see the pods of the guest in namespaces " + world.GuestNamespace + " and " + namespace,
			func(ctx context.Context) error { return request(ctx, *w, os.Stdout) },
		},
		{
			"hypergate sees the guest's API server call istiod's webhook",
			hypergatesLog(o),
			func(ctx context.Context) error { return failsClosed(ctx, *w) },
		},
		{"a client deletes a role in the guest and a Service on the management side", hypergatesLog(o), func(ctx context.Context) error {
			return harm(ctx, *w, os.Stdout)
		}},
	}
}

// failsClosed waits until the guest's webhook fails closed, that is, until hypergate has observed that it rejects an
// invalid object.
func failsClosed(ctx context.Context, w *world.World) error {
	webhooks := w.GuestClient.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		found, err := webhooks.Get(ctx, world.Validator, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking at the webhook: %w", err)
		}
		return len(found.Webhooks) > 0 && *found.Webhooks[0].FailurePolicy == admissionregistrationv1.Fail, nil
	})
}

func hypergatesLog(o options) string {
	return "hypergate's log is in " + filepath.Join(o.dir, "logs/pods")
}

func (s step) run(ctx context.Context) error {
	fmt.Printf("==> %s\n", s.name)
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	switch err := s.do(ctx); {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return fmt.Errorf("interrupted at step %q; what runs stays until you remove it with `make demo-down`", s.name)
	case err != nil:
		return fmt.Errorf("step %q failed: %w\nwhat to do: %s", s.name, err, s.hint)
	}
	fmt.Printf("    done in %.1f s\n", time.Since(start).Seconds())
	return nil
}

func guestAdmin(ctx context.Context, w *world.World) error {
	image := world.ProxyImage
	if w.HasGuestNodes() {
		image = world.BackendImage
	}
	return errors.Join(
		w.Apply(ctx, "gateway.yaml", map[string]string{"name": gateway, "namespace": world.GuestNamespace, "class": class}),
		w.Apply(ctx, "app.yaml", map[string]string{"namespace": namespace, "image": image}),
		w.Apply(ctx, "route.yaml", map[string]string{"namespace": namespace, "gateway": gateway, "gatewayNamespace": world.GuestNamespace}),
		w.Programmed(ctx, world.GuestNamespace, gateway),
		w.RouteAccepted(ctx, namespace, "echo"),
	)
}

// again shows a running demo.
func again(ctx context.Context, o options) error {
	health, err := healthy(ctx, o.dir)
	if err != nil {
		return err
	}
	if health.none() {
		return errors.New("no demo runs; start one with `make demo`")
	}
	w, err := world.Attach(o.dir)
	if err != nil {
		return err
	}
	return show(ctx, w, os.Stdout)
}
