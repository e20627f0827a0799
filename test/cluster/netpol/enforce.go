package netpol

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/pkg/watch"
)

// Enforce keeps the table of this network namespace up to date with the cluster until ctx ends or nft fails. The
// table does not change while the API server is down.
func Enforce(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	change := func() {
		select {
		case changed <- struct{}{}:
		default: // the pending update includes this change
		}
	}
	w := watches{
		policies: watchOf[*networkingv1.NetworkPolicyList](client, "networkpolicies", &networkingv1.NetworkPolicy{},
			client.NetworkingV1().NetworkPolicies(""), change),
		pods:       watchOf[*corev1.PodList](client, "pods", &corev1.Pod{}, client.CoreV1().Pods(""), change),
		namespaces: watchOf[*corev1.NamespaceList](client, "namespaces", &corev1.Namespace{}, client.CoreV1().Namespaces(), change),
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, one := range []*watch.Watch{w.policies, w.pods, w.namespaces} {
		running.Go(func() { one.Run(ctx) })
	}
	for applied := ""; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		script, err := w.ruleset()
		if err != nil {
			return err
		}
		if script == applied {
			continue
		}
		if err := nft(ctx, script); err != nil {
			return err
		}
		applied = script
	}
}

// watches are the watches on the cluster.
type watches struct{ policies, pods, namespaces *watch.Watch }

// ruleset returns the ruleset for the watched objects. It returns an empty string until all watches are synced.
func (w watches) ruleset() (string, error) {
	if !w.policies.Synced() || !w.pods.Synced() || !w.namespaces.Synced() {
		return "", nil
	}
	return Ruleset(Cluster{
		listed[*networkingv1.NetworkPolicy](w.policies), listed[*corev1.Pod](w.pods),
		listed[*corev1.Namespace](w.namespaces),
	})
}

// lister is the common interface of client-go's typed clients.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}

func watchOf[L runtime.Object](client any, name string, example runtime.Object, resource lister[L], change func()) *watch.Watch {
	return watch.New(watch.Options{
		Name:    name,
		List:    func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		Watch:   resource.Watch,
		Example: example, Client: client,
		OnEvent: func(watch.Event) { change() }, OnSynced: change,
	})
}

func listed[T any](w *watch.Watch) []T {
	all := w.List()
	out := make([]T, 0, len(all))
	for _, o := range all {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// nft runs a script as one transaction.
func nft(ctx context.Context, script string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(script)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("enforcing network policies by nft (Debian package nftables): %w: %s\n%s", err, out, script)
	}
	return nil
}
